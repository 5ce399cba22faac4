"""What tells a worker to stop: SIGTERM, Ctrl-C, and a terminal that closes.

The event loop hears of signals when it turns. Code that never lets it turn would keep a worker from hearing any, so
the third is heard by Python itself, between two instructions of whatever runs. A process that is forked from a worker
hears them as any other program does: the loop of its parent would else take its signals for the parent's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

LAST: Final = 3
_STATUS: Final = 128  # as a shell has it: and the number of the signal
_STDERR: Final = 2
_STANDARD: Final = (0, 1, _STDERR)

_taken: set[signal.Signals] = set()  # those that a worker of this process hears


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
    terminals = standard_terminals()
    heard: list[int] = []
    told: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        let_go_of(terminals)
        if _is_new(number, heard) and len(heard) >= LAST:
            _leave(number)
        if callable(handler := loops[signal.Signals(number)]):
            handler(number, frame)

    def tell(number: int) -> None:
        if _is_new(number, told):
            asked.set()

    for number in numbers:
        loop.add_signal_handler(number, tell, number)
    _taken.update(numbers)
    loops = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, hear)
            signal.siginterrupt(number, False)
        yield asked
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        _taken.difference_update(numbers)


# ---------------------------------------------------------------------- around a fork

_blocked = threading.local()  # what this thread, which forks, had blocked before


def _put_off() -> None:
    """What comes while the child has its parent's handlers still waits until it has its own."""
    _blocked.before = signal.pthread_sigmask(signal.SIG_BLOCK, _taken)


def _go_on() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.before)


def _give_back() -> None:
    """In the child: `multiprocessing` ends the processes of a pool by SIGTERM, and means them alone."""
    if _taken:
        signal.set_wakeup_fd(-1)
    for number in _taken:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _taken.clear()
    _go_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_put_off, after_in_parent=_go_on, after_in_child=_give_back)


def _is_new(number: int, before: list[int]) -> bool:
    """Noted, if so. A terminal closes once, and its shell and the system each say it: nobody has become impatient."""
    is_new = signal.Signals(number).name != "SIGHUP" or number not in before
    if is_new:
        before.append(number)
    return is_new


def standard_terminals() -> list[int]:
    return [number for number in _STANDARD if os.isatty(number)]


def let_go_of(terminals: list[int]) -> None:
    """Whatever prints to one that is gone would fail, and that be recorded of the steps that may still finish."""
    for number in terminals:
        if not os.isatty(number):
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            os.close(nowhere)


def _leave(number: int) -> None:
    """Nothing is recorded and nothing given back: as if it had been killed."""
    with contextlib.suppress(OSError):
        os.write(_STDERR, b"holdfast: left at once; what was at work goes on elsewhere when the lease has run out\n")
    os._exit(_STATUS + number)
