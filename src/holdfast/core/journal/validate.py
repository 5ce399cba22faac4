"""The audit of a stored journal: every violation, with its rule, its sequence and its ids.

It runs the same checks as an append, but takes note of what is wrong and goes on as if it had been right, so that one
lost event is reported where it is missed and does not hide what else is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.journal.book import Book
from holdfast.core.journal.checks import admit
from holdfast.core.journal.events import Event
from holdfast.core.journal.format import Segment
from holdfast.core.journal.local_ids import UNKNOWN, local_number
from holdfast.core.journal.rules import Rule, Violation


class _Audit(Book):
    """A book that takes note of violations. Nothing is sure of ids here, so they are looked up, not computed."""

    __slots__ = ("index", "taken", "violations")

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.index: dict[str, int] = {}
        self.taken: set[tuple[str, str]] = set()
        self.violations: list[Violation] = []

    def refuse(self, rule: Rule, sequence: int, detail: str, *ids: str, name: str | None = None) -> None:
        self.violations.append(Violation(rule, sequence, self.told(ids, name), detail))

    def find(self, promise_id: str) -> int:
        return self.index.get(promise_id, UNKNOWN)

    def enter(self, promise_id: str, flags: int) -> int:
        # The numbers go on from the highest seen, so that one gap is one violation.
        self.next_child = max(self.next_child, local_number(promise_id) + 1)
        if promise_id in self.index:
            if promise_id in self.calls:
                self.calls[promise_id].scheduled = True
            return UNKNOWN
        return self.adopt(promise_id, flags)

    def adopt(self, promise_id: str, flags: int) -> int:
        known = self.index.get(promise_id)
        if known is not None:
            return known
        index = self.index[promise_id] = len(self.flags)
        self.flags.append(flags)
        self.words.append(0)
        return index

    def is_taken(self, join_set_id: str, promise_id: str, index: int) -> bool:
        return (join_set_id, promise_id) in self.taken

    def mark_taken(self, join_set_id: str, promise_id: str, index: int) -> None:
        super().mark_taken(join_set_id, promise_id, index)
        self.taken.add((join_set_id, promise_id))


def validate(execution_id: str, events: Iterable[Event]) -> list[Violation]:
    """Every violation among these events, in their order; none for a sound journal."""
    audit = _Audit(execution_id)
    for event in events:
        admit(audit, event)
    return audit.violations


def validate_segments(execution_id: str, segments: Iterable[Segment]) -> list[Violation]:
    """Every violation in a stored journal, its patches included."""
    audit = _Audit(execution_id)
    for segment in segments:
        for patch_id, answer in segment.patches.items():
            audit.check_patch(patch_id, answer)
            audit.patches = audit.patches or {}
            audit.patches.setdefault(patch_id, answer)
        for event in segment.events:
            admit(audit, event)
    return audit.violations
