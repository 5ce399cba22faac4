"""Join sets with more results left than a wait names: what is recorded, and what taking one result costs.

A wait for such a set names the set. All else is as with a few members, whatever may happen to a run that stands there;
so most of this file is done with either form, and the property tests of replay draw the width from which it is used.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from msgspec import Raw

from holdfast import App, Cancelled, Context, Handle, RetryPolicy, Status, TaskFailed, current
from holdfast.core.errors import ExecutionStrandedError
from holdfast.core.journal import decode_segment, validate_segments
from holdfast.core.journal.events import ExecutionAwaiting, JoinSetAwaited, Ok
from holdfast.core.journal.stamp import stamp_at
from holdfast.models.workflow import members
from holdfast.models.workflow.context import Info
from holdfast.models.workflow.session import Session
from holdfast.models.workflow.signature import Signature
from tests.models.workflow.kit import Gate, HandWorker, Rig

ROOT = "ab" * 32
WIDE = 20
COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


@pytest.fixture(params=[members.NAMED_MOST, 1000], ids=["set", "named"])
def named_most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Whether a wait for `WIDE` members names the set, or each of them as before there was another way."""
    monkeypatch.setattr(members, "NAMED_MOST", request.param)
    return int(request.param)


# ---------------------------------------------------------------------- what is recorded


def taking(app: App) -> Any:
    @app.task(name="echo")
    async def echo(number: int) -> int:
        return number

    async def body(ctx: Context, width: int) -> int:
        total = 0
        async with ctx.join_set() as jobs:
            for number in range(width):
                jobs.submit(echo, number)
            async for done in jobs:
                total += done.result()
        return total

    return body


def one_by_one(width: int) -> list[str]:
    """The segments of a run of so many calls, each of which ends alone; the session without a store."""
    body = taking(App("wide"))
    session = Session(ROOT)
    context = Context(session, Info(ROOT, "wide", 1, None), Signature(body, "wide", skip=1), 1_000_000)
    session.body = body(context, width)
    session.stamp = stamp_at(1_800_000_000_000_000)
    session.start("digest", "1", None, None, 1)
    session.drive()
    for number in range(1, width + 1):
        call = session.open_calls[f".{number}"]
        session.started(call)
        session.completed(call, Ok(Raw(b"1")))
        session.drive()
    assert session.is_finished
    assert session.failure is None
    assert session.result == width
    session.conclude(str(width), None)
    return [session.journal.take_segment()]


def test_a_journal_grows_with_the_width_of_a_join_set_and_not_with_its_square() -> None:
    narrow, wide = one_by_one(100), one_by_one(10_000)
    assert sum(map(len, wide)) / 10_000 < 1.25 * sum(map(len, narrow)) / 100  # numbers have more digits
    assert validate_segments(ROOT, [decode_segment(text) for text in wide]) == []


def test_only_a_wait_with_more_left_than_is_named_names_the_set() -> None:
    events = [event for text in one_by_one(WIDE) for event in decode_segment(text).events]
    waits = [event for event in events if isinstance(event, ExecutionAwaiting)]
    wide = WIDE - members.NAMED_MOST
    assert [(wait.waiting_on, wait.join_set_id) for wait in waits[:wide]] == [((), ".0")] * wide
    numbers = [[f".{number}" for number in range(first, WIDE + 1)] for first in range(wide + 1, WIDE + 1)]
    assert [[*wait.waiting_on] for wait in waits[wide:]] == numbers
    assert {(wait.kind, wait.join_set_id) for wait in waits[wide:]} == {("Any", None)}


# ---------------------------------------------------------------------- what taking one costs


class Scanned(dict[str, Any]):
    """Counts the entries that were gone through."""

    seen = 0

    def __iter__(self) -> Iterator[str]:
        Scanned.seen += len(self)
        return super().__iter__()

    def keys(self) -> Any:
        Scanned.seen += len(self)
        return super().keys()

    def values(self) -> Any:
        Scanned.seen += len(self)
        return super().values()

    def items(self) -> Any:
        Scanned.seen += len(self)
        return super().items()


class Opcodes:
    """How much of Holdfast's code for workflows and journals is executed: instructions, not time."""

    WHERE = ("/holdfast/models/workflow/", "/holdfast/core/journal/")

    def __init__(self) -> None:
        self.count = 0
        self._ours: dict[str, bool] = {}

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if name not in self._ours:
            self._ours[name] = any(part in name.replace("\\", "/") for part in self.WHERE)
        if not self._ours[name]:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.count += event == "opcode"
        return self._trace


