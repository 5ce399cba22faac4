"""`handle.wait_published`: a value that a workflow publishes can be waited for, from anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, Handle, RetryPolicy
from holdfast.core.errors import (
    ClosedError,
    DecodeError,
    ExecutionCancelledError,
    ExecutionFailedError,
    ExecutionStrandedError,
    InvalidArgumentError,
    NotFoundError,
    NotPublishedError,
)
from tests.cli.databases import postgres_database
from tests.models.workflow.kit import Rig


@dataclass
class Stage:
    number: int


def declare_show(app: App) -> Any:
    """Shows whatever it is sent."""

    @app.workflow(name="show")
    async def show(ctx: Context) -> str:
        while (stage := await ctx.signal("show")) is not None:
            ctx.publish("stage", stage)
        return "over"

    return show


async def waiter(handle: Handle[Any], *arguments: Any, **options: Any) -> asyncio.Task[Any]:
    """One who waits, and whose first look has found nothing."""
    task = asyncio.create_task(handle.wait_published(*arguments, **options))
    with pytest.raises(TimeoutError):
        await handle.wait_published(*arguments, **(options | {"timeout": 0}))
    assert not task.done()
    return task


async def test_what_is_there_is_given_at_once_also_after_the_end(rig: Rig) -> None:
    handle = await declare_show(rig.app).start()
    await handle.signal("show", {"number": 3})
    await rig.run()
    assert await handle.wait_published("stage") == {"number": 3}
    assert await handle.wait_published("stage", Stage, timeout=0) == Stage(3)
    await handle.signal("show", None)
    await rig.run()
    assert await handle.wait_published("stage", Stage, timeout=60) == Stage(3)


async def test_who_waits_is_woken_by_the_commit(rig: Rig) -> None:
    handle = await declare_show(rig.app).start()
    await rig.run()
    task = await waiter(handle, "stage", Stage)
    await handle.signal("show", {"number": 1})
    await rig.run()
    assert await task == Stage(1)


async def test_until_passes_over_values_that_do_not_fit(rig: Rig) -> None:
    handle = await declare_show(rig.app).start()
    tried: list[int] = []

    def is_third(stage: Stage) -> bool:
        tried.append(stage.number)
        return stage.number == 3

    task = asyncio.create_task(handle.wait_published("stage", Stage, until=is_third))
    for number in (1, 2, 2, 3):
        await handle.signal("show", {"number": number})
        await rig.run()
    assert await task == Stage(3)
    assert tried == sorted(set(tried)), "each is tried once"
    with pytest.raises(TimeoutError, match="has not published 'stage' as it was waited for within 0s"):
        await handle.wait_published("stage", Stage, until=lambda stage: stage.number == 4, timeout=0)
    waiting = asyncio.create_task(handle.wait_published("stage", Stage, until=lambda stage: stage.number == 4))
    await handle.signal("show", None)
    await rig.run()
    with pytest.raises(NotPublishedError, match="is done and has not published 'stage' as it was waited for"):
        await waiting


async def test_what_a_predicate_raises_is_raised(rig: Rig) -> None:
    handle = await declare_show(rig.app).start()
    await handle.signal("show", 1)
    await rig.run()

    def late(_: object) -> bool:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await handle.wait_published("stage", until=late, timeout=60)
    with pytest.raises(DecodeError):
        await handle.wait_published("stage", Stage)


async def test_an_end_without_the_value_says_so(rig: Rig) -> None:
    show = declare_show(rig.app)

    @rig.app.workflow
    async def fail(ctx: Context) -> None:
        await ctx.signal("go")
        raise ValueError("torn")

    done, failed, cancelled = await show.start(), await fail.start(), await show.start()
    await rig.run()
    waiting = [await waiter(handle, "stage") for handle in (done, failed, cancelled)]
    await done.signal("show", None)
    await failed.signal("go")
    await cancelled.cancel(reason="enough")
    await rig.run()
    for task, status, cause in zip(
        waiting, ("done", "failed", "cancelled"), (None, ExecutionFailedError, ExecutionCancelledError), strict=True
    ):
        with pytest.raises(NotPublishedError, match=f"is {status} and has not published 'stage'$") as caught:
            await task
        assert type(caught.value.__cause__) is (cause or type(None))
    with pytest.raises(NotPublishedError):
        await done.wait_published("stage", timeout=0)


async def test_a_stranded_run_keeps_nobody_waiting(rig: Rig) -> None:
    show = declare_show(rig.app)
    handle = await show.start()
    await rig.run()
    task = await waiter(handle, "stage")
    changed = rig.another_app()

    @changed.workflow(name="show")
    async def other(ctx: Context) -> None:
        await ctx.sleep(1)

    await rig.stop(await rig.worker())
    await handle.signal("show", 1)
    await (await rig.make_worker(changed)).run_until_idle()
    with pytest.raises(NotPublishedError, match="is stranded") as caught:
        await task
    assert isinstance(caught.value.__cause__, ExecutionStrandedError)


async def test_what_does_not_exist_and_names_that_cannot_be_are_refused(rig: Rig) -> None:
    handle = rig.app.handle("show", key="nobody")
    with pytest.raises(NotFoundError):
        await handle.wait_published("stage")
    with pytest.raises(NotFoundError):
        await handle.wait_published("stage", timeout=0)
    for name in ("", "a\0b", 5):
        with pytest.raises(InvalidArgumentError, match="is no name"):
            await handle.wait_published(name)  # type: ignore[arg-type]


async def test_a_timeout_leaves_it_alone_and_who_gives_up_is_forgotten(rig: Rig) -> None:
    handle = await declare_show(rig.app).start()
    await rig.run()
    with pytest.raises(TimeoutError, match=r"show/\w+ has not published 'stage' within 1ms and goes on"):
        await handle.wait_published("stage", timeout=0.001)
    staying, leaving = await waiter(handle, "stage"), await waiter(handle, "stage")
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    await handle.signal("show", 1)
    await rig.run()
    assert await staying == 1
    publications = await rig.app._connection.publications()
    assert not publications._waiters
    assert await publications.run_once() is None, "nobody is left to wait for"


async def test_it_follows_a_run_that_goes_on_as_new(rig: Rig) -> None:
    @rig.app.workflow
    async def turn(ctx: Context, number: int) -> None:
        await ctx.signal("go")
        if number == 2:
            ctx.publish("last", number)
            return
        ctx.publish("turn", number)
        ctx.continue_as_new(number + 1)

    handle = await turn.start(0)
    await rig.run()
    task = await waiter(handle, "last")
    for number in range(3):
        await handle.signal("go")
        await rig.run()
        if number == 0:
            assert await handle.wait_published("turn") == 0, "the next run shows what the one before has shown"
    assert await task == 2
    assert await handle.wait_published("turn", timeout=0) == 1


async def test_it_follows_a_retry(rig: Rig) -> None:
    is_broken = True

    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def check() -> None:
        if is_broken:
            raise ValueError("torn")

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        ctx.publish("begun", 1)
        await check()
        ctx.publish("checked", 1)

    handle = await work.start()
    await rig.run()
    with pytest.raises(NotPublishedError, match="is failed"):
        await handle.wait_published("checked")
    await handle.retry()
    task = await waiter(handle, "checked")
    assert await handle.wait_published("begun") == 1
    is_broken = False
    await rig.run()
    assert await task == 1


async def test_closing_the_app_tells_who_waits(rig: Rig) -> None:
    handle = await declare_show(rig.app).start()
    task = await waiter(rig.app.handle(handle.id), "stage")
    await rig.app.close()
    with pytest.raises(ClosedError, match="was waited for"):
        await task


async def test_another_app_on_the_ledger_hears_of_it(rig: Rig) -> None:
    """Over connections of its own, as another process would."""
    handle = await declare_show(rig.app).start()
    await rig.run()
    task = await waiter(rig.another_app().handle(handle.id), "stage")
    await handle.signal("show", 1)
    await rig.run()
    assert await task == 1


WAITING = """
import sys
from holdfast import App
from holdfast.errors import NotPublishedError

