"""The two 15-digit ledgers of a flow, as integers with named fields.

- `Field`: where a counter or marker lies, its weight and its ceiling. The store's SQL uses the same weights.
- `ActivityLedger`: one an activity instance. `GuidLedger`: one a Leg2 message.
- `GuidRecord`: a GUID ledger and the ordinal beside it.

Every field is read with div/mod (ruling A1). Values are frozen: an increment gives a new ledger, never a
smaller one (Rule A). What to do with a ledger that was read is `protocol.py`'s business.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Self

from msgspec import Struct

from holdfast.core.errors import LedgerCeilingError, LedgerError

LEDGER_DIGITS = 15
LEDGER_LIMIT = 10**LEDGER_DIGITS

_TENS: tuple[int, ...] = tuple(10**digits for digits in range(LEDGER_DIGITS))
_SOUND_MARKERS = frozenset(int(f"{bits:04b}") for bits in range(16))


class Field(Struct, frozen=True, gc=False):
    """A run of digits: a counter of several, or a marker of one that holds 0 or 1."""

    name: str
    weight: int
    digits: int
    ceiling: int

    def read(self, value: int) -> int:
        return value // self.weight % _TENS[self.digits]


LEG1_ATTEMPTS = Field("Leg1 attempts", 10**12, 3, 999)
LEG1_DONE = Field("Leg1 done", 10**11, 1, 1)
JOB_CLOSED = Field("job closed snapshot", 10**11, 1, 1)
WORK_DONE = Field("work done", 10**10, 1, 1)
CHILDREN_SPAWNED = Field("children spawned", 10**9, 1, 1)
COMPLETION_DONE = Field("completion tasks done", 10**8, 1, 1)
LEG2_ENTRIES = Field("Leg2 entries", 1, 8, 99_999_999)
GUID_ATTEMPTS = Field("GUID attempts", 1, 8, 99_999_999)


class Step(Enum):
    """The three durable steps of Leg2; each value is the marker that proves the step (section 8)."""

    WORK = WORK_DONE
    CHILDREN = CHILDREN_SPAWNED
    COMPLETION = COMPLETION_DONE


class Ledger(Struct, frozen=True, order=True, gc=False):
    """Fifteen digits, checked field by field whenever a value is made, so that no bad one is passed on."""

    value: int = 0
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    LIMIT: ClassVar[int] = LEDGER_LIMIT

    def __post_init__(self) -> None:
        # Counters fill their digits, so only the four marker digits and the reserved ones can be wrong.
        if 0 <= self.value < self.LIMIT and self.value // 10**8 % 10**4 in _SOUND_MARKERS:
            return
        if not 0 <= self.value < LEDGER_LIMIT:
            raise LedgerError(f"{self.value} is no {LEDGER_DIGITS}-digit ledger; the stored value is corrupt")
        for field in self.FIELDS:
            digits = field.read(self.value)
            if digits > field.ceiling:
                raise LedgerError(
                    f"ledger {self}: {field.name} holds {digits}, above {field.ceiling}; the stored value is corrupt"
                )
        raise LedgerError(f"ledger {self}: reserved digits are set; the stored value is corrupt")

    def __str__(self) -> str:
        return f"{self.value:0{LEDGER_DIGITS}d}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`: exactly fifteen digits, as the seed writes them."""
        if len(text) != LEDGER_DIGITS or not (text.isascii() and text.isdigit()):
            raise LedgerError(f"{text!r} is no ledger: {LEDGER_DIGITS} digits are expected")
        return cls(int(text))

    def read(self, field: Field) -> int:
        return field.read(self.value)

    def at_ceiling(self, field: Field) -> bool:
        return field.read(self.value) >= field.ceiling

    def _count(self, field: Field, activity: str) -> Self:
        # Rule F, ruling A6: the ceiling comes first, so that a carry can never reach the next field.
        if self.at_ceiling(field):
            raise LedgerCeilingError(activity, str(self), field.name, field.ceiling)
        return type(self)(self.value + field.weight)

    def set_marker(self, field: Field) -> Self:
        """Add a marker's weight, once: a second time would mean that its work is committed twice."""
        if field.read(self.value):
            raise LedgerError(f"ledger {self}: {field.name} is already marked; its work has been committed")
        return type(self)(self.value + field.weight)

    def _require(self, field: Field, doing: str) -> None:
        if not field.read(self.value):
            raise LedgerError(f"ledger {self}: cannot {doing} before {field.name}")


