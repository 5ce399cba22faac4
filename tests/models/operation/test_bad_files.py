"""A hostile disk: torn writes, a full or read-only disk, deleted and corrupt ledgers, planted links (C1-C3)."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import IO

import pytest

from holdfast.core.errors import InvalidArgumentError
from holdfast.models.operation import filesystem
from holdfast.models.operation.backups import prune_backups
from holdfast.models.operation.data import LedgerData, OperationState
from holdfast.models.operation.filesystem import LocalFileSystem
from holdfast.operation import (
    CorruptLedgerError,
    InvalidIdError,
    Ledger,
    LedgerStorageError,
    LockTimeoutError,
    OperationEndedError,
    OperationExistsError,
    OperationFailedError,
    OperationNotFoundError,
    Timing,
    UnsafePathError,
)

from .kit import Killed, SimProcess, Told, backup_of, disk_full, in_backup, run_virtual


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def whole_life(process: SimProcess) -> None:
    """Every kind of change a completed operation makes."""
    operation = await process.ledger.create_operation(operation_id="op")
    call = await operation.start_call()
    await operation.log("hello")
    await operation.heartbeat()
    await call.end()
    await operation.complete()


def steps_of_a_whole_life(base: Path) -> list[str]:
    async def main() -> list[str]:
        process = SimProcess(base, "count")
        await whole_life(process)
        return process.fs.steps

    return run_virtual(main)


@pytest.mark.parametrize("tear", [False, True], ids=["clean", "torn"])
def test_a_crash_at_any_step_leaves_a_whole_file_that_recovery_brings_to_its_end(tmp_path: Path, tear: bool) -> None:
    """Ruling C1: killed before every single touch of the disk, with half of a write on it or not."""
    total = len(steps_of_a_whole_life(tmp_path / "count"))
    assert total > 40

    async def dies_at(base: Path, step: int) -> None:
        process = SimProcess(base, "p")
        process.fs.tear = tear
        process.fs.fail = lambda number, name, path: Killed() if number == step else None
        with pytest.raises(Killed):
            await whole_life(process)
        process.kill()
        late = SimProcess(base, "late", 1)
        for found in late.ledger.operations().values():
            assert isinstance(found, LedgerData)
        await asyncio.sleep(60)
        await late.ledger.recover()
        left = [name for name in names_in(base) if name != "backup"]
        assert left == [], f"step {step}: {left}"
        if in_backup(base, "op"):
            assert backup_of(base, "op").state in (OperationState.FAILED, OperationState.COMPLETED)
            assert (base / "backup" / "op" / "operation.debug.log").exists()

    for step in range(1, total + 1):
        folder = tmp_path / f"step{step}"
        run_virtual(lambda folder=folder, step=step: dies_at(folder, step))  # type: ignore[misc]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_an_error_at_any_step_is_clear_and_loses_nothing(tmp_path: Path, number: int) -> None:
    """A full disk or read-only folder at each step: an error that names the operation; the old state stands."""
    total = len(steps_of_a_whole_life(tmp_path / "count"))

    async def fails_at(base: Path, step: int) -> None:
        process = SimProcess(base, "p")
        process.fs.fail = lambda at, name, path: OSError(number, "refused", str(path)) if at == step else None
        errors: list[str] = []
        try:
            await whole_life(process)
        except LedgerStorageError as error:
            errors.append(str(error))
        # What is already in its place is not denied for a lost log line, a flush, or an old backup.
        assert errors or process.fs.steps[step - 1] in ("append", "sync") or in_backup(base, "op")
        assert all("operation op" in error for error in errors)
        for found in process.ledger.operations().values():
            assert isinstance(found, LedgerData)

    for step in range(1, total + 1):
        folder = tmp_path / f"step{step}"
        run_virtual(lambda folder=folder, step=step: fails_at(folder, step))  # type: ignore[misc]


def test_a_heart_goes_on_beating_when_the_disk_has_room_again(base: Path) -> None:
    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        call = await operation.start_call()
        before = process.ledger.read("op")
        process.fs.fail = lambda number, step, path: disk_full(path) if step == "write" else None
        await asyncio.sleep(7)
        assert "free some space" in str(operation.last_heartbeat_error)
        assert process.ledger.read("op") == before
        process.fs.fail = lambda number, step, path: None
        await asyncio.sleep(7)
        assert str(operation.last_heartbeat_error) == "None"
        assert process.ledger.read("op").last_heartbeat_us > before.last_heartbeat_us
        await call.end()
        await operation.complete()

    run_virtual(main)


def test_a_spawned_result_survives_a_full_disk(base: Path) -> None:
    """The work is done: it is recorded as soon as there is room, and the result is not lost."""

    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")

        async def work() -> int:
            process.fs.fail = lambda number, step, path: disk_full(path) if step == "write" else None
            return 42

        spawned = operation.spawn_call(work)
        await asyncio.sleep(6)
        assert not spawned.is_completed
        process.fs.fail = lambda number, step, path: None
        assert await spawned.wait() == 42
        assert process.ledger.read("op").stack == ()

    run_virtual(main)


def test_a_deleted_ledger_fails_the_operation_and_is_not_recreated(base: Path) -> None:
    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        told = Told()
        call = await operation.start_call(told.callback())
        os.unlink(base / "op.operation.json")
        info = await operation.wait_failed()
        assert "deleted" in info.reason
        await operation.wait_over()
        assert told.cleanup == 1
        assert not (base / "op.operation.json").exists()
        with pytest.raises(OperationFailedError):
            await call.end()

    run_virtual(main)


def test_a_deleted_folder_fails_the_operation_and_is_not_recreated(base: Path) -> None:
    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        told = Told()
        call = await operation.start_call(told.callback())
        shutil.rmtree(base)
        with pytest.raises(LedgerStorageError, match="folder is gone"):
            await operation.start_call()
        info = await operation.wait_failed()
        assert "deleted" in info.reason
        await operation.wait_over()
        assert told.cleanup == 1
        with pytest.raises(OperationFailedError):
            await call.end()

    run_virtual(main)
    assert not base.exists()


async def test_a_deleted_folder_is_noticed_on_the_machines_own_clock(base: Path) -> None:
    """The same through the thread that waits for the lock."""
    ledger = Ledger(base, participant_id="p", timing=Timing.fast())
    operation = await ledger.create_operation(operation_id="op")
    shutil.rmtree(base)
    assert "deleted" in (await operation.wait_failed()).reason
    await operation.wait_over()
    await ledger.dispose()


def test_a_corrupt_ledger_is_reported_kept_aside_and_never_overwritten(base: Path) -> None:
    async def main() -> None:
        process, other = SimProcess(base, "p"), SimProcess(base, "other", 1)
        operation = await process.ledger.create_operation(operation_id="op")
        told = Told()
        await operation.start_call(told.callback())
        (base / "op.operation.json").write_text("{ torn by hand")
        assert isinstance(process.ledger.operations()["op"], CorruptLedgerError)
        assert (base / "op.operation.json").exists()  # looking changes nothing
        with pytest.raises(CorruptLedgerError, match=r"kept as op\.operation\.json\.corrupt"):
            await other.ledger.join_operation("op")
        assert (base / "op.operation.json.corrupt").read_text() == "{ torn by hand"
        await operation.wait_failed()
        await operation.wait_over()
        assert told.cleanup == 1
        with pytest.raises(OperationNotFoundError):
            await other.ledger.join_operation("op")
        (base / "op.operation.json").write_text("again")
        with pytest.raises(CorruptLedgerError, match=r"corrupt\.1"):
            await other.ledger.join_operation("op")
        assert (base / "op.operation.json.corrupt").read_text() == "{ torn by hand"

    run_virtual(main)


@pytest.mark.parametrize("given_id", ["../escape", "..", ".", "a/../../b", "/abs"])
def test_ids_that_try_to_leave_the_folder_touch_nothing(base: Path, tmp_path: Path, given_id: str) -> None:
    """Ruling C3, at every door."""

    async def main() -> None:
        process = SimProcess(base, "p")
        for attempt in (
            process.ledger.create_operation(operation_id=given_id),
            process.ledger.create_operation(participant_id=given_id),
            process.ledger.join_operation(given_id),
            process.ledger.join_operation("op", participant_id=given_id),
        ):
            with pytest.raises(InvalidIdError):
                await attempt
        with pytest.raises(InvalidIdError):
            process.ledger.read(given_id)
        with pytest.raises(InvalidIdError):
            Ledger(base, participant_id=given_id)

    run_virtual(main)
    assert names_in(tmp_path) in ([], ["ledger"])


@pytest.mark.parametrize(
    "planted", ["op.operation.json", "op.operation.lock", "op.operation.log", "op.operation.debug.log", "backup"]
)
def test_links_planted_in_the_folder_are_not_followed(base: Path, tmp_path: Path, planted: str) -> None:
    """Ruling C3: a clear error or a way around, and what the link points at is untouched."""
    outside = tmp_path / "outside"
    target = outside / "precious"
    outside.mkdir()
    target.write_text("precious")
    base.mkdir()
    os.symlink(outside if planted == "backup" else target, base / planted)

    with pytest.raises((UnsafePathError, OperationExistsError)):
        run_virtual(lambda: whole_life(SimProcess(base, "p")))
    assert target.read_text() == "precious"
    assert names_in(outside) == ["precious"]


@pytest.mark.parametrize("planted", ["backup", "backup/op"])
def test_a_link_planted_for_a_backup_is_neither_read_nor_written_through(
    base: Path, tmp_path: Path, planted: str
) -> None:
    """Ruling C3: no component inside the ledger folder is followed, not only the last one."""
    outside = tmp_path / "outside"
    files = outside / ("op" if planted == "backup" else "")
    files.mkdir(parents=True)
    (files / "operation.log").write_text("precious")
    (files / "operation.json").write_text('{"operationId": "op", "operationState": "completed"}')
    before = {path.name: path.read_text() for path in files.iterdir()}

    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        (base / planted).parent.mkdir(exist_ok=True)
        os.symlink(outside, base / planted)
        (base / "op.operation.json").unlink()
        await operation.log("into the void")
        with pytest.raises(OperationNotFoundError):
            process.ledger.read("op")
        with pytest.raises(OperationFailedError, match="was deleted"):
            await operation.complete()

    run_virtual(main)
    assert {path.name: path.read_text() for path in files.iterdir()} == before


def test_a_link_at_the_temporary_name_is_replaced_not_written_through(base: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    base.mkdir()
    os.symlink(target, base / "op.operation.json.tmp")
    run_virtual(lambda: whole_life(SimProcess(base, "p")))
    assert target.read_text() == "precious"
    assert in_backup(base, "op")


def test_a_planted_pipe_does_not_block_the_reader(base: Path) -> None:
    base.mkdir()
    os.mkfifo(base / "op.operation.json")
    with pytest.raises(UnsafePathError):
        Ledger(base, participant_id="reader").read("op")


def test_files_are_for_their_owner_only(base: Path) -> None:
    """Ruling C3."""

    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        await operation.log("x")
        modes = {name: stat.S_IMODE((base / name).stat().st_mode) for name in names_in(base)}
        assert len(modes) == 4
        assert set(modes.values()) == {0o600}
        await operation.complete()
        for folder in (base, base / "backup", base / "backup" / "op"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    previous = os.umask(0)
    try:
        run_virtual(main)
    finally:
        os.umask(previous)


def test_temp_resources_outside_the_allowed_folders_are_never_deleted(base: Path, tmp_path: Path) -> None:
    """A hand-edited file names what is not ours: it is left alone and the log says so."""
    precious = tmp_path.parent / f"{tmp_path.name}-precious"
    precious.write_text("precious")
    inside = tmp_path / "folder"
    inside.mkdir()
    os.symlink(precious.parent, inside / "up")
    linked = tmp_path / "linked"
    os.symlink(precious, linked)

    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        for path in (
            precious,
            base,
            base.parent,
            base / "op.operation.json",
            base / "backup",
            "/",
            inside / "up" / precious.name,
        ):
            with pytest.raises(InvalidArgumentError, match="temp_roots"):
                await operation.add_temp_resource(path)
        await operation.add_temp_resource(inside)
        await operation.add_temp_resource(linked)
        path = base / "op.operation.json"
        text = path.read_text().replace(
            '"tempResources": [', f'"tempResources": [\n"{precious}", "relative", "{base}",'
        )
        path.write_text(text)
        await operation.abort()
        await operation.wait_over()
        assert not inside.exists()
        assert not linked.is_symlink()
        log = (base / "backup" / "op" / "operation.log").read_text()
        assert f"{precious} is outside temp_roots" in log

    run_virtual(main)
    assert precious.read_text() == "precious"
    precious.unlink()


def test_hand_edited_json_with_missing_fields_goes_on(base: Path) -> None:
    """Legacy files get the seed's defaults, and fields of others are written back."""

    base.mkdir()
    now = "2026-01-21T12:53:20Z"

    async def main() -> None:
        process = SimProcess(base, "p")
        (base / "op.operation.json").write_text(f'{{"lastHeartbeat": "{now}", "region": "north"}}')
        operation = await process.ledger.join_operation("op")
        call = await operation.start_call()
        await call.end()
        assert process.ledger.read("op").extra == {"region": "north"}
        await operation.leave()

    run_virtual(main)


