"""Several calls at once: join sets (JS-1..JS-7, ruling B8), `all`, `any`, and the recorded order of what came first."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from holdfast import Completed, Context, RetryPolicy, Status, TaskFailed
from holdfast.core.errors import CallNotAllowedError, InvalidArgumentError
from tests.models.workflow.kit import Gate, HandWorker, Rig

COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
QUEUES = ("a", "b", "c")


async def on_queues(rig: Rig) -> tuple[HandWorker, dict[str, HandWorker]]:
    """A caller that replays at every claim, and one worker for each queue: they end calls in any order asked for."""
    caller = await rig.make_worker(queues=["default"], warm_most=0)
    return caller, {name: await rig.make_worker(queues=[name]) for name in QUEUES}


def remote_tasks(rig: Rig) -> Any:
    """One task a queue; each gives its name."""
    made = []
    for queue in QUEUES:

        @rig.app.task(name=f"task_{queue}", queue=queue)
        async def task(mark: str) -> str:
            return mark

        made.append(task)
    return made


@pytest.mark.parametrize("order", list(itertools.permutations(QUEUES)), ids="".join)
async def test_results_come_in_the_order_of_their_ends_and_replay_keeps_it(rig: Rig, order: tuple[str, ...]) -> None:
    tasks = remote_tasks(rig)

    @rig.app.workflow
    async def work(ctx: Context) -> list[str]:
        seen = []
        async with ctx.join_set() as jobs:
            for task, queue in zip(tasks, QUEUES, strict=True):
                jobs.submit(task, queue)
            seen += [done.result() async for done in jobs]
        await ctx.signal("go", int)
        return seen

    handle = await work.start()
    caller, workers = await on_queues(rig)
    await caller.run_until_idle()
    for queue in order:
        await workers[queue].run_until_idle()
        await caller.run_until_idle()
    await handle.signal("go", 1)
    await caller.run_until_idle()
    assert await handle.result() == list(order)


class Looked(dict[str, Any]):
    """Counts how often it was asked whether it has a key."""

    times = 0

    def __contains__(self, key: object) -> bool:
        Looked.times += 1
        return super().__contains__(key)


@COLD
async def test_a_large_join_set_is_not_looked_through_for_each_of_its_results(rig: Rig, cold: bool) -> None:
    """Else a set of twenty thousand holds up the worker's loop for the better part of a minute."""
    members, looks = 300, []

    @rig.app.task(queue="a")
    async def number(n: int) -> int:
        return n

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        seen: list[int] = []
        async with ctx.join_set() as jobs:
            for n in range(members):
                jobs.submit(number, n)
            await ctx.signal("take", int)
            jobs._session.settled = Looked(jobs._session.settled)
            Looked.times = 0
            seen += [done.result() async for done in jobs]
            looks.append(Looked.times)
        await ctx.signal("go", int)
        return sorted(seen)

    handle = await work.start()
    worker = await rig.make_worker(queues=["default", "a"], warm_most=0 if cold else None)
    for signal in ("take", "go"):
        await worker.run_until_idle()
        await handle.signal(signal, 1)
    await worker.run_until_idle()
    assert await handle.result() == list(range(members))
    assert len(looks) == (2 if cold else 1)  # a replay takes as it is recorded
    assert max(looks) < 10 * members


@pytest.mark.parametrize("order", list(itertools.permutations(QUEUES)), ids="".join)
async def test_all_gives_results_in_the_order_asked_and_any_the_first(rig: Rig, order: tuple[str, ...]) -> None:
    tasks = remote_tasks(rig)

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        promises = [task(queue) for task, queue in zip(tasks, QUEUES, strict=True)]
        first: Completed[str] = await ctx.any(*promises)
        everything = await ctx.all(*promises)
        again: Completed[str] = await ctx.any(*promises)
        return [first.result(), promises.index(first.promise), everything, again.result()]

    handle = await work.start()
    caller, workers = await on_queues(rig)
    await caller.run_until_idle()
    for queue in order:
        await workers[queue].run_until_idle()
        await caller.run_until_idle()
    assert await handle.result() == [order[0], QUEUES.index(order[0]), list(QUEUES), order[0]]


