"""What tells a worker to stop: SIGTERM, Ctrl-C, and a terminal that closes.

The event loop hears of signals when it turns. Code that never lets it turn would keep a worker from hearing any, so
the third is heard by Python itself, between two instructions of whatever runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

LAST: Final = 3
_STATUS: Final = 128  # as a shell has it: and the number of the signal
_STDERR: Final = 2


def stop_signals() -> list[signal.Signals]:
    """A program that was started to outlive its terminal (`nohup`) ignores that it closes."""
    found = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


@contextlib.contextmanager
def heard_signals() -> Iterator[asyncio.Event]:
    """An event that each of them sets; the third ends the process as it stands."""
    loop, asked, numbers = asyncio.get_running_loop(), asyncio.Event(), stop_signals()
    count = 0

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count >= LAST:
            _leave(number)
        if callable(told := loops[signal.Signals(number)]):
            told(number, frame)

    for number in numbers:
        loop.add_signal_handler(number, asked.set)
    loops = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, hear)
            signal.siginterrupt(number, False)
        yield asked
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _leave(number: int) -> None:
    """Nothing is recorded and nothing given back: as if it had been killed."""
    with contextlib.suppress(OSError):
        os.write(_STDERR, b"holdfast: left at once; what was at work goes on elsewhere when the lease has run out\n")
    os._exit(_STATUS + number)
