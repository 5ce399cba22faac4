"""`holdfast worker`: works, drains on the first signal, leaves at once on the second; and what it refuses."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Handle
from holdfast.cli import worker as worker_module
from holdfast.cli.telemetry import LogLevel, log_as_told
from holdfast.cli.worker import GC_THRESHOLDS
from tests.cli.conftest import PROGRAMS, Call, Shop
from tests.cli.processes import HOLDFAST, TIMEOUT_SECONDS, Terminal, environment, in_pipe
from tests.cli.programs import shop


@contextmanager
def worker(database: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker of the shop; its first line of output has been read."""
    process = subprocess.Popen(
        [*HOLDFAST, "worker", "shop:app", "--json", *arguments],
        cwd=PROGRAMS,
        env=environment(database),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _wait_for(orders: Shop, order: str, status: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while orders.show(order)["status"] != status:
        assert time.monotonic() < deadline, f"{order} never became {status}"


def test_a_worker_works_until_told_to_stop(holdfast: Call, database: str, orders: Shop) -> None:
    started = orders.start("done", "flaky", "wait", work=False)
    with worker(database, "--queue", orders.queue, "--concurrency", "5") as process:
        first = json.loads(_line(process))
        assert first["event"] == "starting"
        assert (first["queues"], first["concurrency"], first["pid"]) == ([orders.queue], 5, process.pid)
        for order, status in zip(started, ("done", "done", "awaiting_signal"), strict=True):
            _wait_for(orders, order, status)
        holdfast("signal", started[2], "paid")
        _wait_for(orders, started[2], "done")
        process.send_signal(signal.SIGTERM)
        assert json.loads(_line(process))["event"] == "stopped"
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert orders.queue not in str(holdfast("workers", "--json").json)


@pytest.mark.parametrize(("own", "kept"), [("", list(GC_THRESHOLDS)), ("gc.set_threshold(900, 11, 12)", [900, 11, 12])])
def test_a_worker_collects_garbage_seldom_unless_the_app_says_how_often(
    tmp_path: Path, own: str, kept: list[int]
) -> None:
    program = f"""
import gc, json
from holdfast import App
{own}
app = App("seldom", store="ledger.db")
@app.task
async def nothing() -> None: ...
@app.lifespan
async def tell():
    print(json.dumps(gc.get_threshold()), flush=True)
    yield
"""
    (tmp_path / "seldom.py").write_text(program)
    process = subprocess.Popen([*HOLDFAST, "worker", "seldom:app"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        _line(process)
        assert json.loads(_line(process)) == kept
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_stops_at_once_and_gives_back_what_is_at_work(
    database: str, orders: Shop, number: signal.Signals
) -> None:
    (order,) = orders.start("hang", work=False)
    with worker(database, "--queue", orders.queue, "--drain", "1h") as process:
        _line(process)
        assert _line(process) == "hanging\n"
        process.send_signal(number)
        assert process.stderr is not None
        assert next(line for line in process.stderr if "a second signal stops at once" in line)
        process.send_signal(number)
        assert json.loads(_line(process))["event"] == "stopped"
        assert process.wait(TIMEOUT_SECONDS) == 0
    shown = orders.show(order)
    assert (shown["status"], shown["step"], shown["attempt"]) == ("runnable", "work", 0)


def test_a_step_in_a_thread_that_never_returns_cannot_keep_the_worker(database: str, orders: Shop) -> None:
    async def start(app: object) -> str:
        handle: Handle[object] = await shop.Press.options(queue=orders.queue).start(shop.Basket("press"))
        return str(handle.id)

    order = orders.run(start)
    with worker(database, "--queue", orders.queue, "--drain", "0s") as process:
        _line(process)
        assert _line(process) == "pressing\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert orders.show(order)["status"] == "runnable"


@pytest.mark.parametrize("returns", [True, False])
def test_a_thread_that_user_code_awaited_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    """Python would, at the end of the event loop: a worker that was told to stop never ended."""
    monkeypatch.setattr(worker_module, "THREADS_SECONDS", TIMEOUT_SECONDS if returns else 0.01)
    release = threading.Event()

    async def leave() -> bool:
        asyncio.get_running_loop().run_in_executor(None, release.wait)
        if returns:
            release.set()
        ended = await worker_module.threads_ended()
        release.set()
        return ended

    assert asyncio.run(leave()) is returns


def test_a_worker_works_without_standard_streams(tmp_path: Path) -> None:
    """As some supervisors start one; uvloop aborts where a socket has such a number."""
    (tmp_path / "given.py").write_text(
        "import os, signal\n"
        "from holdfast import App\n"
        "app = App('given')\n"
        "@app.task\n"
        "async def only() -> None:\n"
        "    print('to nobody', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "app.sync.start(only)\n"
        "app.sync.close()\n"
    )
    sink, source = os.pipe()
    with open(sink) as complaints:
        process = subprocess.Popen(
            [*HOLDFAST, "worker", "given:app"],
            cwd=tmp_path,
            env=environment(str(tmp_path / "l.db")),
            stderr=source,
            preexec_fn=lambda: os.closerange(0, 2),
        )
        os.close(source)
        assert (process.wait(TIMEOUT_SECONDS), complaints.read()) == (0, "")


def test_a_worker_in_a_terminal_drains_on_ctrl_c(database: str, orders: Shop) -> None:
    orders.start("hang", work=False)
    command = [*HOLDFAST, "worker", "shop:app", "--queue", orders.queue, "--drain", "0s"]
    with Terminal(command, folder=PROGRAMS, database=database) as terminal:
        terminal.wait_for("hanging")
        os.kill(terminal.pid, signal.SIGINT)
        ran = terminal.wait()
    assert ran.code == 0
    assert f"working on {orders.queue} of " in ran.plain
    assert "what the app has on default is left to other workers: see --queue" in ran.plain
    assert "stopped; what was at work is recorded or given back" in ran.plain


@pytest.mark.parametrize(
    ("source", "target", "complaint"),
    [
        ("", "shop", "'shop' names no app: write MODULE:APP"),
        ("", ":app", "names no app"),
        ("", "nowhere:app", "there is no module 'nowhere' here or on the path"),
        ("x = 1", "given:app", "given has no 'app', not an App; it has no App at its top level"),
        ("import holdfast\nshop = holdfast.App('x')\napp = 5", "given:app", "is a int, not an App; its apps are: shop"),
        ("def broken(:", "given:app", "given does not import: SyntaxError"),
        ("import no_such_thing", "given:app", "given does not import: ModuleNotFoundError: No module named"),
        ("\n\nraise RuntimeError('no\\nluck')", "given:app", "given does not import: RuntimeError: no luck ("),
        ("raise SystemExit(0)", "given:app", "given does not import: SystemExit"),
        ("import holdfast\napp = holdfast.App('x')", "given:app", "declares nothing to work on"),
        ("import holdfast\napp = holdfast.App('x', 'mysql://h')", "given:app", "a store on mysql:// is not known"),
    ],
)
def test_an_app_that_cannot_be_had_is_wrong_use(tmp_path: Path, source: str, target: str, complaint: str) -> None:
    (tmp_path / "given.py").write_text(source)
    ran = in_pipe([*HOLDFAST, "worker", target], folder=tmp_path)
    assert ran.code == 2
    assert complaint in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_broken_module_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text("x = 1\ny = x.nothing\n")
    ran = in_pipe([*HOLDFAST, "worker", "given:app"], folder=tmp_path)
    assert ran.code == 2
    assert "given.py:2)" in ran.err


def test_a_database_flag_against_the_apps_own_store_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text("import holdfast\napp = holdfast.App('x', 'own.db')")
    ran = in_pipe([*HOLDFAST, "worker", "given:app", "--database", "other.db"], folder=tmp_path)
    assert ran.code == 2
    assert "names its own store" in ran.err
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize("option", [["--concurrency", "0"], ["--lease", "0s"], ["--drain", "soon"], ["--queue", ""]])
def test_settings_out_of_range_are_wrong_use(tmp_path: Path, option: list[str]) -> None:
    ran = in_pipe([*HOLDFAST, "worker", "shop:app", *option], folder=PROGRAMS, database=str(tmp_path / "x.db"))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


def test_a_worker_without_its_server_is_exit_code_4(tmp_path: Path) -> None:
    ran = in_pipe([*HOLDFAST, "worker", "shop:app"], folder=PROGRAMS, database="postgresql://127.0.0.1:1/x")
    assert ran.code == 4
    assert "127.0.0.1:1" in ran.err


@pytest.mark.parametrize(
    ("own", "level", "shown"),
    [(False, None, ["body"]), (False, "info", ["body", "task"]), (True, None, []), (True, "error", [])],
)
def test_what_a_body_says_is_shown_and_the_rest_from_a_level_on(
    own: bool, level: LogLevel | None, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    root, bodies = logging.getLogger(), logging.getLogger("holdfast.workflow")
    handlers, levels = root.handlers[:], (root.level, bodies.level)
    mine = logging.NullHandler()
    try:
        root.handlers[:] = [mine] if own else []
        log_as_told(None, level)
        bodies.info("body")
        logging.getLogger("shop").info("task")
        assert (mine in root.handlers) is (own and level is None)
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        bodies.setLevel(levels[1])
    assert [line.rsplit(": ", 1)[1] for line in capsys.readouterr().err.splitlines()] == shown