@COLD
async def test_failures_are_values_until_their_result_is_asked_for(rig: Rig, cold: bool) -> None:
    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def odd_fails(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        async with ctx.join_set() as jobs:
            for number in range(4):
                jobs.submit(odd_fails, number)
            seen += ["failed" if done.failed else done.result() async for done in jobs]
        await ctx.sleep(0)
        return seen

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    assert await rig.result(handle) == [0, "failed", 2, "failed"]


async def test_a_failure_that_is_raised_in_the_block_cancels_the_rest(rig: Rig) -> None:
    gate = Gate()
    ended: list[str] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def fails() -> None:
        await gate.reached.wait()
        raise ValueError("no")

    @rig.app.task
    async def slow() -> None:
        try:
            await gate.wait()
        finally:
            ended.append("cut off")

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            async with ctx.join_set() as jobs:
                jobs.submit(slow)
                jobs.submit(fails)
                (await jobs.next()).result()
        except TaskFailed as error:
            return str(error)
        return "no error"

    assert "ValueError: no" in await rig.result(await work.start())
    assert ended == ["cut off"]


@COLD
async def test_a_quorum_takes_the_first_that_succeed(rig: Rig, cold: bool) -> None:
    @rig.app.task(queue="a", retry=RetryPolicy(max_attempts=1))
    async def vote(number: int) -> int:
        if number == 0:
            raise ValueError("abstains")
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        async with ctx.join_set(cancel_rest=True) as votes:
            for number in range(5):
                votes.submit(vote, number)
            return [done.result() for done in await votes.first(2)]

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None, concurrency=1)
    assert await rig.result(handle) == [1, 2]


async def test_a_quorum_that_cannot_be_had_raises_the_last_failure(rig: Rig) -> None:
    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def vote(number: int) -> int:
        raise ValueError(f"{number} abstains")

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        async with ctx.join_set() as votes:
            for number in range(3):
                votes.submit(vote, number)
            try:
                await votes.first(2)
            except TaskFailed as error:
                return str(error)
        return "no error"

    assert "1 abstains" in await rig.result(await work.start())


@pytest.mark.parametrize(
    ("count", "refusal"),
    [
        (3, "CallNotAllowedError: 3 results are wanted of a join set in which 2 are left to take"),
        (-1, "InvalidArgumentError: first() takes how many results are wanted"),
        (1.5, "InvalidArgumentError: first() takes how many results are wanted"),
        ("2", "InvalidArgumentError: first() takes how many results are wanted"),
        (True, "InvalidArgumentError: first() takes how many results are wanted"),
    ],
)
async def test_a_quorum_that_nobody_can_give_is_refused(rig: Rig, count: Any, refusal: str) -> None:
    @rig.app.task
    async def vote() -> None:
        return None

    @rig.app.workflow
    async def work(ctx: Context) -> tuple[str, int]:
        async with ctx.join_set() as votes:
            votes.submit(vote)
            votes.submit(vote)
            try:
                await votes.first(count)
            except (CallNotAllowedError, InvalidArgumentError) as error:
                return f"{type(error).__name__}: {error}", len(votes)
        return "", 0

    message, left = await rig.result(await work.start())
    assert message.startswith(refusal)
    assert left == 2


@COLD
async def test_leaving_waits_for_the_rest(rig: Rig, cold: bool) -> None:
    ended: list[int] = []

    @rig.app.task(queue="a")
    async def note(number: int) -> None:
        ended.append(number)

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        async with ctx.join_set() as jobs:
            for number in range(3):
                jobs.submit(note, number)
        return len(jobs)

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    assert await rig.result(handle) == 0
    assert sorted(ended) == [0, 1, 2]
    assert sum(line.startswith("JoinSetAwaited") for line in await rig.lines(handle)) == 3


