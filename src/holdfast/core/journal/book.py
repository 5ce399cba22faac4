"""What must be remembered of a journal so that the next event can be checked in constant time.

`Book` is that memory, and nothing else: the checks are functions over it (`lifecycle`, `calls`, `control`,
`join_sets`), so that a live journal and the audit of a stored one share every rule. A check looks at everything
first and calls `refuse` for what is wrong; only then does it write. In a live journal `refuse` raises, so a refused
event has changed nothing. In an audit it takes note, and the check carries on as well as it can.

What is kept, and why:
- for each child, for ever: one byte of flags and one word of 8 bytes. The flags tell a second completion or
  firing (SE-4, B3), an id out of order (B3) and a second submission (JS-7) from a first. The word is the
  digest of a call's result until a join set takes it (a call may be submitted after it completed), and from
  then on the number of that join set (JS-5).
- only while open: calls in flight, join sets with results to take and their members, signals not yet received,
  deliveries not yet consumed, and the wait. A signal's name keeps its last delivery id. A wait that names a join set
  has that among what is outstanding, until a member has a result that was not taken.
Events themselves are not kept. Ids are local to the journal (`local_ids`); what is refused is told with whole ones.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.core.errors import JournalRefusedError
from holdfast.core.journal.events import AwaitKind, ExecutionAwaiting, JournalEvent, Ok, Result, SignalWait
from holdfast.core.journal.fold import JournalState, JournalStatus, is_satisfied
from holdfast.core.journal.local_ids import UNKNOWN, local_number, whole_id
from holdfast.core.journal.rules import (
    ALLOCATE,
    AWARE_TIME,
    CHILD_NUMBER,
    PATCH_STICKY,
    SCHEDULED_ONCE,
    Rule,
    Violation,
)

# The low three bits of a child's flags say what it is.
CALL: Final = 1
TIMER: Final = 2
SIGNAL: Final = 3
VALUE: Final = 4
JOIN_SET: Final = 5
KIND_MASK: Final = 7
SETTLED: Final = 8
SUBMITTED: Final = 16
CONSUMED: Final = 32
ENDED: Final = CALL | SETTLED  # and no member of a join set

# Of what most journals never have; empty for ever, so that who adds the first must make a container first.
NONE: Final[Any] = MappingProxyType({})

_RUNNING: Final = JournalStatus.RUNNING
_CANCELLING: Final = JournalStatus.CANCELLING
_encode: Final = msgspec.json.Encoder().encode


class Call(Struct, gc=False):
    """A call in flight: its number, the last attempt that started (0: none), and whether that one still runs."""

    number: int
    attempt: int = 0
    running: bool = False
    scheduled: bool = True  # False only for a call that an audit adopted.


class Waiting(Struct, gc=False):
    """What a body is blocked on: the fields of an ExecutionAwaiting that matter while it is."""

    kind: AwaitKind
    waiting_on: tuple[str, ...]
    signals: tuple[SignalWait, ...] = ()
    join_set_id: str | None = None


class JoinSet:
    """How many members a join set took, how many results it gave, and how many more it could give at once."""

    __slots__ = ("awaited", "created", "ready", "submitted")

    def __init__(self, *, created: bool) -> None:
        self.created = created
        self.submitted = 0
        self.awaited = 0
        self.ready = 0


class Inbox:
    """The deliveries of one signal name: those not consumed (id and digest of the payload), and the last id."""

    __slots__ = ("early", "last", "skipped", "unconsumed")

    def __init__(self) -> None:
        self.unconsumed: deque[tuple[int, int]] = deque()
        self.last = 0
        self.early: set[int] = NONE  # ids that an audit saw received before they were delivered
        # Ids that were passed over, so that one never delivered (CF-2) is not taken for one consumed (CF-3).
        self.skipped: list[range] = []


class Book:
    """The memory of one journal; `refuse` raises."""

    __slots__ = (
        "calls",
        "cancel_requested",
        "execution_id",
        "flags",
        "inboxes",
        "is_open",
        "join_sets",
        "length",
        "members",
        "next_child",
        "outstanding",
        "patches",
        "signal_names",
        "status",
        "waiting",
        "words",
    )

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        self.length = 0
        self.status: JournalStatus | None = None
        self.is_open = False
        self.cancel_requested = False
        self.waiting: ExecutionAwaiting | Waiting | None = None
        self.outstanding: set[str] = set()
        self.next_child = 0
        self.flags = bytearray()
        self.words = array("q")
        self.calls: dict[str, Call] = {}
        self.signal_names: dict[str, str] = NONE
        self.inboxes: dict[str, Inbox] = NONE
        self.join_sets: dict[str, JoinSet] = NONE
        self.members: dict[str, str] = NONE
        self.patches: dict[str, bool] = NONE

    @property
    def state(self) -> JournalState | None:
        """The state that `fold` gives for the same events."""
        if self.status is None:
            return None
        if self.waiting is not None:
            return JournalState(self.status, self.waiting.waiting_on, self.waiting.kind, self.waiting.join_set_id)
        return JournalState(self.status)

    def refuse(self, rule: Rule, sequence: int, detail: str, *ids: str, name: str | None = None) -> None:
        """Raise for a broken rule. `name` is of a signal or a patch, and told as it is."""
        violation = Violation(rule, sequence, self.told(ids, name), detail)
        raise JournalRefusedError(
            f"journal {self.execution_id} refused an event: {violation}. Nothing was recorded; {rule.text}.",
            rule.id,
            rule.name,
            sequence,
            violation.ids,
        )

    def told(self, ids: Iterable[str], name: str | None) -> tuple[str, ...]:
        """As people are told of them: ids are whole."""
        whole = tuple(whole_id(self.execution_id, one) for one in ids)
        return whole if name is None else (*whole, name)

    def find(self, promise_id: str) -> int:
        """The index of a child of this journal, or `UNKNOWN`."""
        number = local_number(promise_id)
        return number if number < self.next_child else UNKNOWN

    def enter(self, promise_id: str, flags: int) -> int:
        """Note the next child; its index, or `UNKNOWN` if it was there before (which only an audit sees)."""
        number = self.next_child
        self.next_child = number + 1
        self.flags.append(flags)
        self.words.append(0)
        return number

    def adopt(self, promise_id: str, flags: int) -> int:
        """Note a child that no event began. Only an audit does; a journal has refused the event by now."""
        return UNKNOWN

    def kind_of(self, index: int) -> int:
        return self.flags[index] & KIND_MASK if index >= 0 else UNKNOWN

    def may_operate(self) -> bool:
        """B2: operations belong to Running, and to Cancelling for clean-up."""
        return self.status is _RUNNING or self.status is _CANCELLING

    def allocate(self, event: JournalEvent, promise_id: str, flags: int) -> int:
        """Check and note the child that an event begins; what `enter` returns."""
        if self.status is not _RUNNING and self.status is not _CANCELLING:
            self.refuse(ALLOCATE, event.sequence, f"the execution is {self.status_text()}", promise_id)
        if promise_id != f".{self.next_child}":
            self.refuse_number(event, promise_id, flags & KIND_MASK, self.next_child)
        return self.enter(promise_id, flags)

    def refuse_number(self, event: JournalEvent, promise_id: str, kind: int, expected: int) -> None:
        """The id is not the next child's: a repeated call has a rule of its own."""
        index = self.find(promise_id)
        if kind == CALL and self.kind_of(index) == CALL:
            self.refuse(SCHEDULED_ONCE, event.sequence, "the call was scheduled before", promise_id)
        else:
            detail = f"the next child is {self.execution_id}.{expected}"
            self.refuse(CHILD_NUMBER, event.sequence, detail, promise_id)

    def settle(self, promise_id: str, index: int) -> None:
        """A promise has its outcome; if it is waited for, one less is outstanding."""
        flags = self.flags[index]
        self.flags[index] = flags | SETTLED
        self.outstanding.discard(promise_id)
        owner = self.members.get(promise_id) if self.members and not flags & SETTLED else None
        if owner is not None and owner in self.join_sets:
            self.join_sets[owner].ready += 1
            self.outstanding.discard(owner)

    @property
    def is_wait_satisfied(self) -> bool:
        """Whether ExecutionResumed may be appended now."""
        waiting = self.waiting
        if waiting is None or not self.outstanding:
            return waiting is not None
        count = len(waiting.waiting_on) + (waiting.join_set_id is not None)
        return is_satisfied(waiting.kind, len(self.outstanding), count)

    def is_taken(self, join_set_id: str, promise_id: str, index: int) -> bool:
        """Whether this join set gave the result of this call before."""
        return index >= 0 and bool(self.flags[index] & CONSUMED) and self.words[index] == self.find(join_set_id)

    def mark_taken(self, join_set_id: str, promise_id: str, index: int) -> None:
        """From here on the call's word holds the number of the join set instead of the digest of the result."""
        if index >= 0:
            self.flags[index] |= CONSUMED
            self.words[index] = self.find(join_set_id)

    def check_time(self, event: JournalEvent, moment: datetime, field: str) -> None:
        if moment.tzinfo is None:  # It would be written, and never read again.
            self.refuse(AWARE_TIME, event.sequence, f"{field} {moment.isoformat()} has no time zone")

    def check_patch(self, patch_id: str, answer: bool) -> None:
        known = self.patches.get(patch_id)
        if known is not None and known is not answer:
            self.refuse(PATCH_STICKY, self.length, f"it was answered {known} before, now {answer}", name=patch_id)

    def status_text(self) -> str:
        return "not started" if self.status is None else self.status.value


def digest_of(result: Result) -> int:
    """64 bits that stand for a result in memory; equal results have equal digests."""
    return hash(bytes(result.value)) if type(result) is Ok else hash(_encode(result))
