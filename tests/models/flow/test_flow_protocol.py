"""The protocol where it is odd: early responses, transactions, lost replies, many GUIDs on one activity."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import pytest

from holdfast import App, FlowJob, RetryPolicy, Status
from holdfast.core.collation import Dimension, response_guid
from holdfast.core.errors import ExecutionFailedError
from holdfast.engine.settings import WorkerSettings
from holdfast.models.flow.audit import audit_flows
from holdfast.models.flow.message import message_handler, message_promise
from holdfast.models.flow.reading import read_job
from holdfast.store.base import Store
from holdfast.store.flows import LEG2, MESSAGE
from holdfast.store.values import NewExecution
from holdfast.testing.crash import Simulation, crash_everywhere
from holdfast.testing.faults import FaultyStore, lose_reply, lose_request, on_store
from holdfast.testing.stores import SqliteStores, Stores
from tests.engine.rig import Rig
from tests.models.flow.graphs import RUNS, six_graphs
from tests.models.flow.test_flow_crashes import check, publish

ONCE = RetryPolicy(max_attempts=1)


def response_of(job: bytes, activity: str, more: str) -> NewExecution:
    """A forged response to an activity of the flow `early`."""
    return NewExecution(
        promise=message_promise(job, response_guid(job, activity, Dimension(), 0)),
        kind=MESSAGE,
        name="early",
        version=1,
        handler=message_handler("early", 1),
        step=LEG2,
        state=f'{{"activity":"{activity}","queue":"default"{more}}}',
        input_hash="",
        cleans_up=True,
    )


async def test_a_response_before_leg1_is_put_back_and_closed_with_its_job(rig: Rig) -> None:
    """Ruling A5: it is neither counted nor acknowledged; once the job has ended, it is closed."""
    flow = rig.app.flow("early")

    @flow.activity
    async def first(n: int) -> int:
        return n

    @flow.activity(after=first, when=lambda n: n > 1)
    async def untaken(n: int) -> int:
        return n

    @flow.hook(after=first, signal="go")
    async def wait(n: int, by: int) -> int:
        return n + by

    handle = await flow.start(1)
    await rig.run()
    job = handle.id.to_bytes()
    early = response_of(job, "untaken", ',"response":{"value":1}')
    await publish(rig.stores, job, early)
    await rig.run()
    found = await (await rig.store()).get(early.promise)
    assert found is not None
    assert found.status is Status.RUNNABLE
    assert found.eligible_at > rig.now
    state = await read_job(await rig.store(), job)
    assert state is not None
    assert "untaken" not in {activity.activity for activity in state.activities}
    await handle.signal("go", 1)
    await rig.run()
    assert await handle.status() is Status.DONE
    await rig.advance(1)
    await rig.run()
    assert await (await rig.store()).get(early.promise) is None
    assert await audit_flows(await rig.store()) == []


@pytest.mark.parametrize("node", ["left", "hook", "bottom", "last", "sub"])
@pytest.mark.parametrize("response", ["", ',"response":{"value":"a\\u0000b"}'], ids=["bare", "answered"])
async def test_a_response_that_is_there_first_lets_its_leg1_go_first(rig: Rig, node: str, response: str) -> None:
    """Ruling A5: publishing meets its row, which becomes the Leg1 and then the response; the job ends."""
    flow, inner, ran = rig.app.flow("early"), rig.app.flow("inner"), Counter[str]()

    def note(name: str) -> str:
        ran[name] += 1
        return name

    @inner.activity
    async def within(n: str) -> str:
        return note("sub")

    @flow.activity
    async def top(n: int) -> str:
        return note("top")

    @flow.hook(after=top, signal="begin")
    async def first(n: str, by: int) -> str:
        return note("first")

    @flow.activity(after=first)
    async def left(n: str) -> str:
        return note("left")

    @flow.hook(after=first, signal="go")
    async def hook(n: str, by: int) -> str:
        return note("hook")

    @flow.join(after=[left, hook])
    async def bottom(a: str, b: str) -> str:
        return note("bottom")

    sub = flow.subflow(inner, after=bottom, name="sub")

    @flow.activity(after=sub)
    async def last(n: str) -> str:
        return note("last")

    handle = await flow.start(1)
    await rig.run()
    early = response_of(handle.id.to_bytes(), node, response)
    await publish(rig.stores, handle.id.to_bytes(), early)
    await rig.run()
    await handle.signal("go", 1)
    await handle.signal("begin", 1)
    await rig.run()
    everything = {"top", "first", "left", "hook", "bottom", "sub", "last"}
    assert ran == dict.fromkeys(everything - {node} if response else everything, 1)
    assert await handle.result() == ("a\0b" if response and node == "last" else "last")
    assert await (await rig.store()).get(early.promise) is None
    assert await audit_flows(await rig.store()) == []
    state = await read_job(await rig.store(), handle.id.to_bytes())
    assert state is not None
    assert sorted(activity.activity for activity in state.activities) == sorted(everything)
    assert all(len(activity.entries) == 1 for activity in state.activities)


def transactional(app: App, *, is_async: bool, is_flaky: bool = True) -> Any:
    """Writes a row through the store's connection, and, if flaky, once fails after it has."""
    flow = app.flow("transactional")
    tries: list[int] = []

    def failing(n: int) -> None:
        tries.append(n)
        if is_flaky and len(tries) == 1:
            raise ConnectionError("after the write")

    if is_async:

        @flow.activity(transaction=True, retry=RetryPolicy(initial_delay=0, max_delay=0))
        async def write(connection: Any, n: int) -> int:
            await connection.execute("insert into written values ($1)", n)
            failing(n)
            return n + 1

        @flow.on_complete(transaction=True)
        async def complete(connection: Any, job: FlowJob) -> None:
            await connection.execute("insert into written values (100)")
    else:

        @flow.activity(transaction=True, retry=RetryPolicy(initial_delay=0, max_delay=0))
        def write(connection: sqlite3.Connection, n: int) -> int:
            connection.execute("insert into written values (?)", (n,))
            failing(n)
            return n + 1

        @flow.on_complete(transaction=True)
        def complete(connection: sqlite3.Connection, job: FlowJob) -> None:
            connection.execute("insert into written values (100)")

    @flow.activity(after=write)
    async def after(n: int) -> int:
        return n * 10

    return flow


