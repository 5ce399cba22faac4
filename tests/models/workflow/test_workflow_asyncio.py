"""asyncio's own tools inside a body: each a typed error with the line, and the engine unharmed (issue 3; DESIGN 7)."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Context, Status
from holdfast.core.errors import ForeignAwaitError
from holdfast.testing.audit import all_views
from tests.models.workflow.kit import Rig

Body = Callable[[], Awaitable[Any]]


async def noop() -> int:
    return 1


async def use_sleep() -> None:
    await asyncio.sleep(1)


async def use_sleep_zero() -> None:
    await asyncio.sleep(0)


async def use_timeout() -> None:
    async with asyncio.timeout(1):  # noqa: ASYNC100
        pass


async def use_timeout_none() -> None:
    async with asyncio.timeout(None):  # noqa: ASYNC100
        pass


async def use_wait_for() -> None:
    waiting = noop()
    try:
        await asyncio.wait_for(waiting, 1)
    finally:
        waiting.close()


async def use_gather() -> None:
    await asyncio.gather(noop())


async def use_create_task() -> None:
    await asyncio.create_task(noop())


async def use_ensure_future() -> None:
    await asyncio.ensure_future(noop())


async def use_task_group() -> None:
    async with asyncio.TaskGroup():
        pass


async def use_to_thread() -> None:
    await asyncio.to_thread(int)


async def use_future() -> None:
    await asyncio.Future()


async def use_event() -> None:
    await asyncio.Event().wait()


async def use_contended_lock() -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    await lock.acquire()


async def use_queue() -> None:
    await asyncio.Queue[int]().get()


async def use_get_event_loop() -> None:
    asyncio.get_event_loop().call_soon(print)


async def use_get_running_loop() -> None:
    await asyncio.get_running_loop().run_in_executor(None, int)


async def use_current_task() -> None:
    asyncio.current_task()


async def use_new_loop() -> None:
    loop = asyncio.new_event_loop()
    waiting = noop()
    try:
        loop.run_until_complete(waiting)
    finally:
        waiting.close()
        loop.close()


class Foreign:
    """What an await of another library yields."""

    def __await__(self) -> Any:
        yield "something of theirs"


async def use_foreign_awaitable() -> None:
    await Foreign()


USES: list[Body] = [
    use_sleep,
    use_sleep_zero,
    use_timeout,
    use_timeout_none,
    use_wait_for,
    use_gather,
    use_create_task,
    use_ensure_future,
    use_task_group,
    use_to_thread,
    use_future,
    use_event,
    use_contended_lock,
    use_queue,
    use_get_event_loop,
    use_get_running_loop,
    *([use_current_task] if sys.version_info < (3, 14) else []),  # since then there is none, see below
    use_new_loop,
    use_foreign_awaitable,
]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
async def test_a_tool_of_asyncio_in_a_body_strands_it_and_names_the_line(rig: Rig, use: Body) -> None:
    cleaned: list[str] = []

    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    @rig.app.workflow
    async def bad(ctx: Context) -> Any:
        try:
            await add(1)
            return await use()
        finally:
            cleaned.append("finally")

    @rig.app.workflow
    async def good(ctx: Context) -> int:
        return await add(1)

    handle = await bad.start()
    await rig.run()
    before = asyncio.all_tasks()
    assert await rig.status(handle) is Status.STRANDED
    error = await handle.error()
    assert error is not None
    assert error.type.endswith("ForeignAwaitError")
    assert use.__name__ in error.message
    assert __file__ in error.message
    assert cleaned == ["finally"]
    # The engine is unharmed: no task is left behind, and the worker goes on.
    assert asyncio.all_tasks() == before
    assert await rig.result(await good.start()) == 2
    gc.collect()


async def test_a_body_finds_no_task_of_asyncio(rig: Rig) -> None:
    """Where asking for it is no error: the engine's own is nothing that a body could cancel."""

    @rig.app.workflow
    async def curious(ctx: Context) -> bool:
        try:
            return asyncio.current_task() is None and asyncio.all_tasks() == set()
        except ForeignAwaitError:
            return True

    assert await rig.result(await curious.start()) is True
    assert asyncio.current_task() is not None


