"""The seam to the file system: every touch of the disk that an operation makes, one method each.

`LocalFileSystem` is the real one. Links are never followed at the last component, only regular files are
opened, files are for their owner only (ruling C3). Tests wrap it to tear a write or fill the disk at any step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a planted pipe must not block the opener


class FileSystem(Protocol):
    """What a ledger needs of a disk. Failures are `OSError`."""

    def read(self, path: Path) -> bytes | None: ...

    def write_new(self, path: Path, content: bytes) -> None: ...

    def append(self, path: Path, content: bytes) -> None: ...

    def replace(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def exists(self, path: Path) -> bool: ...

    def is_folder(self, path: Path) -> bool: ...

    def make_folder(self, path: Path) -> None: ...

    def sync_folder(self, path: Path) -> None: ...

    def list_folder(self, path: Path) -> list[str]: ...

    def remove_tree(self, path: Path) -> None: ...

    def modified_ns(self, path: Path) -> int: ...

    def locked(self, path: Path) -> AbstractContextManager[None]: ...


class LocalFileSystem:
    """The disk of this machine, or a mounted share that keeps `flock` and atomic renames."""

    def read(self, path: Path) -> bytes | None:
        """The content of a regular file, or None if there is none."""
        try:
            descriptor = _open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def write_new(self, path: Path, content: bytes) -> None:
        """A new file, on the disk before this returns. What stood at `path` (a leftover, a link) is removed first."""
        self.unlink(path)
        descriptor = _open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            self.flush_to_disk(file.fileno())

    def append(self, path: Path, content: bytes) -> None:
        descriptor = _open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            file.write(content)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def is_folder(self, path: Path) -> bool:
        """Whether a folder itself is there, not a link to one."""
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def make_folder(self, path: Path) -> None:
        """Make it if missing; refuse a link or file in its place."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE)
        if not self.is_folder(path):
            raise OSError(errno.ELOOP, "a link or file stands where a folder belongs", str(path))

    def sync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.flush_to_disk(descriptor)
        finally:
            os.close(descriptor)

    def flush_to_disk(self, descriptor: int) -> None:
        """Wait until the disk has it: a rename is only as durable as what it renames (ruling C1)."""
        os.fsync(descriptor)

    def list_folder(self, path: Path) -> list[str]:
        """Names in order; nothing for a missing folder or a link in its place."""
        try:
            return sorted(os.listdir(path)) if self.is_folder(path) else []
        except FileNotFoundError:
            return []

    def remove_tree(self, path: Path) -> None:
        """A file, a link (itself, not what it points at) or a whole folder; missing is fine."""
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISDIR(mode):
            self.unlink(path)
            return
        while os.path.lexists(path):
            with contextlib.suppress(FileNotFoundError):  # another process may remove the same tree
                shutil.rmtree(path)

    def modified_ns(self, path: Path) -> int:
        return os.lstat(path).st_mtime_ns

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Hold the advisory lock, waiting for as long as it takes; it dies with this process (ruling C2)."""
        descriptor = _lock(path)
        try:
            yield
        finally:
            os.close(descriptor)


def lock_holder(path: Path) -> str:
    """Who locked last, for error messages only: the lock itself is the kernel's."""
    try:
        return os.fsdecode(LocalFileSystem().read(path) or b"").strip() or "unknown"
    except OSError:
        return "unknown"


def _lock(path: Path) -> int:
    while True:
        descriptor = _open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same_file(descriptor, path):
                with contextlib.suppress(OSError):  # a full disk must not refuse a lock
                    os.pwrite(descriptor, f"{os.getpid():<10}\n".encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the file was replaced while this process waited (ruling C2)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _open_regular(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | _SAFE, FILE_MODE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "not a regular file", str(path))
    return descriptor
