"""`handle.fork(at=...)` and `handle.retry()` (ruling B13): a new id, a copied past, and the old run as it was."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import pytest

from holdfast import (
    App,
    Context,
    Done,
    Handle,
    Machine,
    Next,
    Outcome,
    RetryPolicy,
    Status,
    TaskFailed,
    Uncertain,
    Workflow,
    step,
)
from holdfast.core.errors import ExecutionFailedError, InvalidArgumentError
from holdfast.core.journal.events import InvokeCompleted, InvokeStarted, SignalDelivered
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.shelf import ONCE, Shelf


async def test_a_retry_keeps_what_was_completed_and_tries_the_failed_call_again(rig: Rig) -> None:
    ran: list[str] = []
    broken = True

    @rig.app.task
    async def reserve() -> str:
        ran.append("reserve")
        return "r1"

    @rig.app.task(retry=RetryPolicy(max_attempts=2, initial_delay=1.0))
    async def charge() -> str:
        ran.append("charge")
        if broken:
            raise ValueError("the card was declined")
        return "paid"

    @rig.app.workflow
    async def checkout(ctx: Context) -> list[str]:
        return [await reserve(), await charge()]

    handle = await checkout.options(key="o1").start()
    await rig.run()
    await rig.advance(10)
    with pytest.raises(ExecutionFailedError):
        await rig.result(handle)
    before = await rig.lines(handle)
    broken = False
    again, twin = await asyncio.gather(handle.retry(), handle.retry())
    assert again.id == twin.id != handle.id  # two who retry at once do it once
    assert await rig.result(again) == ["r1", "paid"]
    assert ran == ["reserve", "charge", "charge", "charge"]
    assert await handle.result() == ["r1", "paid"]  # who holds the old one follows
    assert await rig.app.handle(checkout.name, key="o1").result() == ["r1", "paid"]
    assert (await checkout.options(key="o1").start()).id == handle.id  # the key is taken for good
    assert await rig.lines(handle) == before  # S-4: its terminal event stays last


async def test_a_failed_remote_call_is_spawned_anew(rig: Rig) -> None:
    broken = True

    @rig.app.task(queue="far", retry=ONCE)
    async def charge(amount: int) -> int:
        if broken:
            raise ValueError("no")
        return amount

    @rig.app.workflow
    async def checkout(ctx: Context) -> int:
        return await charge(7)

    handle = await checkout.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    broken = False
    again = await handle.retry()
    assert await rig.result(again) == 7
    child = await rig.app.handle(again.id.child(0)).describe()
    assert (child.status, child.parent) == (Status.DONE, again.id.to_bytes())


@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_a_call_beside_the_failed_one_that_ended_later_is_not_run_again(rig: Rig, queue: str | None) -> None:
    """What was completed is read from the journal, also in a retry."""
    shelf = Shelf(rig)
    ran, reserve = shelf.ran, shelf.reserve
    failed = asyncio.Event()

    @rig.app.task(retry=ONCE, queue=queue)
    async def charge() -> str:
        ran.append("charge")
        await failed.wait()
        return "paid"

    @rig.app.workflow
    async def checkout(ctx: Context) -> list[str]:
        got: list[str] = await ctx.all(reserve(), charge())
        return [*got, await ctx.signal("gift", str)]

    handle = await checkout.start()
    async with rig.app.worker(queues=["default", "far"]):
        await rig.until(handle, "InvokeCompleted root.0")
        await handle.signal("gift", "bow")
        if queue is None:  # else it is taken in with the end of the call
            await rig.until(handle, "SignalDelivered gift")
        failed.set()
        await rig.until(handle, "ExecutionFailed")
    shelf.is_empty = False
    assert await rig.result(await handle.retry()) == ["r1", "paid", "bow"]
    assert ran == ["reserve", "charge", "reserve"]


async def test_a_call_that_the_failure_cut_off_begins_anew(rig: Rig) -> None:
    """Its attempt was lost to no worker, so it does not use up the only one there is."""
    shelf = Shelf(rig)
    ran, reserve = shelf.ran, shelf.reserve

    @rig.app.task(retry=ONCE)
    async def charge() -> str:
        ran.append("charge")
        if shelf.is_empty:
            await asyncio.Event().wait()
        return "paid"

    @rig.app.workflow
    async def checkout(ctx: Context) -> list[str]:
        async with ctx.join_set() as calls:
            calls.submit(charge)
            calls.submit(reserve)
            return [done.result() async for done in calls]

    handle = await checkout.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    shelf.is_empty = False
    assert sorted(await rig.result(await handle.retry())) == ["paid", "r1"]
    assert sorted(ran) == ["charge", "charge", "reserve", "reserve"]


async def test_an_error_that_only_looks_like_the_cause_takes_nothing_back(rig: Rig) -> None:
    ran: list[str] = []
    broken = True

    @rig.app.task(retry=ONCE)
    async def look_up() -> None:
        raise KeyError(1)

    @rig.app.task
    async def charge() -> str:
        ran.append("charge")
        return "paid"

    @rig.app.workflow
    async def checkout(ctx: Context) -> str:
        with contextlib.suppress(TaskFailed):
            await look_up()
        paid = await charge()
        if broken:
            raise RuntimeError("order 1 has no address")
        return paid

    handle = await checkout.start()
    await rig.run()
    broken = False
    assert await rig.result(await handle.retry()) == "paid"
    assert ran == ["charge"]


@pytest.mark.parametrize("how", ["raised from it", "in words of its own"])
async def test_a_cause_is_found_through_what_was_raised_instead(rig: Rig, how: str) -> None:
    broken = True

    @rig.app.task(retry=ONCE)
    async def charge() -> str:
        if broken:
            raise ValueError("declined")
        return "paid"

    @rig.app.task
    async def release() -> None:
        return None

    @rig.app.workflow
    async def checkout(ctx: Context) -> str:
        try:
            return await charge()
        except TaskFailed as error:
            await release()
            if how == "raised from it":
                raise RuntimeError("no sale") from error
            raise RuntimeError(f"no sale: {error}") from None

    handle = await checkout.start()
    await rig.run()
    broken = False
    assert await rig.result(await handle.retry()) == "paid"


async def test_a_body_that_failed_by_itself_is_retried_with_its_whole_past(rig: Rig) -> None:
    ran: list[int] = []
    broken = True

    @rig.app.task
    async def work() -> int:
        ran.append(1)
        return 1

    @rig.app.workflow
    async def job(ctx: Context) -> int:
        value = await work()
        if broken:
            raise KeyError("a bug of the body")
        return value

    handle = await job.start()
    await rig.run()
    broken = False
    assert await rig.result(await handle.retry()) == 1
    assert ran == [1]


async def test_a_fork_has_the_past_up_to_the_event_and_its_own_future(rig: Rig) -> None:
    numbers = iter(range(10))

    @rig.app.task
    async def draw() -> int:
        return next(numbers)

    @rig.app.workflow
    async def three(ctx: Context) -> tuple[str, list[int]]:
        mark = str(ctx.uuid())
        return mark, [await draw(), await draw(), await draw()]

    handle = await three.start()
    mark, first = await rig.result(handle)
    assert first == [0, 1, 2]
    at = [e.sequence for e in await rig.events(handle) if isinstance(e, InvokeCompleted)][1]
    fork = await handle.fork(at=at)
    assert await rig.result(fork) == (mark, [0, 1, 3])
    assert await handle.result() == (mark, [0, 1, 2])
    assert (await handle.describe()).successor is None


async def test_the_events_to_fork_at_are_listed_with_whole_ids(rig: Rig) -> None:
    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        return await add(1)

    handle = await work.start()
    assert await handle.events() == []
    await rig.run()
    events = await handle.events()
    assert [event.sequence for event in events] == list(range(len(events)))
    (call,) = [event for event in events if isinstance(event, InvokeCompleted)]
    assert call.promise_id == f"{handle.id}.0"
    assert await rig.result(await handle.fork(at=call.sequence)) == 2


async def test_a_fork_at_the_begin_of_an_attempt_begins_it_anew(rig: Rig) -> None:
    @rig.app.task(retry=ONCE)
    async def work() -> int:
        return 1

    @rig.app.task(effects="at_most_once")
    async def fire() -> int:
        return 2

    @rig.app.workflow
    async def job(ctx: Context) -> list[int | str]:
        got: list[int | str] = [await work()]
        try:
            got.append(await fire())
        except Uncertain:
            got.append("uncertain")
        return got

    handle = await job.start()
    await rig.run()
    begun = [e.sequence for e in await rig.events(handle) if isinstance(e, InvokeStarted)]
    first, second = [await handle.fork(at=at) for at in begun]
    assert await rig.result(first) == [1, 2]
    assert await rig.result(second) == [1, "uncertain"]  # it was begun, and may have taken effect


@pytest.mark.parametrize("at", [-1, 99, True])
async def test_an_event_that_is_not_there_is_refused(rig: Rig, at: int) -> None:
    @rig.app.workflow
    async def empty(ctx: Context) -> None:
        return None

    handle = await empty.start()
    with pytest.raises(InvalidArgumentError, match="it has not begun"):
        await handle.fork(at=at)
    await rig.run()
    with pytest.raises(InvalidArgumentError, match="it has the events 0 to 1"):
        await handle.fork(at=at)
    with pytest.raises(InvalidArgumentError, match="where it ended"):
        await handle.fork(at=1)
    with pytest.raises(InvalidArgumentError, match="only a failed"):
        await handle.retry()


async def test_whoever_wants_to_take_a_cancel_back_is_told_where_to_fork(rig: Rig) -> None:
    @rig.app.workflow
    async def order(ctx: Context) -> str:
        return await ctx.signal("pay", str)

    handle = await order.start()
    await rig.run()
    await handle.cancel()
    await rig.run()
    with pytest.raises(InvalidArgumentError, match=r"as if it had not been cancelled, fork it at 1$"):
        await handle.retry()
    forked = await handle.fork(at=1)
    await forked.signal("pay", "cash")
    assert await rig.result(forked) == "cash"


async def test_every_prefix_of_a_journal_can_be_forked(rig: Rig) -> None:
    @rig.app.task
    async def double(number: int) -> int:
        return 2 * number

    @rig.app.task(queue="far")
    async def triple(number: int) -> int:
        return 3 * number

    @rig.app.workflow
    async def mixed(ctx: Context) -> int:
        ctx.now()
        total = await double(1)
        async with ctx.join_set() as calls:
            calls.submit(triple, 1)
            calls.submit(double, 5)
            async for done in calls:
                total += done.result()
        await ctx.sleep(5)
        return total

    handle = await mixed.start()
    await rig.run()
    await rig.advance(6)
    assert await rig.result(handle) == 15
    length = len(await rig.events(handle))
    forks = [await handle.fork(at=at) for at in range(length - 1)]
    await rig.run()
    await rig.advance(6)
    await rig.run()
    assert [await fork.result() for fork in forks] == [15] * len(forks)


async def test_a_fork_is_one_until_its_first_commit(rig: Rig) -> None:
    """Else it would spawn again what is open in its past, whenever it is replayed."""

    @rig.app.task
    async def near() -> int:
        return 1

    @rig.app.task(queue="far")
    async def far(number: int) -> int:
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        return await ctx.all(near(), far(2), far(3))

    worker = await rig.make_worker(queues=["default"])
    handle = await work.start()
    await worker.run_until_idle()
    fork = await handle.fork(at=len(await rig.events(handle)) - 1)
    await worker.run_until_idle()
    steps = [(await each.describe()).step for each in (handle, fork)]
    assert steps == [far.name, far.name]
    await rig.make_worker()
    for each in (handle, fork):
        for member in rig.workers:
            await member.run_until_idle()
        assert await each.result() == [1, 2, 3]
    ended = await handle.fork(at=len(await rig.events(handle)) - 2)
    await rig.run()
    assert (await ended.result(), (await ended.describe()).step) == ([1, 2, 3], "")


async def test_a_machine_is_retried_from_the_step_that_failed(rig: Rig) -> None:
    broken = True

    @dataclass
    class Box:
        seen: list[str]

    @rig.app.machine(retry=ONCE)
    class Two(Machine[Box]):
        @step(initial=True)
        async def one(self, ctx: object) -> Outcome:
            return Next("two", Box(["one"]))

        @step
        async def two(self, ctx: object) -> Outcome:
            if broken:
                raise ValueError("no")
            return Done("fine")

    handle = await Two.start(Box([]))
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    with pytest.raises(InvalidArgumentError, match="no journal"):
        await handle.fork(at=0)
    broken = False
    again = await handle.retry()
    assert await rig.result(again) == "fine"


async def test_a_task_is_retried_from_its_input(rig: Rig) -> None:
    broken = True

    @rig.app.task(retry=ONCE)
    async def work(number: int) -> int:
        if broken:
            raise ValueError("no")
        return number

    handle = await work.start(4)
    await rig.run()
    broken = False
    assert await rig.result(await handle.retry()) == 4


async def test_what_was_published_before_is_shown_by_a_retry_and_a_fork(rig: Rig) -> None:
    @rig.app.task(retry=ONCE)
    async def work(number: int) -> None:
        if number == 2:
            raise ValueError("no")

    @rig.app.workflow
    async def job(ctx: Context) -> None:
        for number in range(3):
            ctx.publish("at", number)
            await work(number)

    handle = await job.start()
    await rig.run()
    assert await handle.published() == {"at": 2}
    second = [e.sequence for e in await rig.events(handle) if isinstance(e, InvokeStarted)][1]
    fork = await handle.fork(at=second)
    again = await handle.retry()
    await rig.run()
    assert await again.published() == {"at": 2}
    assert await fork.published() == {"at": 2}


@pytest.mark.parametrize("what", ["id", "key", "a call's id"])
@pytest.mark.parametrize("how", ["retry", "fork"])
async def test_a_body_that_passes_on_who_it_is_can_be_forked(rig: Rig, what: str, how: str) -> None:
    """Its past holds the id of another run, and a fork of a fork those of two."""
    broken = True

    @rig.app.task
    async def reserve(mark: str | None) -> str:
        return "r1"

    @rig.app.task(retry=ONCE)
    async def charge(mark: str | None) -> str:
        if broken:
            raise ValueError("declined")
        return "paid"

    @rig.app.workflow
    async def checkout(ctx: Context) -> list[str]:
        first = ctx.invoke(reserve, {"id": ctx.info.id, "key": ctx.info.key}.get(what, "m"))
        mark = first.id if what == "a call's id" else getattr(ctx.info, what)
        return [await first, await reserve(mark), await charge(mark)]

    handle: Handle[list[str]] = await checkout.options(key="k").start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    for _ in range(2):
        last = len(await rig.events(handle)) - 1
        handle = await (handle.retry() if how == "retry" else handle.fork(at=last - 3))
        await rig.run()
        assert await rig.status(handle) is Status.FAILED
    broken = False
    handle = await handle.retry()
    rig.forget()
    assert await rig.result(handle) == ["r1", "r1", "paid"]


async def test_a_signal_that_fitted_nothing_is_read_again_by_a_retry_and_left_out_by_a_fork(rig: Rig) -> None:
    def declare(app: App, wanted: type) -> Workflow[[], str]:
        @app.workflow(name="count")
        async def count(ctx: Context) -> str:
            return f"{await ctx.signal('n', wanted)} boxes"

        return count

    handle = await declare(rig.app, int).start()
    await handle.signal("n", "seven")
    with pytest.raises(ExecutionFailedError, match=r"A retry reads it again: .* fork the run at the event before"):
        await rig.result(handle)
    (came,) = [event.sequence for event in await handle.events() if isinstance(event, SignalDelivered)]
    fork = await handle.fork(at=came - 1)
    await fork.signal("n", 8)
    assert await rig.result(fork) == "8 boxes"
    again = await handle.retry()
    with pytest.raises(ExecutionFailedError):
        await rig.result(again)
    mended = rig.another_app()
    declare(mended, str)
    last = await again.retry()
    await (await rig.make_worker(mended)).run_until_idle()
    assert await last.result() == "seven boxes"
