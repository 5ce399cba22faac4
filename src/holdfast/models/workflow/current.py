"""`holdfast.current()`: what a task may know of the call it is in."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import UNSET, Struct, field

from holdfast.core.codec import annotation_of, codec_for
from holdfast.core.errors import CallNotAllowedError
from holdfast.engine.processes import say
from holdfast.models.operation.operation import Operation
from holdfast.models.operation.owned import open_operation
from holdfast.models.operation.timing import Timing

T = TypeVar("T")

Facts: TypeAlias = tuple[str, str, int, str | None, str | None]


def _ignore(promise: str, text: str) -> None:
    pass


class Current(Struct, eq=False):
    """One attempt of one call: `attempt` counts from 1, `execution` is the id of who called, or of the task's own."""

    execution: str
    promise: str
    attempt: int
    _last_beat: str | None = None
    _key: str | None = None  # what an earlier run has called it by, of which this one is a retry
    _on_beat: Callable[[str, str], None] = _ignore  # progress that is kept
    # None in a process of its own, where nothing asks for it.
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio._get_running_loop)  # type: ignore[assignment]
    _scope: asyncio.Timeout | None = None
    _heartbeat_seconds: float | None = None

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this call, also in a retry of its run: hand it to the outside world."""
        return self._key or self.promise

    @property
    def progress(self) -> Any:
        """What the last attempt said with its last heartbeat; None if nothing."""
        return None if self._last_beat is None else codec_for(Any).decode(self._last_beat)

    def progress_as(self, as_type: type[T]) -> T | None:
        """`progress`, checked against a type if there is any."""
        beat = self._last_beat
        return None if beat is None or beat == "null" else codec_for(as_type).decode(beat)

    def heartbeat(self, progress: object = UNSET) -> None:
        """Say that the call is alive. The last `progress` is given to the next attempt, should there be one.

        Without one, what was said before stays. None is one: that there is no progress to go on from.
        """
        self.hear(None if progress is UNSET else codec_for(annotation_of(progress)).encode(progress))

    def hear(self, text: str | None) -> None:
        """A heartbeat, with its progress as JSON if it has one; from any thread."""
        if text is not None:
            self._last_beat = text
        if asyncio._get_running_loop() is self._loop:
            self._beat(text)  # at once: the attempt may end before the loop comes to anything else
        else:
            self._loop.call_soon_threadsafe(self._beat, text)

    @property
    def facts(self) -> Facts:
        """What another process needs to know of it."""
        return self.execution, self.promise, self.attempt, self._last_beat, self._key

    def operation(
        self,
        folder: str | os.PathLike[str],
        *,
        join: str | None = None,
        participant_id: str | None = None,
        description: str | None = None,
        timing: Timing | None = None,
    ) -> AbstractAsyncContextManager[Operation]:
        """Own an operation of several processes for a block of this attempt, or take part in one (`join=id`).

        Each attempt makes an operation of its own: that of an attempt that died has failed, and is history.
        """
        return open_operation(
            folder,
            join=join,
            participant_id=participant_id,
            description=description or f"attempt {self.attempt} of call {self.promise}",
            timing=timing,
        )

    def watch(self, scope: asyncio.Timeout, seconds: float) -> None:
        """From now on each heartbeat moves this deadline on."""
        self._scope, self._heartbeat_seconds = scope, seconds

    def _beat(self, text: str | None) -> None:
        if self._scope is not None and self._heartbeat_seconds is not None and not self._scope.expired():
            with contextlib.suppress(RuntimeError):  # the thread of an attempt that was given up beats on
                self._scope.reschedule(self._loop.time() + self._heartbeat_seconds)
        if text is not None:
            self._on_beat(self.promise, text)


class CurrentElsewhere(Current):
    """The same in a process of the worker's pool; heartbeats are told to the worker."""

    def hear(self, text: str | None) -> None:
        if text is not None:
            self._last_beat = text
        say(text)


CURRENT_CALL: Final[contextvars.ContextVar[Current | None]] = contextvars.ContextVar("holdfast_call", default=None)


def current() -> Current:
    """The call this code runs in; only inside a task."""
    found = CURRENT_CALL.get()
    if found is None:
        raise CallNotAllowedError("holdfast.current() is for code inside a task; this is not called by one")
    return found
