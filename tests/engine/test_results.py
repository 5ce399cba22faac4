"""Waiting for the end of executions: told directly by a worker of this process, heard of, or polled for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import App, Collision, Done, Handle, Machine, MachineContext, Outcome, Replay, Status, Stop, Unique, step
from holdfast.core.errors import (
    ClosedError,
    ConfigurationError,
    DecodeError,
    ExecutionCancelledError,
    ExecutionFailedError,
    ExecutionStrandedError,
    InvalidArgumentError,
    NotFoundError,
)
from holdfast.engine.results import Ending, Results
from holdfast.store.values import Topic
from holdfast.testing.hand import ERROR, Hand, done, promise_of, row, strand
from holdfast.testing.stores import Stores
from tests.engine.rig import Faulty, Rig


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


async def test_who_waits_is_told_that_the_store_refuses_to_be_asked(stores: Stores, faulty: Faulty) -> None:
    """As where the role has no rights: a wait that can never end says so, and the next one asks again."""
    hand = await Hand(stores.store).start()
    claim = await hand.take(row("a"))
    results = Results(faulty.as_store())
    faulty.fail("endings", ConfigurationError("permission denied"))
    one = await waiting(results, "a")
    with pytest.raises(ConfigurationError, match="permission denied"):
        await one
    faulty.fail("endings", ConfigurationError("permission denied"))
    with pytest.raises(ConfigurationError, match="permission denied"):
        await results.wait_all([promise_of("a"), promise_of("b")], until_failure=False)
    await hand.apply(claim, done("5"))
    assert (await results.wait(promise_of("a"))).result == "5"
    await results.stop()


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


async def test_who_has_just_asked_looks_again_a_moment_later(
    stores: Stores, faulty: Faulty, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that was under way may have looked for listeners before, and be seen only after the first look."""
    monkeypatch.setattr("holdfast.engine.waiting.LATE_LOOK_SECONDS", 0.001)
    monkeypatch.setattr("holdfast.engine.waiting.FIRST_POLL_SECONDS", 3600.0)
    await stores.store.insert([row("a", delay=1000)])
    looks: asyncio.Queue[None] = asyncio.Queue()

    async def look(*_: object) -> None:
        looks.put_nowait(None)

    faulty.on_call["endings"] = look
    waiting = asyncio.create_task(results.wait(promise_of("a")))
    await looks.get()
    await looks.get()  # though nothing was heard of
    waiting.cancel()


