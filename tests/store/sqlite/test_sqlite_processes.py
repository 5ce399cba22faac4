"""Several processes on one file: exclusion, fairness, a writer that is killed, and wakes between them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.status import Status
from holdfast.store.sqlite import SqliteStore
from holdfast.store.values import ExecutionFilter, Topic
from holdfast.testing.hand import promise_of, row

PATIENCE_SECONDS = 30

PRELUDE = """
import asyncio, json, sys
from holdfast.core.status import Status
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.sqlite import SqliteStore
from holdfast.store.values import QueueRoom, Topic
from holdfast.testing.hand import HANDLER, Hand, done, row

def say(word):
    print(word, flush=True)

def listen():
    return sys.stdin.readline().strip()
"""

DRAIN = """
async def main(path, name):
    store = SqliteStore(path)
    await store.open()
    hand = await Hand(store, name).start()
    say("ready")
    listen()
    seen = []
    while True:
        claims = (await store.pick(name, [QueueRoom("default", 5)], [HANDLER], 5)).claims
        if not claims:
            break
        seen += [claim.row for claim in claims]
        await store.flush(name, [Commit(claim, (done(),)) for claim in claims])
    say(json.dumps(seen))
    await store.close()
"""

HANG = """
async def main(path, name):
    store = SqliteStore(path)
    await store.open()
    def hang(tx):
        tx.db.execute("insert into queues (name) values ('never')")
        say("inside")
        listen()
    await store._write(None, hang)
"""

EAR = """
async def main(path, name):
    store = SqliteStore(path)
    await store.open()
    heard = asyncio.Queue()
    ear = await store.open_ear(heard.put_nowait)
    await ear.arm(Topic(name))
    say("armed")
    say(await asyncio.wait_for(heard.get(), 30))
    await ear.close()
    await store.close()
"""


@contextmanager
def process(body: str, path: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """Another interpreter that runs `main(path, name)`; gone when the block ends."""
    code = PRELUDE + textwrap.dedent(body) + "\nasyncio.run(main(sys.argv[1], sys.argv[2]))\n"
    started = subprocess.Popen(
        [sys.executable, "-c", code, str(path), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate(timeout=PATIENCE_SECONDS)


def line(of: subprocess.Popen[str]) -> str:
    assert of.stdout is not None
    return of.stdout.readline().strip()


def go_on(of: subprocess.Popen[str]) -> None:
    assert of.stdin is not None
    of.stdin.write("\n")
    of.stdin.flush()


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    return store


async def test_processes_share_the_work_and_no_row_runs_twice(path: Path) -> None:
    store = await opened(path)
    count = 300
    await store.insert([row(str(n), partition_key=f"key{n % 7}" if n % 3 else None) for n in range(count)])
    with process(DRAIN, path, "w1") as first, process(DRAIN, path, "w2") as second:
        assert [line(first), line(second)] == ["ready", "ready"]
        go_on(first)
        go_on(second)
        seen = [json.loads(line(first)), json.loads(line(second))]
    rows = [number for part in seen for number in part]
    assert len(rows) == len(set(rows))
    left = await store.count(ExecutionFilter())
    # A keyed row may be passed over by both at the very end: who holds its key picks it next.
    assert left.get(Status.DONE) == len(rows)
    assert left.get(Status.EXECUTING) is None
    hand_over = await _drain_rest(store)
    assert len(rows) + hand_over == count
    await store.close()


async def _drain_rest(store: SqliteStore) -> int:
    from holdfast.testing.hand import Hand, done

    hand = await Hand(store, "rest").start()
    drained = 0
    while claims := await hand.pick():
        for claim in claims:
            assert (await hand.apply(claim, done())).applied
        drained += len(claims)
    return drained


async def test_a_writer_killed_inside_its_transaction_leaves_nothing_and_holds_nobody(path: Path) -> None:
    store = await opened(path)
    with process(HANG, path, "-") as other:
        assert line(other) == "inside"
        other.kill()
        other.wait(PATIENCE_SECONDS)
        assert [one.created for one in await store.insert([row("a")])] == [True]
    assert await store.queues() != []
    assert "never" not in [stats.settings.name for stats in await store.queues()]
    await store.close()


async def test_an_armed_ear_in_another_process_hears_of_work(path: Path) -> None:
    store = await opened(path)
    with process(EAR, path, Topic.WORK.value) as other:
        assert line(other) == "armed"
        await store.insert([row("a")])
        assert line(other) == Topic.WORK.value
    await store.close()


async def test_an_armed_ear_in_another_process_hears_of_an_end(path: Path) -> None:
    store = await opened(path)
    await store.insert([row("a")])
    with process(EAR, path, Topic.ENDED.value) as other:
        assert line(other) == "armed"
        await store.cancel([promise_of("a")])
        assert line(other) == Topic.ENDED.value
    await store.close()


async def test_a_listener_that_was_killed_harms_nobody(path: Path) -> None:
    store = await opened(path)
    with process(EAR, path, Topic.WORK.value) as other:
        assert line(other) == "armed"
        other.kill()
        other.wait(PATIENCE_SECONDS)
        assert [one.created for one in await store.insert([row("a")])] == [True]
    await store.close()
