"""What a program declares on its `App`: the decorators, and what they collect for workers."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, get_overloads, overload

from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import ConfigurationError, InvalidArgumentError
from holdfast.core.identity import check_name
from holdfast.core.retry import RetryPolicy
from holdfast.engine.lifespan import Lifespan
from holdfast.engine.observer import Observer, Observers
from holdfast.models.batch.definition import GRACE_SECONDS, LEASE_SECONDS, Batch, BatchRegistry
from holdfast.models.batch.spec import CHUNK_ITEMS, WINDOW_BYTES, WINDOW_ITEMS
from holdfast.models.batch.start import BatchStarter
from holdfast.models.code import code_digest
from holdfast.models.connection import Connection
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.registry import FlowRegistry
from holdfast.models.flow.start import FlowStarter
from holdfast.models.hooks import OCCASIONS, Hook, HookEvent, Occasion, function_hook
from holdfast.models.machine.definition import Machine, MachineDefinition
from holdfast.models.machine.registry import MachineRegistry
from holdfast.models.machine.start import MachineStarter
from holdfast.models.options import Options
from holdfast.models.schedule import ScheduleSettings, ScheduleSpec, check_args, definition_name, make_spec
from holdfast.models.webhook import webhook
from holdfast.models.workflow.context import Context
from holdfast.models.workflow.definition import Body, FunctionRegistry, Workflow
from holdfast.models.workflow.failures import Raises
from holdfast.models.workflow.http import has_httpx
from holdfast.models.workflow.lint import Lint
from holdfast.models.workflow.start import FunctionStarter
from holdfast.models.workflow.task import Effects, Executor, Task
from holdfast.models.workflow.transaction import Transaction
from holdfast.store.values import Retention

M = TypeVar("M", bound=Machine[Any])
L = TypeVar("L", bound=Callable[..., Any])
K = TypeVar("K", bound=Callable[[HookEvent], Any])
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


class Declarations:
    """Everything declared so far, for one connection."""

    def __init__(self, connection: Connection, release: str | None) -> None:
        self._connection = connection
        self._given_release = release
        self._machines = MachineRegistry()
        self._functions = FunctionRegistry()
        self._batches = BatchRegistry()
        self._flows = FlowRegistry()
        self._scheduled: dict[str, ScheduleSpec] = {}
        self._lifespans: list[Lifespan] = []
        self._retention: list[Retention] = []
        self._observers: list[Observer] = []
        self._hooks: list[Hook] = []

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
        raises: Raises = (),
        effects: Effects = "at_least_once",
        executor: Executor | None = None,
        queue: str | None = None,
        priority: int = 0,
    ) -> TaskDecorator: ...
    def task(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare a task: `def` (in a thread, or `executor="process"`) or `async def`.

        With a `queue` it has an execution of its own on it when a workflow calls it; without one it runs inline in the
        worker that holds the workflow. Errors not named in `raises` arrive in a workflow as `TaskFailed`.

        `timeout` bounds each attempt, `heartbeat_timeout` its silence. With `effects="at_most_once"` there is one
        attempt; a call whose attempt was cut off is `Uncertain`.
        """

        return self._declared(Task, self._functions.add_task, self._function_starter, function, settings)

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
        raises: Raises = (),
        queue: str | None = None,
        priority: int = 0,
    ) -> TransactionDecorator: ...
    def transaction(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare a task that writes through the ledger's own connection, its first parameter: exactly once.

        On PostgreSQL an `async def` with an asyncpg connection; on SQLite a `def` with the writer's sqlite3 connection.
        """

        return self._declared(Transaction, self._functions.add_task, self._function_starter, function, settings)

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
        raises: Raises = (),
        lint: Lint = "warn",
    ) -> WorkflowDecorator: ...
    def workflow(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare a workflow: an `async def` whose first parameter is its `Context`.

        `lint`: whether its body is searched for what a replay would do otherwise, such as `time.time()`: "warn" (a
        `DeterminismWarning` with the line and the remedy), "error" or "off".
        """

        return self._declared(Workflow, self._functions.add_workflow, self._function_starter, function, settings)

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

        return self._declared(Batch, self._batches.add, self._batch_starter, function, settings)

    def _declared(self, kind: Any, add: Any, make_starter: Any, function: Any, settings: dict[str, Any]) -> Any:
        """What `kind` makes of a function; or a decorator that makes it."""
        decorator = kind.__name__.lower()
        accepted = _settings_of("task" if issubclass(kind, Task) else decorator)  # a transaction says why not
        for name in settings.keys() - accepted:
            known = ", ".join(sorted(_settings_of(decorator)))
            raise InvalidArgumentError(f"@app.{decorator} has no setting {name!r}; the settings are {known}")

        def declare(function: Callable[..., Any]) -> Any:
            limit = self._connection.payload_limit
            made = kind(function, make_starter=make_starter, payload_limit=limit, **settings)
            add(made)
            return made

        return declare if function is None else declare(function)

    def schedule(self, cron: str, *, name: str | None = None, **settings: Unpack[ScheduleSettings]) -> Callable[[L], L]:
        """Start a workflow, a task, a machine, a flow or a batch by a cron expression, such as "0 6 * * mon-fri".

        Its name is the definition's unless one is given. Settings: `timezone`, `args`, `queue`, `overlap`, `catch_up`,
        `window` (see `app.schedules.create`). Workers tell the ledger when they are made; what is taken out of the code
        stays in the ledger until it is deleted.
        """

        def declare(definition: L) -> L:
            target = definition_name(definition)
            chosen = check_name(target if name is None else name, "a schedule")
            if chosen in self._scheduled:
                raise ConfigurationError(f"the schedule {chosen!r} is declared twice; give one of them another name")
            spec = make_spec(cron, target, **settings)
            check_args(definition, spec)
            self._scheduled[chosen] = spec
            return definition

        return declare

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

    # ------------------------------------------------------------------ what is declared

    def queues(self) -> list[str]:
        """The queues of everything declared so far."""
        return sorted(
            {*self._machines.queues(), *self._functions.queues(), *self._batches.queues(), *self._flows.queues()}
        )

    def _release(self) -> str:
        """Which code this is: a digest of all that is declared so far, of its code and of the types that it reads; of
        what a worker of it has at hand; and of what the program itself says that it is."""
        declared = (
            *self._functions.every(),
            *self._machines.by_handler.values(),
            *self._flows.jobs.values(),
            *self._batches.by_handler.values(),
        )
        told = sorted(f"{type(one).__name__} {one.name} {one.version} {one.digest}" for one in declared)
        told += [f"lifespan {code_digest(generator)}" for generator in self._lifespans]
        told += ["httpx"] if has_httpx() else []
        if self._given_release is not None:
            told.append(self._given_release)
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]

    def find_batch(self, name: str) -> Batch[Any, Any]:
        """The batch of this name, in its newest version; `ConfigurationError` names those that there are."""
        return self._batches.find(name)

    def find_flow(self, name: str) -> Flow | None:
        """The flow of this name, in its newest version; None: there is none."""
        return self._flows.find(name)

    def _machine_starter(self, definition: MachineDefinition) -> MachineStarter[Any]:
        return MachineStarter(self._connection, definition, Options())

    def _function_starter(self, definition: Any) -> FunctionStarter[..., Any]:
        return FunctionStarter(self._connection, definition, Options())

    def _batch_starter(self, batch: Batch[Any, Any]) -> BatchStarter[Any, Any]:
        return BatchStarter(self._connection, batch, Options())


def _settings_of(decorator: str) -> set[str]:
    """As users see them: what is declared also takes what the app gives it."""
    shown = inspect.signature(get_overloads(getattr(Declarations, decorator))[-1]).parameters.values()
    return {each.name for each in shown if each.kind is each.KEYWORD_ONLY}