app = App("another", sys.argv[1])
handle = app.sync.handle(sys.argv[2])
try:
    handle.wait_published("stage", timeout=0)
except TimeoutError:
    print("waiting", flush=True)
print(handle.wait_published("stage", str, until=lambda stage: stage == "packed", timeout=60), flush=True)
try:
    handle.wait_published("nothing", timeout=60)
except NotPublishedError as error:
    print(str(error).partition(" ")[2])
app.sync.close()
"""


async def show_to_another_process(database: str) -> None:
    app = App("test", database)
    handle = await declare_show(app).start()
    async with app.worker():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WAITING, database, str(handle.id)), stdout=PIPE, stderr=PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"waiting\n"
        await handle.signal("show", "picked")
        await handle.wait_published("stage")
        await handle.signal("show", "packed")
        assert await process.stdout.readline() == b"packed\n"
        await handle.signal("show", None)
        out, err = await process.communicate()
    await app.close()
    assert (process.returncode, out) == (0, b"is done and has not published 'nothing'\n"), err


def test_another_process_waits_without_an_event_loop(backend: str, postgres_url: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        is_sqlite = backend == "sqlite"
        database = str(tmp_path / "l.db") if is_sqlite else stack.enter_context(postgres_database(postgres_url))
        asyncio.run(show_to_another_process(database))
