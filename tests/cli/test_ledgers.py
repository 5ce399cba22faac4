"""Whole ledgers from the command line, in real processes: verify, export, import, doctor; in a pipe and a terminal."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import answers
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store import store_from_url
from holdfast.store.values import QueueChange
from tests.cli.conftest import Call
from tests.cli.databases import postgres_database
from tests.cli.desks import Desk
from tests.cli.processes import HOLDFAST, TIMEOUT_SECONDS, Ran, environment, in_pipe, in_terminal
from tests.cli.test_runs import parsed
from tests.forked import Pipe, fork, wait_for_end


@pytest.fixture
def elsewhere(backend: str, postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """Where a ledger of the other dialect can be; there is none yet."""
    if backend == "postgres":
        yield str(tmp_path / "elsewhere.db")
        return
    with postgres_database(postgres_url) as url:
        yield url


def piped(folder: Path, source: str, target: str, *export: str, take_in: tuple[str, ...] = ()) -> tuple[Ran, Ran]:
    """`holdfast export ... | holdfast import`, as a shell does it."""
    begin, end = os.pipe()
    told = Pipe()
    with open(os.devnull) as nothing:
        streams = (nothing.fileno(), end, told.end)
        command = [*HOLDFAST, "export", *export, "--database", source]
        give = fork(command, folder=folder, environment=environment(None), streams=streams)
    os.close(end)
    told.read()
    with open(begin, "rb") as stdin:
        command = [*HOLDFAST, "import", "--json", *take_in, "--database", target]
        took = in_pipe(command, folder=folder, stdin=stdin)
    return Ran(wait_for_end(give, TIMEOUT_SECONDS), "", told.text()), took


def test_a_run_in_flight_goes_through_a_pipe_and_goes_on_once(
    desk: Desk, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = tmp_path / "effects"
    monkeypatch.setenv("EFFECTS", str(effects))
    run = desk.start("pay", 5, key=desk.queue)
    gave, took = piped(tmp_path, desk.database, elsewhere, run[:16], "--pause")
    assert parsed(took, answers.ImportAnswer) == answers.ImportAnswer(executions=1, skipped=0, live=1)
    assert gave.code == 0
    assert "what is live is paused here" in gave.err
    there = Desk(elsewhere, desk.queue)
    there.register()
    for place in (desk, there):
        place.run(lambda app: app.handle("pay", key=desk.queue).signal("approval", True))
        place.work()
    assert there.run(lambda app: app.handle("pay", key=desk.queue).result()) == "5 and 6"
    assert effects.read_text().splitlines() == ["charged 5", "charged 6"]
    assert desk.run(lambda app: app.handle("pay", key=desk.queue).status()) is not Status.DONE

    again, refused = piped(tmp_path, desk.database, elsewhere, run)
    assert (again.code, refused.code) == (0, 1)
    assert "here already. Skip what exists (--skip-existing), or replace it (--replace)" in refused.err
    assert "what is live goes on in this ledger" not in again.err or "paused" in again.err

    _, back = piped(tmp_path, elsewhere, desk.database, run, take_in=("--replace",))
    assert parsed(back, answers.ImportAnswer) == answers.ImportAnswer(executions=1, skipped=0, live=0)
    assert desk.run(lambda app: app.handle("pay", key=desk.queue).result()) == "5 and 6"


def test_export_and_import_in_a_terminal(desk: Desk, elsewhere: str, tmp_path: Path) -> None:
    run = desk.start("pay", 1)
    file = tmp_path / "runs.jsonl"
    told = in_terminal([*HOLDFAST, "export", run, "-o", str(file)], folder=tmp_path, database=desk.database)
    assert "exporting 2 records" in told.plain  # progress is for people
    assert "1 execution exported, 1 of them live\n" in told.plain
    assert "it is done at both places" in told.plain
    assert oct(os.stat(file).st_mode & 0o777) == "0o600"
    answer = in_pipe([*HOLDFAST, "export", run, "-o", str(file), "--json"], folder=tmp_path, database=desk.database)
    assert parsed(answer, answers.ExportAnswer).live == 1
    taken = in_terminal([*HOLDFAST, "import", str(file), "--paused"], folder=tmp_path, database=elsewhere)
    assert taken.plain.endswith("1 execution imported. What is live is paused.\n")
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:-1]))
    cut = in_pipe([*HOLDFAST, "import", str(file)], folder=tmp_path, database=elsewhere)
    assert (cut.code, cut.out) == (1, "")
    assert "was cut off" in cut.err
    assert in_pipe([*HOLDFAST, "import", "nowhere.jsonl"], folder=tmp_path, database=elsewhere).code == 2


def test_an_export_that_pauses_says_what_to_do_if_the_import_fails(desk: Desk, tmp_path: Path) -> None:
    run = desk.start("pay", 1)

    def export(*more: str) -> Ran:
        return in_pipe([*HOLDFAST, "export", run, "--pause", *more], folder=tmp_path, database=desk.database)

    first = export("-o", "runs.jsonl", "--json")
    told = parsed(first, answers.ExportAnswer)
    assert (told.live, told.paused, told.stay_paused) == (1, 1, 0)
    assert "if the import fails, all of it stays paused here: import runs.jsonl again, or let it go on" in first.err
    second = export("-o", "again.jsonl", "--json")
    told = parsed(second, answers.ExportAnswer)
    assert (told.live, told.paused, told.stay_paused) == (1, 0, 1)
    assert "paused before, and paused where it is imported until holdfast resume: 1 execution" in second.err
    assert "goes on where it is imported" not in second.err
    desk.run(lambda app: app.handle(run).resume())
    third = export()
    assert "import it from a file (-o) next time, or let it go on here with holdfast resume" in third.err


def test_verify_passes_a_sound_ledger(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    desk.start("double", 1)
    report = parsed(holdfast("verify", "--json"), answers.Verified)
    assert (report.sound, report.faults) == (True, [])
    assert report.looked_at["execution"] >= 1
    assert holdfast_in_terminal("verify").plain.splitlines()[-1].startswith("sound: looked at ")


def test_verify_names_what_is_wrong_and_exits_with_1(tmp_path: Path) -> None:
    desk = Desk(str(tmp_path / "damaged.db"), "q")
    run = desk.start("double", 1)
    with closing(sqlite3.connect(desk.database)) as db, db:
        db.execute("update executions set attempt = -1, result = null")
    ran = in_pipe([*HOLDFAST, "verify"], folder=tmp_path, database=desk.database)
    assert ran.code == 1
    assert f"counters: double/{run[:8]}\n  found     its attempt is -1\n  expected  no counter is below 0" in ran.out
    assert f"  id        {run}" in ran.out
    assert ran.out.splitlines()[-1].startswith("2 faults: looked at 1 execution")
    report = parsed(
        in_pipe([*HOLDFAST, "verify", "--json"], folder=tmp_path, database=desk.database), answers.Verified, code=1
    )
    assert {fault.rule for fault in report.faults} == {"counters", "outcome"}
    rules = in_pipe([*HOLDFAST, "verify", "--rules"], folder=tmp_path, database=desk.database)
    assert "at most one row occupies a unique key" in rules.out


def test_doctor_finds_a_healthy_ledger_healthy(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    desk.register()
    is_postgres = desk.database.startswith("postgresql")
    # The server of the tests gives up what only a crash of the machine would need.
    found = parsed(holdfast("doctor", "--json"), answers.Diagnosis, code=1 if is_postgres else 0)
    unsafe = {"fsync", "full_page_writes", "synchronous_commit"} if is_postgres else set()
    assert {check.name for check in found.checks if check.level == "bad"} <= unsafe
    assert found.healthy is not is_postgres
    names = {check.name for check in found.checks}
    store = {"journal_mode", "synchronous", "file system", "free space"}
    if is_postgres:
        store = {"PostgreSQL", "fsync", "synchronous_commit", "autovacuum", "pooling", "vacuum", "role"}
    assert names >= store | {"holdfast", "database", "connection", "schema", "clock", "indexes", "lag", "stranded"}
    screen = holdfast_in_terminal("doctor")
    assert screen.plain.startswith("ok    holdfast")


def test_doctor_sees_what_is_missing_late_and_stranded(tmp_path: Path) -> None:
    desk = Desk(str(tmp_path / "sick.db"), "q")
    desk.start("double", 1)
    with closing(sqlite3.connect(desk.database)) as db, db:
        db.execute("drop index executions_pick")
        db.execute("update executions set status = 'stranded', ended_at = null, result = null")
    ran = in_pipe([*HOLDFAST, "doctor"], folder=tmp_path, database=desk.database)
    assert ran.code == 1
    assert "bad   indexes" in ran.out
    assert "missing: executions_pick" in ran.out
    assert "warn  stranded" in ran.out


async def register(desk: Desk, worker: str, *, lease_seconds: float) -> None:
    """A worker of the queue `q` that does nothing."""
    store = store_from_url(desk.database)
    await store.open()
    await store.register_worker(worker, host="h", pid=1, queues=["q"], lease_seconds=lease_seconds)
    await store.close()


def test_a_dead_worker_and_a_late_queue_are_told(tmp_path: Path) -> None:
    desk = Desk(str(tmp_path / "late.db"), "q")
    desk.start("pay", 1)

    asyncio.run(register(desk, "gone", lease_seconds=0))
    with closing(sqlite3.connect(desk.database)) as db, db:
        db.execute("update executions set status = 'executing', locked_by = 'gone', wake_at = null")
    ran = in_pipe([*HOLDFAST, "doctor"], folder=tmp_path, database=desk.database)
    assert (ran.code, "warn  dead workers" in ran.out) == (0, True)
    with closing(sqlite3.connect(desk.database)) as db, db:
        db.execute("update executions set status = 'runnable', locked_by = null, eligible_at = 0")
    ran = in_pipe([*HOLDFAST, "doctor"], folder=tmp_path, database=desk.database)
    assert "no live worker serves it: start one" in ran.out


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, "its workers are idle, so none of them has the code"),
        ({"paused": True}, "it is paused: `holdfast queues resume q`"),
        ({"rate": 1.0}, "its rate may hold it back"),
    ],
)
def test_doctor_says_why_a_queue_that_is_served_is_late(
    in_process: Call, tmp_path: Path, settings: dict[str, Any], advice: str
) -> None:
    """More workers would not help."""
    desk = Desk(str(tmp_path / "late.db"), "q")
    desk.start("pay", 1)
    with closing(sqlite3.connect(desk.database)) as db, db:
        db.execute("update executions set status = 'runnable', wake_at = null, eligible_at = 0")
    ran = in_process("doctor", "--database", desk.database)
    assert "warn  workers" in ran.out
    assert "work is due and nobody does it" in ran.out

    async def serve() -> None:
        store = store_from_url(desk.database)
        await store.open()
        await store.register_worker("idle", host="h", pid=1, queues=["q"], lease_seconds=60)
        await store.change_queue("q", QueueChange(**settings))
        await store.close()

    asyncio.run(serve())
    lines = in_process("doctor", "--database", desk.database).out.splitlines()
    told = next(after for line, after in pairwise(lines) if line.startswith("warn  lag"))
    assert told.strip().startswith(advice)


def test_doctor_does_not_take_missing_code_for_too_few_workers(in_process: Call, tmp_path: Path) -> None:
    """After a deploy that renamed a definition, while the workers are busy with others."""
    desk = Desk(str(tmp_path / "busy.db"), "q")
    busy, _ = desk.start("pay", 1), desk.start("pay", 2)

    asyncio.run(register(desk, "busy", lease_seconds=60))
    with closing(sqlite3.connect(desk.database)) as db, db:
        db.execute("update executions set status = 'runnable', wake_at = null, eligible_at = 0")
        held = (PromiseId.parse(busy).to_bytes(),)
        db.execute("update executions set status = 'executing', locked_by = 'busy' where promise = ?", held)
    told = in_process("doctor", "--database", desk.database).out
    assert "lack its code: see `holdfast list --status runnable --queue q`" in told
