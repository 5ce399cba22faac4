"""`flow diagram`, `flow show`, `dead-letters`: on both stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import App, Flow
from holdfast.engine.settings import WorkerSettings
from tests.cli.conftest import Call

PROGRAM = """
from holdfast import App

app = App("draw")
order = app.flow("order")

@order.activity
async def first(n: int) -> int:
    return n

@order.activity(after=first, when=bool)
async def second(n: int) -> int:
    return n
"""


def declare(app: App, queue: str) -> Flow:
    flow = app.flow("stuck", queue=queue)

    @flow.activity
    async def known(n: int) -> int:
        return n

    return flow


async def _strand(database: str, queue: str) -> str:
    """A job whose message no code here can read."""
    async with App("test", database) as app:
        flow = declare(app, queue)
        handle = await flow.start(3)
        worker = await app.make_worker(WorkerSettings(queues=[queue]))
        await worker.open()
        await worker.run_once()
        del flow.graph.nodes["known"]
        await worker.run_until_idle()
        await worker.stop()
        return str(handle.id)


async def _start(database: str, queue: str) -> str:
    """A job that has begun: its message waits for a worker."""
    async with App("test", database) as app:
        handle = await declare(app, queue).start(3)
        worker = await app.make_worker(WorkerSettings(queues=[queue]))
        await worker.open()
        await worker.run_once()
        await worker.stop()
        return str(handle.id)


async def _work(database: str, queue: str) -> None:
    async with App("test", database) as app:
        declare(app, queue)
        worker = await app.make_worker(WorkerSettings(queues=[queue]))
        await worker.open()
        await worker.run_until_idle()
        await worker.stop()


def test_a_flow_is_drawn(in_process: Call, database: str) -> None:
    (Path.cwd() / "drawn_program.py").write_text(PROGRAM)
    drawn = in_process("flow", "diagram", "drawn_program:app.order", "--database", database)
    assert (drawn.code, drawn.out.splitlines()[0]) == (0, "flowchart TD"), drawn.err
    assert '-. "if" .->' in drawn.out
    picture = in_process(
        "flow", "diagram", "drawn_program:app.order", "--form", "svg", "--json", "--database", database
    )
    assert picture.json["diagram"].startswith("<svg")
    assert in_process("flow", "diagram", "drawn_program:app.none", "--database", database).code == 3
    assert in_process("flow", "diagram", "drawn_program", "--database", database).code == 2


def test_a_job_that_has_ended_is_nowhere(in_process: Call, database: str, queue: str) -> None:
    job = asyncio.run(_start(database, queue))
    assert in_process("show", job, "--json", "--database", database).json["step"] == "running"
    asyncio.run(_work(database, queue))
    shown = in_process("show", job, "--json", "--database", database).json
    assert (shown["status"], shown["step"]) == ("done", "")
    assert "\nstep" not in in_process("show", job, "--database", database).out
    assert " is done\n" in in_process("tail", job, "--database", database).out
    (line,) = in_process("list", "--queue", queue, "--kind", "flow", "--database", database).out.splitlines()[1:]
    assert "running" not in line


def test_a_dead_letter_is_listed_retried_and_dropped(in_process: Call, database: str, queue: str) -> None:
    job = asyncio.run(_strand(database, queue))

    def letters() -> list[dict[str, object]]:
        found = in_process("dead-letters", "--flow", "stuck", "--json", "--database", database).json["dead_letters"]
        return [letter for letter in found if letter["job"] == job]

    (letter,) = letters()
    assert (letter["activity"], letter["step"], letter["can_retry"]) == ("known", "leg1", True)
    assert "has no activity 'known'" in in_process("dead-letters", "--database", database).out
    shown = in_process("flow", "show", job, "--database", database)
    assert "leg1 of known is stranded" in shown.out
    assert in_process("flow", "show", job, "--json", "--database", database).json["semaphore"] == 1
    retried = in_process("dead-letters", "retry", str(letter["id"]), "--database", database)
    assert (retried.code, retried.out) == (0, f"{letter['id']} goes on\n"), retried.err
    assert letters() == []
    gone = in_process("dead-letters", "drop", str(letter["id"]), "--database", database)
    assert (gone.code, "no dead letter" in gone.err) == (3, True)
    again = asyncio.run(_strand(database, queue))
    (other,) = [
        found
        for found in in_process("dead-letters", "--json", "--database", database).json["dead_letters"]
        if found["job"] == again
    ]
    dropped = in_process("dead-letters", "drop", other["id"], "--json", "--database", database)
    assert dropped.json == {"id": other["id"], "done": "drop"}
    asyncio.run(_work(database, queue))
    assert "failed" in in_process("flow", "show", again, "--database", database).out
