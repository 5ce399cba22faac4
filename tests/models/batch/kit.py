"""What the tests of batches share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import RetryPolicy
from holdfast.models.batch.items import BatchItem
from holdfast.models.batch.run import BatchRun

AT_ONCE = RetryPolicy(max_attempts=3, initial_delay=0)
NO_RETRY = RetryPolicy(max_attempts=1)


async def committed(run: BatchRun[Any], start: int = 0) -> list[BatchItem[Any]]:
    return [item async for item in run.committed(start)]


async def outcomes(run: BatchRun[Any]) -> list[str]:
    return [item.outcome for item in await committed(run)]


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Let the loop run until something holds; `no_hang` bounds it."""
    while True:
        held = condition()
        if (await held) if isinstance(held, Awaitable) else held:
            return
        await asyncio.sleep(0.001)
