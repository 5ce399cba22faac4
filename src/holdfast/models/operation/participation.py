"""One process's part in one operation: its files, its place in them, and whether the operation has failed.

What `Operation`, its calls and its heart share. Everything written goes through `change`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from holdfast.core.clock import to_datetime

from .data import LedgerData, OperationState
from .errors import OperationEndedError, OperationError, OperationFailedError, OperationFailedInfo
from .files import OperationFiles, Transaction
from .filesystem import FileSystem
from .heartbeat import Member
from .ids import new_call_id
from .lifecycle import failure_of
from .logs import LogLevel
from .observer import Observer
from .resources import delete_resources
from .seams import Time
from .timing import Timing
from .transactor import TransactorFactory

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a ledger takes from outside: time, chance, the disk and its constants."""

    base_path: Path
    temp_roots: tuple[Path, ...]
    max_backups: int
    time: Time
    rng: Random
    file_system: FileSystem
    timing: Timing
    transactor: TransactorFactory


class Participation:
    """Files, membership and failure of one operation handle."""

    def __init__(self, world: World, files: OperationFiles, participant_id: str, pid: int) -> None:
        self.world = world
        self.files = files
        self.operation_id = files.operation_id
        self.participant_id = participant_id
        self.member = Member(participant_id, pid, Observer(world.timing), world.timing)
        self._call_number = 0
        self.member.marker_id = self.next_call_id()
        self._transactor = world.transactor(files.operation_id, files.lock_path, world.file_system, world.timing)
        self.failure: OperationFailedInfo | None = None
        self.failed = asyncio.Event()
        self.over = asyncio.Event()

    def next_call_id(self) -> str:
        number, self._call_number = self._call_number, self._call_number + 1
        return new_call_id(self.participant_id, number, self.world.rng)

    async def change(self, change: Callable[[Transaction], R]) -> R:
        """Apply a change under the operation's lock; it is on the disk when this returns."""
        return await self._transactor.locked(
            lambda: self.files.transact(change, self.world.time.now_us(), self.participant_id)
        )

    async def unlocked(self, work: Callable[[], R]) -> R:
        """Disk work that needs no lock, off the event loop."""
        return await self._transactor.unlocked(work)

    async def log(self, text: str, level: LogLevel = LogLevel.INFO, depth: int = 0) -> None:
        await self.change(lambda transaction: transaction.log(text, level, depth))

    async def report(self, text: str) -> None:
        """Log an error that must not stop what is going on."""
        try:
            await self.log(text, LogLevel.ERROR)
        except OperationError:
            return  # it is in Python's own log as well

    async def delete(self, resources: Iterable[str]) -> None:
        """Delete temporary resources; what could not be deleted is in the log."""
        doomed = tuple(resources)
        if not doomed:
            return
        world = self.world
        for problem in await self.unlocked(
            lambda: delete_resources(world.file_system, doomed, world.base_path, world.temp_roots)
        ):
            await self.report(problem)

    def fail(self, info: OperationFailedInfo) -> None:
        """The operation has failed, for everyone in this process who waits on it. Once."""
        if self.failure is None:
            self.failure = info
            self.failed.set()

    def finish(self) -> None:
        """Nothing more will be written by this handle."""
        self.over.set()
        self._transactor.close()

    def refusal(self, final: LedgerData | None) -> OperationError:
        """Why nothing can be recorded any more, when the ledger file is not in its place."""
        if final is not None and final.state is OperationState.COMPLETED:
            return OperationEndedError(f"operation {self.operation_id} is completed; start a new one")
        if self.failure is None:
            self.fail(self.failure_without_ledger(final))
        assert self.failure is not None
        return OperationFailedError(self.failure)

    def failure_without_ledger(self, final: LedgerData | None) -> OperationFailedInfo:
        if final is not None:
            return failure_of(final)
        reason = f"its ledger file {self.files.json_path.name} was deleted or set aside as corrupt"
        return OperationFailedInfo(self.operation_id, reason, to_datetime(self.world.time.now_us()))
