"""`holdfast.current()`: what a task may know of the call it is in."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Final, TypeVar

from holdfast.core.codec import codec_for
from holdfast.core.errors import CallNotAllowedError

T = TypeVar("T")


class Current:
    """One attempt of one call."""

    def __init__(
        self,
        *,
        execution: str,
        promise: str,
        attempt: int,
        last_beat: str | None,
        on_beat: Callable[[str], None],
    ) -> None:
        self.execution = execution  # the text id of the execution that called, or of the task's own
        self.promise = promise
        self.attempt = attempt  # from 1
        self._last_beat = last_beat
        self._on_beat = on_beat
        self._loop = asyncio.get_running_loop()
        self._scope: asyncio.Timeout | None = None
        self._heartbeat_seconds: float | None = None

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this call: hand it to the outside world."""
        return self.promise

    @property
    def progress(self) -> Any:
        """What the last attempt said with its last heartbeat; None if nothing."""
        return None if self._last_beat is None else codec_for(Any).decode(self._last_beat)

    def progress_as(self, as_type: type[T]) -> T | None:
        return None if self._last_beat is None else codec_for(as_type).decode(self._last_beat)

    def heartbeat(self, progress: object = None) -> None:
        """Say that the call is alive. The last `progress` is given to the next attempt, should there be one."""
        annotation = Any if progress is None or type(progress) in _PLAIN else type(progress)
        self._last_beat = codec_for(annotation).encode(progress)
        self._loop.call_soon_threadsafe(self._beat)

    def watch(self, scope: asyncio.Timeout, seconds: float) -> None:
        """From now on each heartbeat moves this deadline on."""
        self._scope, self._heartbeat_seconds = scope, seconds

    def _beat(self) -> None:
        if self._scope is not None and self._heartbeat_seconds is not None and not self._scope.expired():
            self._scope.reschedule(self._loop.time() + self._heartbeat_seconds)
        self._on_beat(self._last_beat or "null")


_PLAIN: Final = (str, int, float, bool, list, dict)
CURRENT_CALL: Final[contextvars.ContextVar[Current | None]] = contextvars.ContextVar("holdfast_call", default=None)


def current() -> Current:
    """The call this code runs in; only inside a task."""
    found = CURRENT_CALL.get()
    if found is None:
        raise CallNotAllowedError("holdfast.current() is for code inside a task; this is not called by one")
    return found
