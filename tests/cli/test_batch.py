"""`holdfast batch`: run over a file, failures, another run over them, export; on both stores (issue 5, Seen)."""

from __future__ import annotations

import asyncio
import csv
import json
import secrets
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import App
from holdfast.cli.output import counted
from holdfast.cli.stdin import stdin_lines
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.errors import ExecutionStrandedError
from tests.cli.conftest import Call
from tests.cli.processes import HOLDFAST, Ran, environment, in_pipe

PROGRAM = """
from holdfast import App, RetryPolicy, Skip

app = App("images")

@app.batch(name="{name}", queue="{name}", results=True, retry=RetryPolicy(max_attempts=2, initial_delay=0))
async def size(path: str) -> int:
    if path == "skip":
        raise Skip("asked to")
    if path.startswith("bad"):
        raise ValueError(path)
    return len(path)
"""


@pytest.fixture
def name(tmp_path: Path) -> str:
    """A batch of its own in a program of its own, and a file of lines for it."""
    name = f"size_{secrets.token_hex(4)}"
    (tmp_path / f"{name}_program.py").write_text(PROGRAM.format(name=name))
    (tmp_path / "paths.txt").write_text("one\nskip\nbad two\nthree\nbad four\n")
    return name


def test_a_batch_runs_over_a_file_and_its_failures_are_listed_and_tried_again(
    holdfast: Call, name: str, tmp_path: Path
) -> None:
    target = f"{name}_program:app.{name}"
    ran = holdfast("batch", "run", target, "--input", "paths.txt", "--key", "k", "--json")
    assert ran.code == 1, ran.err
    assert ran.json["run"]["succeeded"] == 2
    assert ran.json["run"]["committed"] == 5
    id = ran.json["id"]

    failed = holdfast("batch", "failed", id, "--json").json
    assert [(item["seq"], item["error"], item["attempts"]) for item in failed] == [
        (2, "ValueError: bad two", 2),
        (4, "ValueError: bad four", 2),
    ]
    page = holdfast("batch", "failed", id, "--limit", "1")
    assert "bad two" in page.out
    assert "more: --after 2" in page.out

    lines = [json.loads(line) for line in holdfast("batch", "export", id).out.splitlines()]
    assert [(line["seq"], line["outcome"], line["value"]) for line in lines] == [
        (0, "success", 3),
        (1, "skip", None),
        (2, "fail", None),
        (3, "success", 5),
        (4, "fail", None),
    ]
    assert holdfast("batch", "export", id, "--format", "csv", "-o", "out.csv", "--from", "1").out == "4 items\n"
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seq"], row["reason"], row["input"]) for row in rows][:2] == [
        ("1", "asked to", ""),
        ("2", "", '"bad two"'),
    ]

    again = holdfast("batch", "retry-failed", id, "--json").json
    shown = holdfast("batch", "show", again["id"])
    assert shown.code == 0
    assert "runnable" in shown.out


def test_progress_is_shown_in_a_terminal(holdfast_in_terminal: Call, name: str) -> None:
    ran = holdfast_in_terminal(
        "batch", "run", f"{name}_program:app.{name}", "--input", "paths.txt", "--key", "t", "--progress"
    )
    assert ran.code == 1
    assert "5/5" in ran.plain
    assert "2 failed" in ran.plain
    assert "5 of 5 committed" in ran.plain


def test_wrong_use_is_explained(holdfast: Call, name: str) -> None:
    target = f"{name}_program:app.{name}"
    assert holdfast("batch", "run", target, "--input", "missing.txt").code == 2
    assert holdfast("batch", "run", f"{name}_program:app.other", "--input", "paths.txt").code == 2
    assert holdfast("batch", "run", "nonsense", "--input", "paths.txt").code == 2
    assert holdfast("batch", "show", "ffffffff").code == 3


