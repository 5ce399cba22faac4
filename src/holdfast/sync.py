"""The blocking facade: the same calls for programs without an event loop. It only drives the async ones."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from os import PathLike
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, overload

from holdfast.core.durations import Duration
from holdfast.core.error_record import ErrorRecord
from holdfast.core.errors import ClosedError, ConfigurationError, ForeignAwaitError, HoldfastError, InvalidArgumentError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import Event
from holdfast.core.status import Status
from holdfast.models.batch.definition import Batch, BatchResult
from holdfast.models.batch.items import BatchItem
from holdfast.models.batch.run import BatchRun
from holdfast.models.batch.start import BatchStarter
from holdfast.models.batch.status import BatchStatus, HeatCell
from holdfast.models.connection import Connection
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.start import FlowStarter
from holdfast.models.gathering import gather_results
from holdfast.models.handle import Collision, Handle
from holdfast.models.machine.definition import Machine, definition_of
from holdfast.models.machine.start import MachineStarter
from holdfast.models.options import StartOptions
from holdfast.models.workflow.definition import Workflow
from holdfast.models.workflow.divergence import refuse_in_body
from holdfast.models.workflow.progress import CallProgress
from holdfast.models.workflow.start import FunctionStarter
from holdfast.models.workflow.task import Task
from holdfast.store.nesting import asking
from holdfast.store.values import Delivery, ExecutionView, Transition

T = TypeVar("T")
StateT = TypeVar("StateT")
ItemT = TypeVar("ItemT")
P = ParamSpec("P")
R = TypeVar("R")
ResultT = TypeVar("ResultT", covariant=True)
NamedStart: TypeAlias = Callable[..., Coroutine[Any, Any, Handle[Any]]]


class SyncHandle(Generic[ResultT]):
    """`Handle`, blocking: the same methods; `handle` is the other one."""

    def __init__(self, app: SyncApp, handle: Handle[ResultT]) -> None:
        self._app = app
        self.handle = handle

    @property
    def id(self) -> PromiseId:
        return self.handle.id

    @property
    def label(self) -> str:
        return self.handle.label

    def resolve(self) -> PromiseId:
        return self._app.run(self.handle.resolve())

    def describe(self) -> ExecutionView:
        return self._app.run(self.handle.describe())

    def newest(self) -> PromiseId:
        return self._app.run(self.handle.newest())

    def status(self) -> Status:
        return self._app.run(self.handle.status())

    @overload
    def result(self, *, timeout: Duration | None = None) -> ResultT: ...
    @overload
    def result(self, as_type: type[T], *, timeout: Duration | None = None) -> T: ...
    def result(self, as_type: type[T] | None = None, *, timeout: Duration | None = None) -> Any:
        if as_type is None:
            return self._app.run(self.handle.result(timeout=timeout))
        return self._app.run(self.handle.result(as_type, timeout=timeout))

    def signal(self, name: str, payload: object = None, *, dedup_key: str | None = None) -> Delivery:
        return self._app.run(self.handle.signal(name, payload, dedup_key=dedup_key))

    def cancel(self, *, reason: str | None = None, cascade: bool = False, force: bool = False) -> Status:
        return self._app.run(self.handle.cancel(reason=reason, cascade=cascade, force=force))

    def pause(self) -> None:
        self._app.run(self.handle.pause())

    def resume(self) -> None:
        self._app.run(self.handle.resume())

    def fork(self, at: int) -> SyncHandle[ResultT]:
        return SyncHandle(self._app, self._app.run(self.handle.fork(at)))

    def retry(self) -> SyncHandle[ResultT]:
        return SyncHandle(self._app, self._app.run(self.handle.retry()))

    def published(self) -> dict[str, Any]:
        return self._app.run(self.handle.published())

    @overload
    def wait_published(
        self, name: str, *, until: Callable[[Any], bool] | None = None, timeout: Duration | None = None
    ) -> Any: ...
    @overload
    def wait_published(
        self,
        name: str,
        as_type: type[T],
        *,
        until: Callable[[T], bool] | None = None,
        timeout: Duration | None = None,
    ) -> T: ...
    def wait_published(
        self,
        name: str,
        as_type: Any = Any,
        *,
        until: Callable[[Any], bool] | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        return self._app.run(self.handle.wait_published(name, as_type, until=until, timeout=timeout))

    def progress(self) -> list[CallProgress]:
        return self._app.run(self.handle.progress())

    def history(self) -> Sequence[Transition]:
        return self._app.run(self.handle.history())

    def events(self) -> list[Event]:
        return self._app.run(self.handle.events())

    def error(self) -> ErrorRecord | None:
        return self._app.run(self.handle.error())


class SyncBatchRun(Generic[ResultT]):
    """`BatchRun`, blocking: the same methods. A source is read in the thread of `app.sync`."""

    def __init__(self, app: SyncApp, run: BatchRun[ResultT]) -> None:
        self._app = app
        self.batch_run = run

    @property
    def id(self) -> PromiseId:
        return self.batch_run.id

    @property
    def label(self) -> str:
        return self.batch_run.label

    def describe(self) -> ExecutionView:
        return self._app.run(self.batch_run.describe())

    def status(self) -> BatchStatus:
        return self._app.run(self.batch_run.status())

    def heat(self, cells: int = 200) -> list[HeatCell]:
        return self._app.run(self.batch_run.heat(cells))

    def fed(self) -> None:
        self._app.run(self.batch_run.fed())

    def result(self, *, timeout: Duration | None = None) -> BatchResult:
        return self._app.run(self.batch_run.result(timeout=timeout))

    def committed(self, start: int = 0) -> Iterator[BatchItem[ResultT]]:
        items = self.batch_run.committed(start)
        try:
            while (item := self._app.run(_next(items))) is not None:
                yield item
        finally:
            if not self._app.is_closed:
                self._app.run(_close(items))

    def failed(self, after: int = -1, limit: int = 100) -> list[BatchItem[ResultT]]:
        return self._app.run(self.batch_run.failed(after, limit))

    def retry_failed(self) -> SyncBatchRun[ResultT]:
        return SyncBatchRun(self._app, self._app.run(self.batch_run.retry_failed()))

    def cancel(self, *, reason: str | None = None, force: bool = False) -> Status:
        return self._app.run(self.batch_run.cancel(reason=reason, force=force))

    def pause(self) -> None:
        self._app.run(self.batch_run.pause())

    def resume(self) -> None:
        self._app.run(self.batch_run.resume())

    def close_intake(self) -> int:
        return self._app.run(self.batch_run.close_intake())


class _Call(Generic[T]):
    """Work that its caller may leave at any moment, also while it is handed over to the loop."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_left = False

    async def carry_out(self) -> T:
        self._task = asyncio.current_task()
        if self._is_left:
            self._work.close()
            raise asyncio.CancelledError
        return await self._work

    def leave(self) -> None:
        """On the loop: nobody waits for it any more."""
        self._is_left = True
        if self._task is not None:
            self._task.cancel()


