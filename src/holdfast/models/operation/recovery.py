"""Operations that nobody is left to clean up (ruling C10): found when a folder is opened, coordinated to the end.

A `Recovery` takes no part in an operation: it looks, twice and one quiet time apart, before it touches a
running one, so that a participant that still beats is never harmed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from .callbook import CallBook
from .data import LedgerData, OperationState
from .errors import InvalidIdError, OperationError, OperationFailedError
from .files import JSON_SUFFIX, OperationFiles, logger
from .filesystem import FileSystem
from .heart import Heart
from .ids import check_id
from .lifecycle import failure_of
from .observer import looks_abandoned
from .participation import Participation, World

LOCK_SUFFIX = ".operation.lock"


def operation_ids(file_system: FileSystem, base_path: Path, suffix: str = JSON_SUFFIX) -> list[str]:
    """The ids of the operations in the folder, in order; other files are not ours."""
    found = []
    for name in file_system.list_folder(base_path):
        if name.endswith(suffix):
            try:
                found.append(check_id("operation id", name.removesuffix(suffix)))
            except InvalidIdError:
                continue
    return found


def needs_recovery(world: World, data: LedgerData) -> bool:
    """By its timestamps: over but not in backup, or nobody beating."""
    if data.state is OperationState.COMPLETED:
        return True
    return looks_abandoned(data, world.time.now_us(), world.timing)


class Recovery:
    """Looks after one operation that seems abandoned, until it is alive again or in backup."""

    def __init__(self, world: World, files: OperationFiles, participant_id: str, pid: int) -> None:
        self._part = Participation(world, files, participant_id, pid)
        self._part.member.recovering = True
        self._part.member.cleaned_up = True
        self._heart = Heart(self._part, CallBook(self._part))
        self.decided = asyncio.Event()
        self._was_there = False

    async def decide(self) -> None:
        """Look until it is clear. Returns if the operation is alive; raises if it has failed."""
        world = self._part.world
        seen: LedgerData | None = None
        while True:
            result = await self._heart.run_once()
            data = result.data_after
            self._was_there = self._was_there or result.ledger_exists
            if data is not None and data.state in (OperationState.CLEANUP, OperationState.FAILED):
                raise OperationFailedError(failure_of(data))
            if data is None or self._part.over.is_set() or not needs_recovery(world, data):
                return
            if seen is not None and _beats(seen) != _beats(data):
                return  # its timestamps are old, but it beats: somebody's clock is behind
            seen = data
            await world.time.sleep(world.timing.quiet_ms / 1000)

    async def run(self) -> bool:
        """See it through; True if it was brought to its backup, False if it turned out to be alive."""
        try:
            await self.decide()
        except OperationFailedError:
            self.decided.set()
            self._heart.start()
            await self._part.over.wait()
        except OperationError as error:
            logger.warning("operation %s could not be recovered: %s", self._part.operation_id, error)
            self._part.finish()
            return False
        recovered = self._was_there and self._part.over.is_set()
        self._part.finish()
        return recovered

    @property
    def coordinating(self) -> bool:
        return not self._part.over.is_set() and self._heart.coordinating

    async def stop(self) -> None:
        await self._heart.stop()
        self._part.finish()


def _beats(data: LedgerData) -> tuple[int, ...]:
    return (data.last_heartbeat_us, *(frame.last_heartbeat_us for frame in data.stack))
