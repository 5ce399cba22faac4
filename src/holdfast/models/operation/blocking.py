"""The blocking facade: the same objects, driven from an event loop in a background thread.

No second implementation: each method hands its coroutine to the loop and waits. The heartbeat goes on in
that thread whatever the script does, so a plain script or a `multiprocessing` worker can take part.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from .call import Call, SpawnedCall
from .callbacks import CallCallback, Maybe
from .errors import OperationEndedError, OperationFailedInfo
from .heartbeat import HeartbeatResult
from .logs import LogLevel
from .operation import Operation
from .starting import AsyncWork, PlainWork, Work
from .waiting import OnOperationFailed, SyncResult

if TYPE_CHECKING:
    from .ledger import Ledger

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, and a way to wait for what runs on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-blocking", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Coroutine[object, None, T]]) -> T:
        if threading.current_thread() is self._thread:
            raise OperationEndedError(
                "a blocking call was made from a callback, which would wait for itself; "
                "make the callback async and use the operation's own methods"
            )
        if self._loop.is_closed():
            raise OperationEndedError("this blocking ledger is closed; open another")
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while waiting: nothing goes on behind the caller's back
            raise

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        if not self._loop.is_closed():
            self.run(self._cancel_rest)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _cancel_rest(self) -> None:
        """What user code left running on the loop ends with it, instead of being destroyed half-way."""
        rest = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


class BlockingLedger:
    """`Ledger` for code without an event loop. Close it, or use it as a context manager."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._loop = LoopThread()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed

    def create_operation(
        self,
        *,
        participant_id: str | None = None,
        description: str | None = None,
        operation_id: str | None = None,
    ) -> BlockingOperation:
        async def create() -> Operation:
            return await self._ledger.create_operation(
                participant_id=participant_id, description=description, operation_id=operation_id
            )

        return BlockingOperation(self._loop, self._loop.run(create))

    def join_operation(self, operation_id: str, *, participant_id: str | None = None) -> BlockingOperation:
        async def join() -> Operation:
            return await self._ledger.join_operation(operation_id, participant_id=participant_id)

        return BlockingOperation(self._loop, self._loop.run(join))

    def recover(self) -> int:
        return self._loop.run(self._ledger.recover)

    def dispose(self, *, finish_cleanup: bool = True) -> None:
        self._loop.run(lambda: self._ledger.dispose(finish_cleanup=finish_cleanup))
        self._loop.close()

    def __enter__(self) -> BlockingLedger:
        self._loop.run(self._ledger.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()


class BlockingOperation:
    """`Operation`, blocking. The async one is `operation`, for worker processes and properties."""

    def __init__(self, loop: LoopThread, operation: Operation) -> None:
        self._loop = loop
        self.operation = operation

    @property
    def operation_id(self) -> str:
        return self.operation.operation_id

    @property
    def participant_id(self) -> str:
        return self.operation.participant_id

    @property
    def failure(self) -> OperationFailedInfo | None:
        return self.operation.failure

    def heartbeat(self) -> HeartbeatResult:
        return self._loop.run(self.operation.heartbeat)

    @overload
    def start_call(
        self, callback: None = None, *, description: str | None = None, fail_on_crash: bool = True
    ) -> BlockingCall[object]: ...

    @overload
    def start_call(
        self, callback: CallCallback[T], *, description: str | None = None, fail_on_crash: bool = True
    ) -> BlockingCall[T]: ...

    def start_call(
        self,
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> BlockingCall[T]:
        async def start() -> Call[T]:
            return await self.operation.start_call(
                callback or CallCallback[T](), description=description, fail_on_crash=fail_on_crash
            )

        return BlockingCall(self._loop, self._loop.run(start))

    @overload
    def spawn_call(
        self,
        work: AsyncWork[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> BlockingSpawnedCall[T]: ...

    @overload
    def spawn_call(
        self,
        work: PlainWork[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> BlockingSpawnedCall[T]: ...

    def spawn_call(
        self,
        work: Work[T],
        callback: CallCallback[T] | None = None,
        *,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> BlockingSpawnedCall[T]:
        """Plain functions run in threads, async ones on the background loop."""
        return self.spawn(
            lambda operation: operation.spawn_call(
                cast("PlainWork[T]", work), callback, description=description, fail_on_crash=fail_on_crash
            )
        )

    def spawn(self, start: Callable[[Operation], SpawnedCall[T]]) -> BlockingSpawnedCall[T]:
        """Spawn in any of the async operation's ways: `op.spawn(lambda o: o.exec_stdio_worker(...))`."""

        async def spawn() -> SpawnedCall[T]:
            return start(self.operation)

        return BlockingSpawnedCall(self._loop, self._loop.run(spawn))

    def sync(
        self, calls: Sequence[BlockingSpawnedCall[Any]], on_operation_failed: OnOperationFailed | None = None
    ) -> SyncResult:
        return self._loop.run(lambda: self.operation.sync([call.call for call in calls], on_operation_failed))

    @overload
    def wait_for_completion(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        on_operation_failed: OnOperationFailed | None = None,
        on_error: Callable[[Exception, str], Maybe[T]] | None = None,
    ) -> T: ...

    @overload
    def wait_for_completion(
        self,
        work: Callable[[], T],
        *,
        on_operation_failed: OnOperationFailed | None = None,
        on_error: Callable[[Exception, str], Maybe[T]] | None = None,
    ) -> T: ...

    def wait_for_completion(
        self,
        work: Callable[[], Maybe[T]],
        *,
        on_operation_failed: OnOperationFailed | None = None,
        on_error: Callable[[Exception, str], Maybe[T]] | None = None,
    ) -> T:
        return self._loop.run(
            lambda: self.operation.wait_for_completion(
                cast("Callable[[], Awaitable[T]]", work), on_operation_failed=on_operation_failed, on_error=on_error
            )
        )

    def log(self, message: str, level: LogLevel = LogLevel.INFO) -> None:
        self._loop.run(lambda: self.operation.log(message, level))

    def log_message(self, *, depth: int, message: str, level: LogLevel = LogLevel.INFO) -> None:
        self._loop.run(lambda: self.operation.log_message(depth=depth, message=message, level=level))

    def add_temp_resource(self, path: str | os.PathLike[str]) -> None:
        self._loop.run(lambda: self.operation.add_temp_resource(path))

    def remove_temp_resource(self, path: str | os.PathLike[str]) -> None:
        self._loop.run(lambda: self.operation.remove_temp_resource(path))

    def complete(self) -> None:
        self._loop.run(self.operation.complete)

    def abort(self, reason: str = "aborted") -> None:
        self._loop.run(lambda: self.operation.abort(reason))

    def leave(self, *, cancel_pending: bool = False) -> None:
        self._loop.run(lambda: self.operation.leave(cancel_pending=cancel_pending))

    def __enter__(self) -> BlockingOperation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(lambda: self.operation.__aexit__(kind, error, trace))


class BlockingCall(Generic[T]):
    """`Call`, blocking."""

    def __init__(self, loop: LoopThread, call: Call[T]) -> None:
        self._loop = loop
        self.call = call

    @property
    def call_id(self) -> str:
        return self.call.call_id

    def end(self, result: T | None = None) -> None:
        self._loop.run(lambda: self.call.end(result))

    def fail(self, error: BaseException | str, stack_trace: str | None = None) -> None:
        self._loop.run(lambda: self.call.fail(error, stack_trace))

    def add_temp_resource(self, path: str | os.PathLike[str]) -> None:
        self._loop.run(lambda: self.call.add_temp_resource(path))

    def remove_temp_resource(self, path: str | os.PathLike[str]) -> None:
        self._loop.run(lambda: self.call.remove_temp_resource(path))

    def __enter__(self) -> BlockingCall[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(lambda: self.call.__aexit__(kind, error, trace))


class BlockingSpawnedCall(Generic[T]):
    """`SpawnedCall`, blocking; its flags and result are those of `call`."""

    def __init__(self, loop: LoopThread, call: SpawnedCall[T]) -> None:
        self._loop = loop
        self.call = call

    @property
    def call_id(self) -> str:
        return self.call.call_id

    @property
    def result(self) -> T:
        return self.call.result

    @property
    def is_completed(self) -> bool:
        return self.call.is_completed

    @property
    def is_success(self) -> bool:
        return self.call.is_success

    @property
    def is_failed(self) -> bool:
        return self.call.is_failed

    @property
    def is_cancelled(self) -> bool:
        return self.call.is_cancelled

    def cancel(self) -> None:
        self._loop.run(self.call.cancel)

    def kill(self, signal_number: int = signal.SIGTERM) -> bool:
        return self.call.kill(signal_number)

    def wait(self) -> T:
        return self._loop.run(self.call.wait)
