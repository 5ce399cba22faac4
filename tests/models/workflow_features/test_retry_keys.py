"""The idempotency key in a retry: a call that is tried again is known outside as what it was before, a step is not."""

from __future__ import annotations

import pytest

from holdfast import Context, Done, Machine, MachineContext, Next, Outcome, RetryPolicy, Status, current, step
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.shelf import ONCE


@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_a_call_that_is_tried_again_keeps_its_key(rig: Rig, queue: str | None) -> None:
    keys: list[str] = []
    failing = 0

    @rig.app.task(queue=queue, retry=RetryPolicy(max_attempts=2, initial_delay=0.1))
    async def pay(amount: int) -> int:
        keys.append(current().idempotency_key)
        if amount == failing:
            raise ConnectionError("no answer")
        return amount

    @rig.app.workflow
    async def checkout(ctx: Context) -> list[int]:
        return [await pay(1), await pay(2), await pay(3)]

    failing = 2
    handle = await checkout.start()
    first = handle.id
    await rig.run()
    await rig.advance(1)
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    failing = 3
    handle = await handle.retry()
    await rig.run()
    await rig.advance(1)
    await rig.run()
    second = handle.id
    assert await rig.status(handle) is Status.FAILED
    handle = await handle.retry()
    await rig.run()
    failing = 0
    await rig.advance(1)
    assert await rig.result(handle) == [1, 2, 3]
    one, two, three = (str(id_) for id_ in (first.child(0), first.child(1), second.child(2)))
    assert keys == [one, two, two, two, three, three, three, three]


async def test_what_follows_the_failed_call_anew_has_a_key_of_its_own(rig: Rig) -> None:
    """It takes the place of what made up for the failure, and is another call."""
    keys: dict[str, list[str]] = {}
    broken = True

    @rig.app.task(retry=ONCE)
    async def note(what: str) -> None:
        keys.setdefault(what, []).append(current().idempotency_key)
        if what == "charge" and broken:
            raise ValueError("declined")

    @rig.app.workflow
    async def checkout(ctx: Context) -> None:
        try:
            await note("charge")
        except Exception:
            await note("refund")
            raise
        await note("ship")

    handle = await checkout.start()
    await rig.run()
    broken = False
    again = await handle.retry()
    await rig.result(again)
    assert keys == {
        "charge": [str(handle.id.child(0))] * 2,
        "refund": [str(handle.id.child(1))],
        "ship": [str(again.id.child(1))],
    }


async def test_a_call_cut_off_by_the_failure_of_another_keeps_its_key_and_that_of_a_fork_is_new(rig: Rig) -> None:
    keys: list[str] = []
    broken = True

    @rig.app.task(retry=ONCE)
    async def reserve() -> None:
        if broken:
            raise ValueError("sold out")

    @rig.app.task(queue="far")
    async def pay() -> None:
        keys.append(current().idempotency_key)

    @rig.app.workflow
    async def checkout(ctx: Context) -> None:
        paid = pay()
        await reserve()
        await paid

    worker = await rig.make_worker(queues=["default"])
    handle = await checkout.start()
    await worker.run_until_idle()
    assert await rig.status(handle) is Status.FAILED
    broken = False
    again = await handle.retry()
    fork = await again.fork(2)
    await worker.run_until_idle()
    await rig.make_worker(queues=["far"])
    for each in (*rig.workers, *rig.workers):
        await each.run_until_idle()
    assert sorted(keys) == sorted([str(handle.id.child(0))] * 2 + [str(fork.id.child(0))])


async def test_a_task_alone_keeps_its_key(rig: Rig) -> None:
    keys: list[str] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=2, initial_delay=1))
    async def pay() -> int:
        keys.append(current().idempotency_key)
        if len(keys) < 6:
            raise ConnectionError("no answer")
        return 7

    handle = first = await pay.start()
    for _ in range(2):
        await rig.run()
        await rig.advance(2)
        await rig.run()
        handle = await handle.retry()
    await rig.run()
    await rig.advance(2)
    assert await rig.result(handle) == 7
    assert keys == [str(first.id)] * 6


@pytest.mark.parametrize("has_handler", [False, True])
async def test_a_retry_of_a_machine_has_new_keys(rig: Rig, has_handler: bool) -> None:
    """Each the same for every attempt; and those of one run are never those of another, whose effects were others."""
    keys: dict[str, list[str]] = {}
    failing = "pay"

    class Till(Machine[int]):
        @step(initial=True)
        async def open(self, ctx: MachineContext[int]) -> Outcome:
            return self.known("open", ctx, Next(self.pay, 1))

        @step
        async def pay(self, ctx: MachineContext[int]) -> Outcome:
            return self.known("pay", ctx, Next(self.close, 2))

        @step
        async def close(self, ctx: MachineContext[int]) -> Outcome:
            return self.known("close", ctx, Done(3))

        def known(self, name: str, ctx: MachineContext[int], outcome: Outcome) -> Outcome:
            keys.setdefault(str(ctx.id), []).append(ctx.idempotency_key)
            if name == failing:
                raise ConnectionError("no answer")
            return outcome

        if has_handler:

            async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
                raise error

    rig.app.machine(retry=RetryPolicy(max_attempts=3, initial_delay=0.1), history=True)(Till)
    first = handle = await Till.start(0)
    for failing in ("pay", "close", "close", ""):
        for _ in range(3):
            await rig.run()
            await rig.advance(1)
        if failing:
            assert await rig.status(handle) is Status.FAILED
            handle = await handle.retry()
    assert await rig.result(handle) == 3
    attempts = 1 if has_handler else 3
    for run, known in keys.items():
        assert all(key.startswith(f"{run}:") for key in known)
    steps = [[known.count(key) for key in dict.fromkeys(known)] for known in keys.values()]
    assert steps == [[1, attempts], [1, attempts], [attempts], [1]]
    assert next(iter(keys)) == str(first.id)


async def test_a_machine_that_is_retried_with_its_caller_begins_as_one_that_is_retried_by_itself(rig: Rig) -> None:
    keys: list[str] = []
    broken = True

    @rig.app.machine(retry=ONCE)
    class Till(Machine[int]):
        @step(initial=True)
        async def open(self, ctx: MachineContext[int]) -> Outcome:
            return Next(self.close, ctx.state + 1)

        @step
        async def close(self, ctx: MachineContext[int]) -> Outcome:
            keys.append(ctx.idempotency_key)
            if broken:
                raise ValueError("no answer")
            return Done(ctx.state)

    @rig.app.workflow
    async def shop(ctx: Context) -> int:
        closed: int = await ctx.invoke(Till, 6)
        return closed

    handle, alone = await shop.start(), await Till.start(6)
    await rig.run()
    broken = False
    again, alone_again = await handle.retry(), await alone.retry()
    assert [await rig.result(again), await rig.result(alone_again)] == [7, 7]
    new = [f"{again.id.child(0)}:close:0", f"{alone_again.id}:close:0"]
    assert sorted(keys[2:]) == sorted(new)
