"""The file: where it may be, how it is kept, and what a user is told when it cannot be used."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.errors import ConfigurationError, StoreError, StoreUnavailableError
from holdfast.store.base import WouldStall
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite import connection as connection_module
from holdfast.store.sqlite import lock as lock_module
from holdfast.store.sqlite.connection import check_library, explain
from holdfast.store.sqlite.ledger import SystemClock
from holdfast.store.sqlite.lock import WriterLock
from holdfast.store.sqlite.writer import WAIT_INLINE_SECONDS, Writer
from holdfast.testing.hand import promise_of, row


def overwrite(path: Path, start: int, what: bytes) -> None:
    """Put bytes into a file, made if it is not there."""
    old = content(path) if path.exists() else b""
    path.write_bytes(old[:start] + what)


def content(path: Path) -> bytes:
    return path.read_bytes()


async def test_a_commit_that_returned_is_on_the_disk(impatient: SqliteStore, path: Path) -> None:
    """WAL with `synchronous=FULL`: the log is synced at every commit."""
    assert await impatient._write(None, lambda tx: tx.db.execute("pragma synchronous").fetchone()) == (2,)
    assert await impatient._write(None, lambda tx: tx.db.execute("pragma journal_mode").fetchone()) == ("wal",)
    assert path.with_name("file.db-lock").exists()


async def test_a_log_that_grew_past_a_long_read_is_cut_afterwards(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export or an audit of an hour must not cost its log's space until every process has ended."""
    most = 1_000_000
    monkeypatch.setattr(connection_module, "LOG_BYTES", most)
    log = path.with_name("file.db-wal")
    store = SqliteStore(path)
    await store.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from executions").fetchone()
        for key in "abc":
            await store.insert([row(key, state=f'"{"x" * 2_000_000}"')])
        assert log.stat().st_size > 6_000_000
    for key in "de":  # the first writes the log back, the second begins it anew
        await store.insert([row(key)])
    assert log.stat().st_size <= most
    await store.close()


async def test_readers_cannot_write(impatient: SqliteStore) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        await impatient._read(lambda db: db.execute("delete from workers"))


async def test_what_was_committed_is_there_after_closing(path: Path) -> None:
    for key in "ab":
        store = SqliteStore(path)
        await store.open()
        await store.insert([row(key)])
        await store.close()
    store = SqliteStore(path)
    await store.open()
    assert [view is not None for view in await store.get_many([promise_of("a"), promise_of("b")])] == [True, True]
    await store.close()


@pytest.mark.parametrize(("umask", "mode"), [(0o000, 0o660), (0o002, 0o660), (0o022, 0o640), (0o077, 0o600)])
async def test_a_new_ledger_is_not_for_everybody_on_the_machine(path: Path, umask: int, mode: int) -> None:
    """Nor its log, nor the lock, which who may open it could hold for ever; the group has what the umask says."""
    before = os.umask(umask)
    try:
        store = SqliteStore(path)
        await store.open()
        await store.insert([row("a")])
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        await store.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("file.db", "file.db-lock", "file.db-shm", "file.db-wal"), mode)


async def test_a_ledger_that_is_shared_has_a_lock_that_is(path: Path) -> None:
    before = os.umask(0)
    try:
        overwrite(path, 0, b"")
        store = SqliteStore(path)
        await store.open()
        await store.close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o666}


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing.*folder must exist"):
        await SqliteStore(tmp_path / "missing" / "file.db").open()
    assert not (tmp_path / "missing").exists()


async def test_a_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match="must not be a folder"):
        await SqliteStore(tmp_path / "folder").open()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    diary = b"dear diary, " * 1000
    overwrite(path, 0, diary)
    with pytest.raises(ConfigurationError, match="is no SQLite database"):
        await SqliteStore(path).open()
    assert content(path) == diary