def test_an_existing_id_is_not_taken_again(base: Path) -> None:
    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        with pytest.raises(OperationExistsError):
            await process.ledger.create_operation(operation_id="op")
        await operation.complete()
        with pytest.raises(OperationExistsError):
            await process.ledger.create_operation(operation_id="op")
        with pytest.raises(OperationEndedError):
            await process.ledger.join_operation("op")

    run_virtual(main)


def test_retention_keeps_the_newest_backups_by_their_ids(base: Path) -> None:
    """Backup Retention: maxBackups, oldest by operation id timestamp first; foreign folders are left alone."""

    async def main() -> list[str]:
        process = SimProcess(base, "p")
        process.ledger = Ledger(base, participant_id="p", max_backups=3)
        ids = []
        (base / "backup" / "not an id").mkdir(parents=True)
        for day in (5, 1, 4, 2, 3):
            ids.append(f"2026010{day}T00:00:00.000-p-0000000{day}")
            operation = await process.ledger.create_operation(operation_id=ids[-1])
            await operation.complete()
        return process.ledger.backups()

    kept = asyncio.run(main())
    assert [operation_id[:8] for operation_id in kept] == ["20260103", "20260104", "20260105"]
    assert (base / "backup" / "not an id").is_dir()


def hold(path: Path) -> IO[str]:
    """Another process's lock, as far as the kernel can tell."""
    file = path.open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


