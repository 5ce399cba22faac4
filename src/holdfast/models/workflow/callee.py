"""What a workflow may call: a task, another workflow, a machine. All are invoked with the same three phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.codec import codec_for, fingerprint
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import InvokeKind, InvokeScheduled, Ok, Result
from holdfast.core.journal.quick import CallText
from holdfast.models.machine.definition import MachineDefinition
from holdfast.models.machine.start import machine_row
from holdfast.models.options import Options
from holdfast.models.workflow.failures import exception_of
from holdfast.store.values import NewExecution


class CallSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What InvokeScheduled records of a callee beside its input, as its `retry_policy`."""

    max_attempts: int | UnsetType | None = UNSET  # of tasks, and of all of them; None: any number
    queue: str | None = None
    effects: str = "at_least_once"

    @property
    def is_remote(self) -> bool:
        """Whether the call has an execution of its own: all but tasks without a queue."""
        return self.max_attempts is UNSET or self.queue is not None

    def text(self) -> Raw:
        return Raw(msgspec.json.encode(self))


class Callee(Protocol):
    """`is_remote`: it gets an execution of its own; else it runs inline in the worker that holds the caller."""

    @property
    def name(self) -> str: ...

    @property
    def invoke_kind(self) -> InvokeKind: ...

    @property
    def is_remote(self) -> bool: ...

    @property
    def settings(self) -> Raw:
        """The text of its `CallSettings`."""

    @property
    def call_text(self) -> CallText: ...

    def rewrite(self, recorded: str) -> str:
        """A recorded input as today's annotations write it."""

    def open_result(self, result: Result) -> Any:
        """The value, or the exception raised."""

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        """The row of a remote call."""


def is_callee(value: object) -> TypeGuard[Callable[..., Any]]:
    """Whether calling it begins a durable call, as a task and a workflow do. A plain function would just run."""
    return callable(value) and (hasattr(value, "open_result") or hasattr(value, "begins_calls"))


def refuse_names(name: str, options: Options) -> None:
    """A call is named by its place in the body; one whose unique key is taken would never answer."""
    for option in ("key", "unique", "connection", "dedup_key"):
        if getattr(options, option) is not None:
            raise InvalidArgumentError(
                f"the call of {name} has {option}=..., which is for starts from outside: a call is one by its place in "
                "the workflow; use partition_key to run one at a time"
            )


def forgive(callee: Callee, recorded: InvokeScheduled, before: str, text: str, mark: str) -> str:
    """B17: a new field with a default is no change. The recorded fingerprint, if today's code means the same.

    `before` is the recorded input, with this run's own id in it.
    """
    if recorded.fingerprint == mark or recorded.function_name != callee.name:
        return mark
    try:
        rewritten = callee.rewrite(before)
    except Exception:
        return mark
    return recorded.fingerprint if rewritten == text else mark


class MachineCallee:
    """A machine, awaited by a workflow for its result."""

    invoke_kind: InvokeKind = "Function"
    is_remote = True
    settings = CallSettings(queue="machine").text()

    def __init__(self, definition: MachineDefinition, options: Options | None = None) -> None:
        self._definition = definition
        self._options = options or Options()
        self.name = definition.name
        self.call_text = CallText(self.invoke_kind, self.name, self.settings)

    def check_options(self) -> None:
        """Of a call that is new: one that the journal has is as it was made, whatever was taken then."""
        refuse_names(self.name, self._options)
        self._options.encoded_attributes()

    def encode(self, state: object, limit: int) -> str:
        return self._definition.codec.encode(state, max_bytes=limit)

    def rewrite(self, recorded: str) -> str:
        return self._definition.codec.rewrite(recorded)

    def open_result(self, result: Result) -> Any:
        if isinstance(result, Ok):
            return codec_for(Any).decode(bytes(result.value))
        raise exception_of(result.error, (), self.name)

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        state = self._definition.codec.decode(text)
        return machine_row(self._definition, promise, state, self._options, limit, reports=True)


__all__ = ["Callee", "MachineCallee", "fingerprint", "forgive"]
