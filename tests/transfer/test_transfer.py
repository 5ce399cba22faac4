"""Runs between ledgers: what is in flight in one goes on in the other, once; a file is whole and sound, or refused."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from holdfast import App, Context, Machine, MachineContext, Outcome, RetryPolicy, Status, step
from holdfast.core.errors import TransferError
from holdfast.core.identity import PromiseId
from holdfast.core.outcomes import Await, Child, Done, ScheduleChildren, Stop
from holdfast.engine.settings import WorkerSettings
from holdfast.store.base import Store
from holdfast.store.records import ExecutionRecord, Record
from holdfast.testing.hand import Hand, keep, park, promise_of, row
from holdfast.testing.stores import Stores
from holdfast.transfer.exporting import Exported, export
from holdfast.transfer.format import FORMAT
from holdfast.transfer.importing import Imported, check, import_file
from holdfast.verify.auditor import audit
from tests.engine.rig import Rig
from tests.models.flow.test_flow_letters import declare


@pytest_asyncio.fixture
async def elsewhere(backend: str, make_stores: Callable[[str], Stores]) -> AsyncIterator[Stores]:
    """A ledger of the other dialect."""
    made = make_stores("postgres" if backend == "sqlite" else "sqlite")
    await made.open()
    yield made
    await made.close()


async def program(stores: Stores, effects: list[str]) -> App:
    """A workflow with a child, and a machine with children; what they did is in `effects`."""
    app = App("moving", stores.unopened())

    @app.task(name="charge", retry=RetryPolicy(max_attempts=1))
    async def charge(amount: int) -> int:
        effects.append(f"charged {amount}")
        return amount

    @app.task(name="ship", queue="ships")
    async def ship(amount: int) -> int:
        effects.append(f"shipped {amount}")
        return amount

    @app.workflow(name="pay")
    async def pay(ctx: Context, amount: int) -> list[Any]:
        first = await charge(amount)
        word = await ctx.signal("word", str)
        shipped = await ship(amount)
        last = await ctx.signal("word", str)
        return [first, word, shipped, last]

    @app.machine(name="Order", history=True)
    class Order(Machine[str]):
        @step(initial=True)
        async def take(self, ctx: MachineContext[str]) -> Outcome:
            if ctx.state == "parent":
                return ScheduleChildren(self.close, [Child(Order, "child"), Child(Order, "other")], ctx.state)
            return Await({"go"}, self.close, ctx.state)

        @step
        async def close(self, ctx: MachineContext[str]) -> Outcome:
            effects.append(f"closed {ctx.state}")
            return Done([child.result for child in ctx.children])

    await app.register()
    return app


async def work(app: App, *queues: str) -> None:
    worker = await app.make_worker(WorkerSettings(queues=queues or ("default", "ships")))
    await worker.open()
    await worker.run_until_idle()
    await worker.stop()


async def moved(
    source: Store, target: Store, promise: PromiseId | None = None, replace: bool = False, **options: Any
) -> Imported:
    file = io.BytesIO()
    await export(source, file.write, promise, version="1", **options)
    return await import_file(target, file, "a file", replace=replace)


@pytest.mark.parametrize("is_ended", [False, True])
async def test_a_workflow_in_flight_goes_on_elsewhere_and_back_and_does_everything_once(
    stores: Stores, elsewhere: Stores, is_ended: bool
) -> None:
    effects: list[str] = []
    here, there = await program(stores, effects), await program(elsewhere, effects)
    handle = await here.start_by_name("pay", {"amount": 5}, key="a", attributes={"n": 1})
    await work(here)
    await handle.signal("other", "never read", dedup_key="x")
    assert await moved(stores.store, elsewhere.store, handle.id, pause=True) == Imported(
        executions=1, skipped=0, live=1
    )
    paused = await handle.describe()
    assert paused.paused

    await handle.signal("word", "to the wrong place")
    await work(here)  # it is paused here: nothing happens
    over_there = there.handle("pay", key="a")
    await over_there.signal("word", "one")
    await work(there, "default")  # the task on its queue waits for its worker
    assert effects == ["charged 5"]
    assert len(await elsewhere.store.children(over_there.id.to_bytes())) == 1

    if is_ended:
        await handle.cancel(force=True)  # what is left here
    with pytest.raises(TransferError, match="here already"):
        await moved(elsewhere.store, stores.store, handle.id)
    back = here
    assert (await moved(elsewhere.store, stores.store, handle.id, True, pause=True)).executions == 2
    assert (await audit(stores.store))[0] == []
    await back.handle("pay", key="a").signal("word", "two")
    await work(back)
    assert await back.handle("pay", key="a").result() == [5, "one", 5, "two"]
    await work(there)
    assert effects == ["charged 5", "shipped 5"]
    view = await elsewhere.store.get(handle.id.to_bytes())
    assert view is not None
    assert not view.status.is_terminal
    with pytest.raises(TransferError, match="here already"):  # it is done here: nothing takes its place
        await moved(elsewhere.store, stores.store, handle.id, True, pause=True)
    for app in (here, there):
        await app.close()


async def test_what_is_live_or_further_here_is_not_replaced(stores: Stores, elsewhere: Stores) -> None:
    effects: list[str] = []
    here, there = await program(stores, effects), await program(elsewhere, effects)
    handle = await here.start_by_name("pay", {"amount": 5}, key="a")
    await work(here)
    await moved(stores.store, elsewhere.store, handle.id, pause=True)
    await handle.resume()
    with pytest.raises(TransferError, match="here already"):  # it may be picked at any moment
        await moved(elsewhere.store, stores.store, handle.id, True, pause=True)
    await handle.signal("word", "one")
    await work(here, "default")
    await handle.pause()
    before = await handle.describe()
    with pytest.raises(TransferError, match="here already"):  # it has done more than the other
        await moved(elsewhere.store, stores.store, handle.id, True, pause=True)
    assert (await handle.describe()) == before
    for app in (here, there):
        await app.close()


async def test_a_machine_with_children_and_its_history_goes_on(stores: Stores, elsewhere: Stores) -> None:
    effects: list[str] = []
    here, there = await program(stores, effects), await program(elsewhere, effects)
    handle = await here.start_by_name("Order", "parent", key="p", unique=None)
    await work(here)
    children = await stores.store.children(handle.id.to_bytes())
    await here.handle(PromiseId.from_bytes(children[0].promise)).signal("go")
    await work(here)
    assert effects == ["closed child"]
    file = io.BytesIO()
    done = await export(stores.store, file.write, handle.id, version="1", pause=True)
    assert done == Exported(executions=3, live=2, records=done.records, paused=2)
    await import_file(elsewhere.store, file, "a file")
    await there.handle(PromiseId.from_bytes(children[1].promise)).signal("go")
    await work(there)
    assert await there.handle("Order", key="p").result() == [[], []]
    assert effects == ["closed child", "closed other", "closed parent"]
    assert len(await elsewhere.store.history(children[0].promise)) == 2
    await here.close()
    await there.close()


async def test_a_second_export_takes_the_pause_of_the_first_along_and_says_so(
    stores: Stores, elsewhere: Stores
) -> None:
    """The import of the first one failed; its file is as good as ever."""
    here = await program(stores, [])
    handle = await here.start_by_name("Order", "parent", key="p", unique=None)
    await work(here)
    first, second = io.BytesIO(), io.BytesIO()
    done = await export(stores.store, first.write, handle.id, version="1", pause=True)
    assert (done.live, done.paused, done.stay_paused) == (3, 3, 0)
    again = await export(stores.store, second.write, handle.id, version="1", pause=True)
    assert (again.live, again.paused, again.stay_paused) == (3, 0, 3)

    async def paused_of(file: io.BytesIO) -> list[bool]:
        await import_file(elsewhere.store, file, "a file", replace=True)
        views = [await elsewhere.store.get(handle.id.to_bytes()), *await elsewhere.store.children(handle.id.to_bytes())]
        return [view.paused for view in views if view is not None]

    assert await paused_of(second) == [True] * 3
    assert await paused_of(first) == [False] * 3
    await here.close()


async def test_everything_moves_with_queues_schedules_and_definitions(stores: Stores, elsewhere: Stores) -> None:
    effects: list[str] = []
    here = await program(stores, effects)
    await here.start_by_name("pay", {"amount": 1}, key="a")
    await here.schedules.create("nightly", "0 0 * * *", "pay", args={"amount": 1})
    await here.configure_queue("ships", concurrency=3)
    await moved(stores.store, elsewhere.store, pause=True)
    assert [schedule.paused for schedule in await stores.store.schedules()] == [True]
    assert [schedule.paused for schedule in await elsewhere.store.schedules()] == [False]
    assert [stats.settings.concurrency for stats in await elsewhere.store.queues()] == [None, 3]
    assert await elsewhere.store.definitions() == await stores.store.definitions()
    there = await program(elsewhere, effects)
    await work(there)
    assert effects == ["charged 1"]
    await here.close()
    await there.close()


async def test_what_is_at_work_is_waited_for_or_nothing_happens(stores: Stores) -> None:
    hand = await Hand(stores.store, "w1").start()
    claim = await hand.take(row("a"))
    await stores.store.insert([row("b")])
    with pytest.raises(
        TransferError, match="is still at work after 0 s; nothing was exported and nothing stays paused"
    ):
        await export(stores.store, lambda line: None, version="1", pause=True, wait_seconds=0)
    views = await stores.store.get_many([promise_of("a"), promise_of("b")])
    assert [view.paused for view in views if view is not None] == [False, False]
    await hand.apply(claim, park("go"))
    done = await export(stores.store, lambda line: None, version="1", pause=True, wait_seconds=0)
    assert (done.live, done.paused) == (2, 2)


async def test_a_copy_of_what_is_at_work_is_given_back_and_the_source_goes_on(
    stores: Stores, elsewhere: Stores
) -> None:
    hand = await Hand(stores.store, "w1").start()
    claim = await hand.take(row("a", partition_key="k"))
    await hand.apply(claim, keep())
    await moved(stores.store, elsewhere.store)
    view = await elsewhere.store.get(claim.promise)
    assert view is not None
    assert (view.status, view.locked_by, view.revision) == (Status.RUNNABLE, None, 1)
    assert (await hand.apply(claim, park("go"))).applied


async def test_a_copy_can_be_taken_in_paused(stores: Stores, elsewhere: Stores) -> None:
    await stores.store.insert([row("a")])
    await stores.store.put_schedule("nightly", _SPEC, stores.clock.now)
    file = io.BytesIO()
    await export(stores.store, file.write, version="1")
    await import_file(elsewhere.store, file, "a file", paused=True)
    view = await elsewhere.store.get(promise_of("a"))
    assert view is not None
    assert view.paused
    assert [schedule.paused for schedule in await elsewhere.store.schedules()] == [True]


async def test_a_reader_that_leaves_ends_the_export_and_unpauses(stores: Stores) -> None:
    await stores.store.insert([row("a")])

    def broken(line: bytes) -> None:
        if b"execution" in line:
            raise BrokenPipeError("gone")

    with pytest.raises(BrokenPipeError):
        await export(stores.store, broken, version="1", pause=True)
    view = await stores.store.get(promise_of("a"))
    assert view is not None
    assert not view.paused


_SPEC = '{"cron":"0 0 * * *","definition":"pay","timezone":"UTC"}'


# ---------------------------------------------------------------------- files


async def lines_of(store: Store) -> list[bytes]:
    file = io.BytesIO()
    await export(store, file.write, version="1")
    return file.getvalue().splitlines(keepends=True)


def changed(line: bytes, **fields: Any) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(line) | fields) + b"\n"


Damage = Callable[[list[bytes]], list[bytes]]
DAMAGES: dict[str, Damage] = {
    "is no export of Holdfast": lambda lines: lines[1:],
    "is no export of Holdfast:": lambda lines: [],
    f"has format 99, this Holdfast reads up to {FORMAT}": lambda lines: [changed(lines[0], format=99), *lines[1:]],
    "was cut off after 2 records": lambda lines: lines[:-1],
    "has 1 records and should have 2": lambda lines: [lines[0], lines[1], lines[-1]],
    "line 2 of a file is no record": lambda lines: [lines[0], b"{nonsense\n", *lines[2:]],
    "line 3 of a file is no record: Object missing": lambda lines: [*lines[:2], b'{"record":"execution"}\n', lines[-1]],
    "unknown field": lambda lines: [lines[0], changed(lines[1], surprise=1), *lines[2:]],
    "goes on after its end": lambda lines: [*lines, *lines],
    "has a second header": lambda lines: [lines[0], lines[0], *lines[1:]],
    "twice: export it again": lambda lines: [lines[0], lines[1], lines[1], lines[-1]],
    "an id that is none": lambda lines: [lines[0], changed(lines[1], id="zz"), *lines[2:]],
    "carries a lease": lambda lines: [lines[0], changed(lines[1], status="executing", locked_by="w"), *lines[2:]],
    "which is not in it": lambda lines: [
        lines[0],
        b'{"record":"journal","id":"' + b"a" * 64 + b'","first":0,"count":0,"body":"{}"}\n',
        *lines[2:],
    ],
    "breaks the rules, so nothing was imported": lambda lines: [lines[0], changed(lines[1], attempt=-1), *lines[2:]],
}


async def test_a_file_is_whole_and_sound_or_refused(store: Store, elsewhere: Stores) -> None:
    await store.insert([row("a"), row("b")])
    lines = await lines_of(store)
    for told, damage in DAMAGES.items():
        file = io.BytesIO(b"".join(damage(lines)))
        with pytest.raises(TransferError) as caught:
            await import_file(elsewhere.store, file, "a file")
        assert told.lower() in str(caught.value).lower(), (told, str(caught.value))
        found: list[Record] = []
        await elsewhere.store.read_records(found.extend)
        assert found == []


async def test_what_breaks_the_rules_can_be_taken_in_to_look_at(store: Store, elsewhere: Stores) -> None:
    await store.insert([row("a")])
    header, execution, end = await lines_of(store)
    file = io.BytesIO(header + changed(execution, attempt=7, wake_at="2030-01-01T00:00:00Z") + end)
    assert [fault.rule for fault in check(file, "a file").faults] == ["wake"]
    await import_file(elsewhere.store, file, "a file", damaged=True)
    found: list[Record] = []
    await elsewhere.store.read_records(found.extend)
    assert [record.attempt for record in found if isinstance(record, ExecutionRecord)] == [7]


async def test_what_is_there_already_is_named(store: Store, elsewhere: Stores) -> None:
    await store.insert([row("a")])
    await elsewhere.store.insert([row("a")])
    file = io.BytesIO(b"".join(await lines_of(store)))
    short = PromiseId.from_bytes(promise_of("a")).short
    with pytest.raises(TransferError, match=f"nothing was imported: {short} is here already"):
        await import_file(elsewhere.store, file, "a file")
    done = await import_file(elsewhere.store, file, "a file", skip_existing=True)
    assert (done.executions, done.skipped) == (0, 1)


# ---------------------------------------------------------------------- flows and batches


@pytest_asyncio.fixture
async def rigs(stores: Stores, elsewhere: Stores) -> AsyncIterator[tuple[Rig, Rig]]:
    both = Rig(stores), Rig(elsewhere)
    yield both
    for rig in both:
        await rig.close()


async def test_a_flow_in_flight_goes_on_elsewhere(rigs: tuple[Rig, Rig]) -> None:
    here, there = rigs
    job = await declare(here).start(1)
    declare(there)
    await here.run()
    source, target = await here.store(), await there.store()
    await moved(source, target, job.id, pause=True)
    assert (await audit(target))[0] == []
    over_there = there.app.handle(job.id)
    await over_there.signal("go", 1)
    await job.signal("go", 1)
    await here.run()
    await there.run()
    assert await over_there.status() is Status.DONE
    assert not (await job.status()).is_terminal
    assert (await audit(target))[0] == []


async def test_a_machine_that_was_retried_behind_its_children_has_them_elsewhere(rigs: tuple[Rig, Rig]) -> None:
    """They are older than the run that they are of now, and come before it."""
    here, there = rigs
    seen: list[list[Any]] = []

    class Part(Machine[int]):
        @step(initial=True)
        async def build(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    class Whole(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.join, [Child("Part", 1), Child("Part", 2)], 0)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            seen.append([child.result for child in ctx.children])
            return Stop("not yet") if len(seen) < 2 else Done(len(ctx.children))

    for rig in (there, here):
        rig.app.machine(Part)
        rig.app.machine(Whole)
    handle = await Whole.start(0)
    await here.run()
    again = await handle.retry()
    source, target = await here.store(), await there.store()
    records: list[Record] = []
    await source.read_records(records.extend)
    assert (await audit(source))[0] == []
    await target.write_records([record] for record in records)
    assert (await audit(target))[0] == []
    await there.run()
    assert await there.app.handle(again.id).result() == 2
    assert seen == [[1, 2], [1, 2]]


async def test_a_batch_goes_on_elsewhere(rigs: tuple[Rig, Rig]) -> None:
    here, there = rigs
    done: list[int] = []

    async def note(number: int) -> int:
        done.append(number)
        return number

    work = here.app.batch(name="noted", chunk=4)(note)
    there.app.batch(name="noted", chunk=4)(note)
    run = await work.start(range(10))
    await moved(await here.store(), await there.store(), run.id, pause=True)
    await here.run()
    assert done == []
    async with there.app.worker():
        await there.app.handle(run.id).result()
    assert sorted(done) == list(range(10))
    assert (await audit(await there.store()))[0] == []
