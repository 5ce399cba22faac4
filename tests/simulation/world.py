"""A small world for the engine's state machine: collectors of signals, parents that join them, workers that die.

`World` does what a rule says and compares the ledger with a model of three facts: the signals each collector took, in
order; what has ended; what was seen before. A collector's ledger must always be "some first part of the signals was
consumed, the rest is in the inbox", whatever died, slept or was lost in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast import App, Await, Child, Done, Machine, Next, PromiseId, ScheduleChildren, Status, step
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.store.values import Delivery, ExecutionView, NewSignal, Signal
from holdfast.testing.audit import all_views, audit
from holdfast.testing.crash import Crash, CrashPoints
from holdfast.testing.faults import Fault, FaultyStore, on_store
from holdfast.testing.stores import Stores

app = App("world", store="unused.db")

HOUR: Final = 3_600.0
CHILDREN: Final = 2
SETTINGS: Final = WorkerSettings(max_crashes=1_000)


@dataclass
class Door:
    """One a worker: its steps wait here while it is shut."""

    open: asyncio.Event = field(default_factory=asyncio.Event)


@app.lifespan
async def door() -> AsyncIterator[Door]:
    yield Door()


@dataclass(frozen=True)
class Bag:
    got: tuple[str, ...] = ()
    timeouts: int = 0


@app.machine(history=True)
class Collector(Machine[Bag]):
    """Takes `add` after `add` into its bag until `stop`."""

    @step(initial=True)
    async def begin(self, ctx: Any, door: Door) -> Any:
        await door.open.wait()
        return Await({"add", "stop"}, self.collect, ctx.state, timeout=HOUR)

    @step
    async def collect(self, ctx: Any, door: Door) -> Any:
        await door.open.wait()
        bag: Bag = ctx.state
        if ctx.timed_out:
            return Next(self.begin, replace(bag, timeouts=bag.timeouts + 1))
        for signal in ctx.awaited:
            if signal.name == "stop":
                return Done(list(bag.got))
            bag = replace(bag, got=(*bag.got, signal.payload))
        return Next(self.begin, bag)


@app.machine(history=True)
class Parent(Machine[Bag]):
    @step(initial=True)
    async def spawn(self, ctx: Any, door: Door) -> Any:
        await door.open.wait()
        return ScheduleChildren(self.join, [Child(Collector, Bag())] * CHILDREN, ctx.state)

    @step
    async def join(self, ctx: Any, door: Door) -> Any:
        await door.open.wait()
        return Done([[str(child.status), child.result] for child in ctx.children])


ALONE: Final = 3
COLLECTORS: Final = ALONE + CHILDREN
PARENT: Final = PromiseId.of("Parent", "0")


def collector(number: int) -> PromiseId:
    """Three that stand alone, then the children of the parent."""
    return PromiseId.of("Collector", str(number)) if number < ALONE else PARENT.child(number - ALONE)


async def until_available(work: Callable[[], Awaitable[object]]) -> None:
    """Again and again, as the engine's loops do while the store is away."""
    while True:
        try:
            await work()
        except StoreUnavailableError:
            continue
        return


@dataclass
class Hand:
    """A worker that runs only when it is told to."""

    worker: Worker
    store: FaultyStore
    door: Door