class SyncApp:
    """An event loop in a thread of its own; `run` blocks until a coroutine on it is done."""

    def __init__(
        self,
        connection: Connection,
        handle: Callable[..., Handle[Any]],
        start_by_name: NamedStart,
        signal_with_start_by_name: NamedStart,
        batch_run: Callable[..., BatchRun[Any]],
        search: Callable[..., Coroutine[Any, Any, list[Handle[Any]]]],
    ) -> None:
        self._connection = connection
        self._handle = handle
        self._start_by_name = start_by_name
        self._signal_with_start_by_name = signal_with_start_by_name
        self._batch_run = batch_run
        self._search = search
        self._beginning = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-sync", daemon=True)
        self._thread.start()
        self._process = os.getpid()

    def _begin_after_fork(self) -> None:
        """A fork copies no threads: servers and pools that fork would wait for the loop of their parent for ever."""
        with self._beginning:
            if self._process != os.getpid():
                self._begin()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Any coroutine of this app's, to its end."""
        if self._process != os.getpid():
            self._begin_after_fork()
        try:
            refuse_in_body("app.sync")
        except ForeignAwaitError:
            work.close()
            raise
        if self.is_closed:
            work.close()
            raise ConfigurationError("the app was closed; use `app.sync` again to open it anew")
        call = _Call(work)
        try:
            with asking():
                running = asyncio.run_coroutine_threadsafe(call.carry_out(), self._loop)
            return running.result()
        except concurrent.futures.CancelledError:
            raise ClosedError("the app was closed during this call; use `app.sync` again to open it anew") from None
        except BaseException:  # of the call, which has ended then; or of a signal's handler, here
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call.leave)
            raise

    @overload
    def start(
        self, definition: type[Machine[StateT]] | MachineStarter[StateT], state: StateT, /
    ) -> SyncHandle[Any]: ...
    @overload
    def start(
        self, definition: Workflow[P, R] | Task[P, R] | FunctionStarter[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncHandle[R]: ...
    @overload
    def start(self, definition: Flow | FlowStarter, /, *args: Any, **kwargs: Any) -> SyncHandle[Any]: ...
    @overload
    def start(
        self,
        definition: Batch[ItemT, R] | BatchStarter[ItemT, R],
        source: Iterable[ItemT] | AsyncIterable[ItemT] | PathLike[str],
        /,
    ) -> SyncBatchRun[R]: ...
    def start(self, definition: Any, /, *args: Any, **kwargs: Any) -> SyncHandle[Any] | SyncBatchRun[Any]:
        """Start a machine, a workflow, a task, a flow or a batch; or what its `.options(...)` gave."""
        started = self.run(starter_of(definition).start(*args, **kwargs))
        return SyncBatchRun(self, started) if isinstance(started, BatchRun) else SyncHandle(self, started)

    @overload
    def start_many(self, definition: type[Machine[StateT]], inputs: Iterable[StateT], /) -> list[SyncHandle[Any]]: ...
    @overload
    def start_many(
        self, definition: MachineStarter[StateT], inputs: Iterable[StateT], /
    ) -> list[SyncHandle[Any] | Collision]: ...
    @overload
    def start_many(
        self, definition: Workflow[..., R] | Task[..., R], inputs: Iterable[Any], /
    ) -> list[SyncHandle[R]]: ...
    @overload
    def start_many(
        self, definition: FunctionStarter[..., R], inputs: Iterable[Any], /
    ) -> list[SyncHandle[R] | Collision]: ...
    @overload
    def start_many(self, definition: Flow, inputs: Iterable[Any], /) -> list[SyncHandle[Any]]: ...
    def start_many(self, definition: Any, inputs: Iterable[Any], /) -> Any:
        """Start many in one commit. With a key or `unique` in `.options(...)`, a `Collision` says what was refused."""
        started = self.run(starter_of(definition).start_many(inputs))
        return [item if isinstance(item, Collision) else SyncHandle(self, item) for item in started]

    @overload
    def results(self, handles: Sequence[SyncHandle[R]], *, timeout: Duration | None = None) -> list[R]: ...
    @overload
    def results(
        self, handles: Sequence[SyncHandle[R]], *, timeout: Duration | None = None, return_exceptions: bool
    ) -> list[R | HoldfastError]: ...
    def results(
        self, handles: Sequence[SyncHandle[Any]], *, timeout: Duration | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """As `app.results`."""
        bare = [item.handle if isinstance(item, SyncHandle) else item for item in handles]
        return self.run(gather_results(self._connection, bare, timeout=timeout, return_exceptions=return_exceptions))

    def start_by_name(self, name: str, value: Any = None, /, **options: Unpack[StartOptions]) -> SyncHandle[Any]:
        """As `app.start_by_name`."""
        return SyncHandle(self, self.run(self._start_by_name(name, value, **options)))

    @overload
    def signal_with_start(
        self, definition: MachineStarter[StateT], name: str, payload: object, state: StateT, /
    ) -> SyncHandle[Any]: ...
    @overload
    def signal_with_start(
        self, definition: FunctionStarter[P, R], name: str, payload: object, /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncHandle[R]: ...
    def signal_with_start(
        self, definition: Any, name: str, payload: object, /, *args: Any, **kwargs: Any
    ) -> SyncHandle[Any]:
        """Start what `.options(key=...)` gave, unless its key has been started before, and signal it, in one commit."""
        return SyncHandle(self, self.run(starter_of(definition).signal_with_start(name, payload, *args, **kwargs)))

    def signal_with_start_by_name(
        self, name: str, signal: str, payload: object = None, value: Any = None, /, **options: Unpack[StartOptions]
    ) -> SyncHandle[Any]:
        """As `app.signal_with_start_by_name`."""
        return SyncHandle(self, self.run(self._signal_with_start_by_name(name, signal, payload, value, **options)))

    def search(
        self,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        *,
        name: str | None = None,
        statuses: Sequence[Status | str] = (),
        limit: int = 100,
    ) -> list[SyncHandle[Any]]:
        """As `app.search`."""
        found = self.run(self._search(attributes, name=name, statuses=statuses, limit=limit))
        return [SyncHandle(self, handle) for handle in found]

    def batch_run(self, target: str | PromiseId, *, key: str | None = None) -> SyncBatchRun[Any]:
        """As `app.batch_run`."""
        return SyncBatchRun(self, self._batch_run(target, key=key))

    def handle(self, target: str | PromiseId, *, key: str | None = None) -> SyncHandle[Any]:
        """As `app.handle`."""
        return SyncHandle(self, self._handle(target, key=key))

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Close the app, and end the thread; `app.sync` begins another one."""
        if self.is_closed or self._process != os.getpid():  # what the parent opened is the parent's to close
            return
        self.run(self._connection.close())
        self.run(_cancel_others())  # whose threads would wait for ever once the loop stands still
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def starter_of(definition: Any) -> Any:
    """What starts it: of a machine its starter; all else that an app declared, and its options, start themselves."""
    if isinstance(definition, type):
        return definition_of(definition).starter()
    if not callable(getattr(definition, "start", None)):
        raise InvalidArgumentError(
            f"{definition!r:.100} is not declared on an app: decorate it, with @app.workflow or another, and give that"
        )
    return definition


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)


async def _close(items: AsyncIterator[Any]) -> None:
    if isinstance(items, AsyncGenerator):
        await items.aclose()
