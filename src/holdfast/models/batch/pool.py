"""The items of one batch that a worker works on at once: `concurrency` lanes over one queue, of whatever chunk.

A lane is an asyncio task that runs item after item, so that an item costs no task of its own. What hangs is cut off: by
`timeout`, which bounds an item, or by `lease`, which its own ticks renew (ruling D9). A lane that was cut off is given
up at once, whatever the code in it still does, and another takes its place: its late answer changes nothing. So is the
thread that a plain function hangs in (`StepThreads`).
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.sequence import FailClass
from holdfast.engine.threads import exit_of
from holdfast.models.batch.definition import Batch, Skip
from holdfast.models.batch.items import Unreadable
from holdfast.models.workflow.current import CURRENT_CALL, Current

if TYPE_CHECKING:
    from holdfast.models.batch.chunk_run import ChunkRun

SLICE_SECONDS: Final = (
    0.25  # about so much work is begun ahead; what is begun and not ended costs an attempt in a crash
)
YIELD_SECONDS: Final = 0.002
SAMPLE_SECONDS: Final = 0.05
LOOK_LEAST_SECONDS: Final = 0.05


class Flight:
    """What a lane is at."""

    __slots__ = ("beat", "began", "is_cut", "place", "run", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.run: ChunkRun | None = None
        self.place = 0
        self.began = 0.0  # infinity: it waits for a thread, which is not its own time
        self.beat = 0.0
        self.is_cut = False


class Pool:
    """One a batch and worker."""

    def __init__(self, batch: Batch[Any, Any]) -> None:
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[ChunkRun, int]] = deque()
        self._flights: set[Flight] = set()
        self._wanting: set[ChunkRun] = set()
        self._loading: set[ChunkRun] = set()
        self._reserved: dict[ChunkRun, int] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._done = 0
        self._sampled_at = self._loop.time()
        self._rate = 0.0
        self._running = 0
        self._low = batch.concurrency - 1
        given = [seconds for seconds in (batch.timeout_seconds, batch.lease_seconds) if seconds is not None]
        self._patience = min(given)

    # ------------------------------------------------------------------ for chunks

    def room(self, run: ChunkRun) -> int:
        """How many items a chunk may begin now; none while one before it wants to.

        Slow ones only when a lane is free for them: what is begun costs an attempt in a crash. Of fast ones as many as
        take a quarter of a second, once half of those are done.
        """
        passed = self._loop.time() - self._sampled_at
        if passed >= SAMPLE_SECONDS:
            self._rate = self._done / passed
            self._done, self._sampled_at = 0, self._loop.time()
        capacity = max(self._batch.concurrency, int(self._rate * SLICE_SECONDS))
        self._low = capacity // 2 if capacity > self._batch.concurrency else capacity - 1
        used = self._used()
        if used > self._low or any(other.rank < run.rank for other in self._wanting | self._loading):
            return 0
        return capacity - used

    def _used(self) -> int:
        return len(self._queue) + sum(self._reserved.values()) + self._running

    def reserve(self, run: ChunkRun, count: int) -> None:
        """So many items of this chunk are on their way: they are pushed once the commit that begins them is done."""
        self._wanting.discard(run)
        self._reserved[run] = count

    def expect(self, run: ChunkRun, is_loading: bool) -> None:
        """This one will soon want to begin, or no longer will: chunks are read beside each other, in any order."""
        if is_loading:
            self._loading.add(run)
        else:
            self._loading.discard(run)
            self._loop.call_soon(self._wake_if_room)  # after this one had its turn

    def want(self, run: ChunkRun) -> None:
        """Wake this one when there is room; lower seqs come first, for the lane waits for them."""
        self._wanting.add(run)
        self._loop.call_soon(self._wake_if_room)

    def push(self, run: ChunkRun, places: Iterable[int]) -> None:
        """Work on items that are in flight in the ledger."""
        self._reserved.pop(run, None)
        self._queue.extend((run, place) for place in places)
        self._man()

    def withdraw(self, run: ChunkRun) -> list[int]:
        """Take back the items of a chunk that no lane has begun."""
        taken = [place for owner, place in self._queue if owner is run]
        if taken:
            self._queue = deque(entry for entry in self._queue if entry[0] is not run)
        return taken

    def cut(self, run: ChunkRun) -> list[int]:
        """Cut off the items of a chunk that are running; which they were."""
        found = [flight for flight in self._flights if flight.run is run and not flight.is_cut]
        for flight in found:
            self._cut(flight)
        self._man()
        return [flight.place for flight in found]

    def forget(self, run: ChunkRun) -> None:
        """The chunk is given up: nothing of it is recorded any more."""
        self._wanting.discard(run)
        self._loading.discard(run)
        self._reserved.pop(run, None)
        self.withdraw(run)
        self.cut(run)
        self._wake_if_room()

    def close(self) -> None:
        self._queue.clear()
        for flight in list(self._flights):
            self._cut(flight)
        if self._watch is not None:
            self._watch.cancel()

    # ------------------------------------------------------------------ lanes

    def _man(self) -> None:
        """As many lanes as there is work for."""
        for _ in range(min(self._batch.concurrency - len(self._flights), len(self._queue))):
            flight = Flight()
            self._flights.add(flight)
            flight.task = self._loop.create_task(self._lane(flight), name=f"holdfast-batch-{self._batch.name}")

    async def _lane(self, flight: Flight) -> None:
        now = self._loop.time
        yielded_at = now()
        try:
            while self._queue:
                run, place = self._queue.popleft()
                flight.began = flight.beat = began = now()
                flight.run, flight.place = run, place
                self._running += 1
                if self._watch is None:
                    self._arm(began + self._patience)
                await self._item(flight, run, place)
                if flight.is_cut:
                    break
                flight.run = None
                self._running -= 1
                self._done += 1
                if self._wanting:
                    self._wake_if_room()
                if began - yielded_at > YIELD_SECONDS:  # code that never waits must not keep the loop to itself
                    await asyncio.sleep(0)
                    yielded_at = now()
        except asyncio.CancelledError:
            if not flight.is_cut:
                raise
        except Exception as error:  # a fault of ours: the chunk must not wait for an answer that never comes
            if flight.run is not None and not flight.is_cut:
                self._running -= 1
                flight.run.break_down(error)
        finally:
            self._flights.discard(flight)

    async def _item(self, flight: Flight, run: ChunkRun, place: int) -> None:
        promise = f"{run.run_text}.{run.first + place}"
        call = ItemCall(run.run_text, promise, run.attempt(place), _loop=self._loop, _flight=flight)
        CURRENT_CALL.set(call)
        try:
            item = run.values[place]
            if type(item) is Unreadable:
                raise item.error
            if self._batch.is_async:
                value = await self._batch.signature.call(item, **run.resources)
            else:
                value = await self._in_thread(flight, run, item)
        except Skip as skip:
            if not flight.is_cut:
                run.skipped(place, skip)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if flight.is_cut or (task is not None and task.cancelling()):
                raise
            run.failed(place, RuntimeError(f"something that it awaited was cancelled ({error})"))
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # of whatever kind, `sys.exit()` too: it is the item's, and no other's
            if not flight.is_cut:
                run.failed(place, error)
        else:
            if not flight.is_cut:
                run.succeeded(place, value)

    async def _in_thread(self, flight: Flight, run: ChunkRun, item: Any) -> Any:
        context = contextvars.copy_context()

        def work() -> Any:
            flight.began = flight.beat = self._loop.time()
            return context.run(self._batch.signature.call, item, **run.resources)

        flight.began = flight.beat = math.inf
        try:
            return await self._loop.run_in_executor(run.threads, work)
        except RuntimeError as error:
            if (left := exit_of(error)) is not None:
                raise left from None  # as in an item that is a coroutine: it is not tried again
            raise

    def _wake_if_room(self) -> None:
        if self._wanting and self._used() <= self._low:
            first = min(self._wanting | self._loading, key=lambda run: run.rank)
            if first in self._wanting:
                self._wanting.discard(first)
                first.stir()

    # ------------------------------------------------------------------ what hangs

    def _arm(self, at: float) -> None:
        self._watch = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        """Cut off what is over its time. Looks at the lanes, never at the ledger (ruling D6)."""
        self._watch = None
        now, timeout, lease = self._loop.time(), self._batch.timeout_seconds, self._batch.lease_seconds
        soonest: float | None = None
        for flight in list(self._flights):
            run, place = flight.run, flight.place
            if run is None or flight.is_cut:
                continue
            if flight.began == math.inf:
                later = now + max(LOOK_LEAST_SECONDS, self._patience / 10)
                soonest = later if soonest is None else min(soonest, later)
                continue
            if timeout is not None and now >= flight.began + timeout:
                self._cut(flight)
                run.cut_off(place, FailClass.TIMEOUT, f"it took longer than {timeout:g} s")
                continue
            if now >= flight.beat + lease:
                self._cut(flight)
                run.cut_off(place, FailClass.LEASE_EXPIRED, f"it gave no sign for {lease:g} s")
                continue
            due = flight.beat + lease if timeout is None else min(flight.began + timeout, flight.beat + lease)
            soonest = due if soonest is None else min(soonest, due)
        if soonest is not None:
            self._arm(soonest)
        self._man()
        self._wake_if_room()

    def _cut(self, flight: Flight) -> None:
        if flight.run is not None:
            self._running -= 1
        flight.is_cut = True
        self._flights.discard(flight)
        if flight.task is not None:
            flight.task.cancel()


class ItemCall(Current, kw_only=True):
    """`holdfast.current()` in an item: its key is the run's id and its seq, in every attempt."""

    _flight: Flight

    @property
    def seq(self) -> int:
        return int(self.promise.rpartition(".")[2])

    def _beat(self, text: str | None) -> None:
        """Progress of the item itself, which alone renews its lease."""
        self._flight.beat = self._loop.time()
