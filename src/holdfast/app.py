"""`App`: what a program declares its definitions on, starts them from and works them with."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, Unpack, overload

from holdfast.core.codec import DEFAULT_MAX_BYTES
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import ConfigurationError, HoldfastError, InvalidArgumentError, NotFoundError
from holdfast.core.identity import IdQuery, PromiseId, check_name
from holdfast.core.status import Status
from holdfast.declaring import Declarations
from holdfast.engine.runner import Runner
from holdfast.engine.settings import WorkerOptions, WorkerSettings
from holdfast.engine.upkeep import StrandedSweep
from holdfast.engine.worker import Worker
from holdfast.models.batch.chunk_runner import ChunkRunner
from holdfast.models.batch.coordinator import RunRunner
from holdfast.models.batch.definition import Batch, BatchResult
from holdfast.models.batch.run import BatchRun
from holdfast.models.batch.start import BatchStarter
from holdfast.models.check import Checked, Checker
from holdfast.models.connection import Connection
from holdfast.models.definitions import NamedStarter, definitions_of
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.letters import DeadLetters
from holdfast.models.flow.runner import FlowRunner
from holdfast.models.flow.start import FlowStarter
from holdfast.models.gathering import gather_results
from holdfast.models.handle import Handle
from holdfast.models.hooks import HookRunner
from holdfast.models.machine.definition import Machine
from holdfast.models.machine.runner import MachineRunner
from holdfast.models.machine.start import MachineStarter
from holdfast.models.options import Options, StartOptions, check_limits, check_queue
from holdfast.models.schedule import Scheduler, Schedules
from holdfast.models.starting import Arrived
from holdfast.models.workflow.definition import Workflow
from holdfast.models.workflow.runner import WorkflowRunner
from holdfast.models.workflow.start import FunctionStarter
from holdfast.models.workflow.task import Task
from holdfast.models.workflow.task_runner import TaskRunner
from holdfast.store import store_from_url
from holdfast.store.base import Store
from holdfast.store.values import Definition, ExecutionFilter, NewExecution, QueueSettings
from holdfast.sync import SyncApp, starter_of

DATABASE_VARIABLE: Final = "HOLDFAST_DATABASE"
DEFAULT_DATABASE: Final = "holdfast.db"

StateT = TypeVar("StateT")
ItemT = TypeVar("ItemT")
P = ParamSpec("P")
R = TypeVar("R")


class App(Declarations):
    """`store` is a path, a URL, or a store; without one HOLDFAST_DATABASE, or ./holdfast.db.

    Nothing is opened until it is used. `async with app:` closes it at the end. `name` is for people: what is declared
    is known by its own name, so two programs that share a ledger share what they name alike. `release` tells one
    deploy from another, such as a commit's hash, where what is declared is the same and what it calls is not.
    """

    def __init__(
        self,
        name: str,
        store: str | PathLike[str] | Store | None = None,
        *,
        payload_limit: int = DEFAULT_MAX_BYTES,
        release: str | None = None,
    ) -> None:
        self.name = check_name(name, "an app")
        if release is not None and not isinstance(release, str):
            raise InvalidArgumentError(f"release is a text, such as a commit's hash, not {release!r:.100}")
        if isinstance(payload_limit, bool) or not isinstance(payload_limit, int) or payload_limit < 1:
            raise InvalidArgumentError(f"payload_limit is a number of bytes, not {payload_limit!r}")
        self._set_store(store if store is not None else os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE)
        super().__init__(Connection(self._make_store, payload_limit), release)
        self._sync: SyncApp | None = None
        self._sync_guard = threading.Lock()

    def _set_store(self, store: str | PathLike[str] | Store) -> None:
        """A bad URL is found here, where it was written; and a path is one from the folder that is the current one now,
        for all that is opened later."""
        given = os.fspath(store) if isinstance(store, PathLike) else store
        if not isinstance(given, str) and not callable(getattr(given, "sibling", None)):
            raise InvalidArgumentError(f"store is a path, a URL or a store, not {store!r:.100}")
        self._first_store = store_from_url(given) if isinstance(given, str) else given
        self._store = given
        self._has_given_store = False

    def _make_store(self) -> Store:
        """One for each event loop: the first serves the first, its siblings the others."""
        if self._has_given_store:
            return self._first_store.sibling()
        self._has_given_store = True
        return self._first_store

    # ------------------------------------------------------------------ starting and finding

    def batch_run(self, target: str | PromiseId, *, key: str | None = None) -> BatchRun[Any]:
        """A run of a batch: by the batch's name and a key, or by an id, as in `handle`."""
        found, name = _named(target, key)
        return BatchRun(self._connection, found, name=name)

    def handle(self, target: str | PromiseId, *, key: str | None = None) -> Handle[Any]:
        """By definition name and key; or by an id, or any unambiguous prefix of one (`Shipment/4f7a9c21`)."""
        found, name = _named(target, key)
        return Handle(self._connection, found, name=name)

    @overload
    async def results(self, handles: Sequence[Handle[R]], *, timeout: Duration | None = None) -> list[R]: ...
    @overload
    async def results(
        self, handles: Sequence[Handle[R]], *, timeout: Duration | None = None, return_exceptions: bool
    ) -> list[R | HoldfastError]: ...
    async def results(
        self, handles: Sequence[Handle[Any]], *, timeout: Duration | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for all of them: their results, in their order. For thousands it is far cheaper than a `gather`.

        The first that fails is raised, as `handle.result()` would, and the others go on; with `return_exceptions` the
        errors are in the list. `TimeoutError` after `timeout`, which leaves the executions alone.
        """
        return await gather_results(self._connection, handles, timeout=timeout, return_exceptions=return_exceptions)

    async def start_by_name(self, name: str, value: Any = None, /, **options: Unpack[StartOptions]) -> Handle[Any]:
        """Start what workers of this ledger have code for, and this process need not: with a mapping of its arguments.

        A machine takes its state, a batch `{"items": [...]}`. It is the newest version; options as in `.options(...)`.
        Where this process has its code, an argument of the wrong type is refused; else a worker finds it. An item of a
        batch that cannot be read fails, and the others run.
        """
        return (await self._start_or_find(name, value, **options))[0]

    async def _start_or_find(
        self, name: str, value: Any = None, code: App | None = None, /, **options: Unpack[StartOptions]
    ) -> tuple[Handle[Any], bool]:
        """The same, and whether its key had started it before: the command line and the HTTP API tell.

        `code` is the app that declares it, if it is not this one.
        """
        starter = self._named_starter(name, code, **options)
        return await starter.start_or_find({} if value is None else value)

    async def signal_with_start_by_name(
        self, name: str, signal: str, payload: object = None, value: Any = None, /, **options: Unpack[StartOptions]
    ) -> Handle[Any]:
        """Start by name unless its `key` has been started before, and send it a signal, in one commit.

        `value` and options are those of `start_by_name`, for the start; what was started before keeps its own. With
        `dedup_key=...` the same signal may be sent again. What has ended refuses it, as it does any other.
        """
        return (await self._signal_with_start(name, signal, payload, value, **options)).handle

    async def _signal_with_start(
        self,
        name: str,
        signal: str,
        payload: object,
        value: Any = None,
        code: App | None = None,
        /,
        **options: Unpack[StartOptions],
    ) -> Arrived:
        """The same, and whether its key had started it before, and whether the signal was new; as `_start_or_find`."""
        starter = self._named_starter(name, code, **options)
        return await starter.signal_with_start(signal, payload, {} if value is None else value)

    def _named_starter(self, name: str, code: App | None, **options: Unpack[StartOptions]) -> NamedStarter:
        read = self._read_input if code is None else code._read_own
        return NamedStarter(self._connection, check_name(name), Options().updated(**options), read)

    def _read_input(self, row: NewExecution) -> bool:
        """Whether it is of a definition that this app declares; `DecodeError` if that cannot begin with what it has.

        A batch begins with anything: an item that it cannot read fails, and the others run.
        """
        handler, functions = row.handler, self._functions
        function = functions.workflows.get(handler) or functions.tasks.get(handler) or self._flows.jobs.get(handler)
        machine = self._machines.by_handler.get(handler)
        if function is not None:
            function.signature.decode(function.input_of(row.state))
        elif machine is not None:
            machine.read(row.step, row.state)
        return function is not None or machine is not None or handler in self._batches.by_handler

    def _read_own(self, row: NewExecution) -> None:
        """The same, of what was said to be declared here."""
        if self._read_input(row):
            return
        own = [str(one.version) for one in self._definitions() if one.name == row.name]
        what = f"{row.name} in version {row.version}, which is the newest in this ledger"
        has = f", but in version {', '.join(own)}" if own else ""
        raise InvalidArgumentError(
            f"the app {self.name!r} does not declare {what}{has}: name the app that does, or none to start it unchecked"
        )

    def _definitions(self) -> list[Definition]:
        """What is declared here, as the ledger keeps it."""
        return [*definitions_of(self._machines, self._functions, self._batches), *self._flows.definitions()]

    async def search(
        self,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        *,
        name: str | None = None,
        statuses: Sequence[Status | str] = (),
        limit: int = 100,
    ) -> list[Handle[Any]]:
        """The newest `limit` executions with all these attributes (`.options(attributes=...)`, `ctx.set_attributes`).

        `name` is that of a definition, `statuses=["failed", "stranded"]` any of these. Each narrows; none is needed.
        """
        if attributes is not None:
            Options(attributes=attributes).encoded_attributes()
            if not attributes:  # more likely a mistake than a wish for everything
                raise InvalidArgumentError("search was given no attribute to look for; leave them out to find any")
        unknown = [status for status in statuses if status not in set(Status)]
        if unknown:
            raise InvalidArgumentError(f"{unknown[0]!r} is no status; there are {', '.join(Status)}")
        chosen = tuple(map(Status, statuses))
        where = ExecutionFilter(name=name, statuses=chosen, attributes=dict(attributes) if attributes else None)
        page = await (await self._connection.store()).browse(where, limit)
        return [Handle(self._connection, PromiseId.from_bytes(view.promise), name=view.name) for view in page.items]

    async def register(self) -> None:
        """Tell the ledger what is declared here, for starts by name; every worker does it when it starts."""
        store = await self._connection.store()
        await store.register_definitions(self._definitions())
        for name, spec in self._scheduled.items():
            await self.schedules.put(name, spec)

    @overload
    async def run(self, definition: type[Machine[StateT]] | MachineStarter[StateT], state: StateT, /) -> Any: ...
    @overload
    async def run(self, definition: Flow | FlowStarter, /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    async def run(
        self, definition: Batch[ItemT, Any] | BatchStarter[ItemT, Any], source: Iterable[ItemT], /
    ) -> BatchResult: ...
    @overload
    async def run(
        self, definition: Workflow[P, R] | Task[P, R] | FunctionStarter[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def run(self, definition: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Start one, work in this process until it has ended, and return its result."""
        handle: Handle[Any] | BatchRun[Any] = await starter_of(definition).start(*args, **kwargs)
        queues = sorted({(await handle.describe()).queue, *self.queues()})
        async with self.worker(queues=queues):
            return await handle.result()

    # ------------------------------------------------------------------ working

    @contextlib.asynccontextmanager
    async def worker(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int | None] = ("default",),
        concurrency: int = 100,
        **settings: Unpack[WorkerOptions],
    ) -> AsyncIterator[Worker]:
        """Work on these queues while the block runs; leaving it drains. Settings: `WorkerSettings`."""
        worker = await self.make_worker(WorkerSettings(queues=queues, concurrency=concurrency, **settings))
        async with worker:
            yield worker

    async def make_worker(self, settings: WorkerSettings | None = None) -> Worker:
        """A worker that is not started yet."""
        chosen = settings or WorkerSettings()
        if self._retention and not chosen.retention:
            chosen = chosen.with_retention(tuple(self._retention))
        store, results, release = await self._connection.store(), await self._connection.results(), self._release()
        functions, machines, flows = self._functions, self._machines, self._flows
        tried = (*functions.workflows, *functions.tasks, *machines.by_handler, *flows.messages)
        return Worker(
            store,
            self.runners(chosen),
            chosen,
            lifespans=tuple(self._lifespans),
            on_ended=results.ended,
            observer=self._connection.observer,
            services=[
                Scheduler(self._connection),
                *(HookRunner(self._connection, hook) for hook in self._hooks),
                StrandedSweep(store, list(chosen.queue_limits()), tried, release),
            ],
            release=release,
            tell=self.register,
        )

    def runners(self, settings: WorkerSettings | None = None) -> list[Runner]:
        """One a kind, over everything declared so far."""
        chosen = settings or WorkerSettings()
        runners: list[Runner] = [
            MachineRunner(self._machines, self._connection.payload_limit),
            WorkflowRunner(self._functions, warm_most=chosen.warm_most, warm_bytes=chosen.warm_bytes),
            TaskRunner(self._functions),
            RunRunner(self._batches),
            ChunkRunner(self._batches),
            FlowRunner(self._flows),
        ]
        if not any(runner.handlers for runner in runners):
            raise ConfigurationError(
                f"the app {self.name!r} declares nothing to work on; import the modules with its definitions first"
            )
        return runners

    async def check(self, *, queues: Sequence[str] = ()) -> AsyncIterator[Checked]:
        """Would this code go on with everything in flight, or strand it? Workflows are replayed, without effects.

        Name its `queues` where other programs share the ledger: what they declare is not here. `NotFoundError` of one
        that neither the ledger nor this app knows.
        """
        if isinstance(queues, str):
            raise InvalidArgumentError(f"queues is a list of names, not {queues!r}: each letter would be one")
        store = await self._connection.store()
        await self._check_known(store, queues)
        checker = Checker(store, self._functions, self._machines, self._flows, self._batches)
        async for checked in checker.runs(queues):
            yield checked

    async def _check_known(self, store: Store, queues: Sequence[str]) -> None:
        """A name that nobody knows would be a check that finds nothing wrong."""
        if set(queues) <= (known := set(self.queues())):
            return
        known.update(found.settings.name for found in await store.queues())
        known.update(*(worker.queues for worker in await store.workers()))
        for queue in queues:
            if queue not in known and not (await store.browse(ExecutionFilter(queue=queue), 1)).items:
                raise NotFoundError(
                    f"neither the ledger nor the app {self.name!r} knows a queue {queue!r}; there are: "
                    f"{', '.join(sorted(known))}"
                )

    # ------------------------------------------------------------------ schedules, dead letters, queues

    @property
    def schedules(self) -> Schedules:
        """Create, list, pause, resume, delete and trigger schedules."""
        return Schedules(self._connection, self._definitions, self._read_input)

    @property
    def dead_letters(self) -> DeadLetters:
        """List, retry and drop the messages of flows that could not be processed."""
        return DeadLetters(self._connection)

    async def configure_queue(
        self,
        name: str,
        *,
        paused: bool = False,
        concurrency: int | None = None,
        rate: float | None = None,
        rate_period: Duration = 1.0,
    ) -> None:
        """Set the limits of a queue, which hold over all workers together; they replace the earlier ones."""
        period = seconds(rate_period, name="rate_period")
        check_limits(concurrency, rate, period)
        store = await self._connection.store()
        await store.configure_queue(
            QueueSettings(
                name=check_queue(name), paused=paused, concurrency=concurrency, rate=rate, rate_seconds=period
            )
        )

    # ------------------------------------------------------------------ life

    def use_store(self, store: str | PathLike[str] | Store) -> None:
        """Point the app at another ledger; for tests, and for programs that learn late where it is."""
        self._connection.forget()
        self._set_store(store)

    @property
    def sync(self) -> SyncApp:
        """The same, blocking, for programs without an event loop."""
        sync = self._sync
        if sync is None or sync.is_closed:
            with self._sync_guard:  # of threads that use it for the first time at once
                sync = self._sync
                if sync is None or sync.is_closed:
                    sync = SyncApp(
                        self._connection,
                        self.handle,
                        self.start_by_name,
                        self.signal_with_start_by_name,
                        self.batch_run,
                        self.search,
                    )
                    self._sync = sync
        return sync

    async def store(self) -> Store:
        """The opened store."""
        return await self._connection.store()

    async def close(self) -> None:
        """Close the store and whatever else was opened; what is in the ledger goes on with other processes."""
        if self._sync is not None:
            self._sync.close()
            self._sync = None
        await self._connection.close()

    async def __aenter__(self) -> Self:
        await self._connection.store()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _named(target: str | PromiseId, key: str | None) -> tuple[PromiseId | IdQuery, str]:
    """What a name and a key stand for, or an id; and the name, where it is known."""
    if key is None:
        return (target if isinstance(target, PromiseId) else IdQuery.parse(target)), ""
    if not isinstance(target, str):
        raise InvalidArgumentError("a key goes with the name of a definition, not with an id")
    return PromiseId.of(target, key), target
