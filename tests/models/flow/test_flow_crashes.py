"""Killed at every commit, overtaken at every commit, told everything twice: a flow ends as if nothing had happened.

Each child is spawned once, the semaphore is exact, the completion tasks are committed once. Every run, wherever it was
killed or overtaken, ends with every message delivered once more, as each of the transitions that its row stood for.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast import App, PromiseId, Status
from holdfast.core import crashpoints
from holdfast.core.collation import GuidLedger, Step
from holdfast.engine.settings import WorkerSettings
from holdfast.models.flow.audit import audit_flows
from holdfast.models.flow.message import message_handler, message_promise, read_message
from holdfast.models.flow.reading import read_job
from holdfast.store.base import Store
from holdfast.store.flows import LEG1, LEG2, MESSAGE, WORK, GuidView
from holdfast.store.values import NewExecution
from holdfast.testing.crash import Simulation, _dying_quietly, crash_everywhere
from holdfast.testing.faults import FaultyStore, Late, on_store
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores
from tests.models.flow.graphs import RESULTS, RUNS, Six, six_graphs

app = App("flow-crash", store="unused.db")
six = six_graphs(app)
SETTINGS = WorkerSettings(concurrency=3)
NAMES = sorted(RUNS)
STEPS = (LEG1, WORK, LEG2)
runs = itertools.count()


async def check(store: Store, name: str, ran: Six) -> None:
    """It ended as it should, and everything that the store has of it agrees."""
    job = PromiseId.of(name, "one").to_bytes()
    assert await audit_flows(store) == []
    state = await read_job(store, job)
    assert state is not None
    assert state.status is (Status.FAILED if name == "error" else Status.DONE)
    assert (state.semaphore, state.messages) == (0, [])
    assert set(ran.ran) == RUNS[name]
    entries = [entry for activity in state.activities for entry in activity.entries]
    assert sum(entry.job_closed for entry in entries) == 1
    assert sum(entry.completion_done for entry in entries) == 1
    assert all(entry.children_spawned for entry in entries)
    if name == "cycle":  # two iterations, each with a body of its own
        assert len(entries) == 4
    else:  # each activity once
        assert len(entries) == len(state.activities) == len(RUNS[name]) - 1
    if name != "error":
        view = await store.get(job)
        assert view is not None
        assert view.result == str(RESULTS[name])


def scenario(name: str) -> Callable[[Simulation], Awaitable[None]]:
    async def run(sim: Simulation) -> None:
        six.ran.clear()
        handle = await sim.call(lambda: six.flows[name].options(key="one").start(0))
        await sim.work()
        if name == "hook":
            await sim.call(lambda: handle.signal("go", 7, dedup_key="go"))
            await sim.work()
        await check(sim.stores.store, name, six)
        with immortal(sim):
            await redeliver(sim.stores, name, sim.work)

    return run


def points_for(stores: Stores, name: str) -> list[str]:
    """Before a flush a ledger is as after the one before it, but for user code that ran: one store proves that."""
    before = ["flush.before"] if isinstance(stores, SqliteStores) else []
    return [*before, "flush.after", *(["pick.after", "deliver.after"] if name == "hook" else [])]


async def redeliver(stores: Stores, name: str, work: Callable[[], Awaitable[Any]]) -> None:
    """Every message comes once more: as Leg1, as work request, as response, with each run as the next of them."""
    before, job, shift = dict(six.ran), PromiseId.of(name, "one").to_bytes(), next(runs)
    records = await stores.store.flow_records(job)
    assert records is not None
    rows = [again(job, name, found, STEPS[(at + shift) % 3]) for at, found in enumerate(records.guids)]
    await publish(stores, job, *rows)
    await work()
    assert dict(six.ran) == before  # no user code ran for what had been answered
    await check(stores.store, name, six)


@contextmanager
def immortal(sim: Simulation) -> Iterator[None]:
    """What happens here adds no place to die at."""
    crashpoints.set_hook(None)
    try:
        yield
    finally:
        crashpoints.set_hook(sim.points)


@pytest.mark.parametrize("name", NAMES)
async def test_a_crash_at_any_commit_changes_nothing(stores: Stores, name: str) -> None:
    points = points_for(stores, name)
    report = await crash_everywhere(app, scenario(name), stores=stores, settings=SETTINGS, points=points)
    for point in points:  # nothing was passed over: it died wherever the calm run came by
        assert report.died_at[point] == report.reached[point], point
    assert report.died_at["flush.after"] >= 10


async def cancelled(sim: Simulation) -> None:
    six.ran.clear()
    handle = await sim.call(lambda: six.flows["hook"].options(key="one").start(0))
    await sim.work()
    await sim.call(lambda: handle.cancel())
    await sim.work()
    assert await audit_flows(sim.stores.store) == []
    assert (await handle.describe()).status is Status.CANCELLED
    assert set(six.ran) == {"first", "complete cancelled"}


async def test_a_crash_at_any_commit_of_a_cancel_changes_nothing(stores: Stores) -> None:
    """Ruling A11."""
    points = [*points_for(stores, ""), "cancel.after"]
    report = await crash_everywhere(app, cancelled, stores=stores, settings=SETTINGS, points=points)
    assert report.died_at["flush.after"] == report.reached["flush.after"]


async def test_step_3_runs_once_though_the_process_died_after_step_2_closed_the_job(stores: Stores) -> None:
    """Section 18.4, the flagship: the job is at 0, and the GUID's snapshot alone says who owes the completion."""
    seen: list[tuple[int, Status]] = []

    async def run(sim: Simulation) -> None:
        await scenario("linear")(sim)

    async def calm(sim: Simulation) -> None:
        six.ran.clear()
        await sim.call(lambda: six.flows["linear"].options(key="one").start(0))
        await sim.work()

    report = await crash_everywhere(app, calm, stores=stores, settings=SETTINGS, points=[])
    # The last flush is Step 3, the one before it Step 2 of the last activity.
    closing = report.reached["flush.after"] - 1
    await stores.reset()
    app.use_store(stores.unopened())
    sim = Simulation(app, stores, SETTINGS, [("flush.after", closing)])
    bury = sim._bury

    async def look_then_bury() -> None:
        records = await stores.store.flow_records(PromiseId.of("linear", "one").to_bytes())
        view = await stores.store.get(PromiseId.of("linear", "one").to_bytes())
        assert records is not None
        assert view is not None
        seen.append((next(found.status for found in records.semaphores), view.status))
        assert six.ran["complete done"] == 0
        await bury()

    sim._bury = look_then_bury  # type: ignore[method-assign]
    try:
        with sim.points.installed(), _dying_quietly():
            await run(sim)
            await sim.close()
    finally:
        await app.close()
    assert seen == [(0, Status.DELEGATED)]
    assert six.ran["complete done"] == 1


