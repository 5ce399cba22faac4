"""A process that forks while it has a file open: parent and child go on as two processes that never shared it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from holdfast.store.sqlite import SqliteStore
from holdfast.testing.hand import promise_of

PROGRAM = """
import asyncio, os, sys
from holdfast.store.sqlite import SqliteStore
from holdfast.store.values import Topic
from holdfast.testing.hand import row

async def opened():
    store = SqliteStore(sys.argv[1])
    await store.open()
    return store

async def child(say, listen):
    store = await opened()
    await store.insert([row("in the child")])
    say()
    listen()
    await store.insert([row("in the child, once the parent has closed it")])

async def parent(say, listen):
    await asyncio.to_thread(listen)
    await asyncio.wait_for(heard.wait(), 20)
    await store.insert([row("in the parent")])
    await ear.close()
    await store.close()
    say()

async def before():
    global store, ear, heard
    store, heard = await opened(), asyncio.Event()
    await store.insert([row("before")])
    await store.queues()  # a reader in another thread has it open too
    ear = await store.open_ear(lambda topic: heard.set())
    await ear.arm(Topic.WORK)
    heard.clear()

loop = asyncio.new_event_loop()
loop.run_until_complete(before())
to_child, to_parent = os.pipe(), os.pipe()
pid = os.fork()
out, into = (to_child, to_parent) if pid else (to_parent, to_child)
talk = lambda: os.write(out[1], b"."), lambda: os.read(into[0], 1)
if not pid:
    asyncio.run(child(*talk))
    os._exit(0)
loop.run_until_complete(parent(*talk))
assert os.waitpid(pid, 0)[1] == 0
"""


IN_THE_MIDDLE = """
import asyncio, os, sys, threading
from holdfast.core.errors import ConfigurationError
from holdfast.store.sqlite import SqliteStore, forks

forks.WAIT_SECONDS = 0.0
begun, go_on = threading.Event(), threading.Event()

def use(_):
    begun.set()
    go_on.wait(20)

async def parent():
    store = SqliteStore(sys.argv[1])
    await store.open()
    using = asyncio.ensure_future(store._read(use))
    await asyncio.to_thread(begun.wait, 20)
    pid = os.fork()
    if not pid:
        try:
            asyncio.run(SqliteStore(sys.argv[1]).open())
        except ConfigurationError as error:
            os._exit(7 if "was forked while its parent" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    go_on.set()
    await using
    await store.close()

asyncio.run(parent())
"""


async def _run(program: str, path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(path)]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


async def test_a_process_that_was_forked_in_the_middle_of_something_is_refused_the_file(path: Path) -> None:
    """It would wait for a lock of its parent's that it takes for its own, or write to a log that its parent deletes."""
    await _run(IN_THE_MIDDLE, path)


async def test_nothing_that_a_forked_process_commits_is_lost_or_unheard(path: Path) -> None:
    """SQLite let the parent delete the log that the child went on writing to."""
    await _run(PROGRAM, path)
    store = SqliteStore(path)
    await store.open()
    written = ["before", "in the child", "in the parent", "in the child, once the parent has closed it"]
    assert None not in await store.get_many([promise_of(key) for key in written])
    await store.close()