async def test_a_damaged_file_says_so(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.insert([row(str(n)) for n in range(200)])
    await store.close()
    header_page = 4096
    overwrite(path, header_page, b"\xa5" * (len(content(path)) - header_page))
    broken = SqliteStore(path)
    with pytest.raises(StoreError, match=r"is damaged.*backup"):
        await broken.open()


def test_a_file_that_may_not_be_written_says_so(path: Path) -> None:
    """Through a connection that is read only: permissions do not bind the superuser."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("create table t (x)")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("insert into t values (1)")
        told = explain(path, caught.value)
    assert isinstance(told, ConfigurationError)
    assert "write permission" in str(told)


async def test_a_file_locked_by_another_program_is_worth_another_try(impatient: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailableError, match="locked by another program"):
            await impatient.insert([row("a")])
        other.execute("rollback")
    assert [one.created for one in await impatient.insert([row("a")])] == [True]


async def test_reading_goes_on_while_another_program_writes(impatient: SqliteStore, path: Path) -> None:
    await impatient.insert([row("a")])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        other.execute("update executions set step = 'changed'")
        view = await impatient.get(promise_of("a"))
        assert view is not None
        assert view.step == "start"
        other.execute("rollback")


async def test_a_writer_that_never_ends_is_worth_another_try(impatient: SqliteStore, path: Path) -> None:
    """Who waited in vain neither keeps the lock once its turn comes, nor takes it from a later holder."""
    other = WriterLock(path, timeout_seconds=10)
    other.acquire()
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="hangs inside a commit"):
            await impatient.insert([row("a")])
    other.release()
    assert [one.created for one in await impatient.insert([row("a")])] == [True]
    other.acquire()
    with pytest.raises(StoreUnavailableError):
        await impatient.insert([row("b")])
    other.release()
    other.close()


def test_a_lock_that_was_given_up_is_opened_when_it_is_next_wanted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a wait in vain, or a fork. Else its owner would write beside the queue from then on."""
    other, lock = WriterLock(path, timeout_seconds=0.01), WriterLock(path, timeout_seconds=0.01)
    other.acquire()
    with pytest.raises(StoreUnavailableError):
        lock.acquire()
    other.release()

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(ConfigurationError, match="Too many open files"):
            lock.acquire()
    for _ in range(2):
        lock.acquire()
        with pytest.raises(WouldStall):
            other.acquire(0.01)
        lock.leave_to_parent()
    lock.close()
    other.close()


async def test_a_file_under_two_names_has_one_lock(impatient: SqliteStore, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    other = WriterLock(tmp_path / "link.db", timeout_seconds=10)
    other.acquire()
    with pytest.raises(StoreUnavailableError, match=r"file\.db-lock for more than"):
        await impatient.insert([row("a")])
    other.close()


def test_a_lock_that_only_its_owner_may_write_is_shared(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's umask: to read it is enough to lock it."""
    WriterLock(path, timeout_seconds=10).close()
    opened = os.open

    def open_as_another(file: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(file, flags, mode)

    monkeypatch.setattr(os, "open", open_as_another)
    lock = WriterLock(path, timeout_seconds=10)
    assert lock.acquire() == 0.0
    lock.close()
    path.with_name("file.db-lock").unlink()
    with pytest.raises(ConfigurationError, match=r"this user needs permission on it as on file\.db"):
        WriterLock(path, timeout_seconds=10)


def test_a_file_system_without_locks_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock_module, "_flock", refuse)
    lock = WriterLock(path, timeout_seconds=10)
    with pytest.raises(ConfigurationError, match=r"cannot be locked \(No locks available\).*PostgreSQL"):
        lock.acquire()
    lock.close()


async def test_opening_waits_no_longer_than_a_write(path: Path) -> None:
    other = WriterLock(path, timeout_seconds=10)
    other.acquire()
    with pytest.raises(StoreUnavailableError):
        await SqliteStore(path, busy_seconds=0.05).open()
    other.close()


def test_who_was_told_that_the_lock_is_free_soon_stays_awake_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To be woken from the kernel's queue takes longer than most commits; whoever was not told waits there."""
    monkeypatch.setattr("holdfast.store.sqlite.lock.SOON_SECONDS", 60.0)
    queued: list[object] = []
    monkeypatch.setattr(WriterLock, "_wait", lambda *_: queued.append(_))
    holder, lock = WriterLock(path, timeout_seconds=10), WriterLock(path, timeout_seconds=10)
    holder.acquire()
    lock.acquire()
    assert len(queued) == 1
    lock.is_free_soon()
    lets_go = threading.Timer(0.01, holder.release)
    lets_go.start()
    assert lock.acquire() > 0
    assert len(queued) == 1
    lets_go.join()
    lock.release()
    holder.close()
    lock.close()


async def test_opening_waits_for_who_has_the_file_to_itself(impatient: SqliteStore, path: Path) -> None:
    """As the last process to close it has, while it brings the log into the file."""
    await impatient.close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as last:
        last.execute("pragma locking_mode = exclusive")
        last.execute("begin exclusive")
        closes = threading.Timer(5 * WAIT_INLINE_SECONDS, last.close)
        closes.start()
        Writer(path, SystemClock(), lambda *_: lambda: None, busy_seconds=10).close()
        closes.join()


async def test_a_store_that_is_not_open_says_so(path: Path) -> None:
    store = SqliteStore(path)
    assert not store.commits_inline
    for call in (store.insert([]), store.get(b""), store.workers()):
        with pytest.raises(StoreError, match="is not open"):
            await call
    await store.open()
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="is not open"):
        await store.insert([row("a")])


def test_an_old_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ConfigurationError, match=r"needs 3\.37\.0 or newer"):
        check_library()


async def test_a_full_disk_is_worth_another_try(impatient: SqliteStore) -> None:
    """A limit on the number of pages gives the same error."""
    long = row("long", state='"' + "x" * 200_000 + '"')
    db = impatient._opened().db
    pages = db.execute("pragma page_count").fetchone()[0]
    db.execute(f"pragma max_page_count = {pages + 1}")
    with pytest.raises(StoreUnavailableError, match="no space is left"):
        await impatient.insert([long])
    db.execute("pragma max_page_count = 1000000")
    assert [one.created for one in await impatient.insert([long])] == [True]


async def test_a_file_that_could_be_written_before_is_worth_another_try(impatient: SqliteStore) -> None:
    """As one that was opened anew while its file system was read-only."""
    impatient._opened().db.execute("pragma query_only = on")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        await impatient.insert([row("a")])
    await impatient.insert([row("a")])
    impatient._opened().db.execute("pragma query_only = on")
    with pytest.raises(StoreUnavailableError, match="cannot be written"):
        await impatient.insert([row("b")])
    assert [one.created for one in await impatient.insert([row("a"), row("b")])] == [False, True]


async def test_a_file_that_could_be_opened_before_is_worth_another_try(impatient: SqliteStore, path: Path) -> None:
    """Its log, that is: of the file itself it is seen before that it is gone."""
    await impatient.insert([row("a")])
    log = path.with_name(path.name + "-wal")
    for holder in (impatient._opened(), impatient._opened_readers()):
        assert holder.pause(1)
        holder.resume()
    log.mkdir()
    for call in (impatient.insert([row("b")]), impatient.get(promise_of("a")), impatient.definitions()):
        with pytest.raises(StoreUnavailableError, match="cannot be opened"):
            await call
    log.rmdir()
    assert [one.created for one in await impatient.insert([row("b")])] == [True]
    assert await impatient.get(promise_of("a")) is not None


async def test_the_url_leads_back_to_the_file(impatient: SqliteStore, path: Path) -> None:
    from holdfast.store import store_from_url

    assert impatient.url == f"sqlite:///{path}"
    assert store_from_url(impatient.url).url == impatient.url
