"""`Context`: what a workflow's body works with."""

from __future__ import annotations

import logging
import os
import uuid as uuid_module
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

import msgspec

from holdfast.core.codec import annotation_of, codec_for
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import ConfigurationError, InvalidArgumentError
from holdfast.core.retry import RetryPolicy
from holdfast.core.searchable import is_text
from holdfast.models.handle import SIGNAL_NAME_MAX_CHARS
from holdfast.models.machine.definition import Machine, definition_of
from holdfast.models.operation.timing import Timing
from holdfast.models.options import Options
from holdfast.models.workflow.callee import is_callee
from holdfast.models.workflow.control_flow import ContinueAsNew
from holdfast.models.workflow.http import HttpResponse, http_task, import_httpx, make_request
from holdfast.models.workflow.join_set import JoinSet
from holdfast.models.workflow.operation import OwnedOperation
from holdfast.models.workflow.promise import CallPromise, Combination, Completed, Promise, SignalPromise, TimerPromise
from holdfast.models.workflow.session import Session
from holdfast.models.workflow.signature import Signature
from holdfast.models.workflow.transaction import Transaction

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

log = logging.getLogger("holdfast.workflow")


class Info(msgspec.Struct, frozen=True, gc=False):
    """Who is running: the same in every replay, as all that a body gets."""

    id: str
    name: str
    version: int
    key: str | None