@COLD
@pytest.mark.parametrize("queue", [None, "a"], ids=["inline", "remote"])
async def test_leaving_with_cancel_rest_cancels_the_rest(rig: Rig, cold: bool, queue: str | None) -> None:
    gate = Gate()
    ended: list[str] = []

    @rig.app.task(queue=queue)
    async def slow() -> None:
        try:
            await gate.wait()
        finally:
            ended.append("cut off")

    @rig.app.task
    async def quick() -> str:
        await gate.reached.wait()
        return "quick"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        async with ctx.join_set(cancel_rest=True) as jobs:
            jobs.submit(slow)
            jobs.submit(quick)
            first: str = (await jobs.next()).result()
        return first

    handle = await work.start()
    caller = await rig.make_worker(warm_most=0 if cold else None, queues=["default"])
    working = rig.working(caller)
    if queue is not None:
        other = await rig.make_worker(queues=["a"])
        while not gate.reached.is_set():
            working_there = rig.working(other)
            await asyncio.wait([working_there, asyncio.create_task(gate.reached.wait())], return_when="FIRST_COMPLETED")
        await working
        await other._watcher.run_once()
        await working_there
    await working
    assert await handle.result() == "quick"
    assert ended == ["cut off"]
    for child in await rig.stores.store.children(handle.id.to_bytes()):
        assert child.status is Status.CANCELLED


async def test_an_empty_join_set_gives_nothing_and_is_left_at_once(rig: Rig) -> None:
    """JS-6: and `next()` on it is an error."""

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        async with ctx.join_set() as jobs:
            seen = [done async for done in jobs]
            try:
                await jobs.next()
            except CallNotAllowedError as error:
                return [seen, str(error)]
        return ["no error"]

    seen, message = await rig.result(await work.start())
    assert seen == []
    assert "JS-6" in message
    assert "while len(jobs) is not 0" in message


