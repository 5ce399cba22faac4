"""Waiting for the end of executions: told directly by a worker of this process, heard of, or polled for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Done, Machine, MachineContext, Outcome, Replay, Status, Stop, step
from holdfast.core.errors import (
    ClosedError,
    ExecutionCancelledError,
    ExecutionFailedError,
    ExecutionStrandedError,
    NotFoundError,
)
from holdfast.engine.results import Ending, Results
from holdfast.store.values import Topic
from holdfast.testing.hand import ERROR, Hand, done, promise_of, row, strand
from holdfast.testing.stores import Stores
from tests.engine.rig import Faulty, Rig


@pytest.fixture
async def faulty(stores: Stores) -> Faulty:
    return Faulty(stores.store)


@pytest.fixture
async def results(faulty: Faulty) -> AsyncIterator[Results]:
    made = Results(faulty.as_store())
    yield made
    await made.stop()


async def waiting(results: Results, key: str) -> asyncio.Task[Ending]:
    """A waiter whose first read has found nothing."""
    task = asyncio.create_task(results.wait(promise_of(key)))
    await asyncio.sleep(0)
    return task


async def test_what_has_ended_is_known_at_once(stores: Stores, results: Results) -> None:
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), done("5"))
    assert await results.wait(promise_of("a")) == Ending(Status.DONE, "5", None)


async def test_what_does_not_exist_is_known_at_once(results: Results) -> None:
    assert await results.wait(promise_of("nobody")) == Ending(None)


async def test_a_stranded_execution_does_not_keep_its_waiters_waiting(stores: Stores, results: Results) -> None:
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), strand())
    assert await results.wait(promise_of("a")) == Ending(Status.STRANDED, None, ERROR)


async def test_a_worker_of_this_process_tells_directly(stores: Stores, faulty: Faulty, results: Results) -> None:
    """In the turn of the loop in which the commit became durable, without a read."""
    await stores.store.insert([row("a")])
    task = await waiting(results, "a")
    results.ended(promise_of("a"), Status.DONE, "7", None)
    assert await task == Ending(Status.DONE, "7", None)


async def test_the_end_of_what_nobody_waits_for_is_forgotten(results: Results) -> None:
    results.ended(promise_of("a"), Status.DONE, "7", None)
    assert await results.wait(promise_of("a")) == Ending(None)


async def test_work_of_another_process_is_heard_or_polled_for(stores: Stores, results: Results) -> None:
    other = await Hand(await stores.another(), "w2").start()
    claim = await other.take(row("a"))
    task = await waiting(results, "a")
    await other.apply(claim, done("7"))
    assert await task == Ending(Status.DONE, "7", None)


async def test_many_waiters_share_one_read(stores: Stores, faulty: Faulty, results: Results) -> None:
    hand = await Hand(stores.store).start()
    await hand.insert(*(row(f"e{n}") for n in range(20)))
    for claim in await hand.pick(20):
        await hand.apply(claim, done("1"))
    endings = await asyncio.gather(*(results.wait(promise_of(f"e{n % 20}")) for n in range(60)))
    assert endings == [Ending(Status.DONE, "1", None)] * 60
    assert faulty.calls["endings"] == 1


async def test_hints_are_put_off_while_a_worker_of_this_process_tells_but_nobody_waits_for_that(
    stores: Stores, results: Results
) -> None:
    """They are mostly its own, and each would be a read of all that is waited for."""
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("past")), done("5"))
    claim = await hand.take(row("b"))
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    results._waiters |= {promise_of("a"): [first], promise_of("b"): [second]}
    results._hear(Topic.ENDED)
    assert results._woken.is_set(), "nobody here tells"
    results._woken.clear()
    results.ended(promise_of("a"), Status.DONE, "7", None)
    assert first.result() == Ending(Status.DONE, "7", None)
    results._hear(Topic.ENDED)
    assert not results._woken.is_set()
    assert await results.wait(promise_of("past")) == Ending(Status.DONE, "5", None)
    await hand.apply(claim, done("6"))
    assert await second == Ending(Status.DONE, "6", None)


async def test_a_waiter_that_gives_up_is_forgotten(stores: Stores, results: Results) -> None:
    await stores.store.insert([row("a")])
    first, second = await waiting(results, "a"), await waiting(results, "a")
    first.cancel()
    await asyncio.wait([first])
    results.ended(promise_of("a"), Status.DONE, "7", None)
    assert (await second).result == "7"
    assert await results.run_once() is None, "nobody is left to wait for"


async def test_closing_tells_who_still_waits_in_a_type_of_its_own(stores: Stores, results: Results) -> None:
    """A bare CancelledError would look like a cancel of the waiter's own task."""
    await stores.store.insert([row("a")])
    task = await waiting(results, "a")
    await results.stop()
    with pytest.raises(ClosedError, match=r"closed while \w+ was waited for"):
        await task