class ActivityLedger(Ledger, frozen=True, order=True, gc=False):
    """What has happened to one activity instance, over all its messages (sections 1-5)."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        LEG1_ATTEMPTS,
        LEG1_DONE,
        WORK_DONE,
        CHILDREN_SPAWNED,
        COMPLETION_DONE,
        LEG2_ENTRIES,
    )

    @property
    def leg1_attempts(self) -> int:
        return LEG1_ATTEMPTS.read(self.value)

    @property
    def leg1_done(self) -> bool:
        return LEG1_DONE.read(self.value) == 1

    @property
    def leg2_entries(self) -> int:
        return LEG2_ENTRIES.read(self.value)

    def is_marked(self, step: Step) -> bool:
        return step.value.read(self.value) == 1

    def enter_leg1(self, activity: str) -> ActivityLedger:
        """+1T: a Leg1 message was claimed; a commit of its own (4.1)."""
        return self._count(LEG1_ATTEMPTS, activity)

    def complete_leg1(self) -> ActivityLedger:
        """+100B, in the commit of Leg1's work (4.3)."""
        self._require(LEG1_ATTEMPTS, "complete Leg1")
        return self.set_marker(LEG1_DONE)

    def enter_leg2(self, activity: str) -> ActivityLedger:
        """+1: a Leg2 message was claimed (7.1). Never before Leg1 committed (ruling A5)."""
        self._require(LEG1_DONE, "enter Leg2")
        return self._count(LEG2_ENTRIES, activity)

    def mark(self, step: Step) -> ActivityLedger:
        """Set the step's marker, at most once: a tenth addition would carry into Leg1 (ruling A2)."""
        self._require(LEG2_ENTRIES, f"mark {step.value.name}")
        return self if self.is_marked(step) else self.set_marker(step.value)


class GuidLedger(Ledger, frozen=True, order=True, gc=False):
    """What has been committed for one Leg2 message; it alone drives resumption (section 6, Rule C)."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        JOB_CLOSED,
        WORK_DONE,
        CHILDREN_SPAWNED,
        COMPLETION_DONE,
        GUID_ATTEMPTS,
    )
    LIMIT: ClassVar[int] = 10**12  # positions 1-3 are reserved

    @property
    def attempts(self) -> int:
        return GUID_ATTEMPTS.read(self.value)

    @property
    def job_closed(self) -> bool:
        return JOB_CLOSED.read(self.value) == 1

    def is_marked(self, step: Step) -> bool:
        return step.value.read(self.value) == 1

    @property
    def next_step(self) -> Step | None:
        """Where processing resumes; None when nothing is owed and the message can be acknowledged."""
        if not self.is_marked(Step.WORK):
            return Step.WORK
        if not self.is_marked(Step.CHILDREN):
            return Step.CHILDREN
        # 13.1: the snapshot, not the semaphore, says who owes the completion tasks.
        if self.job_closed and not self.is_marked(Step.COMPLETION):
            return Step.COMPLETION
        return None

    def enter(self, activity: str) -> GuidLedger:
        """+1: one more delivery of this GUID (ruling A3)."""
        return self._count(GUID_ATTEMPTS, activity)

    def commit_work(self) -> GuidLedger:
        """Step 1, +10B."""
        self._require(GUID_ATTEMPTS, "commit work")
        return self.set_marker(WORK_DONE)

    def commit_children(self, *, job_closed: bool) -> GuidLedger:
        """Step 2, +1B, and +100B if this very commit brought the semaphore to its threshold (9.3)."""
        self._require(WORK_DONE, "spawn children")
        marked = self.set_marker(CHILDREN_SPAWNED)
        return marked.set_marker(JOB_CLOSED) if job_closed else marked

    def commit_completion(self) -> GuidLedger:
        """Step 3, +100M; only the GUID that closed the job owes it."""
        self._require(CHILDREN_SPAWNED, "run completion tasks")
        self._require(JOB_CLOSED, "run completion tasks")
        return self.set_marker(COMPLETION_DONE)


class GuidRecord(Struct, frozen=True, gc=False):
    """A GUID's ledger and its ordinal: the activity's Leg2 entry count at first delivery (ruling A3).

    Ordinal 0 belongs to a message that was closed without ever entering Leg2: it has no dimension.
    """

    ledger: GuidLedger
    ordinal: int

    def __post_init__(self) -> None:
        if not 0 <= self.ordinal <= LEG2_ENTRIES.ceiling:
            raise LedgerError(f"GUID ordinal {self.ordinal} is outside 0..{LEG2_ENTRIES.ceiling}")

    @property
    def dimensional_index(self) -> int:
        """Section 15, fixed at first entry; a redelivery never moves it."""
        if self.ordinal == 0:
            raise LedgerError(f"GUID ledger {self.ledger} never entered Leg2: it has no dimension to spawn into")
        return self.ordinal - 1
