"""What an attempt of a call is given: a context of its own, and all of its time (DESIGN section 6)."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from holdfast import Context
from tests.models.workflow.kit import Rig

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")


@pytest.mark.parametrize("timeout", [None, 30.0], ids=["in the lane", "with a deadline"])
async def test_what_a_task_sets_in_its_context_stays_there(rig: Rig, timeout: float | None) -> None:
    @rig.app.task(timeout=timeout)
    async def dirty() -> str:
        before = MARK.get()
        MARK.set("dirty")
        await asyncio.sleep(0)
        return f"{before} {MARK.get()}"

    @rig.app.task
    def plain() -> str:
        return MARK.get()

    @rig.app.workflow
    async def twice(ctx: Context) -> list[str]:
        return [await dirty(), await dirty(), await plain(), MARK.get()]

    handle = await twice.start()
    assert await rig.result(handle) == ["clean dirty", "clean dirty", "clean", "clean"]


async def test_the_time_that_a_plain_task_waits_for_a_thread_is_not_its_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    shift, tell = [0.0], loop.time
    monkeypatch.setattr(loop, "time", lambda: tell() + sum(shift))
    held, release = threading.Event(), threading.Event()

    @rig.app.task
    def hold() -> str:
        held.set()
        release.wait(30)
        return "held"

    @rig.app.task(timeout=30)
    def waits() -> str:
        return "ran"

    @rig.app.task
    async def releases() -> str:
        queue = worker.threads._calls  # type: ignore[attr-defined]
        while not held.is_set() or queue.empty():  # noqa: ASYNC110
            await asyncio.sleep(0)
        shift.append(60.0)  # longer than the timeout of the task that waits
        for _ in range(5):
            await asyncio.sleep(0)
        release.set()
        return "released"

    @rig.app.workflow
    async def three(ctx: Context) -> list[str]:
        return await ctx.all(ctx.invoke(hold), ctx.invoke(waits), ctx.invoke(releases))

    handle = await three.start()
    worker = await rig.make_worker(threads=1)
    await worker.run_until_idle()
    assert await handle.result() == ["held", "ran", "released"]
