"""`app.sync`: workflows and tasks from programs without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, assert_type

import pytest

from holdfast import App, Collision, Context, Handle, RetryPolicy
from holdfast.core.errors import ConfigurationError, ExecutionFailedError, NotPublishedError
from holdfast.models.batch.run import BatchRun
from holdfast.sync import SyncApp, SyncBatchRun, SyncHandle
from tests.cli.databases import postgres_database


async def work(app: App) -> None:
    worker = await app.make_worker()
    await worker.open()
    await worker.run_until_idle()
    await worker.stop()


@pytest.mark.parametrize(("blocking", "other"), [(SyncHandle, Handle), (SyncBatchRun, BatchRun)])
def test_what_blocks_has_the_methods_of_the_other(blocking: type, other: type) -> None:
    own = {"feed_in_background"}  # of `start` alone
    assert [name for name in vars(other) if not name.startswith("_") and not hasattr(blocking, name)] == list(
        own & set(vars(other))
    )


def test_workflows_and_tasks_are_started_signalled_and_awaited(tmp_path: Path) -> None:
    app = App("test", str(tmp_path / "ledger.db"))
    broken = True

    @app.task(name="double", retry=RetryPolicy(max_attempts=1))
    async def double(number: int) -> int:
        if broken and number == 13:
            raise ValueError("no")
        return 2 * number

    @app.workflow(name="add")
    async def add(ctx: Context, number: int) -> int:
        ctx.publish("number", number)
        ctx.set_attributes(number=number)
        return number + await ctx.signal("more", int)

    sync = app.sync
    handle = sync.start(add.options(key="k"), 3)
    assert_type(handle, SyncHandle[int])
    handle.signal("more", 4)
    doubled = sync.start(double, 21)
    assert_type(doubled, SyncHandle[int])
    many = sync.start_many(double, [1, 2])
    unlucky = sync.start(double, 13)
    sync.run(work(app))
    assert (handle.result(), doubled.result(), doubled.result(float)) == (7, 42, 42.0)
    assert sync.results([item for item in many if not isinstance(item, Collision)]) == [2, 4]
    kept, failure = sync.results([doubled, unlucky], return_exceptions=True)
    assert kept == 42
    assert isinstance(failure, ExecutionFailedError)
    assert handle.published() == {"number": 3}
    assert_type(handle.wait_published("number", int), int)
    assert handle.wait_published("number", until=lambda number: number == 3, timeout=60) == 3
    with pytest.raises(NotPublishedError):
        handle.wait_published("other")
    assert (handle.progress(), doubled.progress()) == ([], [])
    (found,) = sync.search({"number": 3}, name="add")
    assert (found.id, found.result()) == (handle.id, 7)
    with pytest.raises(ExecutionFailedError):
        unlucky.result()
    failed = unlucky.error()
    assert failed is not None
    assert str(failed) == "ValueError: no"
    broken = False
    again = unlucky.retry()
    assert unlucky.newest() == again.id
    fork = handle.fork(at=1)
    fork.signal("more", 10)
    named = sync.start_by_name("double", {"number": 8})
    signalled = sync.signal_with_start(add.options(key="s"), "more", 5, 1)
    assert_type(signalled, SyncHandle[int])
    by_name = sync.signal_with_start_by_name("add", "more", 6, {"number": 1}, key="n")
    quote = app.flow("quote")

    @quote.activity
    async def weigh(parcel: str) -> int:
        return len(parcel)

    job = sync.start(quote, "a vase")
    assert_type(job, SyncHandle[Any])
    sync.run(work(app))
    assert (again.result(), named.result(), job.result()) == (26, 16, 6)
    assert (signalled.result(), by_name.result()) == (6, 7)
    assert fork.status().is_terminal
    asyncio.run(app.close())


FORKING = """
import os, sys
from holdfast import App

app = App("forking", sys.argv[1])


@app.task
def double(number: int) -> int:
    return 2 * number


before = app.sync.start(double.options(key="before"), 1)
child = os.fork()
if not child:
    started = app.sync.start(double.options(key="in the child"), 2)
    same = app.sync.start(double.options(key="before"), 1)
    print(started.status(), before.status(), same.id == before.id, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(app.sync.handle("double", key="in the child").status(), before.status())
app.sync.close()
"""


def test_threads_that_use_it_at_once_share_one_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("orders", store=str(tmp_path / "l.db"))
    together, begin = threading.Barrier(4), SyncApp._begin

    def slowly(made: SyncApp) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.05)  # all that are being made
        begin(made)

    monkeypatch.setattr(SyncApp, "_begin", slowly)
    with ThreadPoolExecutor(4) as threads:
        assert len({id(one) for one in threads.map(lambda _: app.sync, range(4))}) == 1
    app.sync.close()


def test_a_transaction_does_not_wait_for_another_one_on_its_file(tmp_path: Path) -> None:
    """A file has one writer: each attempt held up every process of the ledger for ten seconds, and blamed another."""
    app = App("orders", store=tmp_path / "l.db")

    @app.task
    async def other() -> None: ...

    @app.transaction
    def add(db: sqlite3.Connection) -> str:
        for _ in range(2):  # it is not open there yet
            with pytest.raises(ConfigurationError, match=r"options\(connection="):
                app.sync.start(other)
        return app.sync.start(other.options(connection=db)).label

    @app.workflow
    async def run(ctx: Context) -> str:
        return await add()

    async def work_on() -> str:
        async with app:
            return await app.run(run)

    started = asyncio.run(work_on())
    assert app.sync.handle(started).describe().name == other.name
    app.sync.close()


class Endless:
    """A call that ends when it is cancelled, and not before."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_a_call_that_was_interrupted_is_waited_for_by_nobody(tmp_path: Path) -> None:
    """Ctrl-C in a notebook, say: the loop would look for the result as long as the kernel lives."""
    app = App("orders", store=str(tmp_path / "l.db"))
    endless = Endless()

    def interrupt() -> None:
        endless.begun.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        app.sync.run(endless())
    assert endless.ended.wait(10)
    app.sync.close()


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_call_that_was_interrupted_while_it_was_handed_over_is_waited_for_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    sync = App("orders", store=str(tmp_path / "l.db")).sync
    endless = Endless()
    hand_over = asyncio.run_coroutine_threadsafe
    late: list[tuple[Coroutine[Any, Any, Any], asyncio.AbstractEventLoop]] = []

    def interrupted(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        if has_begun:
            hand_over(work, loop)
            assert endless.begun.wait(10)
        else:
            late.append((work, loop))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sync.run(endless())
    for work, loop in late:
        with pytest.raises(CancelledError):
            hand_over(work, loop).result(10)
    assert endless.begun.is_set() == endless.ended.wait(10 if has_begun else 0) == has_begun
    sync.close()


def test_a_process_that_was_forked_has_a_loop_of_its_own(backend: str, postgres_url: str, tmp_path: Path) -> None:
    """As under gunicorn --preload, and in pools of multiprocessing."""
    with contextlib.ExitStack() as stack:
        is_sqlite = backend == "sqlite"
        database = str(tmp_path / "l.db") if is_sqlite else stack.enter_context(postgres_database(postgres_url))
        command = [sys.executable, "-c", FORKING, database]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["runnable runnable True", "runnable runnable"]