class World:
    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.hands: dict[int, Hand] = {}
        self.taken: defaultdict[bytes, list[tuple[str, str]]] = defaultdict(list)
        self.keys: defaultdict[bytes, set[str]] = defaultdict(set)
        self.ended: dict[bytes, ExecutionView] = {}
        self._exit = contextlib.AsyncExitStack()
        self._numbers = 0

    async def open(self) -> None:
        await self.stores.reset()
        await self._exit.enter_async_context(on_store(app, self.stores.store))
        # Two of the three share a partition key: at most one of them is at work (ruling E9).
        for number in range(ALONE):
            key = "shared" if number < 2 else None
            await Collector.options(key=str(number), partition_key=key, priority=-number).start(Bag())
        await Parent.options(key="0").start(Bag())

    async def close(self) -> None:
        for slot in list(self.hands):
            await self.kill(slot)
        await self._exit.aclose()

    # ------------------------------------------------------------------ from outside

    async def signal(self, number: int, name: str, dedup: str | None) -> None:
        """The answer must be the one the model knows (rulings E5, E12)."""
        target = collector(number).to_bytes()
        view = await self.stores.store.get(target)
        if dedup is None:
            self._numbers += 1
        payload = f"{dedup or self._numbers}"
        (answer,) = await self.stores.store.deliver([NewSignal(target, name, json.dumps(payload), dedup)])
        if view is None:
            assert answer is Delivery.UNKNOWN
        elif view.status.is_terminal:
            assert answer is Delivery.ENDED
        elif dedup in self.keys[target]:
            assert answer is Delivery.DUPLICATE
        else:
            assert answer is Delivery.DELIVERED
            self.taken[target].append((name, payload))
            if dedup is not None:
                self.keys[target].add(dedup)

    async def repeat(self) -> None:
        for number in range(COLLECTORS):
            for key in sorted(self.keys[collector(number).to_bytes()]):
                await self.signal(number, "add", key)

    async def cancel(self, promise: PromiseId, cascade: bool) -> None:
        await self.stores.store.cancel([promise.to_bytes()], cascade=cascade)

    async def pause(self, number: int, paused: bool) -> None:
        await self.stores.store.pause(collector(number).to_bytes(), paused)

    async def advance(self, seconds: float, asleep: int | None) -> None:
        """Time passes; every worker but the one asleep beats."""
        await self.stores.advance(seconds)
        for slot, hand in self.hands.items():
            if slot != asleep:
                await hand.worker.beat_once()

    # ------------------------------------------------------------------ workers

    async def hire(self, slot: int) -> Hand:
        if slot not in self.hands:
            store = FaultyStore(self.stores.store)
            worker = Worker(store.as_store, app.runners(), SETTINGS, lifespans=(door,))
            await worker.open()
            self.hands[slot] = Hand(worker, store, worker.resources.need(Door, "the world"))
        return self.hands[slot]

    async def hold(self, slot: int) -> None:
        """It picks, and is stuck in the steps it picked."""
        hand = await self.hire(slot)
        hand.door.open.clear()
        await until_available(hand.worker._picker.run_once)
        await asyncio.sleep(0)

    async def work(self, slot: int, method: str | None = None, fault: Fault | None = None) -> None:
        """It finishes what it holds, then whatever there is; one call of its store may go wrong."""
        hand = await self.hire(slot)
        hand.door.open.set()
        if method is not None and fault is not None:
            hand.store.plan(method, fault)
        await self._until_idle(hand.worker)

    async def _until_idle(self, worker: Worker) -> None:
        while True:
            await until_available(worker.run_until_idle)
            if not await worker._identity.settle():
                return

    async def reap(self, slot: int) -> None:
        await until_available((await self.hire(slot)).worker.reap_once)

    async def die(self, slot: int, point: str, occurrence: int) -> None:
        """It is killed at a commit, if it comes that far."""
        hand = await self.hire(slot)
        hand.door.open.set()
        died = asyncio.Event()
        loop = asyncio.get_running_loop()
        points = CrashPoints([(point, occurrence)], lambda: loop.call_soon_threadsafe(died.set))
        with points.installed():
            working = asyncio.ensure_future(self._until_idle(hand.worker))
            dying = asyncio.ensure_future(died.wait())
            await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            if points.is_dead:
                working.cancel()
                with contextlib.suppress(asyncio.CancelledError, Crash):
                    await working
                await self.kill(slot)
            else:
                await working

    async def kill(self, slot: int) -> None:
        hand = self.hands.pop(slot, None)
        if hand is not None:
            await hand.worker.abandon()

    async def retire(self, slot: int) -> None:
        hand = self.hands.pop(slot, None)
        if hand is not None:
            await hand.worker.stop(drain_seconds=0)

    # ------------------------------------------------------------------ what must hold

    async def check(self) -> None:
        for view in await all_views(self.stores.store):
            before = self.ended.get(view.promise)
            if before is not None:
                assert view == before, "what has ended changes no more"
            elif view.status.is_terminal:
                self.ended[view.promise] = view
            assert view.status not in (Status.FAILED, Status.STRANDED), view
            if view.name == "Collector":
                await self._check_collector(view)

    async def _check_collector(self, view: ExecutionView) -> None:
        """Some first part of what it took was consumed, the rest is in its inbox; nothing twice, nothing lost."""
        view, signals = await self._settled(view)
        taken = self.taken[view.promise]
        got = json.loads(view.state)["got"]
        inbox = [(signal.name, json.loads(signal.payload)) for signal in signals]
        if view.status is Status.DONE:
            stop = [name for name, _ in taken].index("stop")
            assert json.loads(view.result or "") == [payload for _, payload in taken[:stop]]
        elif view.status is Status.CANCELLED:
            assert got == [payload for _, payload in taken[: len(got)]]
        else:
            consumed = len(taken) - len(inbox)
            assert inbox == taken[consumed:]
            assert taken[:consumed] == [("add", payload) for payload in got]

    async def _settled(self, view: ExecutionView) -> tuple[ExecutionView, list[Signal]]:
        """The row and its inbox as of one moment: the last commit that a killed worker sent may land at any time."""
        store = self.stores.store
        while True:
            signals = await store.inbox(view.promise)
            again = await store.get(view.promise)
            assert again is not None
            if again.revision == view.revision:
                return again, signals
            view = again

    async def finish(self) -> None:
        """Everything that lives can still be brought to its end, by one fresh worker."""
        for slot in list(self.hands):
            await self.kill(slot)
        await self.stores.advance(SETTINGS.lease_seconds + 1)
        for number in range(COLLECTORS):
            await self.pause(number, False)
        await self.reap(0)
        await self.work(0)
        await self.repeat()
        for number in range(COLLECTORS):
            await self.signal(number, "stop", "the end")
        await self.work(0)
        await self.check()
        views = await all_views(self.stores.store)
        assert [view for view in views if not view.status.is_terminal] == []
        for view in views:
            await self._check_history(view)
            if view.name == "Parent" and view.status is Status.DONE:
                children = await self.stores.store.children(view.promise)
                joined = [[str(c.status), None if c.result is None else json.loads(c.result)] for c in children]
                assert json.loads(view.result or "") == joined
        assert await audit(self.stores.store) == []

    async def _check_history(self, view: ExecutionView) -> None:
        """One line a commit, each where the one before led to."""
        lines = await self.stores.store.history(view.promise)
        revisions = [line.revision for line in lines]
        assert revisions == list(range(1, len(lines) + 1))
        if view.status is Status.DONE:
            assert view.revision == len(lines)
        for line, following in itertools.pairwise(lines):
            assert line.next_step == following.step
