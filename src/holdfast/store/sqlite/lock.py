"""The queue of writers: an advisory lock on `<file>-lock`, taken before `BEGIN IMMEDIATE`.

SQLite's own busy handler sleeps and tries again, so a writer can starve behind another that never pauses (longest
wait 831 ms against 19 ms with this lock, four processes). The kernel queues those who wait on `flock`, and lets go of
the lock of a process that dies.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.store.base import WouldStall

_flock: Callable[[int, int], None] | None
try:
    import fcntl
except ImportError:  # Windows: SQLite's busy handler alone keeps writers apart there
    _flock = None
else:
    _flock = fcntl.flock
    _TAKE_NOW: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
    _LET_GO: Final = fcntl.LOCK_UN


SOON_SECONDS: Final = 0.0003  # most small commits take less; to be woken from the kernel's queue takes as long again
NEW_FILE_MODE = 0o660  # before the umask: payloads are no business of everybody on the machine


def make_file(path: Path) -> None:
    """A ledger that is not there yet. SQLite would let everybody read it; to its log it gives the mode of the file."""
    with contextlib.suppress(OSError):  # it is there, or SQLite says better why it cannot be made
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, NEW_FILE_MODE))


class WriterLock:
    """Held by one connection at a time, in this process or any other."""

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._file = path
        self._path = Path(f"{os.path.realpath(path)}-lock")  # one for all names of the file
        self._timeout_seconds = timeout_seconds
        self._is_closed = False
        self._free_by = 0.0
        self._fd: int | None = self._open()  # None: to be opened when it is next wanted

    def _open(self) -> int:
        try:
            try:
                return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode())
            except PermissionError:  # another user's, who shares the file: to read it is enough
                return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(
                f"the lock file {self._path} cannot be opened ({error.strerror}): its folder must exist and be "
                f"writable, and this user needs permission on it as on {self._file.name}"
            ) from error

    def _mode(self) -> int:
        """Who may not open the ledger could still hold its lock for ever."""
        try:
            return os.stat(self._file).st_mode & 0o666
        except OSError:  # there is none yet
            return NEW_FILE_MODE

    @property
    def queues(self) -> bool:
        """Whether those who want to write wait here for each other."""
        return _flock is not None

    def is_free_soon(self) -> None:
        """Who holds it has said so: whoever wants it next stays awake for a moment. Nobody else jumps the queue."""
        self._free_by = perf_counter() + SOON_SECONDS

    def take(self) -> bool:
        """`acquire`, if nobody holds it and nothing is amiss."""
        if _flock is None or self._fd is None:
            return False
        try:
            _flock(self._fd, _TAKE_NOW)
        except OSError:
            return False
        return True

    def acquire(self, at_most_seconds: float | None = None) -> float:
        """How many seconds that took because another held it: at most as many as it was made with, or as given, until
        `WouldStall`."""
        if _flock is None or self._is_closed:
            return 0.0
        if self._fd is None:
            self._fd = self._open()
        try:
            _flock(self._fd, _TAKE_NOW)
        except BlockingIOError:
            began = perf_counter()
            while perf_counter() < self._free_by:
                os.sched_yield()
                if self.take():
                    return perf_counter() - began
            self._wait(self._fd, at_most_seconds)
            return perf_counter() - began
        except OSError as error:
            raise ConfigurationError(
                f"{self._path} cannot be locked ({error.strerror}): where the file system has no locks, SQLite loses "
                "what is written; keep the file on a disk of this machine, or use PostgreSQL"
            ) from error
        return 0.0

    def release(self) -> None:
        if _flock is not None and self._fd is not None:
            _flock(self._fd, _LET_GO)

    def close(self) -> None:
        self._is_closed = True
        self.leave_to_parent()

    def leave_to_parent(self) -> None:
        """In a forked child: a lock that a dead parent held would be held on by this copy of its descriptor."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _wait(self, fd: int, at_most_seconds: float | None) -> None:
        """Wait in the kernel's queue, in a thread of its own because `flock` knows no timeout."""
        seconds = self._timeout_seconds if at_most_seconds is None else at_most_seconds
        waiter = _Waiter(os.dup(fd))
        if waiter.wait(seconds):
            return
        # The waiter keeps the old lock, and drops it when its turn comes; this store goes on with a fresh one.
        os.close(fd)
        self._fd = None
        if at_most_seconds is not None:
            raise WouldStall(f"another process writes to {self._file}")
        raise StoreUnavailableError(
            f"another process held {self._path} for more than {seconds:g} s: nothing is lost, try again; if it stays "
            f"so, find the process that hangs inside a commit, or the program that has {self._file.name} open in a "
            "transaction"
        )


class _Waiter:
    """One wait. Given up, it lets go of the lock as soon as it gets it.

    A duplicate descriptor shares the lock with the original, so that who waits and who holds may differ.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._guard = threading.Lock()
        self._has_lock = False
        self._given_up = False
        self._got = threading.Event()
        threading.Thread(target=self._run, name="holdfast-sqlite-lock", daemon=True).start()

    def wait(self, timeout_seconds: float) -> bool:
        self._got.wait(timeout_seconds)
        with self._guard:
            self._given_up = not self._has_lock
            return self._has_lock

    def _run(self) -> None:
        assert _flock is not None
        try:
            _flock(self._fd, fcntl.LOCK_EX)
            with self._guard:
                self._has_lock = True
                if self._given_up:
                    _flock(self._fd, _LET_GO)
            self._got.set()
        finally:
            os.close(self._fd)