def test_lines_come_from_standard_input_and_one_that_is_no_text_is_named(
    database: str, name: str, tmp_path: Path
) -> None:
    def run(key: str, lines: bytes) -> Ran:
        command = [*HOLDFAST, "batch", "run", f"{name}_program:app.{name}", "--input", "-", "--key", key]
        (tmp_path / key).write_bytes(lines)
        with (tmp_path / key).open("rb") as stdin:
            return in_pipe(command, folder=tmp_path, database=database, stdin=stdin)

    ran = run("in", "eins\r\nzw\u00f6lf\n".encode())
    assert "2 of 2 committed" in ran.out, ran.err
    refused = run("out", b"one\n\xff\n")
    assert refused.code == 1
    assert "line 2 of standard input is not UTF-8" in refused.err
    assert "Traceback" not in refused.err


def test_a_run_whose_source_has_not_ended_says_so(holdfast: Call, name: str) -> None:
    holdfast("batch", "run", f"{name}_program:app.{name}", "--input", "paths.txt", "--key", "w", "--no-work")
    (run,) = holdfast("list", "--name", name, "--json").json["executions"]
    assert "0 taken in, the source has not ended" in holdfast("batch", "show", run["id"]).out


def test_its_worker_is_set_up_as_any_other(
    in_process: Call, database: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[WorkerSettings | None] = []
    make = App.make_worker

    async def note(app: App, settings: WorkerSettings | None = None) -> Worker:
        told.append(settings)
        return await make(app, settings)

    monkeypatch.setattr(App, "make_worker", note)
    monkeypatch.setenv("HOLDFAST_LEASE", "7s")
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "3")
    in_process("batch", "run", f"{name}_program:app.{name}", "--input", "paths.txt", "--database", database)
    assert [(found.lease_seconds, found.concurrency) for found in told if found] == [(7, 3)]


def test_a_run_that_is_held_up_says_why(in_process: Call, database: str, tmp_path: Path) -> None:
    (tmp_path / "numbers.jsonl").write_text("1\nxx\n")
    app = App("held", database)

    @app.batch(name="held", queue="held")
    async def held(number: int) -> None: ...

    async def strand() -> str:
        async with app, app.worker(queues=["held"]):
            run = await held.start(tmp_path / "numbers.jsonl")
            with pytest.raises(ExecutionStrandedError):
                await run.result()
            return str(run.id)

    shown = in_process("batch", "show", asyncio.run(strand()), "--database", database).out
    assert "numbers.jsonl is no item of held: JSON is malformed" in shown


def test_things_are_counted_in_words() -> None:
    assert [counted(1, "batch"), counted(2, "batch"), counted(2, "chunk")] == ["1 batch", "2 batches", "2 chunks"]
    assert [counted(2, "activity"), counted(2, "dedup key")] == ["2 activities", "2 dedup keys"]


def _has_run(file: Path) -> bool:
    """Whether the run is in the ledger: then its lines are being read."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            return bool(db.execute("select 1 from executions").fetchone())
    except sqlite3.OperationalError:
        return False  # no ledger yet


def test_a_run_over_standard_input_ends_when_it_is_interrupted_although_more_may_come(
    name: str, tmp_path: Path
) -> None:
    command = [*HOLDFAST, "--database", "stdin.db", "batch", "run", f"{name}_program:app.{name}", "--input", "-"]
    running = subprocess.Popen(
        [*command, "--key", "k"], cwd=tmp_path, env=environment(None), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdin is not None
    running.stdin.write(b"one\nthree\n")
    running.stdin.flush()
    while not _has_run(tmp_path / "stdin.db"):
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    running.stdin.close()
    assert running.stderr is not None
    assert b"Fatal" not in running.stderr.read()
    running.stderr.close()


@pytest.mark.parametrize("text", [b"", b"a", b"a\n", b"\n\nb", b"x" * 200_000 + b"\ny\n", b"\xff\r\n"])
async def test_standard_input_is_read_in_whole_lines(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "input"
    file.write_bytes(text)
    with file.open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        assert [line async for line in stdin_lines()] == text.splitlines(keepends=True)
