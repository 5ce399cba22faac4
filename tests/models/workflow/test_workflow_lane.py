"""The lane tells the end of a call and the begin of the next together, if the body does nothing else in between.

Whatever it does in between: the journal, its commits, and what the body is given are those of the long way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest

from holdfast import Context, Handle, RetryPolicy, Status, TaskFailed, current
from holdfast.core.errors import CallNotAllowedError
from holdfast.core.journal import decode_segment
from holdfast.engine.observer import STEPS
from holdfast.models.workflow import runner as workflow_runner
from holdfast.models.workflow.lane import Lane
from holdfast.models.workflow.session import Session
from holdfast.store.effects import AppendJournal
from tests.models.workflow.kit import Gate, HandWorker, Rig

Between = Callable[[Context, "Tasks"], Awaitable[Any]]


class DeclinedError(Exception):
    pass


class Tasks:
    """What the bodies below call."""

    def __init__(self, rig: Rig) -> None:
        @rig.app.task(name="work")
        async def work(number: int) -> list[int]:
            return [number]

        @rig.app.task(name="other")
        async def other(text: str, /, *, loud: bool = False) -> str:
            return text.upper() if loud else text

        @rig.app.task(name="waits")
        async def waits(number: int) -> int:
            await asyncio.sleep(0)
            return number

        @rig.app.task(name="beats")
        async def beats(number: int) -> int:
            current().heartbeat({"at": number})
            return number

        @rig.app.task(name="in_thread")
        def in_thread(number: int) -> int:
            return number

        @rig.app.task(name="fails", retry=RetryPolicy(max_attempts=1))
        async def fails() -> None:
            raise DeclinedError("no")

        @rig.app.task(name="remote", queue="remote")
        async def remote(number: int) -> int:
            return number

        @rig.app.workflow(name="child")
        async def child(ctx: Context, number: int) -> int:
            return number

        self.work, self.other, self.waits, self.beats = work, other, waits, beats
        self.in_thread, self.fails, self.remote, self.child = in_thread, fails, remote, child


async def _nothing(ctx: Context, tasks: Tasks) -> None:
    pass


async def _now(ctx: Context, tasks: Tasks) -> str:
    return ctx.now().isoformat()


async def _random(ctx: Context, tasks: Tasks) -> float:
    return ctx.random()


async def _uuid(ctx: Context, tasks: Tasks) -> str:
    return str(ctx.uuid())


async def _sleep(ctx: Context, tasks: Tasks) -> None:
    await ctx.sleep(0)


async def _patched(ctx: Context, tasks: Tasks) -> bool:
    return ctx.patched("new")


async def _publish(ctx: Context, tasks: Tasks) -> None:
    ctx.publish("progress", 2)


async def _set_attributes(ctx: Context, tasks: Tasks) -> None:
    ctx.set_attributes(city="Graz")


async def _log(ctx: Context, tasks: Tasks) -> None:
    ctx.log("between")


async def _signal(ctx: Context, tasks: Tasks) -> int:
    return await ctx.signal("paid", int)


async def _signal_too_late(ctx: Context, tasks: Tasks) -> str:
    try:
        return str(await ctx.signal("never", int, timeout=0))
    except TimeoutError:
        return "too late"


async def _two_in_a_row(ctx: Context, tasks: Tasks) -> Any:
    first, second = tasks.work(5), tasks.work(6)
    return [await first, await second]


async def _two_the_other_way(ctx: Context, tasks: Tasks) -> Any:
    first, second = tasks.work(5), tasks.work(6)
    return [await second, await first]


async def _two_at_once(ctx: Context, tasks: Tasks) -> Any:
    return await ctx.all(tasks.work(5), tasks.work(6))


async def _one_in_all(ctx: Context, tasks: Tasks) -> Any:
    return await ctx.all(tasks.work(5))


async def _one_in_any(ctx: Context, tasks: Tasks) -> Any:
    return (await ctx.any(tasks.work(5))).result()


async def _one_asked_then_time(ctx: Context, tasks: Tasks) -> Any:
    promise = tasks.work(5)
    moment = ctx.now().isoformat()
    return [moment, await promise]


async def _one_asked_then_logged(ctx: Context, tasks: Tasks) -> Any:
    promise = tasks.work(5)
    ctx.log("between")
    return await promise


async def _awaited_twice(ctx: Context, tasks: Tasks) -> bool:
    promise = tasks.work(5)
    once = await promise
    await tasks.work(6)
    return await promise is once


async def _awaited_then_in_all(ctx: Context, tasks: Tasks) -> Any:
    promise = ctx.invoke(tasks.work, 5)
    once = await promise
    again = await ctx.all(promise, tasks.work(6))
    return [again, again[0] is once]


async def _awaited_then_submitted(ctx: Context, tasks: Tasks) -> Any:
    promise = tasks.work(5)
    await promise
    async with ctx.join_set() as calls:
        calls.submit(promise)
        calls.submit(tasks.work, 6)
        return [done.result() async for done in calls]


async def _join_set(ctx: Context, tasks: Tasks) -> Any:
    async with ctx.join_set(cancel_rest=True) as calls:
        calls.submit(tasks.work, 5)
        calls.submit(tasks.work, 6)
        return (await calls.next()).result()


async def _another_task(ctx: Context, tasks: Tasks) -> Any:
    return [await tasks.other("a", loud=True), await tasks.other("b")]


async def _one_that_waits(ctx: Context, tasks: Tasks) -> Any:
    return [await tasks.waits(5), await tasks.waits(6)]


async def _one_that_beats(ctx: Context, tasks: Tasks) -> Any:
    return [await tasks.beats(5), await tasks.beats(6)]


async def _one_in_a_thread(ctx: Context, tasks: Tasks) -> Any:
    return await tasks.in_thread(5)


async def _one_that_fails(ctx: Context, tasks: Tasks) -> Any:
    try:
        await tasks.fails()
    except TaskFailed as error:
        return str(error)


async def _a_remote_one(ctx: Context, tasks: Tasks) -> Any:
    return await tasks.remote(5)


async def _a_remote_one_behind(ctx: Context, tasks: Tasks) -> Any:
    promise = tasks.remote(5)
    here = await tasks.work(6)
    return [here, await promise]


async def _a_child(ctx: Context, tasks: Tasks) -> Any:
    return await tasks.child(5)


async def _with_options(ctx: Context, tasks: Tasks) -> Any:
    return await tasks.work.options(priority=3)(5)


async def _refused_arguments(ctx: Context, tasks: Tasks) -> Any:
    try:
        await tasks.work("five", "six")  # type: ignore[call-arg,arg-type]
    except Exception as error:
        return type(error).__name__


async def _an_async_generator(ctx: Context, tasks: Tasks) -> Any:
    async def numbers() -> Any:
        for number in (5, 6):
            yield await tasks.work(number)

    return [number async for number in numbers()]


async def _the_next_of_an_async_generator(ctx: Context, tasks: Tasks) -> Any:
    async def numbers() -> Any:
        for number in (5, 6):
            yield [await tasks.work(number), await tasks.waits(number)]

    found = numbers()
    return [await anext(found, None), await anext(found, None), await anext(found, None)]


class ByHand:
    """An awaitable around another one that keeps to itself what it is sent."""

    def __init__(self, inner: Awaitable[Any]) -> None:
        self._inner = inner

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self._inner.__await__()
        while True:
            try:
                waiting = next(steps)
            except StopIteration as end:
                return end.value
            yield waiting


async def _awaited_by_hand(ctx: Context, tasks: Tasks) -> Any:
    return [await ByHand(tasks.work(5)), await ByHand(tasks.waits(6))]


async def _an_error_of_its_own(ctx: Context, tasks: Tasks) -> Any:
    raise DeclinedError("by itself")


async def _never_awaited(ctx: Context, tasks: Tasks) -> None:
    tasks.work(5)
    raise DeclinedError("with a call open")


async def _asyncio(ctx: Context, tasks: Tasks) -> None:
    await asyncio.sleep(0)


async def _asyncio_and_a_call_in_clean_up(ctx: Context, tasks: Tasks) -> None:
    try:
        await asyncio.sleep(0)
    finally:
        ctx.log("cleaning up")
        tasks.work(5)
        ctx.log("not come to")


BETWEEN: dict[str, Between] = {
    name.removeprefix("_"): found
    for name, found in list(globals().items())
    if name.startswith("_") and asyncio.iscoroutinefunction(found)
}


@pytest.mark.parametrize("between", BETWEEN)
async def test_whatever_a_body_does_between_two_calls_is_recorded_as_on_the_long_way(
    rig: Rig, between: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.workflow")
    told: list[bool] = []
    turn = Session.turn

    def watched(session: Session, *answer: Any) -> AppendJournal | None:
        step = turn(session, *answer)
        told.append(step is not None)
        return step

    monkeypatch.setattr(Session, "turn", watched)
    tasks = Tasks(rig)

    @rig.app.workflow
    async def program(ctx: Context) -> list[Any]:
        got = [await tasks.work(0), await tasks.work(1), await tasks.work(2)]
        got.append(await BETWEEN[between](ctx, tasks))
        got += [await tasks.work(3), await tasks.work(4)]
        return got

    quick = await _played(rig, program, caplog)
    assert told[1], "the lane was not taken"  # the first turn ends with more than a step to commit
    told.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Lane, "_next_in_lane", lambda run: None)
        slow = await _played(rig, program, caplog)
    assert not told, "the lane was taken"
    for field in quick:
        assert quick[field] == slow[field]


async def _played(rig: Rig, program: Any, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """All that can be seen of one run, but for what differs from run to run."""
    caplog.clear()
    handle = await program.start()
    await handle.signal("paid", 7)
    await rig.run()
    view = await handle.describe()
    text = str(handle.id)
    segments = await rig.stores.store.journal(handle.id.to_bytes())
    facts = repr(await rig.facts(handle)).replace(text, "root")
    for moment in ("time", "fire_at"):
        facts = _without(facts, moment)
    for random in ("RandomGenerated",):
        facts = facts if random not in facts else "random"
    is_random = "random" in facts or "TimeRecorded" in facts
    return {
        "status": view.status,
        "claims": view.lease_epoch,
        "result": None if is_random else view.result,
        "published": view.published,
        "attributes": view.attributes,
        "facts": facts,
        "commits": [len(decode_segment(segment).events) for segment in segments],
        "logged": [record.getMessage().replace(text[:8], "root") for record in caplog.records],
    }


def _without(facts: str, field: str) -> str:
    head, *rest = facts.split(f"'{field}': '")
    return head + "".join(part.partition("'")[2] for part in rest)


@pytest.mark.parametrize("between", ["nothing", "now", "another_task"])
async def test_a_run_gives_way_between_two_calls_as_on_the_long_way(
    rig: Rig, between: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Because its worker drains, or more urgent work waits: what was decided is committed as it is given back."""
    monkeypatch.setattr(HandWorker, "may_keep", lambda worker, claim, steps, since: steps < 2)
    tasks = Tasks(rig)

    @rig.app.workflow
    async def program(ctx: Context) -> list[Any]:
        got: list[Any] = [await tasks.work(number) for number in range(3)]
        await BETWEEN[between](ctx, tasks)
        return got + [await tasks.work(number) for number in range(3)]

    quick = await _played(rig, program, caplog)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Lane, "_next_in_lane", lambda run: None)
        slow = await _played(rig, program, caplog)
    assert quick == slow
    assert quick["claims"] >= 3, "it never gave way"
    await rig.check_journals()


