"""`Ledger`: the folder, and the way into operations. The seed's main entry point.

Opening the folder (creating, joining, `async with Ledger(...)`) also looks for operations that nobody is left to
clean up, and sees them to their end in the background (ruling C10).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random, SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.core.errors import InvalidArgumentError

from .backups import backup_ids
from .data import LedgerData, OperationState
from .errors import (
    CorruptLedgerError,
    OperationExistsError,
    OperationFailedError,
    OperationNotFoundError,
)
from .files import OperationFiles, Transaction, storage_error
from .filesystem import FOLDER_MODE, FileSystem, LocalFileSystem
from .ids import check_id, new_operation_id
from .lifecycle import failure_of, require_running, touch
from .logs import Event
from .opening import Opening
from .operation import Operation
from .participation import Participation, World
from .recovery import LOCK_SUFFIX, Recovery, needs_recovery, operation_ids
from .seams import SystemTime, Time
from .timing import TIMING_VARIABLE, Timing
from .transactor import ThreadTransactor, TransactorFactory

if TYPE_CHECKING:
    from .blocking import BlockingLedger


class Ledger:
    """A folder of operations, as one process sees it."""

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        *,
        participant_id: str | None = None,
        participant_pid: int | None = None,
        max_backups: int = 20,
        timing: Timing | None = None,
        temp_roots: Sequence[str | os.PathLike[str]] | None = None,
        time: Time | None = None,
        rng: Random | None = None,
        file_system: FileSystem | None = None,
        transactor: TransactorFactory = ThreadTransactor,
    ) -> None:
        """`timing`: by default that of the participant that started this process, else the seed's constants.
        `temp_roots`: where cleanup may delete temporary resources besides the ledger folder; by default the
        system's temp folder and the current one. The last four are seams for tests."""
        if max_backups < 0:
            raise InvalidArgumentError(f"max_backups is {max_backups}; use 0 to keep none")
        self.participant_id = check_id("participant id", participant_id or f"p{os.getpid()}")
        self.participant_pid = os.getpid() if participant_pid is None else participant_pid
        roots = (tempfile.gettempdir(), os.getcwd()) if temp_roots is None else temp_roots
        self._world = World(
            base_path=Path(os.path.realpath(base_path)),
            temp_roots=tuple(Path(os.path.realpath(root)) for root in roots),
            max_backups=max_backups,
            time=time or SystemTime(),
            rng=rng or SystemRandom(),
            file_system=file_system or LocalFileSystem(),
            timing=timing or Timing.parse(os.environ.get(TIMING_VARIABLE)),
            transactor=transactor,
        )
        self._operations: list[Operation] = []
        self._blocking: BlockingLedger | None = None
        self._recoveries: dict[str, tuple[Recovery, asyncio.Task[bool]]] = {}

    @property
    def base_path(self) -> Path:
        """The folder."""
        return self._world.base_path

    @property
    def timing(self) -> Timing:
        """The heartbeat and the thresholds in use."""
        return self._world.timing

    @property
    def sync(self) -> BlockingLedger:
        """The blocking facade of this ledger, for plain scripts and `multiprocessing` workers."""
        from .blocking import BlockingLedger

        if self._blocking is None or self._blocking.is_closed:
            self._blocking = BlockingLedger(self)
        return self._blocking

    # --- operations -------------------------------------------------------------------------------------

    def create_operation(
        self,
        *,
        participant_id: str | None = None,
        description: str | None = None,
        operation_id: str | None = None,
    ) -> Opening[Operation]:
        """Create an operation as its initiator: `await` it, or `async with` it to complete or abort it."""
        return Opening(lambda: self._create(participant_id, description, operation_id))

    def join_operation(self, operation_id: str, *, participant_id: str | None = None) -> Opening[Operation]:
        """Take part in an operation: `await` it, or `async with` it to leave at the end."""
        return Opening(lambda: self._join(operation_id, participant_id))

    async def _create(self, participant_id: str | None, description: str | None, operation_id: str | None) -> Operation:
        participant = check_id("participant id", participant_id or self.participant_id)
        world = self._world
        chosen = operation_id or new_operation_id(world.time.now_us(), participant, world.rng)
        part = self._take_part(chosen, participant)

        def change(transaction: Transaction) -> LedgerData:
            if transaction.data is not None or world.file_system.exists(part.files.backup_path):
                raise OperationExistsError(f"operation {chosen} exists already in {world.base_path}; join it")
            now_us = transaction.now_us
            transaction.data = LedgerData(chosen, participant, now_us, now_us, description=description)
            transaction.event(Event.OPERATION_CREATED, f"initiator={participant} {description or ''}".rstrip())
            part.member.observer.look(transaction.data, now_us, world.time.monotonic_us())
            return transaction.data

        return await self._open(part, change, is_initiator=True)

    async def _join(self, operation_id: str, participant_id: str | None) -> Operation:
        participant = check_id("participant id", participant_id or self.participant_id)
        world = self._world
        part = self._take_part(operation_id, participant)
        data = await self._peek(part)
        if data is not None and needs_recovery(world, data):
            await self._recover_before_joining(part)

        def change(transaction: Transaction) -> LedgerData:
            if transaction.data is None:
                if transaction.final is not None:
                    raise part.refusal(transaction.final)
                raise self._not_found(operation_id)
            require_running(transaction.data)  # ruling C10: no joining in cleanup or failed
            now_us = transaction.now_us
            part.member.observer.look(transaction.data, now_us, world.time.monotonic_us())
            transaction.data = touch(transaction.data, (), now_us)
            transaction.event(Event.PARTICIPANT_JOINED, f"participant={participant} pid={self.participant_pid}")
            return transaction.data

        return await self._open(part, change, is_initiator=False)

    async def _open(
        self, part: Participation, change: Callable[[Transaction], LedgerData], *, is_initiator: bool
    ) -> Operation:
        try:
            await part.change(change)
        except BaseException:
            part.finish()
            raise
        operation = Operation(part, is_initiator=is_initiator)
        operation.start_heartbeat()
        self._operations = [known for known in self._operations if not known.is_over]
        self._operations.append(operation)
        await self.begin_recovery()
        return operation

    def _take_part(self, operation_id: str, participant_id: str) -> Participation:
        files = OperationFiles(self._world.file_system, self._world.base_path, operation_id)
        try:
            os.makedirs(self._world.base_path, FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise storage_error(operation_id, error) from error
        return Participation(self._world, files, participant_id, self.participant_pid)

    async def _peek(self, part: Participation) -> LedgerData | None:
        try:
            return await part.unlocked(part.files.peek)
        except CorruptLedgerError:
            return None  # the change under the lock sets it aside and says so

    async def _recover_before_joining(self, part: Participation) -> None:
        """Wait until it is known whether anybody is left; if not, coordinate and refuse (ruling C10)."""
        recovery, task = self._start_recovery(part.operation_id)
        decided = asyncio.ensure_future(recovery.decided.wait())
        await asyncio.wait({task, decided}, return_when=asyncio.FIRST_COMPLETED)
        decided.cancel()
        data = await self._peek(part)
        if data is not None and data.state in (OperationState.CLEANUP, OperationState.FAILED):
            part.finish()
            raise OperationFailedError(failure_of(data))

    # --- the folder -------------------------------------------------------------------------------------

    def operations(self) -> dict[str, LedgerData | CorruptLedgerError]:
        """Every operation in the folder, in order of id; a corrupt one is its error. Reads, changes nothing."""
        found: dict[str, LedgerData | CorruptLedgerError] = {}
        for operation_id in operation_ids(self._world.file_system, self._world.base_path):
            try:
                data = self._files(operation_id).peek()
            except CorruptLedgerError as error:
                found[operation_id] = error
                continue
            if data is not None:
                found[operation_id] = data
        return found

    def backups(self) -> list[str]:
        """The ids of the operations in backup, oldest first."""
        return backup_ids(self._world.file_system, self._world.base_path)

    def read(self, operation_id: str) -> LedgerData:
        """An operation as its file says, from the folder or from backup."""
        files = self._files(operation_id)
        data = files.peek() or files.peek_backup()
        if data is None:
            raise self._not_found(operation_id)
        return data

    async def request_abort(self, operation_id: str) -> None:
        """Set the abort flag from outside: the next participant to beat coordinates the cleanup."""
        part = self._take_part(operation_id, self.participant_id)

        def change(transaction: Transaction) -> None:
            if transaction.data is None:
                raise part.refusal(transaction.final) if transaction.final else self._not_found(operation_id)
            require_running(transaction.data)
            transaction.data = replace(transaction.data, aborted=True)
            transaction.event(Event.OPERATION_ABORTED, f"by={self.participant_id}")

        try:
            await part.change(change)
        finally:
            part.finish()

    async def take_over(self, operation_id: str, reason: str) -> Operation:
        """Fail an operation whose owner is known to be gone, without waiting for its heartbeat to go stale, and
        coordinate the cleanup. The result writes nothing but that; it raises if the operation has ended already."""
        part = self._take_part(operation_id, self.participant_id)
        operation = Operation(part, is_initiator=False)

        def look(transaction: Transaction) -> None:
            if transaction.data is not None:  # from now on it counts who stays silent: the history names them
                part.member.observer.look(transaction.data, transaction.now_us, self._world.time.monotonic_us())

        try:
            await part.change(look)
            await operation.abort(reason)
        except BaseException:
            part.finish()
            raise
        self._operations.append(operation)
        return operation

    # --- recovery ---------------------------------------------------------------------------------------

    async def begin_recovery(self) -> list[str]:
        """Look for abandoned operations and see to them in the background; returns their ids (ruling C10)."""
        fs, base_path = self._world.file_system, self._world.base_path
        suspects = [
            operation_id
            for operation_id, data in self.operations().items()
            if isinstance(data, LedgerData)
            and needs_recovery(self._world, data)
            and all(known.operation_id != operation_id or known.is_over for known in self._operations)
        ]
        orphans = set(operation_ids(fs, base_path, LOCK_SUFFIX)) - set(operation_ids(fs, base_path))
        for operation_id in (*suspects, *sorted(orphans)):
            self._start_recovery(operation_id)
        return suspects

    async def recover(self) -> int:
        """Look, and wait until every abandoned operation is in backup; returns how many were brought there."""
        await self.begin_recovery()
        return sum(await asyncio.gather(*(task for _, task in self._recoveries.values())))

    def _start_recovery(self, operation_id: str) -> tuple[Recovery, asyncio.Task[bool]]:
        known = self._recoveries.get(operation_id)
        if known is not None and not known[1].done():
            return known
        recovery = Recovery(self._world, self._files(operation_id), self.participant_id, self.participant_pid)
        task = asyncio.create_task(recovery.run(), name=f"holdfast-recovery-{operation_id}")
        self._recoveries[operation_id] = (recovery, task)
        return recovery, task

    # --- the end ----------------------------------------------------------------------------------------

    async def dispose(self, *, finish_cleanup: bool = True) -> None:
        """Stop every heartbeat. A cleanup that this process coordinates is finished first, unless told not to."""
        for operation in self._operations:
            if not operation.is_over:
                await operation.detach(finish_cleanup=finish_cleanup)
        for recovery, task in self._recoveries.values():
            if finish_cleanup and recovery.coordinating:
                await task
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await recovery.stop()
        self._operations.clear()
        self._recoveries.clear()

    async def __aenter__(self) -> Ledger:
        await self.begin_recovery()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.dispose()

    def _files(self, operation_id: str) -> OperationFiles:
        return OperationFiles(self._world.file_system, self._world.base_path, operation_id)

    def _not_found(self, operation_id: str) -> OperationNotFoundError:
        return OperationNotFoundError(
            f"no operation {operation_id} in {self._world.base_path} or its backups; check the id and the folder"
        )
