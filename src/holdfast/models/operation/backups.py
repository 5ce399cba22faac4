"""Backup retention: keep the newest `max_backups` operations, by the timestamp in their ids."""

from __future__ import annotations

import contextlib
from pathlib import Path

from holdfast.core.clock import to_us

from .data import decode
from .errors import InvalidIdError
from .files import BACKUP_FOLDER, OperationFiles
from .filesystem import FileSystem
from .ids import check_id, operation_id_time


def backup_ids(file_system: FileSystem, base_path: Path) -> list[str]:
    """The ids with a backup, oldest first. What is no folder, or named otherwise, is not ours and is left alone."""
    folder = base_path / BACKUP_FOLDER
    return sorted(
        (name for name in file_system.list_folder(folder) if _is_id(name) and file_system.is_folder(folder / name)),
        key=lambda name: (_started_us(file_system, folder / name, name), name),
    )


def prune_backups(file_system: FileSystem, base_path: Path, max_backups: int) -> list[str]:
    """Delete the oldest beyond `max_backups`; return their ids (seed: Backup Retention)."""
    ids = backup_ids(file_system, base_path)
    removed = []
    for operation_id in ids[: max(0, len(ids) - max_backups)]:
        files = OperationFiles(file_system, base_path, operation_id)
        if not file_system.exists(files.json_path):  # a move that is under way keeps its logs
            file_system.remove_tree(files.backup_path)
            removed.append(operation_id)
    return removed


def _is_id(name: str) -> bool:
    try:
        check_id("operation id", name)
    except InvalidIdError:
        return False
    return True


def _started_us(file_system: FileSystem, folder: Path, operation_id: str) -> int:
    moment = operation_id_time(operation_id)
    if moment is not None:
        return to_us(moment)
    with contextlib.suppress(OSError, ValueError):  # an id chosen by a user: ask its file
        content = file_system.read(folder / "operation.json")
        if content is not None:
            return decode(content, operation_id).start_us
    with contextlib.suppress(OSError):
        return file_system.modified_ns(folder) // 1_000
    return 0