async def test_a_held_lock_times_out_with_a_clear_error_and_the_change_never_happens(base: Path) -> None:
    """Ruling C2: the lock is the kernel's; a timeout changes nothing, also later."""
    async with Ledger(base, participant_id="p", timing=Timing(lock_timeout_ms=50)) as ledger:
        operation = await ledger.create_operation(operation_id="op")
        refused = pytest.raises(LockTimeoutError, match=r"op\.operation\.lock.*nothing was changed")
        with hold(base / "op.operation.lock"), refused:
            await operation.start_call(description="never")
        await operation.log("the lock is free again")
        assert ledger.read("op").stack == ()
        await operation.complete()


def test_a_lock_file_that_was_replaced_is_locked_again(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ruling C2: the inode is checked after locking."""
    base.mkdir()
    path = base / "op.operation.lock"
    order: list[str] = []
    old = hold(path)
    opened = threading.Event()
    open_regular = filesystem._open_regular

    def open_and_tell(path: Path, flags: int) -> int:
        descriptor = open_regular(path, flags)
        opened.set()
        return descriptor

    def wait_for_it() -> None:
        with LocalFileSystem().locked(path):
            order.append("locked")

    monkeypatch.setattr(filesystem, "_open_regular", open_and_tell)
    waiter = threading.Thread(target=wait_for_it)
    waiter.start()
    opened.wait()  # from now on it waits for the old file
    new = hold(base / "new")
    os.replace(base / "new", path)
    order.append("released the old")
    old.close()  # the old file is free, the new one is held: the waiter may not go on
    order.append("released the new")
    new.close()
    waiter.join()
    assert order == ["released the old", "released the new", "locked"]


def test_backup_of_a_move_that_is_under_way_is_not_pruned(base: Path) -> None:
    """A crash in the middle of a move leaves logs in backup: retention may not delete them."""

    async def main() -> str:
        dead = SimProcess(base, "dead")
        operation = await dead.ledger.create_operation()
        dead.fs.fail = lambda number, step, path: (
            Killed() if (step, path.name) == ("rename", "operation.json") else None
        )
        with pytest.raises(Killed):
            await operation.complete()
        return operation.operation_id

    operation_id = run_virtual(main)
    assert prune_backups(LocalFileSystem(), base, 0) == []
    assert (base / "backup" / operation_id / "operation.log").exists()
    (base / f"{operation_id}.operation.json").unlink()
    assert prune_backups(LocalFileSystem(), base, 0) == [operation_id]


def test_a_lock_without_an_operation_is_tidied_and_counts_as_nothing(base: Path) -> None:
    """Left by a process that died while creating: its own lock is held before it is removed (ruling C2)."""
    base.mkdir()
    (base / "op.operation.lock").touch()
    (base / "op.operation.json.tmp").write_text("half")

    async def main() -> None:
        assert await SimProcess(base, "p").ledger.recover() == 0

    run_virtual(main)
    assert names_in(base) == []


def test_a_corrupt_backup_does_not_disturb_the_living(base: Path) -> None:
    async def main() -> None:
        cli, idle = SimProcess(base, "cli"), SimProcess(base, "idle", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        joined = await idle.ledger.join_operation("op")
        await operation.complete()
        (base / "backup" / "op" / "operation.json").write_text("{")
        await joined.wait_over()
        assert joined.failure is not None
        with pytest.raises(CorruptLedgerError):
            cli.ledger.read("op")

    run_virtual(main)
    assert (base / "backup" / "op" / "operation.json").read_text() == "{"