class Costs:
    """A body that waits for many calls, of which each ends alone."""

    def __init__(self, rig: Rig, queue: str | None, how: str) -> None:
        self.rig, self.queue = rig, queue
        gates: dict[int, asyncio.Event] = {}

        @rig.app.task(name="echo", queue=queue)
        async def echo(number: int) -> int:
            if queue is None:
                await gates[number].wait()
            if how == "all":
                self.let(number + 1)
            return number

        @rig.app.workflow(name="work")
        async def work(ctx: Context, width: int) -> int:
            gates.clear()
            gates.update((number, asyncio.Event()) for number in range(width))
            self.let(0)
            total = 0
            if how == "all":
                return sum(await ctx.all(*[ctx.invoke(echo, number) for number in range(width)]))
            async with ctx.join_set() as jobs:
                for number in range(width):
                    jobs.submit(echo, number)
                session = jobs._session
                session.open_calls, session.settled = Scanned(session.open_calls), Scanned(session.settled)
                jobs._members.left = Scanned(jobs._members.left)
                while len(jobs):
                    done = await (jobs.next() if how == "next" else jobs.next(timeout=60))
                    total += done.result()
                    self.let(done.result() + 1)
            return total

        self.gates, self.work = gates, work

    def let(self, number: int) -> None:
        if number in self.gates:
            self.gates[number].set()

    async def of(self, width: int) -> tuple[float, float]:
        """Of a result: instructions, and entries of what is kept of every member or call that were gone through."""
        opcodes, handle = Opcodes(), await self.work.start(width)
        Scanned.seen = 0
        if self.queue is None:
            worker = await self.rig.make_worker()
            with opcodes.counted():
                await worker.run_until_idle()
        else:
            caller = await self.rig.make_worker(queues=["default"])
            helper = await self.rig.make_worker(queues=[self.queue], concurrency=1)
            await caller.run_once()
            while await helper.run_once():
                with opcodes.counted():
                    await caller.run_once()
        assert await handle.result() == width * (width - 1) // 2
        return opcodes.count / width, Scanned.seen / width


@pytest.mark.parametrize(
    ("queue", "how"),
    [(None, "next"), (None, "timeout"), (None, "all"), ("far", "next"), ("far", "timeout"), ("far", "all")],
    ids=lambda value: value or "inline",
)
async def test_what_a_result_costs_does_not_grow_with_the_members_that_are_open(
    rig: Rig, queue: str | None, how: str
) -> None:
    costs = Costs(rig, queue, how)
    narrow, wide = await costs.of(40), await costs.of(160)
    assert wide[0] < 1.15 * narrow[0]
    assert wide[1] <= narrow[1]  # the last results of either, where each member is named


# ---------------------------------------------------------------------- what may happen to a run that stands there


class Fan:
    """A workflow with a wide join set of calls that end when the test lets them; `done` are the results taken."""

    def __init__(self, rig: Rig, queue: str | None = "far") -> None:
        self.rig = rig
        self.gates = [asyncio.Event() for _ in range(WIDE)]
        self.done: list[Any] = []
        self.attempts: list[int] = []

        @rig.app.task(name="call", queue=queue)
        async def call(number: int) -> int:
            self.attempts.append(number)
            if queue is None:
                await self.gates[number].wait()
            return number

        @rig.app.workflow(name="fan")
        async def fan(ctx: Context) -> list[int]:
            self.done = done = []
            async with ctx.join_set() as jobs:
                for number in range(WIDE):
                    jobs.submit(call, number)
                while len(jobs):
                    done.append((await jobs.next()).result())
            return done

        self.call, self.fan = call, fan

    async def begin(self, *, cold: bool = False, is_caller_alone: bool = True) -> tuple[Handle[Any], HandWorker]:
        """A run that has parked, and its worker, which does not take the calls."""
        handle = await self.fan.start()
        caller = await self.rig.make_worker(queues=["default"], warm_most=0 if cold else None)
        await caller.run_until_idle()
        return handle, caller

    async def helper(self) -> HandWorker:
        return await self.rig.make_worker(queues=["far"], concurrency=1)


async def result_of(rig: Rig, handle: Handle[Any]) -> Any:
    """It must be there."""
    assert (await rig.status(handle)).is_terminal
    return await handle.result()


async def left_open(rig: Rig, handle: Handle[Any]) -> ExecutionAwaiting:
    waits = [event for event in await rig.events(handle) if isinstance(event, ExecutionAwaiting)]
    return waits[-1]


