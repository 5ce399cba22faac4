"""Starting calls in an operation: by hand, in the background, and as worker processes.

`CallStarter` is what `Operation` has of this; the calls themselves are in `call`, their records in `callbook`, worker
processes in `workers`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar, cast, overload

from .call import Call, SpawnedCall
from .callbacks import CallCallback, Maybe
from .callbook import CallBook
from .opening import Opening
from .participation import Participation
from .workers import Command, run_file_result_worker, run_stdio_worker

T = TypeVar("T")
# Work may be plain or async, and may take the call. Kept apart so that the result's type is inferred.
AsyncWork: TypeAlias = Callable[[], Awaitable[T]] | Callable[[SpawnedCall[T]], Awaitable[T]]
PlainWork: TypeAlias = Callable[[], T] | Callable[[SpawnedCall[T]], T]
Work: TypeAlias = Callable[[], Maybe[T]] | Callable[[SpawnedCall[T]], Maybe[T]]


class CallStarter:
    """The ways to start a call; each returns its handle."""

    def __init__(self, part: Participation) -> None:
        self._part = part
        self._book = CallBook(part)

    @overload
    def start_call(
        self, callback: None = None, *, description: str | None = None, fail_on_crash: bool = True
    ) -> Opening[Call[object]]: ...

    @overload
    def start_call(
        self, callback: CallCallback[T], *, description: str | None = None, fail_on_crash: bool = True
    ) -> Opening[Call[T]]: ...

    def start_call(
        self,
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> Opening[Call[T]]:
        """Start a tracked call: `await` it, or `async with` it to have it ended or failed."""
        return Opening(lambda: self._book.start(callback, description, fail_on_crash))

    @overload
    def spawn_call(
        self,
        work: AsyncWork[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]: ...

    @overload
    def spawn_call(
        self,
        work: PlainWork[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]: ...

    def spawn_call(
        self,
        work: Work[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]:
        """Run `work` in the background; it may take the `SpawnedCall` as its argument. Returns at once."""
        return self._book.spawn(_with_call(work), callback, description, fail_on_crash)

    def exec_file_result_worker(
        self,
        executable: str,
        arguments: Sequence[str] = (),
        *,
        result_file_path: str | os.PathLike[str],
        deserializer: Callable[[str], T],
        result_renamed: bool = False,
        on_exit: Callable[[int], Maybe[None]] | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> SpawnedCall[T]:
        """Run a process that writes its result to a file.

        The file is read when the process has exited. With `result_renamed=True` the worker promises to rename
        the finished file into place: it is then read as soon as it appears, and the process is stopped.
        """
        command = Command(executable, arguments, env, cwd, on_exit)
        path = Path(result_file_path)

        async def work(call: SpawnedCall[T]) -> T:
            return await run_file_result_worker(self._part, call, command, path, deserializer, result_renamed)

        return self._book.spawn(work, callback, description or f"worker {executable}", fail_on_crash)

    def exec_stdio_worker(
        self,
        executable: str,
        arguments: Sequence[str] = (),
        *,
        deserializer: Callable[[str], T],
        on_exit: Callable[[int], Maybe[None]] | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> SpawnedCall[T]:
        """Run a process that prints its result on stdout."""
        command = Command(executable, arguments, env, cwd, on_exit)

        async def work(call: SpawnedCall[T]) -> T:
            return await run_stdio_worker(self._part, call, command, deserializer)

        return self._book.spawn(work, callback, description or f"worker {executable}", fail_on_crash)

    @overload
    def exec_server_request(
        self,
        work: AsyncWork[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]: ...

    @overload
    def exec_server_request(
        self,
        work: PlainWork[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]: ...

    def exec_server_request(
        self,
        work: Work[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]:
        """A request to a server as a spawned call."""
        return self._book.spawn(_with_call(work), callback, description or "server request", fail_on_crash)


def _with_call(work: Work[T]) -> Callable[[SpawnedCall[T]], Maybe[T]]:
    """Work that takes no argument, as work that takes the call and ignores it."""
    try:
        parameters = list(inspect.signature(work).parameters.values())
    except (TypeError, ValueError):  # some built-in functions have no signature
        parameters = []
    wanted = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if wanted:
        return cast("Callable[[SpawnedCall[T]], Maybe[T]]", work)
    plain = cast("Callable[[], Maybe[T]]", work)
    if inspect.iscoroutinefunction(plain):

        async def run(_call: SpawnedCall[T]) -> T:
            value: T = await plain()
            return value

        return run
    return lambda _call: plain()
