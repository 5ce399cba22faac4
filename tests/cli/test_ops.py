"""`holdfast ops` and `python -m holdfast.operation`: looking, aborting, and any program as a participant."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast.cli.main import run as holdfast
from holdfast.cli.ops import ops
from holdfast.models.operation.data import OperationState, decode
from holdfast.operation import Ledger, Timing
from tests.cli.processes import HOLDFAST, Ran

FAST = Timing.fast()
TIMING = {"HOLDFAST_OPERATION_TIMING": json.dumps(asdict(FAST))}
OPS = [sys.executable, "-m", "holdfast.operation"]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def run(base: Path, *arguments: str) -> Ran:
    """`holdfast ops ...` inside this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for name, value in {**TIMING, "HOLDFAST_LEDGER": str(base)}.items():
            patch.setenv(name, value)
        code = holdfast(["ops", *arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def start(base: Path, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, **TIMING, "HOLDFAST_LEDGER": str(base)}
    return subprocess.Popen([*OPS, *arguments], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def log_of(base: Path, operation_id: str) -> str:
    return (base / "backup" / operation_id / "operation.log").read_text()


async def make(base: Path, *operation_ids: str) -> None:
    """Operations with an open call each, left behind as by a process that died."""
    ledger = Ledger(base, participant_id="maker", timing=FAST)
    for operation_id in operation_ids:
        operation = await ledger.create_operation(operation_id=operation_id, description=f"about {operation_id}")
        await operation.start_call(description="open call [/b] [red]\x1b]0;mine\x07")
    await ledger.dispose()


def test_list_and_show_in_a_pipe_are_json(base: Path) -> None:
    asyncio.run(make(base, "alpha", "beta"))
    listed = json.loads(run(base, "list", "--no-recover").out)
    assert [item["operationId"] for item in listed] == ["alpha", "beta"]
    assert listed[0]["operationState"] == "running"
    shown = json.loads(run(base, "show", "al", "--no-recover").out)  # any unambiguous prefix
    assert shown["stack"][0]["description"] == "open call [/b] [red]\x1b]0;mine\x07"
    assert (base / "alpha.operation.json").exists()


def test_an_ambiguous_prefix_and_an_unknown_id_are_clear_errors(base: Path) -> None:
    asyncio.run(make(base, "alpha-1", "alpha-2"))
    ambiguous = run(base, "show", "alpha")
    assert ambiguous.code == 3
    assert "fits 2 operations" in ambiguous.err
    unknown = run(base, "show", "gamma")
    assert unknown.code == 3
    assert "no operation gamma" in unknown.err
    escaping = run(base, "show", "../../etc")
    assert escaping.code == 2
    assert "not a valid id" in escaping.err


def test_tables_in_a_terminal_show_participants_frames_ages_and_phases(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(make(base, "alpha"))
    (base / "broken.operation.json").write_text("{")
    monkeypatch.setattr("holdfast.cli.ops._wants_json", lambda as_json: as_json)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOLDFAST_LEDGER", str(base))
    ops(["list", "--no-recover"], standalone_mode=False)
    table = capsys.readouterr().out
    assert "about alpha" in table
    assert "corrupt" in table
    assert "s ago" in table
    ops(["show", "alpha", "--no-recover"], standalone_mode=False)
    view = capsys.readouterr().out
    # What others wrote into the file is shown as it is, not taken for markup, nor by the terminal for an order.
    for word in ("running", "maker", "open call [/b] [red]\\x1b]0;mine\\x07", "active", "fails"):
        assert word in view
    assert "\x1b]" not in table + view


def test_looking_sees_abandoned_operations_to_their_end(base: Path) -> None:
    """Ruling C10: the CLI is a way to open the folder."""
    asyncio.run(make(base, "left"))
    until(lambda: time.time_ns() // 1000 - Ledger(base).read("left").last_heartbeat_us > FAST.staleness_ms * 1000)
    looked = run(base, "list")
    assert looked.code == 0
    assert "nobody beats in left" in looked.err
    data = decode((base / "backup" / "left" / "operation.json").read_bytes(), "left")
    assert data.state is OperationState.FAILED
    assert json.loads(run(base, "list").out) == []
    [kept] = json.loads(run(base, "list", "--all").out)
    assert kept["failureReason"] == "no participant is left"


def test_looking_at_operations_of_others_deletes_nothing_for_them(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files may name anything below the folder that an administrator is in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").touch()

    async def abandon() -> None:
        ledger = Ledger(base, participant_id="maker", timing=FAST)
        operation = await ledger.create_operation(operation_id="bait")
        await operation.add_temp_resource(tmp_path / "precious")
        await ledger.dispose()

    asyncio.run(abandon())
    until(lambda: time.time_ns() // 1000 - Ledger(base).read("bait").last_heartbeat_us > FAST.staleness_ms * 1000)
    mine = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: mine + 1)
    ran = run(base, "list")
    assert (ran.code, "is left to its owner" in ran.err) == (0, True)
    assert (tmp_path / "precious").exists()
    monkeypatch.setattr("os.geteuid", lambda: mine)
    run(base, "list")
    assert not (tmp_path / "precious").exists()


def test_exec_runs_programs_as_participants_and_passes_their_exit_codes(base: Path) -> None:
    """A shell script takes part: one program initiates, others join by the environment."""
    inner = f'{sys.executable} -m holdfast.operation exec --participant inner -- sh -c "exit 3"'
    script = f'{inner}; test $? = 3 && echo "$HOLDFAST_OPERATION"'
    done = start(base, "exec", "--operation", "nightly", "--create", "--participant", "outer", "--", "sh", "-c", script)
    out, err = done.communicate()
    assert (done.returncode, out) == (0, "nightly\n"), err
    log = log_of(base, "nightly")
    assert "[inner] CALL_FAILED" in log
    assert "exit code 3" in log
    assert "[outer] CALL_ENDED" in log
    assert log.splitlines()[-1].endswith("OPERATION_COMPLETED")


def test_exec_passes_exit_codes_through_the_whole_program_too(base: Path) -> None:
    """A script branches on them, whichever of the two programs it calls."""
    for code in (0, 3):
        command = [*HOLDFAST, "ops", "exec", "--ledger", str(base), "--create", "--", "sh", "-c", f"exit {code}"]
        assert subprocess.run(command, env={**os.environ, **TIMING}, check=False).returncode == code


def test_a_shell_script_takes_part_in_an_operation_of_others(base: Path, tmp_path: Path) -> None:
    """Every line that `exec` runs is a call in the ledger; one that fails is the script's own business."""
    script = tmp_path / "step.sh"
    script.write_text(SCRIPT.format(python=sys.executable, folder=tmp_path))
    script.chmod(0o755)
    asyncio.run(with_a_script(base, script))
    assert (tmp_path / "loaded").read_text() == "first\nsecond\n"
    log = log_of(base, "import")
    for line in ("[load] CALL_STARTED", "first line", "[load] CALL_ENDED", "[check] CALL_FAILED", "exit code 4"):
        assert line in log
    assert log.count("PARTICIPANT_LEFT") == 3
    assert log.splitlines()[-1].endswith("OPERATION_COMPLETED")


SCRIPT = """#!/bin/sh
set -e
take_part() {{ {python} -m holdfast.operation exec "$@"; }}
take_part --participant load --description "first line" -- sh -c 'echo first >> {folder}/loaded'
take_part --participant load -- sh -c 'echo second >> {folder}/loaded'
take_part --participant check -- sh -c 'exit 4' || test $? = 4
"""


async def with_a_script(base: Path, script: Path) -> None:
    async with (
        Ledger(base, participant_id="boss", timing=FAST) as ledger,
        ledger.create_operation(operation_id="import") as operation,
    ):
        await operation.exec_stdio_worker(str(script), deserializer=str).wait()  # its pace is in the environment


def test_exec_of_a_failing_initiator_aborts_the_operation(base: Path) -> None:
    done = start(base, "exec", "--operation", "op", "--create", "--", "sh", "-c", "kill -9 $$")
    done.communicate()
    assert done.returncode == 128 + signal.SIGKILL
    data = decode((base / "backup" / "op" / "operation.json").read_bytes(), "op")
    assert data.aborted
    assert data.state is OperationState.FAILED


def test_abort_stops_a_running_program_with_sigterm(base: Path, tmp_path: Path) -> None:
    """`exec`: SIGTERM on cleanup; `watch` follows it to its end."""
    up, stopped = tmp_path / "up", tmp_path / "stopped"
    script = f"trap 'touch {stopped}; exit 0' TERM; touch {up}; while :; do sleep 0.02; done"
    program = start(base, "exec", "--operation", "op", "--create", "--", "sh", "-c", script)
    until(up.exists)
    watching = start(base, "watch", "op", "--interval", "0.02")
    assert run(base, "abort", "op").code == 0
    _, err = program.communicate()
    assert program.returncode == 75
    assert "aborted" in err
    assert stopped.exists()
    seen = [json.loads(line)[0]["operationState"] for line in watching.communicate()[0].splitlines()]
    assert watching.returncode == 0
    assert seen[-1] == "failed"
    assert "OPERATION_ABORTED" in log_of(base, "op")


def test_exec_killed_takes_its_program_along_and_is_detected(base: Path, tmp_path: Path) -> None:
    """No program goes on without a heartbeat."""
    asyncio.run(watch_a_crash(base, tmp_path / "pid"))
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not alive(pid))


async def watch_a_crash(base: Path, pid_file: Path) -> None:
    async with Ledger(base, participant_id="cli", timing=FAST) as ledger:
        operation = await ledger.create_operation(operation_id="op")
        script = f"echo $$ > {pid_file}.tmp; mv {pid_file}.tmp {pid_file}; exec sleep 600"
        program = start(base, "exec", "--operation", "op", "--participant", "sleeper", "--", "sh", "-c", script)
        await asyncio.to_thread(until, pid_file.exists)
        program.kill()
        await asyncio.to_thread(program.communicate)
        info = await operation.wait_failed()
        assert "sleeper" in info.reason


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_exec_without_an_operation_or_a_program_says_what_to_do(base: Path) -> None:
    assert "--create" in run(base, "exec", "--", "true").err
    missing = run(base, "exec", "--operation", "op", "--create", "--", "no-such-program-here")
    assert missing.code == 1
    assert "could not be started" in missing.err
    assert "aborted" in run(base, "show", "op").out  # it is not left behind as running
    assert "no operation nope" in run(base, "exec", "--operation", "nope", "--", "true").err


@pytest.mark.parametrize(
    "text", ["fast", '["fast"]', '{"heartbeat": 1}', '{"staleness_ms": 1}', '{"staleness_ms": "1"}']
)
def test_a_timing_that_is_none_is_wrong_use(base: Path, text: str) -> None:
    ran = run(base, "list", "--timing", text)
    assert (ran.code, ran.out) == (2, "")
    assert "holdfast: " in ran.err
