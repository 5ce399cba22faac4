"""Every error a user can meet, under one root.

A message says what happened, to which id, and what to do about it. Signals for control flow are not here:
they derive from `BaseException` and live beside the code that raises them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.error_record import ErrorRecord


class HoldfastError(Exception):
    """The root of everything Holdfast raises on purpose."""


class ConfigurationError(HoldfastError):
    """Holdfast was set up in a way that cannot work: a bad store URL, option or definition."""


class DefinitionError(ConfigurationError):
    """A definition (machine, workflow, flow, batch, task) is wrong, found when it is declared."""


class InvalidArgumentError(HoldfastError, ValueError):
    """An argument is out of its range: a negative delay, a key too long, an empty name."""


class PayloadError(HoldfastError):
    """A value cannot cross the boundary between Python and the ledger."""


class EncodeError(PayloadError):
    """A value has no JSON form, or does not fit its annotation."""


class DecodeError(PayloadError):
    """What is stored, or was sent, does not fit today's annotation."""


class PayloadTooLargeError(PayloadError):
    """An encoded value is larger than the limit."""


class StoreError(HoldfastError):
    """The store cannot do what was asked."""


class StoreUnavailableError(StoreError):
    """The store could not be reached; the work is safe and can be tried again."""


class SchemaTooNewError(StoreError):
    """The database was written by a newer Holdfast than this one."""


class NotFoundError(HoldfastError, LookupError):
    """No execution has this id, prefix or key."""


class AmbiguousIdError(HoldfastError, LookupError):
    """A prefix of an id fits more than one execution."""


class KeyConflictError(HoldfastError):
    """The same idempotency key was used with a different input (ruling B6)."""


class UniqueConflictError(HoldfastError):
    """A start was refused because another execution occupies its unique key."""


class SignalRefusedError(HoldfastError):
    """A signal was sent to an execution that is finished or does not exist (ruling E5)."""


class ExecutionEndedError(HoldfastError):
    """There is no result: the execution ended otherwise. `record` is the error that the ledger holds, if any."""

    def __init__(self, message: str, record: ErrorRecord | None = None) -> None:
        super().__init__(message)
        self.record = record


class ExecutionFailedError(ExecutionEndedError):
    """The execution whose result was asked for ended as failed."""


class ExecutionCancelledError(ExecutionEndedError):
    """The execution whose result was asked for was cancelled; `reason` is what `cancel` was given, if anything."""

    def __init__(self, message: str, record: ErrorRecord | None = None, reason: str | None = None) -> None:
        super().__init__(message, record)
        self.reason = reason

    @classmethod
    def of(cls, label: str, reason: str | None) -> ExecutionCancelledError:
        return cls(f"{label} was cancelled" if reason is None else f"{label} was cancelled: {reason}", None, reason)


class ExecutionStrandedError(ExecutionEndedError):
    """The execution cannot go on with the code at hand; it keeps its state and can be resumed."""


class NotPublishedError(HoldfastError):
    """The execution ended, or is stranded, without the value that was waited for; what `result` raises is its cause."""


class LeaseLostError(HoldfastError):
    """This worker no longer holds the lease it acted under; nothing was written."""


class OutcomeError(HoldfastError):
    """A step returned something that is no legal outcome (ruling E6)."""


class LedgerError(HoldfastError):
    """A ledger was asked for something its rules forbid, or holds digits that no history can produce."""


class LedgerCeilingError(LedgerError):
    """A counter of a collation ledger is full; nothing was incremented (Rule F, ruling A6)."""

    def __init__(self, activity: str, ledger: str, counter: str, ceiling: int) -> None:
        super().__init__(activity, ledger, counter, ceiling)
        self.activity = activity
        self.ledger = ledger
        self.counter = counter
        self.ceiling = ceiling

    def __str__(self) -> str:
        return (
            f"activity {self.activity!r}: {self.counter} of ledger {self.ledger} is at its ceiling of "
            f"{self.ceiling}; nothing was incremented. Drop the message to close its obligation"
        )


class IllegalTransitionError(LedgerError):
    """A sequence number was moved along no legal transition; the run hard-fails (ruling D10)."""

    def __init__(self, seq: int, prior: str, attempted: str, owner: int, at_ms: int) -> None:
        super().__init__(seq, prior, attempted, owner, at_ms)
        self.seq = seq
        self.prior = prior
        self.attempted = attempted
        self.owner = owner
        self.at_ms = at_ms

    def __str__(self) -> str:
        return (
            f"illegal transition of seq {self.seq}: {self.prior} -> {self.attempted}, attempted by owner "
            f"{self.owner} at {self.at_ms} ms. The run stops; what is committed stays committed"
        )


class JournalError(HoldfastError):
    """Something is wrong with the journal of an execution."""


class JournalRefusedError(JournalError):
    """An event would break a rule of the journal and was not recorded."""

    def __init__(self, message: str, rule: str, rule_name: str, sequence: int, ids: tuple[str, ...] = ()) -> None:
        super().__init__(message, rule, rule_name, sequence, ids)
        self.rule = rule
        self.rule_name = rule_name
        self.sequence = sequence
        self.ids = ids

    def __str__(self) -> str:
        return str(self.args[0])


class JournalDamagedError(JournalError):
    """A stored journal breaks a rule: it was altered, or events of it are lost."""


class JournalFormatError(JournalError):
    """A stored journal segment cannot be read: it is damaged, or a newer Holdfast wrote it (ruling B14)."""


class NonDeterminismError(HoldfastError):
    """A workflow's code asked for something else than its journal holds (ruling B5)."""


class ForeignAwaitError(HoldfastError):
    """A workflow's body awaited something that is not Holdfast's own, or used asyncio itself."""


class CallNotAllowedError(HoldfastError):
    """A durable call was made where it cannot be recorded."""


class TaskFailed(HoldfastError):  # noqa: N818  (the name users know; see `raises=` of a task)
    """A call failed for good. `record` is what the journal holds: type, message, causes, traceback and others."""

    def __init__(self, message: str, record: ErrorRecord) -> None:
        super().__init__(message)
        self.record = record

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.args, self.record), self.__dict__


class TaskTimedOut(TaskFailed):
    """The last attempt took longer than its timeout, or its heartbeat failed to come."""


class TaskCancelled(TaskFailed):
    """The call was cancelled before it had a result; `reason` is what `cancel` was given, if anything."""

    @property
    def reason(self) -> str | None:
        """What the cancel of a call with an execution of its own was given, if anything."""
        found = self.record.fields.get("reason")
        return found if isinstance(found, str) else None


class Uncertain(TaskFailed):
    """An at-most-once call was interrupted: it may or may not have taken effect. It is not tried again."""


class ClosedError(HoldfastError):
    """The app was closed while something of it was still awaited; what it asked for is not undone."""


class NeverAwaitedError(HoldfastError):
    """A workflow ended with a call that it had made and not awaited, and which therefore never ran."""


class TransferError(HoldfastError):
    """An export cannot be made or taken in; nothing was changed."""
