"""Says where an event loop stands that does not turn: code that never awaits holds up everything else of its worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import traceback
from time import monotonic
from typing import Final

log = logging.getLogger("holdfast.engine")

STILL_SECONDS = 5.0
_FRAMES: Final = 4


class Standstill:
    """Made on the loop; `look` is called now and then in another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._turned = threading.Event()
        self._turned.set()
        self._asked_at = 0.0
        self._in_vain = 0
        self._is_said = False

    def look(self) -> None:
        still_seconds = monotonic() - self._asked_at
        if self._turned.is_set():
            if self._is_said:
                log.warning("the event loop turns again, after %.0f s", still_seconds)
            self._asked_at, self._in_vain, self._is_said = monotonic(), 0, False
            self._turned.clear()
            with contextlib.suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._turned.set)
            return
        self._in_vain += 1
        # Once in vain is not enough: of a process that was stopped, this thread may be the first to go on.
        if self._in_vain > 1 and still_seconds >= STILL_SECONDS and not self._is_said:
            self._is_said = True
            log.warning(
                "the event loop has stood still for %.0f s: all else that this worker has at work waits, and it hears "
                "no signal to stop. Await there, or make it a plain `def`, which runs in a thread. It is in:\n%s",
                still_seconds,
                self._where(),
            )

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread)
        return (
            "".join(traceback.format_stack(frame)[-_FRAMES:]).rstrip() if frame is not None else "(its thread is gone)"
        )
