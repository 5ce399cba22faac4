"""Operations: a folder of files with heartbeats, read as any participant would read it. Nothing is written here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from starlette.responses import Response

from holdfast.core.clock import to_datetime
from holdfast.core.errors import NotFoundError
from holdfast.models.operation import CorruptLedgerError, FrameState, Ledger, LedgerData, OperationState
from holdfast.models.operation.timing import MILLISECOND_US, Timing
from holdfast.web.dashboard.render import Page

READER: Final = "dashboard"
LIVE: Final[dict[str, Any]] = {"events_url": "", "live_words": "looking", "poll_seconds": 2}  # files send no events


class OperationLine(Struct, kw_only=True):
    id: str
    state: str
    problem: str = ""
    data: LedgerData | None = None
    is_kept: bool = False  # it is over; its file is a backup

    @property
    def participants(self) -> int:
        return 0 if self.data is None else len({frame.participant_id for frame in self.data.stack})


async def operations(page: Page) -> Response:
    folder = page.site.operations
    lines = [] if folder is None else await asyncio.to_thread(_read_all, folder)
    return page.render(
        "operations.html",
        here="/operations",
        title="Operations",
        lines=lines,
        folder=folder,
        to_datetime=to_datetime,
        **LIVE,
    )


async def operation(page: Page) -> Response:
    folder, wanted = page.site.operations, page.request.path_params["id"]
    lines = [] if folder is None else await asyncio.to_thread(_read_all, folder)
    line = next((found for found in lines if found.id == wanted), None)
    if line is None:
        raise NotFoundError(f"there is no operation {wanted!r} in the folder")
    return page.render(
        "operation.html",
        here="/operations",
        title=line.id,
        line=line,
        phases=_phases(line.data),
        frame_badges=_BADGES,
        to_datetime=to_datetime,
        **LIVE,
        stale_us=Timing().staleness_ms * MILLISECOND_US,
    )


_BADGES: Final = {
    FrameState.ACTIVE: "running",
    FrameState.CRASHED: "failed",
    FrameState.CLEANING_UP: "cleanup",
    FrameState.CLEANED_UP: "cancelled",
}


def _phases(data: LedgerData | None) -> list[tuple[str, int | None]]:
    """The life of an operation, in its order, with when each phase began where it has."""
    if data is None:
        return []
    if data.state is OperationState.COMPLETED:
        return [("started", data.start_us), ("completed", data.last_heartbeat_us)]
    return [
        ("started", data.start_us),
        ("crash or abort detected", data.detection_us),
        ("frames removed", data.removal_us),
    ]


def _read_all(folder: Path) -> list[OperationLine]:
    ledger = Ledger(folder, participant_id=READER)
    found = [_line(operation_id, data) for operation_id, data in ledger.operations().items()]
    known = {line.id for line in found}
    for operation_id in ledger.backups():
        if operation_id in known:
            continue
        try:
            line = _line(operation_id, ledger.read(operation_id))
        except CorruptLedgerError as error:
            line = _line(operation_id, error)
        line.is_kept = True
        found.append(line)
    found.sort(key=lambda line: (line.is_kept, -(line.data.start_us if line.data else 0)))
    return found


def _line(operation_id: str, data: LedgerData | CorruptLedgerError) -> OperationLine:
    if isinstance(data, CorruptLedgerError):
        return OperationLine(id=operation_id, state="corrupt", problem=str(data))
    return OperationLine(id=operation_id, state=data.state.value, data=data)
