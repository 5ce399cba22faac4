"""What a workflow may call: a task, another workflow, a machine, a flow, a batch. All have the same three phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.codec import fingerprint
from holdfast.core.errors import CallNotAllowedError, InvalidArgumentError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import InvokeKind, InvokeScheduled, Result
from holdfast.core.journal.quick import CallText
from holdfast.models.options import Options
from holdfast.models.workflow.control_flow import CURRENT
from holdfast.store.values import NewExecution

if TYPE_CHECKING:
    from holdfast.models.workflow.session import Session


class CallSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What InvokeScheduled records of a callee beside its input, as its `retry_policy`."""

    max_attempts: int | UnsetType | None = UNSET  # of tasks, and of all of them; None: any number
    queue: str | None = None
    effects: str = "at_least_once"
    # Of a call that a retry took over before it had ended well: what the run that began it called it by, outside.
    key: str | None = None

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
    """Whether calling it begins a durable call: a definition, or one with options. A plain function would just run."""
    return callable(value) and (hasattr(value, "open_result") or hasattr(value, "begins_calls"))


def session_of_call(name: str) -> Session:
    """That of the body which calls a definition with options."""
    if CURRENT.session is None:
        raise CallNotAllowedError(
            f"{name} with options is called in a workflow's body; start it from outside with `.start(...)`"
        )
    return CURRENT.session


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


__all__ = ["Callee", "fingerprint", "forgive"]
