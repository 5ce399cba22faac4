"""Out of a ledger: one tree or all of it, in one consistent snapshot.

The ledger keeps what is exported. With `pause`, what is live in it is paused first and nobody is at work on it when
the snapshot is taken, so it goes on only where it is imported. What this call paused is not paused in the file.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from holdfast.core.clock import to_datetime
from holdfast.core.errors import TransferError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.flows import MESSAGE
from holdfast.store.records import ExecutionRecord, Record, ScheduleRecord, id_bytes
from holdfast.transfer.format import FORMAT, End, Header, line_of

POLL_SECONDS: Final = 0.05
Write = Callable[[bytes], object]


class Exported(Struct, frozen=True, kw_only=True):
    """What is in the file; `live` of the executions go on, where nothing holds them back."""

    executions: int
    live: int
    records: int
    paused: int = 0  # executions and schedules that this call paused
    stay_paused: int = 0  # live executions that were paused before, and are paused in the file


class _Sink:
    """Writes records as lines. What writing raises must not look like an error of the store's."""

    def __init__(self, write: Write, unpaused: set[str], progress: Callable[[int], None] | None) -> None:
        self._write = write
        self._unpaused = unpaused
        self._progress = progress
        self.counts: Counter[str] = Counter()
        self.failure: Exception | None = None

    def take(self, records: Sequence[Record]) -> None:
        try:
            for record in records:
                self._line(record)
        except Exception as error:
            self.failure = error
            raise TransferError(f"the export cannot be written: {error}") from error
        if self._progress is not None:
            self._progress(len(records))

    def _line(self, record: Record) -> None:
        self.counts["records"] += 1
        if isinstance(record, ExecutionRecord):
            self.counts["executions"] += 1
            self.counts["live"] += not record.status.is_terminal
            without_lease(record)
            # A message of a flow is paused with its job, whoever published it meanwhile.
            if record.id in self._unpaused or (record.kind == MESSAGE and record.parent in self._unpaused):
                record.paused = False
            self.counts["stay_paused"] += record.paused and not record.status.is_terminal
        elif isinstance(record, ScheduleRecord) and f"schedule {record.name}" in self._unpaused:
            record.paused = False
        self._write(line_of(record))


def without_lease(record: ExecutionRecord) -> None:
    """Who holds it here holds nothing elsewhere: it is given back, as by a worker that leaves in good order."""
    if record.status is Status.EXECUTING:
        record.status = Status.RUNNABLE
    record.locked_by = None
    record.key_blocked = False
    record.handler = 0  # computed anew where it arrives


async def export(
    store: Store,
    write: Write,
    promise: PromiseId | None = None,
    *,
    version: str,
    pause: bool = False,
    wait_seconds: float = 30.0,
    progress: Callable[[int], None] | None = None,
) -> Exported:
    """Write a tree, or everything, as JSON lines; `version` is that of the program."""
    within = None if promise is None else promise.subtree_range()
    paused: set[str] = await _pause(store, within, wait_seconds) if pause else set()
    sink = _Sink(write, paused, progress)
    try:
        try:
            write(line_of(Header(format=FORMAT, version=version, at=to_datetime(await store.now_us()), paused=pause)))
            await store.read_records(sink.take, within=within)
            write(line_of(End(records=sink.counts["records"])))
        except TransferError:
            raise sink.failure or AssertionError("a sink that fails says why") from None
    except BaseException:
        await _unpause(store, paused)
        raise
    counts = sink.counts
    return Exported(
        executions=counts["executions"],
        live=counts["live"],
        records=counts["records"],
        paused=len(paused),
        stay_paused=counts["stay_paused"],
    )


async def _pause(store: Store, within: tuple[bytes, bytes] | None, wait_seconds: float) -> set[str]:
    """Pause all that is live and wait until nobody is at work on it: the ids (and schedules) that this paused.

    A step that was under way may have started more: so it is looked at again until nothing moves.
    """
    paused: set[str] = set()
    deadline = asyncio.get_running_loop().time() + wait_seconds
    try:
        while True:
            moving, busy, schedules = await _moving(store, within)
            for promise in moving:
                if await store.pause(id_bytes(promise), True):
                    paused.add(promise)
            for name in schedules:
                if await store.pause_schedule(name, True):
                    paused.add(f"schedule {name}")
            if not moving and not busy and not schedules:
                return paused
            if busy and not moving and asyncio.get_running_loop().time() >= deadline:
                at_work = ", ".join(PromiseId.parse(promise).short for promise in sorted(busy)[:5])
                raise TransferError(
                    f"{at_work} is still at work after {wait_seconds:g} s; nothing was exported and nothing stays "
                    "paused. Wait longer, or cancel it"
                )
            await asyncio.sleep(POLL_SECONDS if busy and not moving else 0)
    except BaseException:
        await _unpause(store, paused)
        raise


async def _moving(store: Store, within: tuple[bytes, bytes] | None) -> tuple[list[str], set[str], list[str]]:
    """What is live and not paused, what is at work, and the schedules that tick."""
    moving: list[str] = []
    busy: set[str] = set()
    schedules: list[str] = []

    def look(records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, ExecutionRecord) and not record.status.is_terminal:
                if not record.paused and not record.cancel_requested:
                    moving.append(record.id)
                if record.status is Status.EXECUTING or (record.cancel_requested and not record.paused):
                    busy.add(record.id)
            elif isinstance(record, ScheduleRecord) and not record.paused:
                schedules.append(record.name)

    await store.read_records(look, within=within)
    return moving, busy, schedules


async def _unpause(store: Store, paused: set[str]) -> None:
    for name in paused:
        kind, _, schedule = name.partition(" ")
        if schedule:
            await store.pause_schedule(schedule, False)
        else:
            await store.pause(id_bytes(kind), False)