@COLD
@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves"])
async def test_every_result_wakes_the_run_and_is_taken_in_order(
    rig: Rig, named_most: int, cold: bool, moves: bool
) -> None:
    fan = Fan(rig)
    handle, caller = await fan.begin(cold=cold)
    callers = [caller, await rig.make_worker(queues=["default"])] if moves else [caller]
    helper = await fan.helper()
    for count in range(1, WIDE + 1):
        assert await helper.run_once() == 1
        assert await callers[count % len(callers)].run_once() == 1
        assert fan.done == [*range(count)]
    assert await result_of(rig, handle) == [*range(WIDE)]
    waits = [event for event in await rig.events(handle) if isinstance(event, ExecutionAwaiting)]
    assert len(waits) == WIDE
    assert [wait.join_set_id is not None for wait in waits] == [left > named_most for left in range(WIDE, 0, -1)]
    assert {wait.join_set_id for wait in waits} <= {None, f"{handle.id}.0"}


@pytest.mark.parametrize("change", [(1000, 16), (16, 1000), (0, 16), (16, 0)], ids=str)
@pytest.mark.parametrize("settled", [0, 1, 3], ids="{} ended".format)
async def test_a_wait_in_the_other_form_is_the_same_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, change: tuple[int, int], settled: int
) -> None:
    """A journal of before there was another form goes on, and so it does should the width ever change."""
    fan = Fan(rig)
    monkeypatch.setattr(members, "NAMED_MOST", change[0])
    handle, caller = await fan.begin()
    helper = await fan.helper()
    for _ in range(3):
        await helper.run_once()
        await caller.run_once()
    for _ in range(settled):
        await helper.run_once()
    before = (await left_open(rig, handle)).join_set_id is None
    monkeypatch.setattr(members, "NAMED_MOST", change[1])
    rig.forget()
    for _ in range(WIDE):
        await caller.run_until_idle()
        assert await rig.status(handle) in (Status.AWAITING_PROMISE, Status.DONE)
        await helper.run_once()
    await caller.run_until_idle()
    assert before is (change[0] == 1000)
    assert await result_of(rig, handle) == [*range(WIDE)]


