"""`Call[T]` and `SpawnedCall[T]`: the two handles of tracked work. How they are recorded is in `callbook`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from .callbacks import CallCallback, Maybe, resolve
from .errors import CallFailedError, CallStateError, OperationFailedError

if TYPE_CHECKING:
    from .callbook import CallBook

T = TypeVar("T")


class CallState(Enum):
    OPEN = "open"
    ENDING = "ending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CRASHED = "crashed"
    LOST = "lost"  # still running when the operation failed

    @property
    def settled(self) -> bool:
        return self not in (CallState.OPEN, CallState.ENDING)


class Process(Protocol):
    """What `kill()` needs of an attached process; `subprocess.Popen` and asyncio's both have it."""

    def send_signal(self, signal: int) -> None: ...


class TrackedCall(Generic[T]):
    """What both kinds have: an id, callbacks, temporary resources and one outcome."""

    def __init__(
        self,
        book: CallBook,
        call_id: str,
        callback: CallCallback[T] | None,
        description: str | None,
        fail_on_crash: bool,
    ) -> None:
        self._book = book
        self.call_id = call_id
        self.callback: CallCallback[T] = callback or CallCallback()
        self.description = description
        self.fail_on_crash = fail_on_crash
        self.state = CallState.OPEN
        self.resources: tuple[str, ...] = ()
        self.cleanup_begun = False

    async def add_temp_resource(self, path: str | os.PathLike[str]) -> None:
        """Have `path` deleted when this call ends, fails or is cleaned up."""
        await self._book.add_resource(self, path)

    async def remove_temp_resource(self, path: str | os.PathLike[str]) -> None:
        """Keep `path` after all: it is no longer temporary."""
        await self._book.remove_resource(self, path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.call_id} {self.state.value}>"


class Call(TrackedCall[T]):
    """Work that the caller does itself; `end` or `fail` it once. Also an async context manager."""

    async def end(self, result: T | None = None) -> None:
        """End successfully, with an optional result for `on_completion`."""
        await self._book.end(self, result)

    async def fail(self, error: BaseException | str, stack_trace: str | None = None) -> None:
        """End with an error, which goes to the log with its trace."""
        await self._book.fail(self, error, stack_trace)

    async def __aenter__(self) -> Call[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state.settled:
            return
        if error is None:
            await self.end()
        else:
            await self._book.fail_quietly(self, error)


class SpawnedCall(TrackedCall[T]):
    """Work in the background. `call_id` is there at once; `wait()` gives the typed result."""

    def __init__(
        self,
        book: CallBook,
        call_id: str,
        callback: CallCallback[T] | None,
        description: str | None,
        fail_on_crash: bool,
    ) -> None:
        super().__init__(book, call_id, callback, description, fail_on_crash)
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self._values: list[T] = []
        self._settled = asyncio.Event()
        self._cancelled = False
        self._on_cancel: Callable[[], Maybe[None]] | None = None
        self._process: Process | None = None

    @property
    def is_completed(self) -> bool:
        return self.state.settled

    @property
    def is_success(self) -> bool:
        return self.state is CallState.SUCCEEDED

    @property
    def is_failed(self) -> bool:
        return self.state.settled and not self.is_success

    @property
    def is_cancelled(self) -> bool:
        """Whether cancellation was asked for; work looks at this and returns early."""
        return self._cancelled

    @property
    def result(self) -> T:
        """The result of a call that succeeded."""
        if not self._values:
            raise CallStateError(f"call {self.call_id} has no result: it is {self.state.value}; await wait() first")
        return self._values[0]

    async def settled(self) -> None:
        """Wait until the call is over, however it ended; raises nothing of its outcome."""
        await self._settled.wait()

    async def wait(self) -> T:
        """Wait for the result; raises `CallFailedError` with the cause chained, or `OperationFailedError`."""
        await self._settled.wait()
        if self._values:
            return self._values[0]
        if isinstance(self.error, OperationFailedError):
            raise self.error
        raise CallFailedError(
            f"call {self.call_id} {self.state.value}: {type(self.error).__name__}: {self.error}"
        ) from self.error

    def __await__(self) -> Generator[object, None, T]:
        return self.wait().__await__()

    async def cancel(self) -> None:
        """Ask the work to stop: sets `is_cancelled` and runs the cancellation callback, once."""
        if self._cancelled or self.state.settled:
            return
        self._cancelled = True
        if self._on_cancel is not None:
            await resolve(self._on_cancel())

    def on_cancel(self, callback: Callable[[], Maybe[None]]) -> None:
        """Set what `cancel()` calls besides raising the flag."""
        self._on_cancel = callback

    def attach_process(self, process: Process) -> None:
        """Make `kill()` reach this process, and cleanup stop it."""
        self._process = process

    def detach_process(self) -> None:
        self._process = None

    def kill(self, signal_number: int = signal.SIGTERM) -> bool:
        """Send a signal to the attached process; False if there is none or it is gone."""
        if self._process is None:
            return False
        try:
            self._process.send_signal(signal_number)
        except ProcessLookupError:
            return False
        return True

    def succeed(self, value: T) -> None:
        self._values.append(value)
        self.settle(CallState.SUCCEEDED)

    def settle(self, state: CallState, error: BaseException | None = None) -> None:
        """The one outcome. Called by the call book only."""
        self.state = state
        self.error = error
        self._settled.set()
