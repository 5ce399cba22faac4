"""Tasks: plain functions that a workflow calls durably, and that can be started alone as durable jobs."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, Unpack

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core.codec import fingerprint
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import DefinitionError
from holdfast.core.identity import PromiseId, check_name
from holdfast.core.journal.events import InvokeKind, Ok, Result
from holdfast.core.journal.quick import CallText
from holdfast.core.retry import RetryPolicy
from holdfast.core.status import Status
from holdfast.engine.threads import contain
from holdfast.models.code import code_digest
from holdfast.models.handle import Handle, uncollided
from holdfast.models.options import Options, StartOptions, check_priority, check_queue
from holdfast.models.starting import new_row
from holdfast.models.workflow.callee import CallSettings
from holdfast.models.workflow.control_flow import CURRENT
from holdfast.models.workflow.current import CURRENT_CALL, CurrentElsewhere, Facts
from holdfast.models.workflow.failures import Raises, check_raises, exception_of
from holdfast.models.workflow.promise import CallPromise
from holdfast.models.workflow.signature import Signature
from holdfast.models.workflow.start import FunctionStarter
from holdfast.store.base import handler_of
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import NewExecution

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

KIND: Final = "task"
Effects = Literal["at_least_once", "at_most_once"]
Executor = Literal["loop", "thread", "process"]


class TaskState(msgspec.Struct, frozen=True):
    """The state of a task that has an execution of its own: its input, and the attempts that failed."""

    input: Raw
    attempts: list[FailedAttempt] = []
    began_us: int = 0  # the first attempt, for `max_elapsed`
    key: str | UnsetType = UNSET  # what it is known by outside, if that is not its id: it is tried again by a retry


class FailedAttempt(msgspec.Struct, frozen=True):
    error: Raw  # an ErrorRecord
    retry_at_us: int


_decode_state = msgspec.json.Decoder(TaskState).decode


def known_by(row: NewExecution, key: str) -> NewExecution:
    """The row of a task that was called by another run before, under this idempotency key."""
    state = TaskState(_decode_state(row.state).input, key=key)
    return msgspec.structs.replace(row, state=msgspec.json.encode(state).decode())


class Task(Generic[P, R]):
    """Calling it inside a workflow's body is the durable call; outside it just runs. `fn` is the plain function."""

    invoke_kind: InvokeKind = "Function"
    skipped = 0  # parameters in front that are not input

    def __init__(
        self,
        function: Callable[P, Awaitable[R] | R],
        *,
        make_starter: Callable[[Any], FunctionStarter[P, R]],
        payload_limit: int,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        heartbeat_timeout: Duration | None = None,
        raises: Raises = (),
        effects: Effects = "at_least_once",
        executor: Executor | None = None,
        queue: str | None = None,
        priority: int = 0,
    ) -> None:
        if not inspect.isroutine(function):
            raise DefinitionError(f"@app.task takes a function, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise DefinitionError(f"@app.task takes a function, and {function!r} is a generator: return a list instead")
        self.fn = function
        self.name = check_name(function.__qualname__.replace(".<locals>", "") if name is None else name)
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(function, self.name, skip=self.skipped)
        self.call = self.signature.call
        self.resources: tuple[tuple[str, type], ...] = self.signature.resources
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise DefinitionError(f"retry of {self.name} is a RetryPolicy(max_attempts=...), not {retry!r:.60}")
        self.retry = retry or RetryPolicy()
        self.timeout_seconds = None if timeout is None else seconds(timeout, name="timeout")
        self.heartbeat_seconds = (
            None if heartbeat_timeout is None else seconds(heartbeat_timeout, name="heartbeat_timeout")
        )
        self.raises = check_raises(raises, self.name)
        if effects not in ("at_least_once", "at_most_once"):
            raise DefinitionError(f"effects of {self.name} is 'at_least_once' or 'at_most_once', not {effects!r}")
        self.effects = effects
        self.executor = self._check_executor(executor)
        self.queue = None if queue is None else check_queue(queue)
        self.priority = check_priority(priority)
        self.version = 1
        self.handler = handler_of(KIND, self.name, 1)
        self.digest = code_digest(function, self.signature.shape)
        self.payload_limit = payload_limit
        self._make_starter = make_starter
        self.settings = CallSettings(max_attempts=self.retry.max_attempts, queue=self.queue, effects=effects).text()
        self.call_text = CallText(self.invoke_kind, self.name, self.settings)
        # With a queue of its own it has an execution of its own, and any worker of that queue may run it.
        self.is_remote = self.queue is not None
        self.is_plain = self._is_plain()
        self.arrival = AdvanceExecution(status=Status.EXECUTING, step=self.name)  # of a run that comes to it
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def _check_executor(self, executor: Executor | None) -> Executor:
        chosen: Executor = executor or ("loop" if self.is_async else "thread")
        if chosen not in ("loop", "thread", "process"):
            raise DefinitionError(f"executor of {self.name} is 'thread' or 'process', not {executor!r}")
        if self.is_async and chosen != "loop":
            raise DefinitionError(f"{self.name} is async and runs on the event loop; executor={chosen!r} is for `def`")
        if not self.is_async and chosen == "loop":
            raise DefinitionError(f"{self.name} is a plain function and would block the event loop; use 'thread'")
        if chosen == "process" and self.resources:
            raise DefinitionError(f"{self.name} runs in another process, where the worker's resources are not")
        if chosen == "process" and "<locals>" in self.fn.__qualname__:
            raise DefinitionError(f"{self.name} runs in another process, so it must be importable: move it to a module")
        return chosen

    def _is_plain(self) -> bool:
        """Whether an attempt has nothing to look after but the function itself, and may be repeated: see `lane`."""
        has_deadlines = self.timeout_seconds is not None or self.heartbeat_seconds is not None
        return self.is_async and not has_deadlines and not self.resources and self.effects == "at_least_once"

    # ------------------------------------------------------------------ calling and starting

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        session = CURRENT.session
        if session is None:
            return self._run_plainly(*args, **kwargs)
        text, arguments = self.signature.write(args, kwargs, self.payload_limit)
        return CallPromise(session, session.invoke(self, text, arguments), self)

    async def _run_plainly(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.is_async:
            return await self.fn(*args, **kwargs)  # type: ignore[no-any-return]
        return await asyncio.to_thread(contain, self.fn, *args, **kwargs)  # type: ignore[arg-type]

    def options(self, **options: Unpack[StartOptions]) -> FunctionStarter[P, R]:
        """How to start it alone: `key`, `queue`, `priority`, `partition_key`, `delay`, `at`, `unique`, ...

        Called in a workflow's body, what it gives is one call with these options.
        """
        return self._make_starter(self).options(**options)

    async def start(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start it alone, as a durable job."""
        return await self._make_starter(self).start(*args, **kwargs)

    async def start_many(self, inputs: Iterable[Any]) -> list[Handle[R]]:
        """Start one execution for each input, in one commit."""
        return uncollided(await self._make_starter(self).start_many(inputs))

    # ------------------------------------------------------------------ as a callee

    def rewrite(self, recorded: str) -> str:
        return self.signature.codec.rewrite(recorded)

    def open_result(self, result: Result) -> Any:
        if isinstance(result, Ok):
            return self.signature.result.decode(bytes(result.value))
        raise exception_of(result.error, self.raises, self.name)

    def row(self, promise: PromiseId, text: str, options: Options, key: str | None) -> NewExecution:
        return new_row(self, KIND, promise, self.first_state(text), fingerprint(text), options, key, value=text)

    def first_state(self, text: str) -> str:
        return msgspec.json.encode(TaskState(Raw(text.encode()))).decode()

    def input_of(self, state: str) -> str:
        """The input that a row with this state began with."""
        return bytes(_decode_state(state).input).decode()

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        row = self.row(promise, text, Options(queue=self.queue or queue), None)
        return msgspec.structs.replace(row, reports=True)


def call_by_name(facts: Facts, module: str, qualname: str, text: str) -> str:
    """In a worker process: import the task, run it, and send the result back as JSON."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    task: Task[..., Any] = found
    CURRENT_CALL.set(CurrentElsewhere(*facts))  # each call of a process sets its own
    value = contain(task.call, *task.signature.decode(text))
    return task.signature.result.encode(value, max_bytes=task.payload_limit)
