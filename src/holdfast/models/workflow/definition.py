"""How a workflow is declared: an `async def` whose first parameter is its `Context`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from holdfast.core.codec import fingerprint
from holdfast.core.errors import CallNotAllowedError, ConfigurationError, DefinitionError
from holdfast.core.identity import PromiseId, check_name
from holdfast.core.journal.events import InvokeKind, Ok, Result
from holdfast.core.journal.quick import CallText
from holdfast.models.code import code_digest
from holdfast.models.handle import Handle, uncollided
from holdfast.models.options import Options, StartOptions, check_priority, check_queue
from holdfast.models.starting import new_row
from holdfast.models.workflow.callee import CallSettings
from holdfast.models.workflow.context import Context
from holdfast.models.workflow.control_flow import CURRENT
from holdfast.models.workflow.failures import Raises, check_raises, exception_of
from holdfast.models.workflow.lint import Lint, lint_body
from holdfast.models.workflow.promise import CallPromise
from holdfast.models.workflow.signature import Signature
from holdfast.models.workflow.start import FunctionStarter
from holdfast.models.workflow.task import Task
from holdfast.store.base import handler_of
from holdfast.store.values import NewExecution

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

KIND: Final = "workflow"
Body = Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]


class Workflow(Generic[P, R]):
    """Start it with `start`; call it inside another workflow's body to run it as a child with its own journal."""

    invoke_kind: InvokeKind = "Function"
    is_remote = True

    def __init__(
        self,
        function: Body[P, R],
        *,
        make_starter: Callable[[Any], FunctionStarter[P, R]],
        payload_limit: int,
        name: str | None = None,
        version: int = 1,
        queue: str | None = None,
        priority: int = 0,
        raises: Raises = (),
        lint: Lint = "warn",
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise DefinitionError(f"@app.workflow takes an `async def`, not {function!r}")
        self.fn = function
        self.name = check_name(function.__qualname__.replace(".<locals>", "") if name is None else name)
        if not list(inspect.signature(function).parameters):
            raise DefinitionError(
                f"the workflow {self.name} must take its context first: async def {self.name}(ctx, ...)"
            )
        if isinstance(version, bool) or not isinstance(version, int) or not 0 < version < 2**31:
            raise DefinitionError(f"the version of {self.name} must be a whole number from 1, not {version!r}")
        self.version = version
        self.signature = Signature(function, self.name, skip=1)
        self.call = self.signature.call
        if self.signature.resources:
            raise DefinitionError(f"{self.name} is a workflow and gets no resources; use them in its tasks")
        lint_body(function, self.name, lint)
        self.queue = None if queue is None else check_queue(queue)
        self.priority = check_priority(priority)
        self.raises = check_raises(raises, self.name)
        self.handler = handler_of(KIND, self.name, version)
        self.digest = code_digest(function, self.signature.shape)
        self.payload_limit = payload_limit
        self._make_starter = make_starter
        self._child_models: dict[str, NewExecution] = {}  # by the caller's queue: what all its child rows have alike
        self.settings = CallSettings(queue=self.queue).text()
        self.call_text = CallText(self.invoke_kind, self.name, self.settings)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    # ------------------------------------------------------------------ calling and starting

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        session = CURRENT.session
        if session is None:
            raise CallNotAllowedError(
                f"{self.name} is a workflow: start it with `await {self.name}.start(...)`, or run it with app.run"
            )
        text = self.signature.encode(args, kwargs, self.payload_limit)
        return CallPromise(session, session.invoke(self, text), self)

    def options(self, **options: Unpack[StartOptions]) -> FunctionStarter[P, R]:
        """The same with options: `key`, `queue`, `priority`, `delay`, `at`, `deadline`, `attributes` and others."""
        return self._make_starter(self).options(**options)

    async def start(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start a run; done when the ledger has it."""
        return await self._make_starter(self).start(*args, **kwargs)

    async def start_many(self, inputs: Iterable[Any]) -> list[Handle[R]]:
        """Start one run for each input, in one commit."""
        return uncollided(await self._make_starter(self).start_many(inputs))

    # ------------------------------------------------------------------ as a callee

    def rewrite(self, recorded: str) -> str:
        return self.signature.codec.rewrite(recorded)

    def open_result(self, result: Result) -> Any:
        if isinstance(result, Ok):
            return self.signature.result.decode(bytes(result.value))
        raise exception_of(result.error, self.raises, self.name)

    def row(self, promise: PromiseId, text: str, options: Options, key: str | None) -> NewExecution:
        mark = fingerprint(text)
        return new_row(self, KIND, promise, text, mark, options, key, value=text, cleans_up=True)

    def first_state(self, text: str) -> str:
        return text

    def input_of(self, state: str) -> str:
        """The input that a row with this state began with."""
        return state

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        model = self._child_models.get(queue)
        if model is None:
            row = self.row(promise, text, Options(queue=self.queue or queue), None)
            model = self._child_models[queue] = msgspec.structs.replace(row, reports=True)
        return msgspec.structs.replace(model, promise=promise.to_bytes(), state=text, input_hash=fingerprint(text))


class FunctionRegistry:
    """The workflows and tasks an app knows."""

    def __init__(self) -> None:
        self.workflows: dict[int, Workflow[..., Any]] = {}
        self.tasks: dict[int, Task[..., Any]] = {}

    def add_workflow(self, workflow: Workflow[..., Any]) -> None:
        self._refuse_twin(self.workflows.get(workflow.handler), workflow.name)
        self.workflows[workflow.handler] = workflow

    def add_task(self, task: Task[..., Any]) -> None:
        self._refuse_twin(self.tasks.get(task.handler), task.name)
        self.tasks[task.handler] = task

    def find(self, name: str, version: int | None = None) -> Workflow[..., Any] | Task[..., Any]:
        """By name; of several versions of a workflow the newest."""
        named = [found for found in self.workflows.values() if found.name == name and version in (None, found.version)]
        if named:
            return max(named, key=lambda found: found.version)
        for task in self.tasks.values():
            if task.name == name:
                return task
        known = sorted({found.name for found in self.every()})
        raise ConfigurationError(f"there is no workflow or task {name!r} here; known are: {', '.join(known) or 'none'}")

    def queues(self) -> set[str]:
        return {found.queue or "default" for found in self.every()}

    def every(self) -> list[Workflow[..., Any] | Task[..., Any]]:
        return [*self.workflows.values(), *self.tasks.values()]

    def _refuse_twin(self, found: object, name: str) -> None:
        if found is not None:
            raise DefinitionError(f"{name} is declared twice; give one of them another name or version")
