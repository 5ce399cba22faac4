"""What a journal says: its segments, its rules (core.journal), and whether its end is that of its row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.core.errors import JournalFormatError
from holdfast.core.journal.events import Event, ExecutionCancelled, ExecutionCompleted, ExecutionFailed
from holdfast.core.journal.format import Segment, decode_segment
from holdfast.core.journal.validate import validate_segments
from holdfast.core.status import Status
from holdfast.store.records import ExecutionRecord, JournalRecord
from holdfast.verify import rules
from holdfast.verify.rows import fault_of
from holdfast.verify.rules import Fault

# A cancelled row may have no such end: it was ended by force, or before it began.
_ENDS: Final[dict[type[Event], Status]] = {
    ExecutionCompleted: Status.DONE,
    ExecutionFailed: Status.FAILED,
    ExecutionCancelled: Status.CANCELLED,
}


def of_journal(record: ExecutionRecord, segments: Sequence[JournalRecord], *, models: bool) -> Iterator[Fault]:
    """The faults of one journal; `segments` are all of it, in order."""
    length = 0
    for segment in segments:
        if segment.first != length:
            found = f"a segment of its journal begins at {segment.first}"
            yield fault_of(record, rules.JOURNAL_LENGTH, found, f"the one before it ends before {length}")
        length = segment.first + segment.count
    if length != record.journal_length:
        found = f"its journal ends before {length}"
        yield fault_of(record, rules.JOURNAL_LENGTH, found, f"its row says {record.journal_length}")
    if models:
        yield from _contents(record, segments)


def _contents(record: ExecutionRecord, segments: Sequence[JournalRecord]) -> Iterator[Fault]:
    decoded: list[Segment] = []
    for segment in segments:
        try:
            found = decode_segment(segment.body)
        except JournalFormatError as error:
            yield fault_of(record, rules.JOURNAL_FORMAT, f"the segment at {segment.first} cannot be read: {error}")
            return
        if len(found.events) != segment.count:
            said = f"the segment at {segment.first} has {len(found.events)} events"
            yield fault_of(record, rules.JOURNAL_FORMAT, said, f"it counts {segment.count}")
        decoded.append(found)
    for violation in validate_segments(record.id, decoded):
        yield Fault(
            rule=f"journal {violation.rule}",
            id=record.id,
            label=fault_of(record, rules.JOURNAL_FORMAT, "").label,
            found=f"at {violation.sequence}: {violation.detail}",
            expected=violation.rule.text,
        )
    events = [event for segment in decoded for event in segment.events]
    end = _ENDS.get(type(events[-1])) if events else None
    is_forced = end is None and record.status is Status.CANCELLED
    if events and not is_forced and end is not (record.status if record.status.is_terminal else None):
        said = "its journal has no end" if end is None else f"its journal ends as {end}"
        yield fault_of(record, rules.OUTCOME, said, f"its row is {record.status}")
