"""How a machine is declared: a class of steps, checked when the app takes it.

`Machine` and `step` are what users write with; `MachineDefinition` is what the runner works from.
"""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar, Unpack, overload

from holdfast.core.codec import Codec, codec_for
from holdfast.core.codec_hooks import shape_of
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import ConfigurationError, DecodeError, DefinitionError, OutcomeError
from holdfast.core.identity import check_name
from holdfast.core.outcomes import Outcome, StepRef
from holdfast.core.retry import RetryPolicy
from holdfast.models.code import feed_code
from holdfast.models.handle import Handle, uncollided
from holdfast.models.machine.context import MachineContext
from holdfast.models.options import StartOptions, check_priority, check_queue
from holdfast.store.base import handler_of

if TYPE_CHECKING:
    from holdfast.models.machine.start import MachineStarter

KIND = "machine"

StateT = TypeVar("StateT")
F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__holdfast_step__"


@dataclass(frozen=True, slots=True)
class StepMark:
    """What `@step` says of a method."""

    initial: bool
    timeout_seconds: float | None


@overload
def step(function: F, /) -> F: ...
@overload
def step(*, initial: bool = False, timeout: Duration | None = None) -> Callable[[F], F]: ...
def step(
    function: F | None = None, /, *, initial: bool = False, timeout: Duration | None = None
) -> F | Callable[[F], F]:
    """Mark a method as a step; exactly one is `initial`. After `timeout` it gets a `TimeoutError` to handle."""
    mark = StepMark(initial, None if timeout is None else seconds(timeout, name="timeout"))

    def decorate(method: F) -> F:
        setattr(method, _MARK, mark)
        return method

    return decorate if function is None else decorate(function)


class Machine(Generic[StateT]):
    """A class of small steps; each returns an outcome. All that lasts is in `ctx.state`.

    Subclass it as `Machine[YourState]` and decorate with `@app.machine`. A method
    `async def handle(self, error, ctx)` turns a step's exception into an outcome; without one, the step is tried
    again by the machine's retry policy and then fails.
    """

    __holdfast__: ClassVar[MachineDefinition | None] = None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise DefinitionError(
            f"{type(self).__name__}.{name} cannot be set: a machine has no memory of its own between steps, and "
            "another process may run the next one. Put it into the state that the step returns"
        )

    @classmethod
    def options(cls, **options: Unpack[StartOptions]) -> MachineStarter[StateT]:
        """How to start it: `key`, `queue`, `priority`, `partition_key`, `delay`, `at`, `unique`, `deadline`, ..."""
        return _definition_of(cls).starter().options(**options)

    @classmethod
    async def start(cls, state: StateT) -> Handle[Any]:
        """Start one. Done when the ledger has it."""
        return await _definition_of(cls).starter().start(state)

    @classmethod
    async def start_many(cls, states: Iterable[StateT]) -> list[Handle[Any]]:
        """Start many in one commit. With a key or `unique` in `.options(...)`, a `Collision` says what was refused."""
        return uncollided(await _definition_of(cls).starter().start_many(states))


@dataclass(frozen=True, slots=True)
class Step:
    """One step, ready to be called."""

    name: str
    call: Callable[..., Any]  # bound to the machine's only instance
    function: Callable[..., Any]
    is_async: bool
    timeout_seconds: float | None
    resources: tuple[tuple[str, type], ...]  # parameters to be filled from the worker's lifespans


class MachineDefinition:
    """One version of one machine."""

    def __init__(
        self,
        cls: type[Machine[Any]],
        *,
        name: str | None,
        version: int,
        queue: str,
        priority: int,
        retry: RetryPolicy,
        history: bool,
        make_starter: Callable[[MachineDefinition], MachineStarter[Any]],
    ) -> None:
        if not (isinstance(cls, type) and issubclass(cls, Machine)):
            raise DefinitionError(f"@app.machine takes a class derived from Machine[State], not {cls!r}")
        self.name = check_name(name or cls.__name__)
        if isinstance(version, bool) or not isinstance(version, int) or not 0 < version < 2**31:
            raise DefinitionError(f"the version of {self.name} must be a whole number from 1, not {version!r}")
        if retry.max_elapsed is not None:
            raise DefinitionError(
                f"the retry policy of {self.name} has max_elapsed, but a machine counts attempts only; "
                "use max_attempts, or write `handle`"
            )
        self.version = version
        self.cls = cls
        self.queue = check_queue(queue)
        self.priority = check_priority(priority)
        self.retry = retry
        self.history = history
        self.handler = handler_of(KIND, self.name, version)
        state_type = _state_type(cls)
        self.codec: Codec[Any] = codec_for(state_type)
        instance = cls()
        self.steps = {found.name: found for found in _steps_of(cls, instance)}
        self.initial = _initial_of(cls)
        self.error_handler = _handler_step(cls, instance)
        self.digest = _digest_of(cls, shape_of(state_type))
        self._make_starter = make_starter

    def starter(self) -> MachineStarter[Any]:
        return self._make_starter(self)

    def read(self, step_name: str, state: str) -> tuple[Step, Any]:
        """What an execution goes on with; `DecodeError`: this code cannot."""
        value, found = self.codec.decode(state), self.steps.get(step_name)
        if found is None:
            raise DecodeError(
                f"{self.name} version {self.version} has no step {step_name!r} (any more); run the code that has it, "
                "or give the changed machine a new version"
            )
        return found, value

    def step_name(self, ref: StepRef) -> str:
        """The name of a step given by itself or by name; `OutcomeError` if it is none of this machine's."""
        name = ref if isinstance(ref, str) else getattr(ref, "__name__", None)
        found = self.steps.get(name) if name is not None else None
        if found is None or (name is not ref and getattr(ref, "__func__", ref) is not found.function):
            shown = ref if isinstance(ref, str) else getattr(ref, "__qualname__", repr(ref))
            raise OutcomeError(f"{self.name} has no step {shown!r}; its steps are {', '.join(sorted(self.steps))}")
        return found.name


