"""The journal of a running execution: append-only, and every append is checked.

`Journal` keeps what the checks need (`book` says what that is) and the events that are not committed yet. Its
holder appends, takes the pending segment, and commits it; a journal whose commit was fenced is thrown away. The
commonest events never become objects: `quick` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from holdfast.core.errors import JournalDamagedError, JournalRefusedError
from holdfast.core.journal.book import NONE, SETTLED, Book
from holdfast.core.journal.checks import admit
from holdfast.core.journal.events import Event
from holdfast.core.journal.format import Segment, join_segment
from holdfast.core.journal.reading import read_events, read_step


class Journal(Book):
    """One execution's journal. `execution_id` is the text form of its promise id (ruling B1)."""

    __slots__ = ("pending", "pending_first", "pending_patches")

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.pending: list[Event | str] = []  # text, perhaps of several, where `quick` wrote them
        self.pending_first = 0  # the sequence of the first of them
        self.pending_patches: dict[str, bool] = NONE

    @classmethod
    def load(cls, execution_id: str, segments: Iterable[Segment]) -> Self:
        """The journal that these stored segments make; nothing of it is pending."""
        journal = cls(execution_id)
        for segment in segments:
            journal.read(segment)
        return journal

    def read(self, segment: Segment) -> None:
        """Take in the next stored segment, or raise `JournalDamagedError`; of no use once something was appended."""
        try:
            for patch_id, answer in segment.patches.items():
                self.check_patch(patch_id, answer)
                self.patches = self.patches or {}
                self.patches[patch_id] = answer
            read_events(self, segment.events)
        except JournalRefusedError as error:
            raise JournalDamagedError(
                f"the stored journal of {self.execution_id} breaks {error.rule} {error.rule_name} "
                f"at {error.sequence}: it was altered or events of it are lost. "
                "Validate it for the full list, and restore it from a backup"
            ) from error
        self.pending_first = self.length

    def read_step(self, segment: Segment) -> bool:
        """`read`, if the segment is the end of one plain call and the begin of the next; else nothing is done."""
        if segment.patches or not read_step(self, segment.events):
            return False
        self.pending_first = self.length
        return True

    def append(self, event: Event) -> None:
        """Record an event, or raise `JournalRefusedError` and change nothing."""
        admit(self, event)
        self.pending.append(event)

    def record_patch(self, patch_id: str, answer: bool) -> None:
        """Remember what `patched(patch_id)` answered, for good (ruling B18)."""
        self.check_patch(patch_id, answer)
        if patch_id not in self.patches:
            self.patches = self.patches or {}
            self.patches[patch_id] = answer
            self.pending_patches = self.pending_patches or {}
            self.pending_patches[patch_id] = answer

    def take_segment(self) -> str:
        """Everything pending as one encoded segment; nothing is pending afterwards."""
        text = join_segment(self.pending_patches, self.pending)
        self.pending = []
        self.pending_first = self.length
        if self.pending_patches:
            self.pending_patches = NONE
        return text

    @property
    def next_promise_id(self) -> str:
        """The local id that the next operation must have (B3)."""
        return f".{self.next_child}"

    def is_settled(self, promise_id: str) -> bool:
        """Whether a call completed, a timer fired or a signal was received under this id."""
        index = self.find(promise_id)
        return index >= 0 and bool(self.flags[index] & SETTLED)

    def last_delivery_id(self, signal_name: str) -> int:
        """The id of the last delivery of this name, 0 before the first; the next one is greater."""
        inbox = self.inboxes.get(signal_name)
        return 0 if inbox is None else inbox.last

    def oldest_delivery_id(self, signal_name: str) -> int | None:
        """The delivery that the next SignalReceived of this name must consume, if one is buffered."""
        inbox = self.inboxes.get(signal_name)
        return inbox.unconsumed[0][0] if inbox is not None and inbox.unconsumed else None
