"""Deaths at every commit of a batch's life, and random schedules of them, on both stores (issue 5, Proof).

Whatever dies when: the transactional sink has every seq once and in order, a cancelled run has every item terminal and
committed, and the ledger is sound at each step that an item looks at it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import App, RetryPolicy, Skip, Status
from holdfast.core.errors import ExecutionCancelledError
from holdfast.core.identity import PromiseId
from holdfast.engine.settings import WorkerSettings
from holdfast.models.batch.audit import audit_batches
from holdfast.store.batches import Counters
from holdfast.testing.crash import Simulation, crash_everywhere
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores
from tests.models.batch.kit import landed, make_transactional, prepare

PATIENT = RetryPolicy(max_attempts=20, initial_delay=0)
SETTINGS = WorkerSettings(queues=["default"])
COUNTS_ATTEMPTS = {"revision", "result"}  # a crash commits more often, and costs attempts


async def test_a_transactional_sink_survives_a_death_at_every_commit(stores: Stores) -> None:
    app = App("proof", store="unused.db")

    @app.batch(retry=PATIENT, chunk=3, window=4, sink=make_transactional(stores, []), transactional=True)
    async def double(number: int) -> int:
        return number * 2

    async def scenario(sim: Simulation) -> None:
        await prepare(sim.stores)
        for _ in range(40):  # whoever starts it again goes on with the intake, which goes on beside the work
            run = await sim.call(lambda: double.options(key="k").start(range(6)))
            await sim.work()
            if (await run.status()).status is Status.DONE:  # all landed is not enough: the intake may close it later
                break
        await sim.restart()
        assert await landed(sim.stores) == [(number, number * 2) for number in range(6)]

    report = await crash_everywhere(app, scenario, stores=stores, settings=SETTINGS, ignore=COUNTS_ATTEMPTS)
    met = {point.partition(".")[0] for point in report.died_at}
    assert {"insert", "pick", "flush", "lease", "release"} <= met, met


async def test_a_cancel_survives_a_death_at_every_commit(stores: Stores) -> None:
    """Every item ends terminal and committed, whoever dies while they are being cancelled."""
    app = App("proof", store="unused.db")

    @app.batch(name="halted", retry=PATIENT, chunk=3)
    async def work(number: int) -> None: ...

    async def dispatch(sim: Simulation) -> None:
        """The chunks are there, and nobody has begun one."""
        view = await sim.stores.store.batch_status(PromiseId.of("halted", "k").to_bytes())
        assert view is not None
        if view.counters == Counters():
            worker = await app.make_worker(SETTINGS)
            await worker.open()
            await worker.reap_once()
            await worker.run_once()
            await worker.stop()

    async def scenario(sim: Simulation) -> None:
        run = await sim.call(lambda: work.options(key="k").start(range(7)))
        await sim.call(lambda: dispatch(sim))
        await sim.call(lambda: app.batch_run(run.id).cancel())
        await sim.work()
        run = app.batch_run("halted", key="k")
        with pytest.raises(ExecutionCancelledError):
            await run.result()
        items = [item async for item in run.committed()]
        assert [item.seq for item in items] == list(range(7))
        # Whoever picks chunk and run at once may begin an item before it hears of the cancel.
        assert {item.outcome for item in items} <= {"cancel", "success"}
        status = await run.status()
        assert (status.committed, status.cancelled + status.succeeded, status.in_flight) == (7, 7, 0)

    points = ("pick.after", "flush.before", "flush.after", "cancel.before", "cancel.after", "reap.before", "reap.after")
    report = await crash_everywhere(
        app, scenario, stores=stores, settings=SETTINGS, points=points, ignore=COUNTS_ATTEMPTS
    )
    assert {"cancel.before", "cancel.after", "flush.after"} <= report.died_at.keys()


# ---------------------------------------------------------------------- random schedules

FATES = st.lists(st.sampled_from(["ok", "skip", "fail", "flaky", "hang"]), min_size=1, max_size=30)
DEATHS = st.lists(
    st.tuples(st.sampled_from(["flush.before", "flush.after", "pick.after", "reap.after"]), st.integers(1, 5)),
    max_size=4,
)


@pytest.fixture
def quiet() -> Any:
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("holdfast").setLevel(logging.NOTSET)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fates=FATES, deaths=DEATHS, chunk=st.integers(1, 12))
def test_any_schedule_of_fates_and_deaths_ends_every_item_once(
    quiet: None,
    backend: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fates: list[str],
    deaths: list[tuple[str, int]],
    chunk: int,
) -> None:
    """The same policy inputs give the same ends; at each step that an item looks, counters equal a recount."""

    def make() -> Stores:
        if backend == "sqlite":
            return SqliteStores(tmp_path_factory.mktemp("play"))
        return PostgresStores(request.getfixturevalue("postgres_url"))

    expected = {"ok": "success", "skip": "skip", "fail": "fail", "flaky": "success", "hang": "success"}
    assert asyncio.run(_play(make(), fates, deaths, chunk)) == [expected[fate] for fate in fates]


async def _play(stores: Stores, fates: list[str], deaths: list[tuple[str, int]], chunk: int) -> list[str]:
    await stores.open()
    await stores.reset()
    tried: Counter[int] = Counter()
    faults: list[str] = []
    app = App("play", store=stores.unopened())

    @app.batch(
        name="play",
        retry=RetryPolicy(max_attempts=9, initial_delay=0, no_retry_on=(ValueError,)),
        chunk=chunk,
        concurrency=3,
        timeout=0.5,
        sink=make_transactional(stores, []),
        transactional=True,
    )
    async def play(number: int) -> int:
        tried[number] += 1
        faults.extend(await audit_batches(stores.store))
        fate = fates[number]
        if fate == "skip":
            raise Skip
        if fate == "fail":
            raise ValueError
        if fate == "flaky" and tried[number] < 3:
            raise OSError
        if fate == "hang" and tried[number] < 2:
            raise TimeoutError
        return number

    sim = Simulation(app, stores, SETTINGS, deaths)
    try:
        await prepare(stores)
        with sim.points.installed():
            run = await sim.call(lambda: play.options(key="k").start(range(len(fates))))
            await sim.work()
            await sim.work()
        assert (await run.status()).status is Status.DONE
        assert not faults + await audit_batches(stores.store)
        assert [seq for seq, _ in await landed(stores)] == list(range(len(fates)))
        return [item.outcome async for item in app.batch_run(run.id).committed()]
    finally:
        await sim.close()
        await stores.close()