async def test_a_wait_with_a_deadline_in_the_other_form_is_the_same_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, named_most: int
) -> None:
    fan = Fan(rig)

    @rig.app.workflow
    async def patient(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        async with ctx.join_set() as jobs:
            for number in range(WIDE):
                jobs.submit(fan.call, number)
            for _ in range(4):
                try:
                    seen.append((await jobs.next(timeout=5)).result())
                except TimeoutError as error:
                    seen.append(str(error))
        return seen

    handle = await patient.start()
    caller, helper = await rig.make_worker(queues=["default"]), await fan.helper()
    await caller.run_until_idle()
    await helper.run_once()
    await caller.run_until_idle()
    wait = await left_open(rig, handle)
    timer = f"{handle.id}.{WIDE + 2}"
    assert wait.waiting_on[-1] == timer
    assert (wait.join_set_id, len(wait.waiting_on)) == ((None, WIDE) if named_most > WIDE else (f"{handle.id}.0", 1))
    monkeypatch.setattr(members, "NAMED_MOST", 1000 if named_most < WIDE else 16)
    rig.forget()
    await rig.advance(5)
    await caller.run_until_idle()
    for _ in range(WIDE):
        await helper.run_once()
    await caller.run_until_idle()
    await rig.advance(5)
    await caller.run_until_idle()
    assert await result_of(rig, handle) == [0, "no call of the join set ended within 5 s", 1, 2]


@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_a_worker_that_is_killed_at_the_wait_is_followed_by_another(
    rig: Rig, named_most: int, queue: str | None
) -> None:
    fan = Fan(rig, queue)
    handle = await fan.fan.start()
    first = await rig.make_worker(queues=["default"])
    if queue is None:
        working = rig.working(first)
        fan.gates[3].set()
        await rig.until(handle, "InvokeCompleted")
        second = await rig.make_worker(queues=["default"])
        await rig.kill(first, working)
        for gate in fan.gates:
            gate.set()
        await second.run_until_idle()
        assert (await result_of(rig, handle))[0] == 3
        assert fan.attempts.count(3) == 1  # it is in the journal
    else:
        await first.run_until_idle()
        second = await rig.make_worker(queues=["default", "far"])
        await rig.kill(first)
        await second.run_until_idle()
        assert fan.attempts == [*range(WIDE)]
    assert sorted(await result_of(rig, handle)) == [*range(WIDE)]


@COLD
@pytest.mark.parametrize("ended", [False, True], ids=["none ended", "one ended"])
@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_a_cancel_reaches_the_body_unless_a_member_ended_before_it(
    rig: Rig, named_most: int, cold: bool, ended: bool, queue: str | None
) -> None:
    seen: list[Any] = []
    gate = Gate()

    @rig.app.task(queue=queue)
    async def call(number: int) -> int:
        if number:
            await gate.wait()
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        seen.clear()  # of an earlier replay
        jobs = ctx.join_set(cancel_rest=True)
        for number in range(0 if ended else 1, WIDE + 1):
            jobs.submit(call, number)
        try:
            while True:
                seen.append((await jobs.next()).result())
        except Cancelled:
            rest = [await jobs.next() for _ in range(len(jobs))]
            seen.append(sum(done.failed for done in rest))
            raise

    handle = await work.start()
    caller = await rig.make_worker(queues=["default"], warm_most=0 if cold else None)
    working = rig.working(caller)
    if queue is None:
        await gate.reached.wait()
        if ended:
            await rig.until(handle, "InvokeCompleted")
        await handle.cancel()
        await caller._watcher.run_once()
    else:
        await working
        if ended:
            await (await rig.make_worker(queues=["far"], concurrency=1)).run_once()
        await handle.cancel()
    await working
    await caller.run_until_idle()
    assert await rig.status(handle) is Status.CANCELLED
    assert seen[-1] == WIDE
    assert seen[:-1] == ([0] if ended else [])
    taken = [event for event in await rig.events(handle) if isinstance(event, JoinSetAwaited)]
    assert len(taken) == WIDE + ended


@COLD
async def test_a_deadline_passes_on_a_wide_join_set(rig: Rig, named_most: int, cold: bool) -> None:
    fan = Fan(rig)

    @rig.app.workflow
    async def hasty(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        async with ctx.join_set(cancel_rest=True) as jobs:
            for number in range(WIDE):
                jobs.submit(fan.call, number)
            for _ in range(3):
                try:
                    seen.append((await jobs.next(timeout=5)).result())
                except TimeoutError:
                    seen.append(f"{len(jobs)} left")
                    if len(seen) == 1:
                        jobs.submit(fan.call, WIDE)  # nothing was taken, so the set is open (JS-2)
        return seen

    handle = await hasty.start()
    caller = await rig.make_worker(queues=["default"], warm_most=0 if cold else None)
    await caller.run_until_idle()
    await rig.advance(5)
    await caller.run_until_idle()
    await (await fan.helper()).run_once()
    await caller.run_until_idle()
    await rig.advance(5)
    await caller.run_until_idle()
    assert await rig.result(handle) == [f"{WIDE} left", 0, f"{WIDE} left"]


@COLD
@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_a_quorum_of_a_wide_join_set(rig: Rig, named_most: int, cold: bool, queue: str | None) -> None:
    @rig.app.task(queue=queue, retry=RetryPolicy(max_attempts=1))
    async def vote(number: int) -> int:
        if number % 2 == 0:
            raise ValueError(f"{number} abstains")
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        async with ctx.join_set() as votes:
            for number in range(WIDE):
                votes.submit(vote, number)
            some = [done.result() for done in await votes.first(3)]
            try:
                await votes.first(WIDE - 7)
            except TaskFailed as error:
                return [some, str(error)]
        return ["no error"]

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None, concurrency=1)
    some, error = await rig.result(handle)
    assert some == [1, 3, 5]
    assert "abstains" in error


@COLD
async def test_a_member_waits_for_its_next_attempt_while_others_are_open(rig: Rig, named_most: int, cold: bool) -> None:
    gates = [asyncio.Event() for _ in range(WIDE)]
    tried: list[int] = []

    @rig.app.task(retry=RetryPolicy(initial_delay=5, jitter=0))
    async def call(number: int) -> int:
        if number == 2 and current().attempt == 1:
            tried.append(number)
            raise ConnectionError("once more")
        await gates[number].wait()
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        async with ctx.join_set() as jobs:
            for number in range(WIDE):
                jobs.submit(call, number)
            return [done.result() async for done in jobs]

    handle = await work.start()
    worker = await rig.make_worker(warm_most=0 if cold else None)
    working = rig.working(worker)
    await rig.until(handle, "InvokeRetrying")
    gates[7].set()
    await rig.until(handle, "InvokeCompleted")
    assert tried == [2]
    for gate in gates[:2] + gates[3:]:
        gate.set()
    await working  # it parks until the attempt is due
    assert await rig.status(handle) is Status.AWAITING_PROMISE
    gates[2].set()
    await rig.advance(5)
    result = await rig.result(handle)
    assert (result[0], result[-1], sorted(result)) == (7, 2, [*range(WIDE)])


@pytest.mark.parametrize("cut", ["at the wait", "before it"])
async def test_a_fork_of_a_run_that_stands_at_the_wait_takes_what_the_run_would(
    rig: Rig, named_most: int, cut: str
) -> None:
    fan = Fan(rig)
    handle, caller = await fan.begin()
    helper = await fan.helper()
    for _ in range(2):
        await helper.run_once()
        await caller.run_once()
    at = (await left_open(rig, handle)).sequence
    fork = await handle.fork(at=at if cut == "at the wait" else at - 1)
    for _ in range(3):
        await helper.run_until_idle()
        await caller.run_until_idle()
    assert await result_of(rig, handle) == await fork.result() == [*range(WIDE)]


async def test_a_retry_goes_on_at_a_wide_join_set_without_what_ended_well(rig: Rig, named_most: int) -> None:
    fan = Fan(rig)
    broken = True

    @rig.app.task(queue="far", retry=RetryPolicy(max_attempts=1))
    async def fails(number: int) -> int:
        if number == 4 and broken:
            raise ValueError("no")
        fan.attempts.append(number)
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        async with ctx.join_set() as jobs:
            for number in range(WIDE):
                jobs.submit(fails, number)
            return sum([done.result() async for done in jobs])

    handle = await work.start()
    caller, helper = await rig.make_worker(queues=["default"]), await fan.helper()
    await caller.run_until_idle()
    for _ in range(6):
        await helper.run_once()
        await caller.run_until_idle()
    assert await rig.status(handle) is Status.FAILED
    broken = False
    again = await handle.retry()
    for _ in range(3):
        await caller.run_until_idle()
        await helper.run_until_idle()
    assert await again.result() == sum(range(WIDE))
    assert fan.attempts[:4] == [0, 1, 2, 3]
    assert [fan.attempts.count(number) for number in range(5)] == [1] * 5


# ---------------------------------------------------------------------- code that diverged


async def stranded(rig: Rig, handle: Handle[Any]) -> str:
    assert await rig.status(handle) is Status.STRANDED
    with pytest.raises(ExecutionStrandedError) as error:
        await handle.result()
    return str(error.value)


Change = Callable[[Context, Any, Any], Any]


async def _other_wait(ctx: Context, jobs: Any, call: Any) -> Any:
    return await ctx.signal("go")


async def _all(ctx: Context, jobs: Any, call: Any) -> Any:
    return [await ctx.all(*jobs._members.left.values())]


async def _deadline(ctx: Context, jobs: Any, call: Any) -> Any:
    return (await jobs.next(timeout=5)).result()


async def _next(ctx: Context, jobs: Any, call: Any) -> Any:
    return (await jobs.next()).result()


def declare(app: App, body: Change) -> Any:
    """A workflow that has a wide join set, and then does this."""

    @app.task(name="call", queue="far")
    async def call(number: int) -> int:
        return number

    @app.workflow(name="work")
    async def work(ctx: Context) -> Any:
        async with ctx.join_set(cancel_rest=True) as jobs:
            for number in range(WIDE):
                jobs.submit(call, number)
            return await body(ctx, jobs, call)

    return work


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_other_wait, "journal: await Any of the results left of join set #0\n  code:    #21 Signal go"),
        (_deadline, "journal: await Any of the results left of join set #0\n  code:    #21 Timer"),
        (_all, "journal: await Any of the results left of join set #0\n  code:    await All of #1, #2, #3"),
    ],
)
async def test_code_that_waits_for_something_else_is_stranded(rig: Rig, change: Change, told: str) -> None:
    handle = await declare(rig.app, _next).start()
    caller = await rig.make_worker(queues=["default"])
    await caller.run_until_idle()
    await (await rig.make_worker(queues=["far"], concurrency=1)).run_once()
    app = rig.another_app()
    declare(app, change)
    await (await rig.make_worker(app, queues=["default"])).run_until_idle()
    assert told in await stranded(rig, handle)


async def test_a_wait_for_a_wide_join_set_where_the_journal_has_another_is_told_by_its_set(rig: Rig) -> None:
    async def sleeps(ctx: Context, jobs: Any, call: Any) -> Any:
        return await ctx.sleep(5)

    handle = await declare(rig.app, sleeps).start()
    caller = await rig.make_worker(queues=["default"])
    await caller.run_until_idle()
    app = rig.another_app()
    declare(app, _next)
    await rig.advance(5)
    await (await rig.make_worker(app, queues=["default"])).run_until_idle()
    assert "code:    await Any of the results left of join set #0\n" in await stranded(rig, handle)
