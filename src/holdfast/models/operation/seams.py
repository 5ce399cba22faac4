"""Time as a parameter: what an operation asks of the world besides its files.

`SystemTime` is the real one. Tests hand in a virtual one, with the seed's constants passing in milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Time(Protocol):
    """The wall clock (for what is recorded), a monotonic clock (for what is observed), and waiting."""

    def now_us(self) -> int: ...

    def monotonic_us(self) -> int: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemTime:
    """The machine's own clocks and the event loop's timers."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
