"""Sinks get committed items in order: a plain one at least once, a transactional one exactly once (issue 5)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from holdfast import Skip
from holdfast.core.errors import DefinitionError, ExecutionStrandedError
from holdfast.core.identity import PromiseId
from holdfast.models.batch import coordinator
from holdfast.models.batch.items import BatchItem
from holdfast.models.options import Options
from holdfast.store.batches import NewChunk, TakeIn
from tests.engine.rig import Rig
from tests.models.batch.kit import NO_RETRY, committed, landed, make_transactional, prepare


async def test_a_sink_gets_every_item_in_order_with_its_value(rig: Rig) -> None:
    runs: list[list[BatchItem[int]]] = []

    async def keep(items: list[BatchItem[int]]) -> None:
        runs.append(items)

    @rig.app.batch(sink=keep, chunk=7, retry=NO_RETRY)
    async def double(number: int) -> int:
        if number == 3:
            raise Skip
        if number == 4:
            raise ValueError("four")
        return number * 2

    run = await double.start(range(50))
    await rig.run()
    items = [item for items in runs for item in items]
    assert [item.seq for item in items] == list(range(50))
    assert [item.value for item in items[:6]] == [0, 2, 4, None, None, 10]
    assert (items[3].outcome, items[4].outcome, items[4].error) == ("skip", "fail", "ValueError: four")
    assert (await run.result()).total == 50
    chunks = await (await rig.store()).batch_chunks(run.id.to_bytes(), 0, 99, "whole")
    assert all(chunk.results is None for chunk in chunks), "values that went to the sink are not kept"


async def test_a_plain_function_may_be_a_sink_and_the_values_kept_as_well(rig: Rig) -> None:
    seen: list[int] = []

    @rig.app.batch(sink=lambda items: seen.extend(item.seq for item in items), results=True)
    async def double(number: int) -> int:
        return number * 2

    run = await double.start(range(5))
    await rig.run()
    assert seen == list(range(5))
    assert [item.value for item in await committed(run)] == [0, 2, 4, 6, 8]


async def test_a_sink_that_fails_is_tried_again_from_the_same_first_seq(rig: Rig) -> None:
    firsts: list[int] = []

    def keep(items: list[BatchItem[int]]) -> None:
        firsts.append(items[0].seq)
        if len(firsts) == 1:
            raise ConnectionError("the other side is away")

    @rig.app.batch(sink=keep)
    async def work(number: int) -> int:
        return number

    run = await work.start(range(5))
    await rig.run()
    status = await run.status()
    assert (status.committed, status.terminal) == (0, 5)
    assert status.head is not None
    assert status.head.reason == "ready to be committed; the sink failed and is tried again"
    await rig.advance(2)
    await rig.run()
    assert (await run.result()).succeeded == 5
    assert firsts == [0, 0]


async def test_a_sink_that_keeps_failing_strands_the_run_which_goes_on_when_resumed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "SINK_RETRY", NO_RETRY)
    is_broken = True

    def keep(items: list[BatchItem[int]]) -> None:
        if is_broken:
            raise ConnectionError("for good")

    @rig.app.batch(sink=keep)
    async def work(number: int) -> int:
        return number

    run = await work.start(range(5))
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match="for good"):
        await run.result()
    is_broken = False
    await run.resume()
    await rig.run()
    assert (await run.result()).succeeded == 5


async def test_a_transactional_sink_has_every_item_once_and_in_order(rig: Rig) -> None:
    await prepare(rig.stores)
    called: list[int] = []

    @rig.app.batch(sink=make_transactional(rig.stores, called), transactional=True, chunk=6)
    async def double(number: int) -> int:
        return number * 2

    run = await double.start(range(40))
    await rig.run()
    assert (await run.result()).succeeded == 40
    assert await landed(rig.stores) == [(number, number * 2) for number in range(40)]
    assert called[0] == 0


async def test_what_a_failing_transactional_sink_wrote_is_undone(rig: Rig) -> None:
    await prepare(rig.stores)
    called: list[int] = []
    write = make_transactional(rig.stores, called)

    def fails_once(connection: Any, items: list[BatchItem[int]]) -> None:
        write(connection, items)
        if len(called) == 1:
            raise ConnectionError

    async def fails_once_async(connection: Any, items: list[BatchItem[int]]) -> None:
        await write(connection, items)
        if len(called) == 1:
            raise ConnectionError

    sink: Any = fails_once_async if inspect.iscoroutinefunction(write) else fails_once

    @rig.app.batch(sink=sink, transactional=True)
    async def double(number: int) -> int:
        return number * 2

    run = await double.start(range(10))
    await rig.run()
    assert await landed(rig.stores) == []
    await rig.advance(2)
    await rig.run()
    assert (await run.result()).succeeded == 10
    assert await landed(rig.stores) == [(number, number * 2) for number in range(10)]


async def test_a_transactional_sink_of_the_wrong_form_strands_the_run(rig: Rig) -> None:
    def write(connection: Any, items: list[Any]) -> None: ...

    async def write_async(connection: Any, items: list[Any]) -> None: ...

    wrong: Any = write_async if rig.stores.backend == "sqlite" else write

    @rig.app.batch(sink=wrong, transactional=True)
    async def work(number: int) -> int:
        return number

    run = await work.start(range(3))
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match=r"transactional sink of .* must be"):
        await run.result()


def test_a_transactional_batch_needs_a_sink(rig: Rig) -> None:
    with pytest.raises(DefinitionError, match="has no sink"):

        @rig.app.batch(transactional=True)
        async def work(number: int) -> int:
            return number


async def test_what_waits_behind_is_not_read_before_its_time(rig: Rig) -> None:
    """Items that were fed and not dispatched yet lie behind those that go to the sink, and to whoever follows."""
    seen: list[int] = []
    fed = asyncio.Event()

    @rig.app.batch(name="fed", chunk=4, sink=lambda items: seen.extend(item.seq for item in items))
    async def work(number: int) -> int:
        if number == 3:
            # As another process would, while the last item runs: the run's row has no turn in between.
            taken = TakeIn(chunks=(NewChunk(4, 2, "[4,5]"),), closes=True)
            fed.set() if (await store.feed_batch(run.id.to_bytes(), 4, taken)).accepted else None
        return number

    store = await rig.store()
    row = work.row(PromiseId.of("fed", "k"), '{"source":"feed"}', Options(), "k")
    await store.start_batch(row, TakeIn(chunks=(NewChunk(0, 4, "[0,1,2,3]"),)))
    run = rig.app.batch_run("fed", key="k")
    await rig.once()
    await rig.run()
    assert fed.is_set()
    assert seen == list(range(6))
    assert (await run.result()).total == 6


async def test_an_error_of_the_database_in_a_sink_is_the_sinks(rig: Rig) -> None:
    """No lost connection, no broken ledger: it is tried again, and then said."""

    def write(db: Any, items: list[BatchItem[int]]) -> None:
        db.execute("insert into no_such_table values (1)")

    async def write_async(connection: Any, items: list[BatchItem[int]]) -> None:
        await connection.execute("insert into no_such_table values (1)")

    sink: Any = write if rig.stores.backend == "sqlite" else write_async

    @rig.app.batch(sink=sink, transactional=True)
    async def work(number: int) -> int:
        return number

    run = await work.start(range(3))
    for _ in range(11):
        await rig.run()
        await rig.advance(3600)
    with pytest.raises(ExecutionStrandedError, match="no_such_table"):
        await run.result()
    assert (await run.status()).committed == 0
