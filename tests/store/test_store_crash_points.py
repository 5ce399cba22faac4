"""Dying at a commit: before it nothing is there, after it everything, and the ledger goes on (seed section 1).

A hook raises at the named point, as `holdfast.testing` does to kill a program there; the store object survives it, so
that the same test shows that no lock and no half of a transaction is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest

from holdfast.core.crashpoints import CRASH_POINTS, set_hook
from holdfast.core.status import Status
from holdfast.store.effects import SpawnExecutions
from holdfast.store.values import NewSignal, Retention
from holdfast.testing.hand import LEASE_SECONDS, Hand, child_rows, done, park, promise_of, row, wait_children
from holdfast.testing.stores import Stores


class Killed(BaseException):
    """Not an `Exception`: nothing on the way may take it for an error of its own."""


@pytest.fixture(autouse=True)
def _unhook() -> Iterator[None]:
    yield
    set_hook(None)


def kill_at(point: str) -> None:
    def hook(reached: str) -> None:
        if reached == point:
            set_hook(None)
            raise Killed(point)

    set_hook(hook)


@dataclass(frozen=True)
class Case:
    """`prepare`, then `act` dies; `happened` tells whether it was committed."""

    prepare: Callable[[Stores, Hand], Awaitable[None]]
    act: Callable[[Stores, Hand], Awaitable[object]]
    happened: Callable[[Stores, Hand], Awaitable[bool]]


async def nothing(stores: Stores, hand: Hand) -> None:
    pass


async def waiting(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("a"))


async def held(stores: Stores, hand: Hand) -> None:
    await hand.take(row("a"))


async def parked(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a")), park("go", wake_after=5))
    await stores.advance(6)


async def lost(stores: Stores, hand: Hand) -> None:
    await Hand(stores.store, "dead", lease_seconds=1).start()
    await Hand(stores.store, "dead").take(row("a"))
    await stores.advance(2)


async def ended(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a")), done())
    await stores.advance(60)


async def insert(stores: Stores, hand: Hand) -> object:
    return await stores.store.insert([row("a"), row("b")])


async def pick(stores: Stores, hand: Hand) -> object:
    return await hand.pick()


async def flush(stores: Stores, hand: Hand) -> object:
    (claim,) = await stores.store.reclaim(hand.name, [await hand.take(row("parent"))])
    assert claim is not None
    return await hand.commit(claim, wait_children(), SpawnExecutions(child_rows(claim, 3, queue="children")))


async def deliver(stores: Stores, hand: Hand) -> object:
    return await stores.store.deliver([NewSignal(promise_of("a"), "go", "1")])


async def reap(stores: Stores, hand: Hand) -> object:
    return await stores.store.reap(10, max_crashes=10)


async def fire_timers(stores: Stores, hand: Hand) -> object:
    return await stores.store.fire_timers(10)


async def release(stores: Stores, hand: Hand) -> object:
    return await stores.store.release(hand.name, await hand.pick())


async def cancel(stores: Stores, hand: Hand) -> object:
    return await stores.store.cancel([promise_of("a")], cascade=True)


async def purge(stores: Stores, hand: Hand) -> object:
    return await stores.store.purge(Retention(age_seconds=1), 10)


async def register(stores: Stores, hand: Hand) -> object:
    return await Hand(stores.store, "newcomer").start()


async def pause(stores: Stores, hand: Hand) -> object:
    return await stores.store.pause(promise_of("a"), True)


async def is_there(stores: Stores, hand: Hand) -> bool:
    views = await stores.store.get_many([promise_of("a"), promise_of("b")])
    assert len({view is None for view in views}) == 1, "all of it or nothing"
    return views[0] is not None


async def is_gone(stores: Stores, hand: Hand) -> bool:
    return await stores.store.get(promise_of("a")) is None


def is_in(status: Status) -> Callable[[Stores, Hand], Awaitable[bool]]:
    async def check(stores: Stores, hand: Hand) -> bool:
        return (await hand.view("a")).status is status

    return check


async def has_children(stores: Stores, hand: Hand) -> bool:
    view = await hand.view("parent")
    children = await stores.store.children(view.promise)
    assert (view.status, len(children)) in {(Status.AWAITING_CHILDREN, 3), (Status.EXECUTING, 0)}
    return bool(children)


async def has_signal(stores: Stores, hand: Hand) -> bool:
    is_woken = (await hand.view("a")).status is Status.RUNNABLE
    assert bool(await stores.store.inbox(promise_of("a"))) is is_woken
    return is_woken


async def is_registered(stores: Stores, hand: Hand) -> bool:
    return "newcomer" in {worker.id for worker in await stores.store.workers()}


async def is_paused(stores: Stores, hand: Hand) -> bool:
    return (await hand.view("a")).paused


CASES = {
    "insert": Case(nothing, insert, is_there),
    "pick": Case(waiting, pick, is_in(Status.EXECUTING)),
    "flush": Case(nothing, flush, has_children),
    "deliver": Case(parked, deliver, has_signal),
    "reap": Case(lost, reap, is_in(Status.RUNNABLE)),
    "timers": Case(parked, fire_timers, is_in(Status.RUNNABLE)),
    "release": Case(waiting, release, is_in(Status.RUNNABLE)),
    "cancel": Case(waiting, cancel, is_in(Status.CANCELLED)),
    "purge": Case(ended, purge, is_gone),
    "lease": Case(nothing, register, is_registered),
    "control": Case(waiting, pause, is_paused),
}


def test_every_crash_point_has_a_case() -> None:
    assert {point.rpartition(".")[0] for point in CRASH_POINTS} == set(CASES)


@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_a_crash_at_a_commit_leaves_nothing_or_all_of_it(stores: Stores, hand: Hand, point: str) -> None:
    name, _, side = point.rpartition(".")
    case = CASES[name]
    await case.prepare(stores, hand)
    kill_at(point)
    with pytest.raises(Killed):
        await case.act(stores, hand)
    assert await case.happened(stores, hand) is (side == "after")


@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_the_ledger_goes_on_after_a_crash(stores: Stores, hand: Hand, point: str) -> None:
    """Here, and for another process: no lock is left, and no transaction open."""
    case = CASES[point.rpartition(".")[0]]
    await case.prepare(stores, hand)
    kill_at(point)
    with pytest.raises(Killed):
        await case.act(stores, hand)
    other = await Hand(await stores.another(), "w2").start()
    for worker in (hand, other):
        claim = await worker.take(row(f"next of {worker.name}", queue="next"), queues=["next"])
        await worker.apply(claim, done())
    await stores.advance(LEASE_SECONDS + 1)
    assert (await stores.store.reap(10, max_crashes=10)).more is False
