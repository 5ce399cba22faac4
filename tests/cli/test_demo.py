"""`holdfast demo`: it ends by itself, proves what it claims, leaves no process, and can fail."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import App, Status
from holdfast.cli.demo.audit import AuditLog, AuditReader, Run
from holdfast.cli.demo.command import program_again
from holdfast.cli.demo.machines import expected_result
from holdfast.cli.demo.process import WorkerProcess
from holdfast.cli.demo.proof import Committed, Finished, Proof, prove
from holdfast.cli.exits import CommandError
from tests.cli.processes import HOLDFAST, Terminal, in_pipe

KILLED, LATER = 100, 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Also where the demo makes its temporary folder."""
    return tmp_path


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_in_a_pipe_proves_that_nothing_was_lost(folder: Path, backend: str, cli_postgres: str) -> None:
    where = [] if backend == "sqlite" else ["--database", cli_postgres]
    ran = in_pipe([*HOLDFAST, "demo", "--orders", "20", *where], folder=folder, extra={"TMPDIR": str(folder)})
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert "SIGKILL: worker" in ran.out
    assert "ok: 20 of 20 orders finished, with all their parcels" in ran.out
    assert "ok: 160 steps are in the ledger, each committed exactly once" in ran.out
    assert "ok: no committed step ran again" in ran.out
    hint = re.search(r"holdfast list --database (\S+)", ran.out)
    assert hint is not None
    listed = in_pipe([*HOLDFAST, "list", "--name", "Order", "--database", hint[1], "--limit", "5"], folder=folder)
    assert listed.out.count("done") == 5


