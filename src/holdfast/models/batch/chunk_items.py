"""The items of a leased chunk in memory: what the lanes tell of them, settled in a ledger. No commit is here."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from holdfast.core.errors import PayloadError
from holdfast.core.sequence import FailClass, SequenceLedger
from holdfast.core.sequence.states import SKIP
from holdfast.engine.runner import Engine
from holdfast.models.batch.definition import Batch, Skip
from holdfast.models.batch.items import Note, note_error, read_input, read_notes, read_results, text_of
from holdfast.models.batch.packing import read_ready, runs_of, unpack
from holdfast.store.batches import ChunkView, Counters
from holdfast.store.values import ExecutionClaim

_OWNER_BITS: Final = 0x7FFF_FFFF


class ChunkState(Struct, frozen=True):
    """The state of a chunk's row."""

    first: int
    count: int


_decode = msgspec.json.Decoder(ChunkState).decode
_raws = msgspec.json.Decoder(list[Raw]).decode


class ChunkItems:
    """Places count from the chunk's first item. `_changed` is set when nothing is at work any more."""

    def __init__(self, batch: Batch[Any, Any], claim: ExecutionClaim, engine: Engine) -> None:
        self._batch = batch
        self._claim = claim
        self._engine = engine
        state = _decode(claim.state)
        self.first, self._count = state.first, state.count
        self.values: list[Any] = []
        self._owner = claim.epoch & _OWNER_BITS or 1
        self._time_base = engine.now()
        self._changed = asyncio.Event()
        self._unfinished = 0  # items that are begun and have not ended
        self._is_dirty = False
        self._cautious: list[int] = []
        self._ok: list[int] = []
        self._skips: list[tuple[int, str]] = []
        self._failures: list[tuple[int, FailClass, Note]] = []

    def _load(self, chunk: ChunkView) -> None:
        batch = self._batch
        lease_ms = max(1, round(batch.lease_seconds * 1000))
        now_ms = self._now_ms()
        self._ledger = SequenceLedger(lease_ms=lease_ms, now_ms=now_ms, base=self.first, retry=batch.guard)
        self._ledger.load(
            unpack(self.first, chunk.states or b"", chunk.attempts), read_ready(self.first, chunk.ready_ms)
        )
        self._notes = read_notes(chunk.notes)
        self._results: list[Raw | None] = read_results(chunk.results, chunk.count) if batch.needs_results else []
        if chunk.inputs is None or chunk.ended == chunk.count:
            return
        try:
            self.values = batch.list_codec.decode(chunk.inputs)
        except PayloadError:
            # One that today's code cannot read must not take the others with it.
            self.values = [read_input(batch.codec, raw) for raw in _raws(chunk.inputs)]

    def attempt(self, place: int) -> int:
        """From 1."""
        return self._ledger.attempts(self.first + place) + 1

    # ------------------------------------------------------------------ what the lanes tell

    def succeeded(self, place: int, value: Any) -> None:
        if self._batch.needs_results:
            try:
                text = self._batch.result.encode(value, max_bytes=self._batch.payload_limit)
            except PayloadError as error:
                self._fail(place, FailClass.PERMANENT, note_error(error))
                return
            self._results[place] = Raw(text.encode())
        self._ok.append(place)
        self._finished()

    def skipped(self, place: int, skip: Skip) -> None:
        self._skips.append((place, text_of(skip.reason)))
        self._finished()

    def failed(self, place: int, error: BaseException) -> None:
        is_retryable = self._batch.is_retryable(error) and not isinstance(error, PayloadError)
        self._fail(place, FailClass.RETRYABLE if is_retryable else FailClass.PERMANENT, note_error(error))

    def cut_off(self, place: int, fail_class: FailClass, why: str) -> None:
        self._fail(place, fail_class, Note(why, "TimeoutError"))

    def _fail(self, place: int, fail_class: FailClass, note: Note) -> None:
        self._failures.append((place, fail_class, note))
        self._finished()

    def _finished(self) -> None:
        self._unfinished -= 1
        if self._unfinished == 0:
            self._changed.set()

    # ------------------------------------------------------------------ the ledger

    def _begin(self, room: int) -> list[int]:
        """So many at most."""
        ledger, now_ms = self._ledger, self._now_ms()
        begun: list[int] = []
        for run in ledger.take(self._owner, now_ms, limit=room):
            # A run is of free items, which have failed before, or of fresh ones: never of both.
            for part in [run] if ledger.attempts(run.start) == 0 else self._without_suspects(run):
                ledger.begin_range(part.start, part.stop, self._owner, now_ms)
                begun.extend(range(part.start - self.first, part.stop - self.first))
        if not begun and self._cautious and not self._unfinished:
            place = self._cautious.pop(0)
            ledger.begin(self.first + place, self._owner, now_ms)
            begun.append(place)
        self._unfinished += len(begun)
        return begun

    def _without_suspects(self, run: range) -> list[range]:
        """An item that lost its worker before runs alone at its last chance: should it bring down this one too, no
        innocent bystander fails with it."""
        last = self._batch.guard.max_attempts - 1
        bold = []
        for seq in run:
            if self._ledger.attempts(seq) >= last and self._ledger.outcome(seq)[1] == FailClass.LEASE_EXPIRED:
                self._cautious.append(seq - self.first)
            else:
                bold.append(range(seq, seq + 1))
        return bold

    def _settle(self) -> None:
        """What the lanes told since the last time, into the ledger."""
        if not (self._ok or self._skips or self._failures):
            return
        self._is_dirty = True
        ledger, owner, first, now_ms = self._ledger, self._owner, self.first, self._now_ms()
        for start, stop in runs_of(self._ok):
            ledger.finish_range(first + start, first + stop, owner, now_ms)
        for place, reason in self._skips:
            ledger.finish(first + place, owner, now_ms, SKIP)
            if reason:
                self._notes[place] = Note(reason)
        for place, fail_class, note in self._failures:
            delay_ms = self._delay_ms(place) if fail_class is not FailClass.LEASE_EXPIRED else 0
            if not ledger.fail(first + place, owner, now_ms, fail_class, delay_ms=delay_ms):
                self._notes[place] = note
        self._ok, self._skips, self._failures = [], [], []

    def _delay_ms(self, place: int) -> int:
        policy = self._batch.retry
        wait = policy.backoff_seconds(self.attempt(place)) * (1 - policy.jitter * self._engine.random())
        return round(wait * 1000)

    def _idle_seconds(self) -> float:
        """Until the first retry is due, where every open item waits for one; else 0."""
        counted = self._ledger.counters()
        if counted.unseen or counted.in_flight:
            return 0.0
        waiting = self._ledger.waiting()
        if len(waiting) < counted.dispatched:
            return 0.0
        return max(0, min(waiting.values()) - self._now_ms()) / 1000

    def _counters(self) -> Counters:
        counted = self._ledger.counters()
        return Counters(
            counted.unseen + counted.dispatched,
            counted.in_flight,
            counted.succeeded,
            counted.skipped,
            counted.failed,
            counted.cancelled,
            counted.retries,
        )

    def _has_more(self, now_ms: int) -> bool:
        """Whether it would begin something if there were room."""
        later = sum(ready_ms > now_ms for ready_ms in self._ledger.waiting().values())
        counted = self._ledger.counters()
        return counted.unseen + counted.dispatched > later

    def _now_ms(self) -> int:
        return self._claim.picked_at_us // 1000 + round((self._engine.now() - self._time_base) * 1000)