async def _written(store: Store, statement: str) -> list[Any]:
    if store.commits_in_thread:
        return await store._write(None, lambda tx: tx.db.execute(statement).fetchall())  # type: ignore[attr-defined,no-any-return]
    async with store._connections.any("look") as connection:  # type: ignore[attr-defined]
        return [tuple(row) for row in await connection.fetch(statement)]


async def test_a_transactional_activity_takes_effect_exactly_once(rig: Rig) -> None:
    """What it wrote commits with the marker of Step 1; a failed attempt leaves nothing."""
    store = await rig.store()
    is_async = not store.commits_in_thread
    await _written(store, "drop table if exists written")
    await _written(store, "create table written (n int)")
    flow = transactional(rig.app, is_async=is_async)
    handle = await flow.start(7)
    await rig.run()
    assert await handle.result() == 80
    assert sorted(row[0] for row in await _written(store, "select n from written")) == [7, 100]
    await _written(store, "drop table written")
    assert await audit_flows(await rig.store()) == []


async def test_a_transactional_activity_takes_effect_once_wherever_the_process_dies(stores: Stores) -> None:
    """Sections 11 and 13: around Step 1 and Step 3, and at every other commit."""
    app = App("transactions", store="unused.db")
    flow = transactional(app, is_async=not stores.store.commits_in_thread, is_flaky=False)

    async def written(statement: str) -> list[Any]:
        return await _written(stores.store, statement)

    async def scenario(sim: Simulation) -> None:
        await written("drop table if exists written")
        await written("create table written (n int)")
        handle = await sim.call(lambda: flow.options(key="one").start(7))
        await sim.work()
        assert (await handle.describe()).result == "80"
        assert sorted(row[0] for row in await written("select n from written")) == [7, 100]
        assert await audit_flows(stores.store) == []

    points = ["flush.before", "flush.after"]
    report = await crash_everywhere(app, scenario, stores=stores, settings=WorkerSettings(), points=points)
    for point in points:
        assert report.died_at[point] == report.reached[point] > 10, point
    await written("drop table written")


async def test_a_transaction_of_the_wrong_form_fails_with_a_reason(rig: Rig) -> None:
    is_async = (await rig.store()).commits_in_thread
    handle = await transactional(rig.app, is_async=is_async).start(1)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="must be"):
        await handle.result()


@pytest.mark.parametrize("fault", [lose_request, lose_reply])
async def test_a_commit_whose_fate_is_unknown_is_settled_by_the_ledgers(stores: Stores, fault: Any) -> None:
    """At each flush in turn the connection breaks, before or after it was carried out."""
    app = App("unknown", store="unused.db")
    six = six_graphs(app)
    for number in range(1, 30):
        await stores.reset()
        faulty = FaultyStore(stores.store)
        faulty.plan("flush", *[_pass_on] * (number - 1), fault)
        six.ran.clear()
        async with on_store(app, faulty.as_store):
            await six.flows["diamond"].options(key="one").start(0)
            worker = await app.make_worker(WorkerSettings(concurrency=3))
            await worker.open()
            await worker.run_until_idle()
            await worker.stop()
        await check(stores.store, "diamond", six)
        if faulty._planned["flush"]:
            break
    assert number > 8
    assert set(six.ran) == RUNS["diamond"]


async def _pass_on(call: Any) -> Any:
    return await call()


async def test_a_thousand_guids_leave_every_digit_sound(rig: Rig) -> None:
    """Ruling A2: no step marker ever carries into the next digit; on a store with a network, a hundred are enough."""
    flow = rig.app.flow("thousand")

    @flow.activity
    async def turn(n: int) -> int:
        return n + 1

    times = 1000 if isinstance(rig.stores, SqliteStores) else 101
    flow.repeat(after=turn, to=turn, when=lambda n: n < times)
    handle = await flow.start(0)
    await rig.run()
    assert await handle.result() == times
    state = await read_job(await rig.store(), handle.id.to_bytes())
    assert state is not None
    (activity,) = state.activities
    assert activity.ledger == f"0011111{times:08d}"
    assert await audit_flows(await rig.store()) == []