class Context:
    """Every method is durable: what it gives is in the journal, and every replay gives it again."""

    def __init__(self, session: Session, info: Info, signature: Signature, payload_limit: int) -> None:
        self._session = session
        self._signature = signature  # of its own body
        self._limit = payload_limit
        self.info = info

    # ------------------------------------------------------------------ calls

    @overload
    def invoke(self, callee: type[Machine[A]], state: A, /) -> Promise[Any]: ...
    @overload
    def invoke(self, callee: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Promise[T]: ...
    def invoke(self, callee: Any, /, *args: Any, **kwargs: Any) -> Promise[Any]:
        """Begin a call of a task, a workflow, a machine, a flow or a batch; or of what `.options(...)` of one gave.

        The same as calling it. Await the promise for its result.
        """
        if isinstance(callee, type) and issubclass(callee, Machine):
            self._session.must_be_current()
            callee = definition_of(callee).starter()
        promise = callee(*args, **kwargs) if is_callee(callee) else None
        if not isinstance(promise, CallPromise):
            raise InvalidArgumentError(
                f"ctx.invoke takes a task, a workflow or a machine of this app, not {callee!r:.100}; "
                "decorate the function with @app.task"
            )
        self._session.must_be_current()
        return promise

    def transaction(self, callee: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Promise[T]:
        """Begin a call of a transaction (`@app.transaction`): the same as calling it, and refused for anything else."""
        if not isinstance(callee, Transaction):
            raise InvalidArgumentError(
                f"ctx.transaction takes a function declared with @app.transaction, not {callee!r:.100}"
            )
        return self.invoke(callee, *args, **kwargs)

    def http(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        content: str | None = None,
        timeout: Duration | None = None,
        retry: RetryPolicy | None = None,
    ) -> Promise[HttpResponse]:
        """A request as a durable call: `await` its `HttpResponse`. Needs the extra `http`.

        Failed connections, 408, 425, 429 and every 5xx are retried by the policy; any other status is a result. A
        request that is not GET or the like carries an `Idempotency-Key`, the same in every attempt.
        """
        request = make_request(method, url, headers=headers, json=json, content=content)
        try:
            import_httpx()  # a missing extra is found where it is asked for, not in an attempt
        except ConfigurationError as error:
            self._session.must_be_current()
            self._session.cannot_go_on(error)
        task = http_task(retry, timeout, self._limit)
        text = task.signature.encode((request,), {}, self._limit)
        return CallPromise(self._session, self._session.invoke(task, text), task)

    def join_set(self, *, cancel_rest: bool = False) -> JoinSet[Any]:
        """Several calls at once; results in the order in which they come."""
        return JoinSet(self._session, cancel_rest)

    def all(self, *promises: Awaitable[Any]) -> Combination[list[Any]]:
        """Wait for all of them; their results in the order given, or the first failure in that order."""
        return Combination(self._session, "All", promises)

    def any(self, *promises: Awaitable[Any]) -> Combination[Completed[Any]]:
        """Wait for the first of them: `Completed`, with `.promise` and `.result()`. The others go on."""
        return Combination(self._session, "Any", promises)

    def operation(
        self,
        folder: str | os.PathLike[str],
        *,
        participant_id: str | None = None,
        description: str | None = None,
        timing: Timing | None = None,
        max_backups: int = 20,
    ) -> OwnedOperation:
        """Own an operation of several processes for a block; calls take part by its `id`.

        The worker that runs this workflow beats for it, and keeps the run until the block is left: completed, or
        aborted by an error or a cancel. Should that worker be lost, leaving raises `OperationFailedError`.
        """
        return OwnedOperation(self._session, self, folder, participant_id, description, timing, max_backups)

    # ------------------------------------------------------------------ time, chance, the outside

    def sleep(self, duration: Duration) -> Promise[None]:
        """A durable timer: it fires once, whatever happens to the worker."""
        return TimerPromise(self._session, self._session.begin_timer(seconds(duration, name="the duration of sleep")))

    def now(self) -> datetime:
        """The store's time of the last commit; the same in every replay."""
        return self._session.current_time()

    def random(self) -> float:
        """A number in [0, 1), the same in every replay."""
        return float(self._session.random_value("float", lambda digest: int.from_bytes(digest[:7], "big") / (1 << 56)))

    def uuid(self) -> uuid_module.UUID:
        """A random UUID, the same in every replay, and after a crash that lost it."""
        text = self._session.random_value("uuid", lambda digest: str(uuid_module.UUID(bytes=digest[:16], version=4)))
        return uuid_module.UUID(text)

    @overload
    def signal(self, name: str, *, timeout: Duration | None = None) -> SignalPromise[Any]: ...
    @overload
    def signal(self, name: str, as_type: type[T], *, timeout: Duration | None = None) -> SignalPromise[T]: ...
    def signal(self, name: str, as_type: Any = Any, *, timeout: Duration | None = None) -> SignalPromise[Any]:
        """The next signal of this name, first come first served. `TimeoutError` after `timeout`.

        `DecodeError` if what was sent does not fit `as_type`; that signal is consumed.
        """
        if not is_text(name) or not name or len(name) > SIGNAL_NAME_MAX_CHARS:
            raise InvalidArgumentError(f"{name!r} is no name of a signal; use 1 to {SIGNAL_NAME_MAX_CHARS} characters")
        limit = None if timeout is None else seconds(timeout, name="timeout")
        decode = codec_for(as_type).decode
        return SignalPromise(self._session, name, lambda raw: decode(bytes(raw), signal=name), limit)

    # ------------------------------------------------------------------ the run itself

    def patched(self, patch_id: str) -> bool:
        """Whether this run takes the new path of a change; once answered, always answered the same (ruling B18)."""
        if not is_text(patch_id) or not patch_id:
            raise InvalidArgumentError(f"ctx.patched() takes a name for the change, not {patch_id!r:.100}")
        self._session.must_be_current()
        return self._session.patched(patch_id)

    def continue_as_new(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End this run and go on as a new one with this input and an empty journal.

        Signals that were not read, the key, attributes, what was published and everyone who waits go along. What does
        not fit the workflow's own parameters is an error here.
        """
        raise ContinueAsNew(self._signature.encode(args, kwargs, self._limit))

    def publish(self, name: str, value: object) -> None:
        """Let the outside read a named value with `handle.published()`, or wait for it with `handle.wait_published()`.

        It is written with the next commit, at the latest before the next call begins.
        """
        if not is_text(name) or not name:
            raise InvalidArgumentError(f"ctx.publish() takes a name, not {name!r:.100}")
        self._session.must_be_current()
        self._session.publish(name, _encoded(value, self._limit))

    def set_attributes(self, **attributes: str | int | float | bool) -> None:
        """What this run is searched by from now on; written with the next commit, before the next call begins."""
        Options(attributes=attributes).encoded_attributes()
        self._session.must_be_current()
        self._session.attributes = self._session.attributes | attributes
        self._session.has_new_attributes = True
        self._session.decided |= not self._session.is_replaying

    def log(self, message: str, *args: object, level: int = logging.INFO) -> None:
        """Log once: silent while the body is replayed."""
        if not self._session.is_replaying:
            log.log(level, message, *args, extra={"execution": self.info.id, "workflow": self.info.name})


def _encoded(value: object, limit: int) -> str:
    return codec_for(annotation_of(value)).encode(value, max_bytes=limit)