async def test_polling_backs_off(stores: Stores, results: Results) -> None:
    await stores.store.insert([row("a", delay=1000)])
    future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
    results._waiters[promise_of("a")] = [future]
    waits = [await results.run_once() for _ in range(7)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_a_pass_that_leaves_nobody_waiting_pauses_for_nobody(stores: Stores, results: Results) -> None:
    """So that a loop over handles of ended executions takes no longer than its reads."""
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), done("5"))
    future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
    results._waiters[promise_of("a")] = [future]
    assert await results.run_once() is None
    assert future.result().result == "5"


async def test_a_store_that_is_away_for_a_while_costs_a_pause(
    stores: Stores, faulty: Faulty, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), done("5"))
    faulty.fail("endings")
    faulty.fail("endings")
    assert (await results.wait(promise_of("a"))).result == "5"
    assert faulty.pending() == 0


# ---------------------------------------------------------------------- through a handle


@pytest.fixture
def machine(rig: Rig) -> type[Machine[str]]:
    @rig.app.machine
    class Ends(Machine[str]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[str]) -> Outcome:
            if ctx.state == "stop":
                return Stop("enough")
            is_later = ctx.state == "later" and ctx.attempt == 0
            return Replay(ctx.state, delay=1000) if is_later else Done(ctx.state)

    return Ends


async def test_results_of_many_handles(rig: Rig, machine: type[Machine[str]]) -> None:
    started = [await machine.start(str(n)) for n in range(30)]
    waiting_for = asyncio.gather(*(handle.result(str) for handle in started))
    await rig.run()
    assert await waiting_for == [str(n) for n in range(30)]


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ("stop", ExecutionFailedError, r"Ends/\w+ failed: Stop: enough"),
        ("cancel", ExecutionCancelledError, r"Ends/\w+ was cancelled"),
        ("strand", ExecutionStrandedError, r"Ends/\w+ is stranded: ValueError: no. .* then resume it"),
        ("nobody", NotFoundError, r"there is no execution Ends/\w+"),
    ],
)
async def test_a_result_that_is_none_is_an_error_that_says_why(
    rig: Rig, machine: type[Machine[str]], state: str, error: type[Exception], message: str
) -> None:
    handle: Any = rig.app.handle("Ends", key="k")
    if state != "nobody":
        handle = await machine.options(key="k", queue=state).start(state)
    if state == "cancel":
        await handle.cancel()
    if state == "strand":
        hand = await Hand(rig.stores.store).start()
        (claim,) = await hand.pick(queues=["strand"], handlers=list(rig.app.runners()[0].handlers))
        await hand.apply(claim, strand())
    if state == "stop":
        await (await rig.make_worker(queues=["stop"])).run_until_idle()
    with pytest.raises(error, match=message):
        await handle.result()


async def test_a_timeout_leaves_the_execution_alone(rig: Rig, machine: type[Machine[str]]) -> None:
    handle = await machine.start("later")
    await rig.run()
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0.001)
    assert await handle.status() is Status.RUNNABLE
    await rig.advance(1000)
    await rig.run()
    assert await handle.result(timeout=60) == "later"
