"""Operations: several processes on one piece of work, through files with heartbeats in a shared folder.

A map, from the paper to the disk to the user:

    timing ids data lifecycle observer logs   pure: constants, ids, the file's values, phases, who is dead
    filesystem files backups resources         the disk: one seam, whole-file changes, retention, deleting
    transactor seams                           threads and time, both replaceable in tests
    heartbeat heart recovery                   one beat; the service around it; operations nobody is left in
    call callbook workers starting waiting     calls, their records, worker processes, waiting for them
    operation ledger owned blocking program    what users hold; the blocking facade; any program as participant
    holding                                    an operation held for a workflow, while its calls run

It needs no database. The files are the contract, so a program in any language can take part.
"""

from .blocking import BlockingCall, BlockingLedger, BlockingOperation, BlockingSpawnedCall
from .call import Call, SpawnedCall
from .callbacks import CallCallback
from .data import FrameState, LedgerData, OperationState, StackFrame
from .errors import (
    CallCrashedError,
    CallFailedError,
    CallsPendingError,
    CallStateError,
    CorruptLedgerError,
    InvalidIdError,
    LedgerStorageError,
    LockTimeoutError,
    NotInitiatorError,
    OperationEndedError,
    OperationError,
    OperationExistsError,
    OperationFailedError,
    OperationFailedInfo,
    OperationNotFoundError,
    UnsafePathError,
    WorkerFailedError,
)
from .heartbeat import HeartbeatResult
from .ledger import Ledger
from .logs import Event, LogLevel
from .operation import Operation
from .owned import open_operation
from .timing import Timing
from .waiting import SyncResult

__all__ = [
    "BlockingCall",
    "BlockingLedger",
    "BlockingOperation",
    "BlockingSpawnedCall",
    "Call",
    "CallCallback",
    "CallCrashedError",
    "CallFailedError",
    "CallStateError",
    "CallsPendingError",
    "CorruptLedgerError",
    "Event",
    "FrameState",
    "HeartbeatResult",
    "InvalidIdError",
    "Ledger",
    "LedgerData",
    "LedgerStorageError",
    "LockTimeoutError",
    "LogLevel",
    "NotInitiatorError",
    "Operation",
    "OperationEndedError",
    "OperationError",
    "OperationExistsError",
    "OperationFailedError",
    "OperationFailedInfo",
    "OperationNotFoundError",
    "OperationState",
    "SpawnedCall",
    "StackFrame",
    "SyncResult",
    "Timing",
    "UnsafePathError",
    "WorkerFailedError",
    "open_operation",
]