async def test_a_first_read_is_not_waited_out_and_reads_in_a_row_are(
    stores: Stores, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hint that comes after a slow first read is followed at once; hints without end do not drown the store."""
    monkeypatch.setattr("holdfast.engine.waiting.READ_SHARE", 1e9)
    await stores.store.insert([row("a", delay=1000)])
    results._waiters[promise_of("a")] = [asyncio.get_running_loop().create_future()]
    assert await results.run_once() == 0.05
    assert await results.run_once() == 0.1
    third = asyncio.create_task(results.run_once())
    assert await asyncio.wait([third], timeout=0.2) == (set(), {third})
    third.cancel()


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


# ---------------------------------------------------------------------- a crowd


async def ended(hand: Hand, *keys: str) -> None:
    await hand.insert(*map(row, keys))
    for claim in await hand.pick(len(keys)):
        await hand.apply(claim, done(f'"{claim.promise.hex()}"'))


class Waiting:
    """Runs e0, e1 .. of which ten are waited for: a crowd to a `Results` of small steps."""

    def __init__(self, results: Results, faulty: Faulty) -> None:
        self.results = results
        self.asked: list[list[int]] = []  # in each pass, by number
        self._numbers = {promise_of(f"e{n}"): n for n in range(20)}
        results._waiters |= {promise_of(f"e{n}"): [_future()] for n in range(10)}
        faulty.check = self._note

    def join(self, *numbers: int) -> None:
        for n in numbers:
            self.results._add(promise_of(f"e{n}"), _future())

    def _note(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "endings":
            self.asked.append([self._numbers[promise] for promise in arguments[0]])


def _future() -> asyncio.Future[Ending]:
    return asyncio.get_running_loop().create_future()


@pytest.fixture
async def crowd(
    stores: Stores, faulty: Faulty, results: Results, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Waiting]:
    small = {"CROWD_HEAD": 2, "CROWD_TURN": 2, "CROWD_NEW": 2, "CROWD_SECONDS": 0.0}
    monkeypatch.setattr("holdfast.engine.waiting.LATE_LOOK_SECONDS", 3600)
    for name, value in small.items():
        monkeypatch.setattr(f"holdfast.engine.results.{name}", value)
    await stores.store.insert([row(f"e{n}") for n in range(20)])
    yield Waiting(results, faulty)
    results._waiters.clear()


async def test_of_a_crowd_a_pass_asks_for_those_who_have_waited_longest_and_for_the_others_in_turn(
    crowd: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.results.CROWD_TURN", 3)
    for _ in range(4):
        await crowd.results.run_once()
    assert crowd.asked == [[0, 1, 2, 3, 4], [0, 1, 5, 6, 7], [0, 1, 8, 9], [0, 1, 2, 3, 4]]


async def test_a_hint_makes_the_passes_go_on_until_each_of_a_crowd_was_asked_for(crowd: Waiting) -> None:
    crowd.results._hear(Topic.ENDED)
    for _ in range(2):  # the second round is that of a poll
        waits = [await crowd.results.run_once() for _ in range(5)]
        assert waits[:4] == [0.0] * 4
        assert waits[4]
        assert {n for turn in crowd.asked for n in turn} == set(range(10))
        crowd.asked.clear()


async def test_who_joins_a_crowd_is_asked_for_in_the_next_pass(crowd: Waiting) -> None:
    crowd.join(10, 11, 12, 13)
    crowd.results._settle(promise_of("e11"), Ending(Status.DONE))
    assert await crowd.results.run_once() == 0.0, "others are new as well"
    await crowd.results.run_once()
    assert crowd.asked == [[0, 1, 10, 12], [0, 1, 13]]


async def test_where_many_of_a_crowd_have_ended_there_is_no_pause_before_the_next_are_asked_for(
    stores: Stores, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.results.CROWD_HEAD", 2)
    monkeypatch.setattr("holdfast.engine.results.CROWD_TURN", 1)
    await ended(await Hand(stores.store).start(), *(f"e{n}" for n in range(7)))
    loop = asyncio.get_running_loop()
    results._waiters |= {promise_of(f"e{n}"): [loop.create_future()] for n in range(7)}
    assert [await results.run_once() for _ in range(3)] == [0.0, 0.0, None]
    assert not results._waiters


async def test_one_who_waits_for_many_hears_when_all_have_ended(stores: Stores, results: Results) -> None:
    hand = await Hand(stores.store).start()
    await ended(hand, "a", "b")
    promises = [promise_of(key) for key in ("a", "b", "a")]
    endings = await results.wait_all(promises, until_failure=True)
    assert endings == {each: Ending(Status.DONE, f'"{each.hex()}"') for each in promises}
    assert await results.wait_all([], until_failure=True) == {}
    assert not results._waiters


async def test_one_who_waits_for_many_hears_of_the_first_that_failed_and_waits_for_none_of_them_then(
    stores: Stores, results: Results
) -> None:
    await stores.store.insert([row("a"), row("b")])
    promises = [promise_of("a"), promise_of("b")]
    task = asyncio.create_task(results.wait_all(promises, until_failure=True))
    await asyncio.sleep(0)
    results.ended(promises[1], Status.FAILED, None, ERROR)
    assert await task == {promises[1]: Ending(Status.FAILED, None, ERROR)}
    assert not results._waiters


async def test_one_who_waits_for_many_and_gives_up_is_forgotten(stores: Stores, results: Results) -> None:
    await stores.store.insert([row("a"), row("b")])
    task = asyncio.create_task(results.wait_all([promise_of("a"), promise_of("b")], until_failure=False))
    await asyncio.sleep(0)
    results.ended(promise_of("a"), Status.FAILED, None, ERROR)
    task.cancel()
    await asyncio.wait([task])
    assert not results._waiters


async def test_closing_tells_who_waits_for_many(stores: Stores, results: Results) -> None:
    await stores.store.insert([row("a"), row("b")])
    task = asyncio.create_task(results.wait_all([promise_of("a"), promise_of("b")], until_failure=True))
    await asyncio.sleep(0)
    await results.stop()
    with pytest.raises(ClosedError, match=r"closed while \w+ was waited for"):
        await task


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


async def test_results_of_many_handles_in_one_call(rig: Rig, machine: type[Machine[str]]) -> None:
    started = [await machine.options(key=f"k{n}").start(str(n)) for n in range(30)]
    started[3] = rig.app.handle(started[3].id.short)
    waiting_for = asyncio.create_task(rig.app.results(started))
    await rig.run()
    assert await waiting_for == [str(n) for n in range(30)]
    assert await rig.app.results([]) == []


async def test_results_of_many_raise_the_first_failure_or_have_it_in_its_place(
    rig: Rig, machine: type[Machine[str]]
) -> None:
    good, bad = await machine.start("good"), await machine.start("stop")
    nobody = rig.app.handle("Ends", key="nobody")
    await rig.run()
    with pytest.raises(ExecutionFailedError, match=r"Ends/\w+ failed: Stop: enough"):
        await rig.app.results([good, bad, good])
    result, failure, unknown = await rig.app.results([good, bad, nobody], return_exceptions=True)
    assert result == "good"
    assert isinstance(failure, ExecutionFailedError)
    assert isinstance(unknown, NotFoundError)
    wrong: list[Any] = await rig.app.results(
        [Handle(good._connection, good.id, name="Ends", result=int)], return_exceptions=True
    )
    assert isinstance(wrong[0], DecodeError)


async def test_results_of_many_end_with_their_timeout_and_leave_the_executions_alone(
    rig: Rig, machine: type[Machine[str]]
) -> None:
    started = [await machine.start("later"), await machine.start("now")]
    await rig.run()
    with pytest.raises(TimeoutError, match="not all of the 2 executions have ended within 1ms; they go on"):
        await rig.app.results(started, timeout=0.001)
    assert await started[0].status() is Status.RUNNABLE


async def test_results_are_of_handles_of_this_app(rig: Rig, machine: type[Machine[str]]) -> None:
    first = await machine.options(unique=Unique(key="one")).start("a")
    refused = (await machine.options(unique=Unique(key="one")).start_many(["a"]))[0]
    assert isinstance(refused, Collision)
    with pytest.raises(InvalidArgumentError, match="is no handle; start_many gives a Collision in the place"):
        await rig.app.results([first, refused])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="belongs to another app; each app waits for its own"):
        await rig.app.results([first, App("other").handle("Ends", key="k")])


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


async def test_a_timeout_of_zero_looks_once(rig: Rig, machine: type[Machine[str]]) -> None:
    handle = await machine.start("7")
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0)
    worker = await rig.make_worker()
    await worker.run_until_idle()
    assert await handle.result(timeout=0) == await handle.result()
    with pytest.raises(NotFoundError):
        await rig.app.handle("Nobody", key="none").result(timeout=0)
    await rig.stop(worker)


async def test_a_timeout_leaves_the_execution_alone(rig: Rig, machine: type[Machine[str]]) -> None:
    handle = await machine.start("later")
    await rig.run()
    late = rf"{handle.label} has not ended within 1ms and goes on; `holdfast show {handle.id.short}` says where"
    with pytest.raises(TimeoutError, match=late):
        await handle.result(timeout=0.001)
    assert await handle.status() is Status.RUNNABLE
    await rig.advance(1000)
    await rig.run()
    assert await handle.result(timeout=60) == "later"