@pytest.mark.parametrize("use", ["start", "signal", "result", "sync"])
async def test_the_client_in_a_body_does_nothing_and_names_the_line(rig: Rig, use: str) -> None:
    """Every replay would start it again."""

    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    @rig.app.workflow
    async def other(ctx: Context) -> int:
        return await ctx.signal("number", int)

    waiting = await other.start()

    @rig.app.workflow
    async def bad(ctx: Context) -> None:
        match use:
            case "start":
                await add.options(queue="far").start(1)
            case "signal":
                await waiting.signal("number", 1)
            case "result":
                await waiting.result()
            case "sync":
                rig.app.sync.start(add, 1)
        await ctx.sleep(1)

    handle = await bad.start()
    await rig.run()
    assert await rig.status(handle) is Status.STRANDED
    error = await handle.error()
    assert error is not None
    assert error.type.endswith("ForeignAwaitError")
    assert __file__ in error.message
    assert "call the task or workflow itself" in error.message
    assert len(await all_views(rig.stores.store)) == 2
    assert await rig.status(waiting) is Status.AWAITING_PROMISE


async def test_gather_over_durable_calls_is_told_what_to_use_instead(rig: Rig) -> None:
    ran: list[int] = []

    @rig.app.task
    async def add(number: int) -> int:
        ran.append(number)
        return number

    @rig.app.workflow
    async def bad(ctx: Context) -> Any:
        return await asyncio.gather(add(1), add(2))

    handle = await bad.start()
    await rig.run()
    assert await rig.status(handle) is Status.STRANDED
    error = await handle.error()
    assert error is not None
    assert "ctx.all" in error.message
    assert ran == []


async def test_a_foreign_await_in_clean_up_of_a_body_leaves_nothing_behind(rig: Rig) -> None:
    """Its `finally` makes a durable call while the body is thrown away."""
    ran: list[str] = []

    @rig.app.task
    async def note() -> None:
        ran.append("note")

    @rig.app.workflow
    async def bad(ctx: Context) -> None:
        try:
            await Foreign()
        finally:
            await note()

    handle = await bad.start()
    await rig.run()
    assert await rig.status(handle) is Status.STRANDED
    assert ran == []
    gc.collect()


async def test_code_in_a_folder_that_is_called_asyncio_is_the_users(rig: Rig) -> None:
    scope: dict[str, Any] = {}
    text = "async def reserve(ctx): raise RuntimeError('sold out')"
    exec(compile(text, "/srv/asyncio/shop.py", "exec"), scope)
    reserve = rig.app.workflow(name="reserve")(scope["reserve"])
    handle = await reserve.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED


async def test_a_lock_that_nobody_holds_does_no_harm(rig: Rig) -> None:
    @rig.app.workflow
    async def fine(ctx: Context) -> int:
        async with asyncio.Lock():
            return 1

    assert await rig.result(await fine.start()) == 1


async def test_an_async_generator_of_the_user_works_in_a_body(rig: Rig) -> None:
    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        async def numbers() -> Any:
            for number in range(5):
                yield await add(number)

        found = []
        async for number in numbers():
            found.append(number)
            if number == 3:
                break
        return found

    handle = await work.start()
    await rig.make_worker(warm_most=0)
    assert await rig.result(handle) == [1, 2, 3]
    gc.collect()


async def test_a_cancellation_of_asyncio_raised_by_the_body_is_a_failure(rig: Rig) -> None:
    @rig.app.workflow
    async def bad(ctx: Context) -> None:
        raise asyncio.CancelledError("mine")

    handle = await bad.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED


async def test_a_body_may_call_its_tasks_from_helpers_of_its_own(rig: Rig) -> None:
    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    async def helper(number: int) -> int:
        return await add(await add(number))

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        return await helper(1)

    assert await rig.result(await work.start()) == 3
