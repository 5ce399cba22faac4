"""What can go wrong in an operation, each error naming the operation or call and what to do.

All derive from `HoldfastError` and survive pickling, so that a `multiprocessing` worker can hand one back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.errors import HoldfastError, InvalidArgumentError


@dataclass(frozen=True, slots=True)
class OperationFailedInfo:
    """Why an operation failed, as every participant and callback learns it."""

    operation_id: str
    reason: str
    failed_at: datetime
    crashed_call_ids: tuple[str, ...] = ()
    aborted: bool = False


class OperationError(HoldfastError):
    """The root of the errors of operations."""


class OperationFailedError(OperationError):
    """The operation crashed or was aborted; `info` says why. Clean up, then start a new operation."""

    def __init__(self, info: OperationFailedInfo) -> None:
        super().__init__(info)
        self.info = info

    def __str__(self) -> str:
        return (
            f"operation {self.info.operation_id} failed: {self.info.reason}; "
            "its cleanup runs by itself, start a new operation to try again"
        )


class OperationEndedError(OperationError):
    """The operation is over (completed, left or closed), so that nothing more can be recorded in it."""


class OperationNotFoundError(OperationError, LookupError):
    """No operation of this id is in the folder."""


class OperationExistsError(OperationError):
    """An operation of this id is already in the folder or its backups."""


class NotInitiatorError(OperationError):
    """Only the participant that created an operation completes it (ruling C8)."""


class CallsPendingError(OperationError):
    """Leaving or completing was refused because calls are still open (ruling C8)."""


class CallStateError(OperationError):
    """A call was ended or failed twice, or its result was read before there was one (ruling C8)."""


class CallCrashedError(OperationError):
    """The call was taken for crashed by another participant because its heartbeat stopped."""


class CallFailedError(OperationError):
    """The awaited call failed; the cause is chained."""


class WorkerFailedError(OperationError):
    """A worker process gave no result; exit code and the tail of its stderr are in the message (ruling C4)."""

    def __init__(self, message: str, exit_code: int | None = None, stderr_tail: str = "") -> None:
        super().__init__(message, exit_code, stderr_tail)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail

    def __str__(self) -> str:
        return str(self.args[0])


class LedgerStorageError(OperationError):
    """A ledger file could not be read or written: disk full, read-only folder, lost mount."""


class LockTimeoutError(LedgerStorageError):
    """Another process holds the operation's lock for longer than the timeout (ruling C2)."""


class CorruptLedgerError(LedgerStorageError):
    """A ledger file is no JSON of an operation; it is kept aside and never overwritten."""


class UnsafePathError(LedgerStorageError):
    """A link or another kind of file stands where a ledger file belongs; it was not followed (ruling C3)."""


class InvalidIdError(InvalidArgumentError):
    """An operation or participant id has characters that could leave the folder (ruling C3)."""
