"""The audit itself: takes the records of a ledger as they come, and says at the end what is wrong.

- `Auditor`: what several rows say together; it keeps rows until what is theirs was looked at, and from then on a little
  of those that wait for others or hold something.
- `audit`: a whole ledger, in one snapshot of it; then its flows and batches, one by one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec
from msgspec import Struct

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.batch.audit import audit_run
from holdfast.models.batch.definition import KIND as BATCH
from holdfast.models.flow.audit import audit_flow
from holdfast.models.schedule import ScheduleSpec
from holdfast.store.base import Store
from holdfast.store.flows import FLOW
from holdfast.store.records import (
    ExecutionRecord,
    JournalRecord,
    Oddities,
    Record,
    ScheduleRecord,
    SignalKeyRecord,
    SignalRecord,
    TransitionRecord,
)
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.verify import rules
from holdfast.verify.journals import of_journal
from holdfast.verify.rows import Named, Owner, fault_of, is_json, label_of, of_row
from holdfast.verify.rules import Fault

PAGE = 200
LOOKS = 5
LOOK_AGAIN_SECONDS = 0.1
_DROPPED = ("state", "result", "error", "published", "beats", "attributes")


class Pending(Struct, frozen=True, gc=False):
    """What of a row is held against others, at the end."""

    id: str
    name: str
    status: Status
    partition_key: str | None
    key_blocked: bool
    locked_by: str | None
    children_pending: int
    barrier_round: int
    waits_for_reports: bool


class Auditor:
    """`take` records in the order of `Store.read_records`, or parts of them with `let_go` in between; then `finish`.

    `models` false: only the rules that hold whatever was written.
    """

    def __init__(self, *, models: bool = True) -> None:
        self._models = models
        self._rows: dict[str, ExecutionRecord] = {}  # until `let_go`
        self._pending: dict[str, Pending] = {}
        self._segments: list[JournalRecord] = []
        self._with_journal: set[str] = set()
        self._live_children: Counter[tuple[str, int | None]] = Counter()
        self._live_reports: Counter[str] = Counter()
        self._occupants: dict[bytes, str] = {}
        self._executing: defaultdict[str, list[str]] = defaultdict(list)
        self._heads: set[str] = set()
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def take(self, records: Sequence[Record]) -> None:
        for record in records:
            self.counts[type(record).__struct_config__.tag] += 1  # type: ignore[index]  # every record has one
            match record:
                case ExecutionRecord():
                    self._execution(record)
                case SignalRecord():
                    self._signal(record)
                case SignalKeyRecord():
                    self._ended_clean(record.id, f"it still knows the dedup key {record.dedup_key!r}")
                case JournalRecord():
                    self._journal(record)
                case TransitionRecord():
                    self._transition(record)
                case ScheduleRecord():
                    self._schedule(record)

    def let_go(self) -> None:
        """All that belongs to the executions so far has come."""
        self._end_journal()
        for record in self._rows.values():
            if record.journal_length and record.id not in self._with_journal:
                self.faults += of_journal(record, [], models=False)
            is_held = record.locked_by is not None or record.status is Status.EXECUTING
            if is_held or record.children_pending or record.key_blocked:
                self._pending[record.id] = Pending(
                    record.id,
                    record.name,
                    record.status,
                    record.partition_key,
                    record.key_blocked,
                    record.locked_by,
                    record.children_pending,
                    record.barrier_round,
                    record.status is Status.AWAITING_PROMISE and not record.awaits and record.wake_at is None,
                )
        self._rows, self._with_journal = {}, set()

    def finish(self, odd: Oddities | None = None) -> list[Fault]:
        """All the faults; `odd` is what no record shows, None where it is not known."""
        self.let_go()
        for pending in self._pending.values():
            self.faults += self._together(pending)
        if odd is not None:
            self._odd(odd)
        return self.faults

    # ------------------------------------------------------------------ one by one

    def _execution(self, record: ExecutionRecord) -> None:
        self.kinds[record.kind] += 1
        self.faults += of_row(record, models=self._models)
        if record.parent is not None and not record.status.is_terminal:
            self._live_children[record.parent, record.parent_round] += 1
            self._live_reports[record.parent] += record.reports
        if (
            record.unique_key is not None
            and not record.unique_released
            and record.status in (record.unique_scope or ())
        ):
            label = label_of(record)
            occupant = self._occupants.setdefault(record.unique_key, label)
            if occupant is not label:
                self._fault(record, rules.UNIQUE, f"it and {occupant} occupy {record.unique_key!r}")
        if record.partition_key is not None:
            if record.status is Status.EXECUTING:
                self._executing[record.partition_key].append(record.id)
            elif record.status is Status.RUNNABLE and not record.paused and not record.key_blocked:
                self._heads.add(record.partition_key)
        for name in _DROPPED:  # what may be long is looked at once
            setattr(record, name, "" if name == "state" else None)
        self._rows[record.id] = record

    def _signal(self, record: SignalRecord) -> None:
        self._ended_clean(record.id, f"the signal {record.name!r} is in its inbox")
        if not is_json(record.payload):
            self._fault(self._rows[record.id], rules.PAYLOAD, f"the payload of {record.name!r} is no JSON")

    def _ended_clean(self, promise: str, found: str) -> None:
        row = self._rows[promise]
        if row.status.is_terminal and (row.status is not Status.FAILED or row.successor is not None):
            retried = ", and was retried" if row.status is Status.FAILED else ""
            self._fault(row, rules.ENDED_CLEAN, f"it is {row.status}{retried}, and {found}")

    def _journal(self, record: JournalRecord) -> None:
        if self._segments and self._segments[0].id != record.id:
            self._end_journal()
        self._segments.append(record)

    def _end_journal(self) -> None:
        if self._segments:
            row = self._rows[self._segments[0].id]
            self._with_journal.add(row.id)
            self.faults += of_journal(row, self._segments, models=self._models)
            self._segments = []

    def _transition(self, record: TransitionRecord) -> None:
        row = self._rows[record.id]
        if record.revision > row.revision:
            self._fault(
                row, rules.TRANSITIONS, f"its history has the revision {record.revision}; it is at {row.revision}"
            )

    def _schedule(self, record: ScheduleRecord) -> None:
        try:
            msgspec.json.decode(record.spec, type=ScheduleSpec)
        except (msgspec.DecodeError, UnicodeError) as error:
            if self._models or not is_json(record.spec):
                found = f"the schedule {record.name!r} cannot be read: {error}"
                self.faults.append(
                    Fault(rule=rules.SCHEDULE.name, id=None, label=None, found=found, expected=rules.SCHEDULE.text)
                )

    # ------------------------------------------------------------------ together

    def _together(self, record: Pending) -> Iterator[Fault]:
        if record.status is Status.AWAITING_CHILDREN:
            live = self._live_children[record.id, record.barrier_round]
            if live < record.children_pending:
                found = f"it waits for {record.children_pending} children, and {live} are alive"
                yield fault_of(record, rules.BARRIER, found)
        if self._models and record.waits_for_reports:
            live = self._live_reports[record.id]
            if live < record.children_pending:
                found = f"it waits for the ends of {record.children_pending} children, and {live} are alive"
                yield fault_of(record, rules.BARRIER, found)
        if record.partition_key is not None and self._executing[record.partition_key][1:2] == [record.id]:
            others = len(self._executing[record.partition_key]) - 1
            found = f"it and {others} more of the partition key {record.partition_key!r} execute at once"
            yield fault_of(record, rules.PARTITION, found)

    def _odd(self, odd: Oddities) -> None:
        for table, count in odd.orphans.items():
            found = f"{count} rows of {table} belong to no execution"
            self.faults.append(
                Fault(rule=rules.ORPHANS.name, id=None, label=None, found=found, expected=rules.ORPHANS.text)
            )
        for owner in odd.attributes:
            self._fault(Owner(*owner), rules.ATTRIBUTES, "its attributes are not those it is found by")
        for owner in odd.unlisted:
            self._fault(Owner(*owner), rules.LISTED, "a list of what has its name leaves it out")
        workers = set(odd.workers)
        for record in self._pending.values():
            if record.locked_by is not None and record.locked_by not in workers:
                self._fault(record, rules.HOLDER, f"it is held by {record.locked_by}, which is no worker")
        self._locks(odd)

    def _locks(self, odd: Oddities) -> None:
        for key, ids in self._executing.items():
            for promise in ids:
                holder = odd.locks.get(key)
                if holder != promise:
                    found = f"it executes, and its partition key {key!r} is held by {holder or 'nobody'}"
                    self._fault(self._pending[promise], rules.PARTITION, found)
        for key, holder in odd.locks.items():
            if holder is None:
                continue
            row = self._pending.get(holder)
            if row is None or row.status is not Status.EXECUTING or row.partition_key != key:
                said = f"{holder}, which does not execute" if holder else "nothing that is there"
                if row is not None:
                    said = f"{label_of(row)}, which is {row.status}"
                found = f"the partition key {key!r} is held by {said}"
                expected = rules.PARTITION.text
                self.faults.append(
                    Fault(rule=rules.PARTITION.name, id=None, label=None, found=found, expected=expected)
                )
        for record in self._pending.values():
            key_ = record.partition_key
            if record.key_blocked and key_ is not None and key_ not in odd.locks and key_ not in self._heads:
                found = f"it waits behind the partition key {key_!r}, which nobody holds and no row is the head of"
                self._fault(record, rules.BLOCKED, found)

    def _fault(self, record: Named, rule: rules.Rule, found: str) -> None:
        self.faults.append(fault_of(record, rule, found))


async def audit(
    store: Store, *, models: bool = True, progress: Callable[[int], None] | None = None
) -> tuple[list[Fault], dict[str, int]]:
    """The faults of a whole ledger in one snapshot of it, and how many records of each kind were looked at."""
    auditor = Auditor(models=models)

    def take(records: Sequence[Record]) -> None:
        auditor.take(records)
        if progress is not None:
            progress(len(records))

    odd = await store.survey(take, auditor.let_go)
    faults = auditor.finish(odd)
    if models and auditor.kinds[FLOW]:
        faults += await _each(store, FLOW, audit_flow, rules.FLOW)
    if models and auditor.kinds[BATCH]:
        faults += await _each(store, BATCH, audit_run, rules.BATCH)
    return faults, dict(auditor.counts)


async def _each(
    store: Store, kind: str, look: Callable[[Store, ExecutionView], Awaitable[list[str]]], rule: rules.Rule
) -> list[Fault]:
    faults: list[Fault] = []
    cursor: str | None = None
    while True:
        page = await store.browse(ExecutionFilter(kind=kind), PAGE, cursor)
        for view in page.items:
            faults += await _settled(store, view, look, rule)
        cursor = page.cursor
        if cursor is None:
            return faults


async def _settled(
    store: Store, view: ExecutionView, look: Callable[[Store, ExecutionView], Awaitable[list[str]]], rule: rules.Rule
) -> list[Fault]:
    """The faults of one that stood still while it was looked at: what is at work changes between two reads."""
    for _ in range(LOOKS):
        found = await look(store, view)
        again = await store.get(view.promise) if found else None
        if again is None:
            return []
        if again == view:
            promise = PromiseId.from_bytes(view.promise)
            label = promise.label(view.name)
            told = (text.removeprefix(f"{label}: ") for text in found)
            return [
                Fault(rule=rule.name, id=str(promise), label=label, found=text, expected=rule.text) for text in told
            ]
        view = again
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    return []
