"""`holdfast dev`: a worker and the dashboard in one process, started again when a source file changes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import IO, Any

import pytest

from holdfast.cli.dev import Reloader, changed, sources
from tests.cli.processes import HOLDFAST, environment, in_pipe

PROGRAM = """
from holdfast import App

app = App("greeter")

@app.task
async def greet(name: str) -> str:
    return f"{word}, {name}"
"""


def lines(out: IO[str], event: str) -> dict[str, Any]:
    """The next line of JSON that tells of this."""
    for line in out:
        if line.startswith("{") and (found := json.loads(line))["event"] == event:
            answer: dict[str, Any] = found
            return answer
    raise AssertionError(f"it ended and never said {event}")


def greeted(folder: Path, database: str) -> object:
    ran = in_pipe(
        [*HOLDFAST, "start", "greet", '{"name": "Ann"}', "--wait", "--timeout", "50s", "--json"],
        folder=folder,
        database=database,
    )
    assert ran.code == 0, ran.err
    return ran.json["result"]


def test_it_works_serves_and_starts_again_when_the_code_changes(tmp_path: Path) -> None:
    database = str(tmp_path / "greeter.db")
    program = tmp_path / "greeter.py"
    program.write_text(PROGRAM.replace("{word}", "hello"))
    process = subprocess.Popen(
        [*HOLDFAST, "dev", "greeter:app", "--port", "0", "--json"],
        cwd=tmp_path, env=environment(database), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        first = lines(process.stdout, "serving")
        with urllib.request.urlopen(first["url"].rstrip("/") + "/ready", timeout=30) as answer:
            assert json.load(answer) == {"status": "ready"}
        assert greeted(tmp_path, database) == "hello, Ann"
        program.write_text(PROGRAM.replace("{word}", "welcome"))
        again = lines(process.stdout, "serving")
        assert again["pid"] != first["pid"]
        assert greeted(tmp_path, database) == "welcome, Ann"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == ""  # its child has gone too
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _tell_again(reloader: Reloader, said: IO[bytes]) -> None:
    said.readline()
    reloader._stop(signal.SIGINT, None)


@pytest.mark.parametrize("told_again", [False, True])
def test_what_does_not_stop_is_told_again_and_killed_in_the_end(tmp_path: Path, told_again: bool) -> None:
    """A body that never awaits hears no signal: neither a change of its code nor Ctrl-C ever came through."""
    reloader = Reloader([], tmp_path, print, patience_seconds=60.0 if told_again else 0.0)
    deaf = (
        "import os, signal, time\n"
        "def hear(*_):\n"
        "    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
        "    print('told once', flush=True)\n"
        "signal.signal(signal.SIGTERM, hear)\n"
        "print('deaf', flush=True)\n"
        "while True: time.sleep(0.02)\n"  # not `signal.pause`: one that comes just before it would not wake it
    )
    child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"deaf\n"
        if told_again:
            threading.Thread(target=_tell_again, args=(reloader, child.stdout)).start()
        reloader.end(child)
    assert child.returncode == (7 if told_again else -signal.SIGKILL)


def test_what_works_ends_with_the_one_that_watches_it(tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(PROGRAM.replace("{word}", "hello"))
    process = subprocess.Popen(
        [*HOLDFAST, "dev", "greeter:app", "--port", "0", "--json"],
        cwd=tmp_path, env=environment(str(tmp_path / "g.db")), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines(process.stdout, "serving")
    process.kill()
    process.wait()
    process.stdout.read()  # ends when the last of them has gone
    process.stdout.close()


@pytest.mark.parametrize("reload", ["--reload", "--no-reload"])
def test_a_port_that_is_taken_is_told(tmp_path: Path, reload: str) -> None:
    """Also where it watches: no change of a file would free the port."""
    (tmp_path / "greeter.py").write_text(PROGRAM.replace("{word}", "hello"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [*HOLDFAST, "dev", "greeter:app", reload, "--port", str(taken.getsockname()[1])]
        ran = in_pipe(command, folder=tmp_path, database=str(tmp_path / "g.db"))
    assert ran.code == 2
    assert "Address already in use" in ran.err


def test_what_is_watched_is_source_and_not_what_was_installed(tmp_path: Path) -> None:
    for name in ("a.py", "deep/b.py", ".hidden/c.py", "node_modules/d.py", "venv/lib/e.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    seen = sources(tmp_path)
    assert {Path(path).name for path in seen} == {"a.py", "b.py"}
    (tmp_path / "a.py").unlink()
    (tmp_path / "f.py").write_text("")
    assert [Path(path).name for path in changed(seen, sources(tmp_path))] == ["a.py", "f.py"]