async def test_what_a_join_set_refuses(rig: Rig) -> None:
    """JS-2 after the first result, JS-7 a call twice, B8 a timer, and what is no call at all."""

    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    async def plain() -> int:
        return 1

    @rig.app.workflow
    async def work(ctx: Context) -> list[str]:
        refused: list[str] = []

        def attempt(*arguments: Any, jobs: Any) -> None:
            try:
                jobs.submit(*arguments)
            except (CallNotAllowedError, InvalidArgumentError) as error:
                refused.append(f"{type(error).__name__}: {error}")

        first, second = ctx.join_set(), ctx.join_set()
        call = first.submit(add, 1)
        attempt(call, jobs=first)
        attempt(call, jobs=second)
        attempt(ctx.sleep(1), jobs=second)
        attempt(7, jobs=second)
        coroutine = plain()
        attempt(lambda: coroutine, jobs=second)
        coroutine.close()
        await first.next()
        attempt(add, 2, jobs=first)
        return refused

    refused = await rig.result(await work.start())
    assert len(refused) == 6
    assert [("JS-7" in line, "JS-2" in line) for line in refused] == [
        (True, False),
        (True, False),
        (False, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    remedies = ["await the call itself"] * 2 + ["without `await`"] * 3 + ["open another ctx.join_set()"]
    assert [remedy in line for remedy, line in zip(remedies, refused, strict=True)] == [True] * 6


async def test_a_call_begun_before_and_even_ended_may_be_submitted(rig: Rig) -> None:
    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        early = ctx.invoke(add, 1)
        await early
        async with ctx.join_set() as jobs:
            jobs.submit(early)
            jobs.submit(add, 2)
            return [done.result() async for done in jobs]

    assert await rig.result(await work.start()) == [2, 3]


@pytest.mark.parametrize("queue", [None, "a"], ids=["inline", "remote"])
async def test_a_fan_out_of_a_thousand_comes_back_whole(rig: Rig, queue: str | None) -> None:
    @rig.app.task(queue=queue)
    async def square(number: int) -> int:
        return number * number

    @rig.app.workflow
    async def work(ctx: Context, count: int) -> int:
        results = await ctx.all(*[ctx.invoke(square, number) for number in range(count)])
        return sum(results)

    handle = await work.start(1000)
    assert await rig.result(handle) == sum(number * number for number in range(1000))


async def test_a_join_set_over_a_thousand_takes_each_once(rig: Rig) -> None:
    @rig.app.task
    async def echo(number: int) -> int:
        return number

    @rig.app.workflow
    async def work(ctx: Context, count: int) -> list[int]:
        async with ctx.join_set() as jobs:
            for number in range(count):
                jobs.submit(echo, number)
            return sorted([done.result() async for done in jobs])

    assert await rig.result(await work.start(300)) == list(range(300))


async def test_all_raises_the_first_failure_in_the_order_given(rig: Rig) -> None:
    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def fails(number: int) -> int:
        raise ValueError(f"number {number}")

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await ctx.all(ctx.sleep(1), ctx.invoke(fails, 1), ctx.invoke(fails, 2))
        except TaskFailed as error:
            return str(error)
        return "no error"

    handle = await work.start()
    await rig.run()
    await rig.advance(1)
    assert "number 1" in await rig.result(handle)


@pytest.mark.parametrize("how", ["nothing", "twice", "plain"])
async def test_what_a_combination_refuses(rig: Rig, how: str) -> None:
    @rig.app.workflow
    async def work(ctx: Context, how: str) -> str:
        timer = ctx.sleep(1)
        given: dict[str, tuple[Any, ...]] = {"nothing": (), "twice": (timer, timer), "plain": (timer, 5)}
        try:
            await ctx.all(*given[how])
        except InvalidArgumentError as error:
            return str(error)
        return "no error"

    words = {
        "nothing": ("needs something", "give it promises"),
        "twice": ("same promise twice", "give each once"),
        "plain": ("takes promises", "not awaited"),
    }
    told = await rig.result(await work.start(how))
    assert all(part in told for part in words[how])


@COLD
async def test_a_deadline_on_a_join_set_is_a_timer_beside_it(rig: Rig, cold: bool) -> None:
    """B8: a timer is no member. What came too late for one wait is there for the next, and replay agrees."""

    @rig.app.task(queue="a")
    async def slow(number: int) -> int:
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        async with ctx.join_set() as calls:
            calls.submit(slow, 1)
            for _ in range(2):
                try:
                    seen.append((await calls.next(timeout=5)).result())
                except TimeoutError as error:
                    seen.append(str(error))
                    if len(seen) == 1:
                        calls.submit(slow, 2)  # nothing was taken, so the set is open (JS-2)
            await ctx.signal("go")
            seen.append((await calls.next(timeout=5)).result())
        return seen

    handle = await work.start()
    caller = await rig.make_worker(queues=["default"], warm_most=0 if cold else None)
    await caller.run_until_idle()
    await rig.advance(5)
    await caller.run_until_idle()
    helper = await rig.make_worker(queues=["a"])
    await helper.run_until_idle()
    await caller.run_until_idle()
    await rig.advance(600)
    await handle.signal("go")
    await caller.run_until_idle()
    seen = await handle.result()
    assert (seen[0], sorted(seen[1:])) == ("no call of the join set ended within 5 s", [1, 2])
    lines = await rig.lines(handle)
    assert "ExecutionAwaiting [root.1, root.2] Any" in lines
    assert len([line for line in lines if line.startswith("JoinSetAwaited")]) == 2


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan")], ids=str)
async def test_a_deadline_of_no_length_is_refused(rig: Rig, timeout: Any) -> None:
    @rig.app.task
    async def call() -> None: ...

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        async with ctx.join_set() as calls:
            calls.submit(call)
            try:
                await calls.next(timeout=timeout)
            except InvalidArgumentError as error:
                return str(error)
        return "no error"

    assert "timeout" in await rig.result(await work.start())