class Seen(Late):
    """Says when the commit that is to be late was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = asyncio.Event()

    async def __call__(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.sent.set()
        return await super().__call__(call)


@pytest.mark.parametrize("name", NAMES)
async def test_a_worker_that_was_overtaken_changes_nothing(stores: Stores, name: str) -> None:
    """At each of its commits in turn a worker loses its lease; the rival ends the job, then the commit arrives."""
    number = 0
    while True:
        number += 1
        await stores.reset()
        late = Seen()
        faulty = FaultyStore(stores.store)
        for _ in range(number - 1):
            faulty.plan("flush", _pass_on)
        faulty.plan("flush", late)
        six.ran.clear()
        was_sent = await _overtake(stores, faulty, late, name)
        if not was_sent:
            break
    assert number > 10


async def _pass_on(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


async def _overtake(stores: Stores, faulty: FaultyStore, late: Seen, name: str) -> bool:
    """Whether the slow worker came as far as the commit that is to be late."""
    async with on_store(app, faulty.as_store):
        handle = await six.flows[name].options(key="one").start(0)
        if name == "hook":
            await handle.signal("go", 7, dedup_key="go")
        slow = await app.make_worker(SETTINGS)
        await slow.open()
        working = asyncio.ensure_future(slow.run_until_idle())
        await asyncio.wait([working, asyncio.ensure_future(late.sent.wait())], return_when=asyncio.FIRST_COMPLETED)
        was_sent = late.sent.is_set()
        await slow.abandon()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    await stores.advance(SETTINGS.lease_seconds + 1)
    async with on_store(app, FaultyStore(stores.store).as_store):
        rival = await app.make_worker(SETTINGS)
        await rival.open()
        await rival.reap_once()
        await rival.run_until_idle()
        if was_sent:
            flushed = await late.carry_out()
            assert not any(receipt.applied for receipt in flushed.receipts)
        await check(stores.store, name, six)
        await redeliver(stores, name, rival.run_until_idle)
        await rival.stop()
    return was_sent


@pytest.mark.parametrize("name", NAMES)
async def test_every_message_may_come_again(stores: Stores, name: str) -> None:
    """Leg1, work request and response of every GUID, once more after each is acknowledged: all are recognised."""
    async with on_store(app, FaultyStore(stores.store).as_store):
        six.ran.clear()
        handle = await six.flows[name].options(key="one").start(0)
        worker = await app.make_worker(SETTINGS)
        await worker.open()
        await worker.run_until_idle()
        if name == "hook":
            await handle.signal("go", 7, dedup_key="go")
            await worker.run_until_idle()
        await check(stores.store, name, six)
        before = dict(six.ran)
        job = handle.id.to_bytes()
        first = await stores.store.flow_records(job)
        assert first is not None
        for step in STEPS:
            for found in first.guids:
                await publish(stores, job, again(job, name, found, step))
                assert await worker.run_until_idle() >= 1
        await worker.stop()
    assert dict(six.ran) == before  # no user code ran for what had been answered
    await check(stores.store, name, six)
    second = await stores.store.flow_records(job)
    assert second is not None
    assert not second.messages  # Rule G
    # The deliveries were counted, and nothing else moved: work request and response each enter Leg2 once more.
    for was, now in zip(first.guids, second.guids, strict=True):
        entered = 2 if again(job, name, was, LEG1).step == LEG1 else 3
        assert GuidLedger(now.ledger).attempts == GuidLedger(was.ledger).attempts + entered
        assert all(GuidLedger(now.ledger).is_marked(s) == GuidLedger(was.ledger).is_marked(s) for s in Step)


def again(job: bytes, name: str, found: GuidView, step: str) -> NewExecution:
    """The message of a GUID, as it was published; a back edge's never was a Leg1 (ruling A9)."""
    for iteration in range(10):
        state = {
            "activity": found.activity,
            "queue": "default",
            "dimension": found.dimension,
            "iteration": str(iteration),
        }
        if read_message(_json(state)).guid(job) == found.guid:
            promise = message_promise(job, found.guid)
            return _row(promise, _json(state), WORK if iteration and step == LEG1 else step, name)
    raise AssertionError(f"no iteration of {found.activity} has the GUID {found.guid.hex()}")


def _json(state: dict[str, Any]) -> str:
    return msgspec.json.encode(state).decode()


def _row(promise: bytes, state: str, step: str, flow: str) -> NewExecution:
    return NewExecution(
        promise=promise,
        kind=MESSAGE,
        name=flow,
        version=1,
        handler=message_handler(flow, 1),
        step=step,
        state=state,
        input_hash="",
        cleans_up=True,
    )


async def publish(stores: Stores, job: bytes, *rows: NewExecution) -> None:
    """Stray messages: children of their job like every other."""
    inserted = await stores.store.insert(rows)
    assert all(row.created for row in inserted)
    place = (
        "update {0}executions set parent_id = (select id from {0}executions where promise = {1}) where promise = {2}"
    )
    if isinstance(stores, SqliteStores):
        with closing(sqlite3.connect(stores.path)) as connection, connection:
            connection.executemany(place.format("", "?", "?"), [(job, row.promise) for row in rows])
    else:
        assert isinstance(stores, PostgresStores)
        other = await asyncpg.connect(stores.url)
        await other.executemany(place.format(f"{stores.schema}.", "$1", "$2"), [(job, row.promise) for row in rows])
        await other.close()
