"""Being woken: hints that something is runnable or has ended (DESIGN section 6; a lost one costs a poll)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.core.status import Status
from holdfast.store.base import Ear, Store
from holdfast.store.effects import AdvanceExecution, Commit, SpawnExecutions
from holdfast.store.values import NewSignal, Topic
from holdfast.testing.hand import (
    Hand,
    child_rows,
    done,
    go,
    keep,
    park,
    promise_of,
    row,
    strand,
    wait_children,
)
from holdfast.testing.stores import Stores


class Listener:
    """Counts what it hears; `expect` waits for a topic and fails after a generous while."""

    def __init__(self) -> None:
        self._heard = {topic: asyncio.Event() for topic in Topic}
        self.ear: Ear | None = None

    def hear(self, topic: Topic) -> None:
        self._heard[topic].set()

    async def open(self, store: Store, *armed: Topic) -> Listener:
        self.ear = await store.open_ear(self.hear)
        for topic in armed:
            await self.ear.arm(topic)
        return self

    def forget(self) -> None:
        for event in self._heard.values():
            event.clear()

    def has_heard(self, topic: Topic) -> bool:
        return self._heard[topic].is_set()

    async def expect(self, topic: Topic) -> None:
        await asyncio.wait_for(self._heard[topic].wait(), 20)

    async def close(self) -> None:
        assert self.ear is not None
        await self.ear.close()


async def lose_worker(stores: Stores, max_crashes: int) -> None:
    """A worker dies within the time that an ear stays armed."""
    victim = await Hand(stores.store, "victim", lease_seconds=1).start()
    await victim.take()
    await stores.advance(2)
    await stores.store.reap(10, max_crashes)


async def by_insert(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("new"))


async def by_next(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(), go())


async def by_signal(stores: Stores, hand: Hand) -> None:
    await stores.store.deliver([NewSignal(promise_of("parked"), "go", "1")])


async def by_spawn(stores: Stores, hand: Hand) -> None:
    claim = await hand.take()
    await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 1, queue="children")))


async def by_timer(stores: Stores, hand: Hand) -> None:
    await stores.advance(3)
    await stores.store.fire_timers(10)


async def by_reaper(stores: Stores, hand: Hand) -> None:
    await lose_worker(stores, max_crashes=10)


async def by_release(stores: Stores, hand: Hand) -> None:
    await stores.store.release(hand.name, await hand.pick())


async def by_resume(stores: Stores, hand: Hand) -> None:
    await stores.store.resume(promise_of("stranded"))


async def by_unpause(stores: Stores, hand: Hand) -> None:
    await stores.store.pause(promise_of("paused"), False)


async def by_done(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(), done())


async def by_strand(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(), strand())


async def by_cancel(stores: Stores, hand: Hand) -> None:
    await stores.store.cancel([promise_of("parked")])


async def by_poison(stores: Stores, hand: Hand) -> None:
    await lose_worker(stores, max_crashes=1)


async def by_publishing(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(), AdvanceExecution(status=Status.EXECUTING, published='{"stage":1}'))


async def by_publishing_beside_others(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("other"))
    first, second = await hand.pick()
    published = AdvanceExecution(status=Status.DONE, published='{"stage":1}')
    await hand.flush(Commit(first, (keep(),)), Commit(second, (published,)))


Happening = Callable[[Stores, Hand], Awaitable[None]]

HAPPENINGS: list[tuple[Topic, Happening]] = [
    (Topic.WORK, by_insert),
    (Topic.WORK, by_next),
    (Topic.WORK, by_signal),
    (Topic.WORK, by_spawn),
    (Topic.WORK, by_timer),
    (Topic.WORK, by_reaper),
    (Topic.WORK, by_release),
    (Topic.WORK, by_resume),
    (Topic.WORK, by_unpause),
    (Topic.ENDED, by_done),
    (Topic.ENDED, by_strand),
    (Topic.ENDED, by_cancel),
    (Topic.ENDED, by_poison),
    (Topic.PUBLISHED, by_publishing),
    (Topic.PUBLISHED, by_publishing_beside_others),
]


async def set_stage(hand: Hand) -> None:
    """One row of each sort that the happenings need."""
    await hand.apply(await hand.take(row("parked")), park("go", wake_after=2))
    await hand.apply(await hand.take(row("stranded")), strand())
    await hand.insert(row("paused", paused=True), row("waiting"))


@pytest.mark.parametrize(("topic", "happening"), HAPPENINGS)
async def test_an_ear_hears_what_its_own_store_commits(
    stores: Stores, hand: Hand, topic: Topic, happening: Happening
) -> None:
    await set_stage(hand)
    listener = await Listener().open(stores.store)
    await asyncio.sleep(0)
    listener.forget()
    await happening(stores, hand)
    await listener.expect(topic)
    await listener.close()


@pytest.mark.parametrize(("topic", "happening"), HAPPENINGS)
async def test_an_armed_ear_hears_what_another_process_commits(
    stores: Stores, hand: Hand, topic: Topic, happening: Happening
) -> None:
    await set_stage(hand)
    other = await stores.another()
    listener = await Listener().open(other, topic)
    listener.forget()
    await happening(stores, hand)
    await listener.expect(topic)
    await listener.close()


async def test_several_ears_all_hear(stores: Stores, hand: Hand) -> None:
    other = await stores.another()
    listeners = [
        await Listener().open(stores.store, Topic.WORK),
        await Listener().open(stores.store, Topic.WORK),
        await Listener().open(other, Topic.WORK),
    ]
    await hand.insert(row("a"))
    for listener in listeners:
        await listener.expect(Topic.WORK)
        await listener.close()


async def test_a_closed_ear_hears_nothing(stores: Stores, hand: Hand) -> None:
    closed = await Listener().open(stores.store, Topic.WORK)
    await closed.close()
    closed.forget()
    listener = await Listener().open(stores.store, Topic.WORK)
    await hand.insert(row("a"))
    await listener.expect(Topic.WORK)
    assert not closed.has_heard(Topic.WORK)
    await listener.close()


async def test_an_ear_armed_again_hears_again(stores: Stores, hand: Hand) -> None:
    """Arming holds for a while, so it is repeated."""
    other = await stores.another()
    listener = await Listener().open(other)
    for n in range(3):
        assert listener.ear is not None
        await listener.ear.arm(Topic.WORK)
        listener.forget()
        await hand.insert(row(str(n)))
        await listener.expect(Topic.WORK)
    await listener.close()
