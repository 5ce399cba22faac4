"""`App`: what a program declares its definitions on, starts them from and works them with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, overload

from holdfast.core.codec import DEFAULT_MAX_BYTES
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import ConfigurationError, InvalidArgumentError
from holdfast.core.identity import IdQuery, PromiseId, check_name
from holdfast.core.retry import RetryPolicy
from holdfast.core.status import Status
from holdfast.engine.lifespan import Lifespan
from holdfast.engine.observer import Observer, Observers
from holdfast.engine.runner import Runner
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.upkeep import StrandedSweep
from holdfast.engine.worker import Worker
from holdfast.models.batch.chunk_runner import ChunkRunner
from holdfast.models.batch.coordinator import RunRunner
from holdfast.models.batch.definition import GRACE_SECONDS, LEASE_SECONDS, Batch, BatchRegistry, BatchResult
from holdfast.models.batch.run import BatchRun
from holdfast.models.batch.spec import CHUNK_ITEMS, WINDOW_BYTES, WINDOW_ITEMS
from holdfast.models.batch.start import BatchStarter
from holdfast.models.connection import Connection
from holdfast.models.definitions import NamedStarter, definitions_of
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.letters import DeadLetters
from holdfast.models.flow.registry import FlowRegistry
from holdfast.models.flow.runner import FlowRunner
from holdfast.models.flow.start import FlowStarter
from holdfast.models.handle import Handle
from holdfast.models.hooks import OCCASIONS, Hook, HookEvent, HookRunner, Occasion, function_hook
from holdfast.models.machine.definition import Machine, MachineDefinition, definition_of
from holdfast.models.machine.registry import MachineRegistry
from holdfast.models.machine.runner import MachineRunner
from holdfast.models.machine.start import MachineStarter
from holdfast.models.options import Options, check_limits, check_queue
from holdfast.models.schedule import Scheduler, Schedules, ScheduleSpec, definition_name, make_spec
from holdfast.models.webhook import webhook
from holdfast.models.workflow.check import Checked, check_runs
from holdfast.models.workflow.context import Context
from holdfast.models.workflow.definition import Body, FunctionRegistry, Workflow
from holdfast.models.workflow.lint import Lint
from holdfast.models.workflow.runner import WorkflowRunner
from holdfast.models.workflow.start import FunctionStarter
from holdfast.models.workflow.task import Effects, Executor, Task
from holdfast.models.workflow.task_runner import TaskRunner
from holdfast.models.workflow.transaction import Transaction
from holdfast.store import store_from_url
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, QueueSettings, Retention
from holdfast.sync import SyncApp

DATABASE_VARIABLE: Final = "HOLDFAST_DATABASE"
DEFAULT_DATABASE: Final = "holdfast.db"

M = TypeVar("M", bound=Machine[Any])
L = TypeVar("L", bound=Callable[..., Any])
K = TypeVar("K", bound=Callable[[HookEvent], Any])
StateT = TypeVar("StateT")
ItemT = TypeVar("ItemT")
P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """`@app.task(...)`: keeps the signature of the function."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class TransactionDecorator(Protocol):
    """`@app.transaction(...)`: keeps the signature of the function, without its connection."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...


class BatchDecorator(Protocol):
    """`@app.batch(...)`: keeps the types of item and value; resources come after the item."""

    @overload
    def __call__(self, function: Callable[Concatenate[ItemT, ...], Awaitable[R]], /) -> Batch[ItemT, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[ItemT, ...], R], /) -> Batch[ItemT, R]: ...


class WorkflowDecorator(Protocol):
    """`@app.workflow(...)`: keeps the signature of the function, without its context."""

    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Workflow[P, R]: ...


class App:
    """`store` is a path, a URL, or a store; without one HOLDFAST_DATABASE, or ./holdfast.db.

    Nothing is opened until it is used. `async with app:` closes it at the end.
    """

    def __init__(self, name: str, store: str | Store | None = None, *, payload_limit: int = DEFAULT_MAX_BYTES) -> None:
        self.name = check_name(name)
        if isinstance(payload_limit, bool) or not isinstance(payload_limit, int) or payload_limit < 1:
            raise InvalidArgumentError(f"payload_limit is a number of bytes, not {payload_limit!r}")
        self._store = store if store is not None else os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE
        if isinstance(self._store, str):
            store_from_url(self._store)  # a bad URL is found here, where it was written
        self._has_given_store = False
        self._connection = Connection(self._make_store, payload_limit)
        self._machines = MachineRegistry()
        self._functions = FunctionRegistry()
        self._batches = BatchRegistry()
        self._flows = FlowRegistry()
        self._scheduled: dict[str, ScheduleSpec] = {}
        self._lifespans: list[Lifespan] = []
        self._retention: list[Retention] = []
        self._sync: SyncApp | None = None
        self._observers: list[Observer] = []
        self._hooks: list[Hook] = []

    def _make_store(self) -> Store:
        """One for each event loop: a store that was handed in serves the first, its siblings the others."""
        if isinstance(self._store, str):
            return store_from_url(self._store)
        if self._has_given_store:
            return self._store.sibling()
        self._has_given_store = True
        return self._store

    # ------------------------------------------------------------------ declaring

    @overload
    def machine(self, cls: type[M], /) -> type[M]: ...
    @overload
    def machine(
        self,
        cls: None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        retry: RetryPolicy | None = None,
        history: bool = False,
    ) -> Callable[[type[M]], type[M]]: ...
    def machine(
        self,
        cls: type[M] | None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        retry: RetryPolicy | None = None,
        history: bool = False,
    ) -> type[M] | Callable[[type[M]], type[M]]:
        """Declare a machine. `retry` is for machines without a `handle`; `history` keeps every transition."""

        def declare(cls: type[M]) -> type[M]:
            definition = MachineDefinition(
                cls,
                name=name,
                version=version,
                queue=queue,
                priority=priority,
                retry=retry or RetryPolicy(),
                history=history,
                make_starter=self._machine_starter,
            )
            self._machines.add(definition)
            cls.__holdfast__ = definition
            return cls

        return declare if cls is None else declare(cls)

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        heartbeat_timeout: Duration | None = None,
        raises: tuple[type[BaseException], ...] = (),
        effects: Effects = "at_least_once",
        executor: Executor | None = None,
        queue: str | None = None,
        priority: int = 0,
    ) -> TaskDecorator: ...
    def task(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare a task: `def` (in a thread, or `executor="process"`) or `async def`.

        With a `queue` it has an execution of its own on it when a workflow calls it; without one it runs inline in the
        worker that holds the workflow. Errors not named in `raises` arrive in a workflow as `TaskFailed`.
        """

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            limit = self._connection.payload_limit
            task: Task[..., Any] = Task(function, make_starter=self._function_starter, payload_limit=limit, **settings)
            self._functions.add_task(task)
            return task

        return declare if function is None else declare(function)

    @overload
    def transaction(self, function: Callable[Concatenate[Any, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def transaction(self, function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...
    @overload
    def transaction(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        raises: tuple[type[BaseException], ...] = (),
        queue: str | None = None,
        priority: int = 0,
    ) -> TransactionDecorator: ...
    def transaction(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare a task that writes through the ledger's own connection, its first parameter: exactly once.

        On PostgreSQL an `async def` with an asyncpg connection; on SQLite a `def` with the writer's sqlite3 connection.
        """

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            limit = self._connection.payload_limit
            task: Task[..., Any] = Transaction(
                function, make_starter=self._function_starter, payload_limit=limit, **settings
            )
            self._functions.add_task(task)
            return task

        return declare if function is None else declare(function)

    @overload
    def workflow(self, function: Body[P, R], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str | None = None,
        priority: int = 0,
        raises: tuple[type[BaseException], ...] = (),
        lint: Lint = "warn",
    ) -> WorkflowDecorator: ...
    def workflow(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare a workflow: an `async def` whose first parameter is its `Context`.

        `lint`: whether its body is searched for what a replay would do otherwise, such as `time.time()`: "warn" (a
        `DeterminismWarning` with the line and the remedy), "error" or "off".
        """

        def declare(function: Callable[..., Any]) -> Workflow[..., Any]:
            limit = self._connection.payload_limit
            made: Workflow[..., Any] = Workflow(
                function, make_starter=self._function_starter, payload_limit=limit, **settings
            )
            self._functions.add_workflow(made)
            return made

        return declare if function is None else declare(function)

    def flow(self, name: str, *, version: int = 1, queue: str = "default", priority: int = 0) -> Flow:
        """A new flow: declare its activities with the decorators of what this gives."""
        made = Flow(
            name,
            version=version,
            queue=queue,
            priority=priority,
            payload_limit=self._connection.payload_limit,
            make_starter=lambda flow: FlowStarter(self._connection, flow, Options()),
        )
        self._flows.add(made)
        return made

    @overload
    def batch(self, function: Callable[Concatenate[ItemT, ...], Awaitable[R]], /) -> Batch[ItemT, R]: ...
    @overload
    def batch(self, function: Callable[Concatenate[ItemT, ...], R], /) -> Batch[ItemT, R]: ...
    @overload
    def batch(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        lease: Duration = LEASE_SECONDS,
        concurrency: int = 64,
        results: bool = False,
        sink: Callable[..., Any] | None = None,
        transactional: bool = False,
        chunk: int = CHUNK_ITEMS,
        window: int = WINDOW_ITEMS,
        window_bytes: int = WINDOW_BYTES,
        cancel_grace: Duration = GRACE_SECONDS,
    ) -> BatchDecorator: ...
    def batch(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare a batch: `def` (in threads) or `async def`, of one item. It returns, raises `Skip`, or raises.

        `concurrency` items at once in each worker; `timeout` bounds an item, `lease` its silence (`current().heartbeat`
        renews it). `results` keeps the values; a `sink` gets them in order, a `transactional` one with the connection.
        """

        def declare(function: Callable[..., Any]) -> Batch[Any, Any]:
            limit = self._connection.payload_limit
            made: Batch[Any, Any] = Batch(function, make_starter=self._batch_starter, payload_limit=limit, **settings)
            self._batches.add(made)
            return made

        return declare if function is None else declare(function)

    def schedule(self, cron: str, *, name: str | None = None, **settings: Any) -> Callable[[L], L]:
        """Start a workflow, a task or a machine by a cron expression, such as "0 6 * * mon-fri".

        Its name is the definition's unless one is given. Settings: `timezone`, `args`, `queue`, `overlap`, `catch_up`,
        `window` (see `app.schedules.create`). Workers tell the ledger when they are made; what is taken out of the code
        stays in the ledger until it is deleted.
        """

        def declare(definition: L) -> L:
            target = definition_name(definition)
            chosen = check_name(name or target)
            if chosen in self._scheduled:
                raise ConfigurationError(f"the schedule {chosen!r} is declared twice; give one of them another name")
            self._scheduled[chosen] = make_spec(cron, target, **settings)
            return definition

        return declare

    @property
    def schedules(self) -> Schedules:
        """Create, list, pause, resume, delete and trigger schedules."""
        return Schedules(self._connection)

    def find_flow(self, name: str) -> Flow | None:
        """The flow of this name, in its newest version; None: there is none."""
        return self._flows.find(name)

    @property
    def dead_letters(self) -> DeadLetters:
        """List, retry and drop the messages of flows that could not be processed."""
        return DeadLetters(self._connection)

    def lifespan(self, generator: L) -> L:
        """Declare a resource: an (async) generator function that yields it. Opened once a worker, given by type."""
        self._lifespans.append(generator)
        return generator

    def retain(self, age: Duration, *, queue: str | None = None, name: str | None = None) -> None:
        """Let workers delete executions that ended longer ago than `age`, of one queue, one definition, or all."""
        self._retention.append(Retention(age_seconds=seconds(age, name="age"), queue=queue, name=name))

    def observe(self, observer: Observer) -> None:
        """Let an observer see what this app starts and its workers do; `holdfast.telemetry.instrument` calls it."""
        self._observers.append(observer)
        self._connection.observer = observer if len(self._observers) == 1 else Observers(self._observers)

    @overload
    def on(self, event: Occasion, function: K, /, *, name: str | None = None) -> K: ...
    @overload
    def on(self, event: Occasion, /, *, name: str | None = None) -> Callable[[K], K]: ...
    def on(self, event: Occasion, function: K | None = None, /, *, name: str | None = None) -> K | Callable[[K], K]:
        """Call a function when an execution has `failed`, was `stranded`, or a message of a flow `dead_lettered`.

        As a decorator too: `@app.on("failed")`. At least once each, by one worker at a time, in the order of time;
        the ledger keeps how far it has come under `name`, by default the function's.
        """

        def declare(function: K) -> K:
            self._add_hook(function_hook(event, function, name))
            return function

        return declare if function is None else declare(function)

    def webhook(
        self,
        url: str,
        *,
        events: Sequence[Occasion] = OCCASIONS,
        secret: str | None = None,
        name: str | None = None,
    ) -> None:
        """POST these events to a URL, signed with `secret`; promised as in `on`. Workers of this app send them."""
        self._add_hook(webhook(url, events, secret, name))

    def _add_hook(self, hook: Hook) -> None:
        if any(known.name == hook.name for known in self._hooks):
            raise ConfigurationError(f"the hook {hook.name!r} is declared twice; give one of them another name")
        self._hooks.append(hook)

    # ------------------------------------------------------------------ starting and finding

    def _machine_starter(self, definition: MachineDefinition) -> MachineStarter[Any]:
        return MachineStarter(self._connection, definition, Options())

    def _function_starter(self, definition: Any) -> FunctionStarter[..., Any]:
        return FunctionStarter(self._connection, definition, Options())

    def _batch_starter(self, batch: Batch[Any, Any]) -> BatchStarter[Any, Any]:
        return BatchStarter(self._connection, batch, Options())

    def find_batch(self, name: str) -> Batch[Any, Any]:
        """The batch of this name, in its newest version; `ConfigurationError` names those that there are."""
        return self._batches.find(name)

    def batch_run(self, target: str | PromiseId, *, key: str | None = None) -> BatchRun[Any]:
        """A run of a batch: by the batch's name and a key, or by an id, as in `handle`."""
        if key is not None:
            if not isinstance(target, str):
                raise InvalidArgumentError("a key goes with the name of a batch, not with an id")
            return BatchRun(self._connection, PromiseId.of(target, key), name=target)
        return BatchRun(self._connection, target if isinstance(target, PromiseId) else IdQuery.parse(target))

    def handle(self, target: str | PromiseId, *, key: str | None = None) -> Handle[Any]:
        """By definition name and key; or by an id, or any unambiguous prefix of one (`Shipment/4f7a9c21`)."""
        if key is not None:
            if not isinstance(target, str):
                raise InvalidArgumentError("a key goes with the name of a definition, not with an id")
            return Handle(self._connection, PromiseId.of(target, key), name=target)
        found = target if isinstance(target, PromiseId) else IdQuery.parse(target)
        return Handle(self._connection, found, name="")

    async def start_by_name(self, name: str, value: Any = None, /, **options: Any) -> Handle[Any]:
        """Start what workers of this ledger have code for, and this process need not: with a mapping of its arguments.

        A machine takes its state. The newest version is started. Options as in `.options(...)`.
        """
        return (await self._start_or_find(name, value, **options))[0]

    async def _start_or_find(self, name: str, value: Any = None, /, **options: Any) -> tuple[Handle[Any], bool]:
        """The same, and whether its key had started it before: the command line and the HTTP API tell."""
        starter = NamedStarter(self._connection, check_name(name), Options().updated(**options))
        return await starter.start_or_find({} if value is None else value)

    async def search(
        self,
        attributes: Mapping[str, str | int | float | bool],
        *,
        name: str | None = None,
        statuses: Sequence[Status] = (),
        limit: int = 100,
    ) -> list[Handle[Any]]:
        """The newest executions that have all these attributes (`.options(attributes=...)`, `ctx.set_attributes`)."""
        Options(attributes=attributes).encoded_attributes()
        if not attributes:
            raise InvalidArgumentError("search needs at least one attribute to look for")
        where = ExecutionFilter(name=name, statuses=tuple(statuses), attributes=dict(attributes))
        page = await (await self._connection.store()).browse(where, limit)
        return [Handle(self._connection, PromiseId.from_bytes(view.promise), name=view.name) for view in page.items]

    async def register(self) -> None:
        """Tell the ledger what is declared here, for starts by name; every worker does it when it is made."""
        store = await self._connection.store()
        await store.register_definitions(
            [*definitions_of(self._machines, self._functions, self._batches), *self._flows.definitions()]
        )
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
        starter = definition_of(definition).starter() if isinstance(definition, type) else definition
        handle: Handle[Any] | BatchRun[Any] = await starter.start(*args, **kwargs)
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
        **settings: Any,
    ) -> AsyncIterator[Worker]:
        """Work on these queues while the block runs; leaving it drains. Settings: `engine.settings`."""
        worker = await self.make_worker(WorkerSettings(queues=queues, concurrency=concurrency, **settings))
        async with worker:
            yield worker

    async def make_worker(self, settings: WorkerSettings | None = None) -> Worker:
        """A worker that is not started yet."""
        chosen = settings or WorkerSettings()
        if self._retention and not chosen.retention:
            chosen = chosen.with_retention(tuple(self._retention))
        await self.register()
        results = await self._connection.results()
        return Worker(
            await self._connection.store(),
            self.runners(),
            chosen,
            lifespans=tuple(self._lifespans),
            on_ended=results.ended,
            observer=self._connection.observer,
            services=[
                Scheduler(self._connection),
                *(HookRunner(self._connection, hook) for hook in self._hooks),
                StrandedSweep(
                    await self._connection.store(),
                    list(chosen.queue_limits()),
                    {handler: workflow.digest for handler, workflow in self._functions.workflows.items()},
                ),
            ],
        )

    def queues(self) -> list[str]:
        """The queues of everything declared so far."""
        return sorted(
            {*self._machines.queues(), *self._functions.queues(), *self._batches.queues(), *self._flows.queues()}
        )

    def runners(self) -> list[Runner]:
        """One a kind, over everything declared so far."""
        runners: list[Runner] = [
            MachineRunner(self._machines, self._connection.payload_limit),
            WorkflowRunner(self._functions),
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

    async def check(self) -> AsyncIterator[Checked]:
        """Replay every workflow in flight against this code, without effects: would it go on, or be stranded?"""
        async for checked in check_runs(await self._connection.store(), self._functions.workflows):
            yield checked

    # ------------------------------------------------------------------ queues

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

    def use_store(self, store: str | Store) -> None:
        """Point the app at another ledger; for tests, and for programs that learn late where it is."""
        if isinstance(store, str):
            store_from_url(store)
        self._store = store
        self._has_given_store = False
        self._connection.forget()

    @property
    def sync(self) -> SyncApp:
        """The same, blocking, for programs without an event loop."""
        if self._sync is None or self._sync.is_closed:
            self._sync = SyncApp(self._connection, self.handle, self.start_by_name, self.batch_run)
        return self._sync

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