async def test_a_body_that_hears_of_a_call_cannot_be_asked_on_by_another(rig: Rig) -> None:
    """The lane's shortcut is for the body whose turn it is."""
    tasks = Tasks(rig)
    kept: list[Any] = []

    @rig.app.workflow
    async def first(ctx: Context) -> None:
        kept.append(tasks.work(1))
        await kept[0]
        await ctx.signal("go")

    @rig.app.workflow
    async def second(ctx: Context) -> str:
        await tasks.work(1)
        try:
            await kept[0]
        except CallNotAllowedError as error:
            await tasks.work(2)
            return str(error)
        return "given"

    await first.start()
    await rig.run()
    assert "belongs to the workflow that made it" in await rig.result(await second.start())
    await rig.check_journals()


async def test_a_cancel_that_a_heartbeat_brings_in_finds_the_call_that_ends_after_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the heartbeat is the first to hear of it: what would interrupt the call comes later, or is lost."""
    monkeypatch.setattr(workflow_runner, "BEAT_COMMIT_SECONDS", 0)
    monkeypatch.setattr(Lane, "_on_stir", lambda run: None)
    tasks = Tasks(rig)
    gate = Gate()
    started: list[Handle[None]] = []

    @rig.app.task
    async def export() -> str:
        await gate.wait()
        for number in range(2):  # what the first one brings in is written with the second
            before = (await started[0].describe()).revision
            current().heartbeat(number)
            async with asyncio.timeout(20):
                while (await started[0].describe()).revision == before:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        return "exported"

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await tasks.work(1)
        try:
            await export()
        finally:
            await tasks.work(2)

    started.append(await work.start())
    working = rig.working(await rig.worker())
    await gate.reached.wait()
    await started[0].cancel(reason="enough")
    gate.opened.set()
    await working
    assert await rig.status(started[0]) is Status.CANCELLED
    assert (await rig.lines(started[0]))[6:] == [
        "InvokeScheduled root.1 export",
        "ExecutionAwaiting [root.1] Single",
        "InvokeStarted root.1 attempt=1",
        "CancelRequested enough",
        'InvokeCompleted root.1 Ok("exported") attempt=1',
        "InvokeScheduled root.2 work",
        "InvokeStarted root.2 attempt=1",
        "InvokeCompleted root.2 Ok([2]) attempt=1",
        "ExecutionCancelled enough",
    ]
    await rig.check_journals()


async def test_a_tracer_sees_the_calls_after_it_was_set(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Tasks(rig)
    seen: list[str] = []

    class Tracer:
        def around(
            self, kind: str, name: str, attempt: int, work: Coroutine[Any, Any, Any]
        ) -> Coroutine[Any, Any, Any]:
            seen.append(name)
            return work

    @rig.app.task
    async def trace() -> None:
        monkeypatch.setattr(STEPS, "tracer", Tracer())

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await tasks.work(1)
        await tasks.work(2)
        await trace()
        await tasks.work(3)
        await tasks.other("4")

    await rig.result(await work.start())
    assert seen == ["work", "other"]