def test_the_demo_names_the_program_so_that_the_same_shell_finds_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = folder / "holdfast"
    script.touch(0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    monkeypatch.setenv("PATH", str(folder / "elsewhere"))
    assert program_again() == str(script)
    monkeypatch.setenv("PATH", str(folder))
    assert program_again() == "holdfast"
    monkeypatch.setattr(sys, "argv", [str(folder / "__main__.py"), "demo"])
    assert program_again() == f"{sys.executable} -m holdfast"


def test_the_demo_as_json_says_how_it_ended_and_leaves_the_database_of_the_environment_alone(folder: Path) -> None:
    ledger, command = folder / "precious.db", [*HOLDFAST, "demo", "--orders", "6", "--json"]
    ran = in_pipe(command, folder=folder, database=str(ledger), extra={"TMPDIR": str(folder)})
    assert ran.code == 0
    assert not ledger.exists()
    assert set(ran.json) == {
        "verified", "database", "orders", "executions", "steps_committed", "steps_retried", "in_flight_at_kill",
        "steps_run_again", "approvals", "workers", "seconds", "faults",
    }  # fmt: skip
    assert (ran.json["verified"], ran.json["faults"]) == (True, [])
    assert (ran.json["executions"], ran.json["steps_committed"], ran.json["approvals"]) == (18, 48, 1)
    assert [worker["killed"] for worker in ran.json["workers"]] == [True, False]
    assert not any(_is_running(worker["pid"]) for worker in ran.json["workers"])
    assert "SIGKILL" in ran.err


def test_the_demo_in_a_terminal_draws_bars(folder: Path) -> None:
    with Terminal([*HOLDFAST, "demo", "--orders", "8"], folder=folder, extra={"TMPDIR": str(folder)}) as terminal:
        terminal.wait_for("SIGKILL")
        ran = terminal.wait()
    assert ran.code == 0
    assert "━━━" in ran.plain
    assert "✓ 8 of 8 orders finished" in ran.plain
    assert "drained and left" in ran.plain


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(folder: Path, number: signal.Signals) -> None:
    command = [*HOLDFAST, "demo", "--orders", "5000"]  # many more than it gets to before it is interrupted
    with Terminal(command, folder=folder, extra={"TMPDIR": str(folder)}) as terminal:
        terminal.wait_for("awaiting_signal")
        os.kill(terminal.pid, number)
        ran = terminal.wait()
    assert ran.code == 130
    assert "interrupted" in ran.plain
    pids = {int(pid) for pid in re.findall(r"worker (\d+)", ran.plain)}
    assert pids
    assert not any(_is_running(pid) for pid in pids)


def test_a_worker_that_ends_by_itself_is_reported(folder: Path) -> None:
    settings: dict[str, object] = {"queue": "q", "audit": str(folder / "audit"), "work_seconds": "no number"}
    process = WorkerProcess("mysql://me:hunter2@host/x", settings, folder / "log")
    process._process.wait()
    with pytest.raises(CommandError, match="ended by itself") as caught:
        process.check_alive()
    assert "hunter2" not in str(caught.value)
    process.end()


async def test_a_worker_that_is_asked_to_stop_leaves_in_good_order(folder: Path) -> None:
    settings: dict[str, object] = {"queue": "q", "audit": str(folder / "audit"), "work_seconds": 0.01}
    process = WorkerProcess(f"sqlite:///{folder / 'demo.db'}", settings, folder / "log")
    async with App("demo", f"sqlite:///{folder / 'demo.db'}") as app:
        store = await app.store()
        while not await store.workers():
            process.check_alive()
    await process.stop()
    assert process.has_left
    assert "Fatal" not in (folder / "log").read_text()


async def test_a_worker_that_does_not_leave_in_good_order_is_reported(folder: Path) -> None:
    settings: dict[str, object] = {"queue": "q", "audit": str(folder / "audit"), "work_seconds": "no number"}
    process = WorkerProcess("sqlite:////no/such/folder/demo.db", settings, folder / "log")
    process._process.wait()
    with pytest.raises(CommandError, match=r"did not leave in good order \(exit code 1\)"):
        await process.stop()


def test_an_audit_is_read_in_whole_lines(folder: Path) -> None:
    reader, log = AuditReader(folder / "audit"), AuditLog(folder / "audit")
    assert reader.read() == []
    log.note("a", "one", 0)
    assert reader.read() == [Run("a", "one", 0, os.getpid())]
    with (folder / "audit").open("a") as file:
        file.write("b two 1 ")
    assert reader.read() == []
    with (folder / "audit").open("a") as file:
        file.write("77\n")
    assert reader.read() == [Run("b", "two", 1, 77)]
    log.close()


# ---------------------------------------------------------------------- the proof itself


ORDER = Finished(
    id="o",
    label="Order/o",
    name="Order",
    status=Status.DONE,
    result=expected_result(3),
    expected=expected_result(3),
    history=[
        Committed("reserve", 0, "Next"),
        Committed("charge", 0, "Replay"),
        Committed("charge", 1, "Next"),
        Committed("pack", 1, "ScheduleChildren"),
        Committed("ship", 0, "Done"),
    ],
)
RUNS = [
    Run("o", "reserve", 0, KILLED),
    Run("o", "charge", 0, KILLED),
    Run("o", "charge", 1, KILLED),
    Run("o", "pack", 0, KILLED),
    Run("o", "pack", 1, LATER),
    Run("o", "ship", 0, LATER),
]


def _prove(order: Finished = ORDER, runs: Sequence[Run] = RUNS, held: frozenset[str] = frozenset({"o"})) -> Proof:
    return prove([order], runs, KILLED, held)


def test_a_sound_run_counts_what_was_committed_retried_and_cut_short() -> None:
    proof = _prove()
    assert proof.is_sound
    assert (proof.committed, proof.retried, proof.cut_short, proof.expired) == (4, 1, 1, 0)


def test_a_run_cut_short_that_was_not_in_flight_at_the_kill_is_told_apart() -> None:
    proof = _prove(held=frozenset())
    assert (proof.cut_short, proof.expired) == (0, 1)


@pytest.mark.parametrize(
    ("order", "runs", "fault"),
    [
        (replace(ORDER, status=Status.FAILED), RUNS, "Order/o is failed, not done"),
        (replace(ORDER, result={}), RUNS, "Order/o came to {}"),
        (replace(ORDER, history=ORDER.history[:-1]), RUNS, "committed reserve -> charge -> pack"),
        (
            replace(ORDER, history=[*ORDER.history, Committed("ship", 0, "Done")]),
            RUNS,
            "committed ship (attempt 0) 2 times",
        ),
        (ORDER, [*RUNS, Run("o", "ship", 0, LATER)], "ran ship again after it was committed"),
        (ORDER, [*RUNS, Run("o", "ship", 1, LATER)], "ran ship again after it was committed"),
        (ORDER, [*RUNS, Run("o", "reserve", 1, LATER)], "ran reserve again after it was committed"),
        (ORDER, RUNS[:-1], "committed ship (attempt 0), which never ran"),
        (ORDER, [*RUNS, Run("x", "ship", 0, LATER)], "steps ran for x, which is not in the ledger"),
    ],
)
def test_every_claim_of_the_demo_can_fail(order: Finished, runs: Sequence[Run], fault: str) -> None:
    proof = _prove(order, runs)
    assert any(fault in found for found in proof.faults), proof.faults