def _definition_of(cls: type[Machine[Any]]) -> MachineDefinition:
    definition = cls.__dict__.get("__holdfast__")
    if not isinstance(definition, MachineDefinition):
        raise ConfigurationError(f"{cls.__name__} belongs to no app yet; decorate it with @app.machine")
    return definition


def definition_of(machine: type) -> MachineDefinition:
    """Of a decorated class."""
    if not issubclass(machine, Machine):
        raise ConfigurationError(f"{machine.__name__} is no machine; derive it from Machine[State]")
    return _definition_of(machine)


def _state_type(cls: type) -> Any:
    for base in getattr(cls, "__orig_bases__", ()):
        if isinstance(typing.get_origin(base), type) and issubclass(typing.get_origin(base), Machine):
            (argument,) = typing.get_args(base)
            if not isinstance(argument, TypeVar):
                return argument
    for parent in cls.__mro__[1:]:
        if parent is not Machine and isinstance(parent, type) and issubclass(parent, Machine):
            return _state_type(parent)
    raise DefinitionError(f"{cls.__name__} does not say what its state is; derive it from Machine[YourState]")


def _marked(cls: type) -> dict[str, tuple[StepMark, Callable[..., Any]]]:
    found: dict[str, tuple[StepMark, Callable[..., Any]]] = {}
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        mark = getattr(member, _MARK, None)
        if isinstance(mark, StepMark):
            if name == "handle":
                raise DefinitionError(f"{cls.__name__}.handle turns errors into outcomes and cannot be a step")
            if member.__name__ != name:
                raise DefinitionError(
                    f"{cls.__name__}.{name} is a function called {member.__name__!r}; a step has one name, which is "
                    "written into the ledger: define it with `def` under the name it is known by"
                )
            found[name] = (mark, member)
    return found


def _initial_of(cls: type) -> str:
    initial = [name for name, (mark, _) in _marked(cls).items() if mark.initial]
    if len(initial) != 1:
        said = f"has {len(initial)} ({', '.join(initial)})" if initial else "has none"
        raise DefinitionError(f"{cls.__name__} needs exactly one `@step(initial=True)` and {said}")
    return initial[0]


def _steps_of(cls: type, instance: object) -> list[Step]:
    return [
        _make_step(cls, instance, name, function, mark.timeout_seconds)
        for name, (mark, function) in _marked(cls).items()
    ]


def _handler_step(cls: type, instance: object) -> Step | None:
    function = getattr(cls, "handle", None)
    return None if function is None else _make_step(cls, instance, "handle", function, None, given=2)


def _make_step(
    cls: type, instance: object, name: str, function: Callable[..., Any], timeout: float | None, *, given: int = 1
) -> Step:
    """`given` arguments come from the engine; every further one is a resource, found by its annotation."""
    where = f"{cls.__name__}.{name}"
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if len(parameters) < given or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        wanted = "(self, error, ctx)" if given == 2 else "(self, ctx)"
        raise DefinitionError(f"{where} must take {wanted}, and after it only resources by type")
    extra = [p.name for p in parameters[given:]]
    hints = _hints(function, where) if extra else {}
    resources = []
    for parameter in extra:
        annotation = hints.get(parameter)
        if not isinstance(annotation, type):
            raise DefinitionError(
                f"{where} has a parameter {parameter!r} without a class as its annotation; a resource of the "
                "worker's lifespan is found by its type"
            )
        resources.append((parameter, annotation))
    is_async = inspect.iscoroutinefunction(function)
    return Step(name, getattr(instance, name), function, is_async, timeout, tuple(resources))


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise DefinitionError(f"the annotations of {where} cannot be read: {error}") from error


def _digest_of(cls: type, shape: bytes) -> str:
    """Of the bytecode and constants of all methods, nested functions included (ruling B6); and of what it reads."""
    digest = hashlib.sha256(shape)
    for name, member in sorted(inspect.getmembers(cls, inspect.isfunction)):
        if member.__module__ != Machine.__module__:
            digest.update(name.encode())
            feed_code(digest, member.__code__)
    return digest.hexdigest()[:16]


__all__ = ["KIND", "Machine", "MachineContext", "MachineDefinition", "Outcome", "Step", "definition_of", "step"]
