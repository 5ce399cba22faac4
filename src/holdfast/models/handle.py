"""A started execution, as its starter and its operators hold it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast, overload

from msgspec import Struct

from holdfast.core.codec import ErrorRecord, annotation_of, codec_for, decode_error
from holdfast.core.durations import Duration, format_duration, seconds
from holdfast.core.errors import (
    ExecutionCancelledError,
    ExecutionFailedError,
    ExecutionStrandedError,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    NotPublishedError,
    SignalRefusedError,
)
from holdfast.core.identity import IdQuery, PromiseId, origin_bytes, resolve
from holdfast.core.journal.events import Event
from holdfast.core.journal.local_ids import events_of
from holdfast.core.searchable import is_text
from holdfast.core.status import Status
from holdfast.engine.results import Ending
from holdfast.models.connection import Connection
from holdfast.models.fresh_ids import fresh_id
from holdfast.models.workflow.fork import RETRY, fork_at
from holdfast.models.workflow.fork_once import rows_of
from holdfast.models.workflow.progress import CallProgress, read_progress
from holdfast.models.workflow.retrying import plan_retry
from holdfast.store.values import Delivery, ExecutionView, NewSignal, Transition

ResultT = TypeVar("ResultT", covariant=True)
T = TypeVar("T")

SIGNAL_NAME_MAX_CHARS = 200
REASON_MAX_CHARS = 1_000
DEDUP_KEY_MAX_CHARS = 255
BATCH = "batch"


class Collision(Struct, frozen=True):
    """A start that was refused: `id` is the execution in the way."""

    id: PromiseId
    reason: str


class Handle(Generic[ResultT]):
    """Made by `start`, or by `app.handle` from an id, a prefix of one, or a key."""

    __slots__ = ("__weakref__", "_connection", "_name", "_result_type", "_target")

    def __init__(
        self, connection: Connection, target: PromiseId | bytes | IdQuery, *, name: str, result: object = Any
    ) -> None:
        self._connection = connection
        self._target: bytes | IdQuery = target.to_bytes() if isinstance(target, PromiseId) else target
        self._name = name
        self._result_type = result

    @property
    def id(self) -> PromiseId:
        """The id of the execution that this handle was made for."""
        if isinstance(self._target, bytes):
            return PromiseId.from_bytes(self._target)
        raise InvalidArgumentError(f"the prefix {self._target} is not resolved yet; await handle.resolve() first")

    @property
    def _promise(self) -> bytes | None:
        """The id as the store has it; None while a prefix is not resolved."""
        return self._target if isinstance(self._target, bytes) else None

    def _is_of(self, connection: Connection) -> bool:
        return self._connection is connection

    @property
    def label(self) -> str:
        """`name/4f7a9c21`, as people see it."""
        return self.id.label(self._name) if self._name else self.id.short

    def __repr__(self) -> str:
        return f"<Handle {self.label if isinstance(self._target, bytes) else self._target}>"

    async def resolve(self) -> PromiseId:
        """The whole id; `AmbiguousIdError` or `NotFoundError` where the prefix does not name exactly one."""
        if isinstance(self._target, IdQuery):
            views = await (await self._connection.store()).find(self._target)
            found = [(PromiseId.from_bytes(view.promise), view.name) for view in views]
            promise = resolve(self._target, found)
            self._target, self._name = promise.to_bytes(), dict(found)[promise]
            return promise
        return PromiseId.from_bytes(self._target)

    async def describe(self) -> ExecutionView:
        """Everything the ledger says now of this very run; `successor` is set if it went on as another one.

        A key names the first run: `app.handle(await handle.newest())` is what a retry made of it.
        """
        promise = await self.resolve()
        view = await (await self._connection.store()).get(promise.to_bytes())
        if view is None:
            raise self._unknown()
        self._name = view.name
        return view

    async def newest(self) -> PromiseId:
        """The run that it is now: itself, unless it went on as another one (`continue_as_new`, `retry`)."""
        promise, _ = await self._find_newest()
        return PromiseId.from_bytes(promise)

    async def _find_newest(self) -> tuple[bytes, ExecutionView | None]:
        promise = (await self.resolve()).to_bytes()
        store = await self._connection.store()
        view = await store.get(promise)
        if view is not None and view.successor is not None and (first := origin_bytes(promise)) != promise:
            view = await store.get(first) or view  # it names the newest; those between name the next
        while view is not None and view.successor is not None:
            promise = view.successor
            view = await store.get(promise)
        return promise, view

    async def _newest_view(self) -> ExecutionView:
        _, view = await self._find_newest()
        if view is None:
            raise self._unknown()
        self._name = view.name
        return view

    async def status(self) -> Status:
        """Its status now; of the newest run, where it went on as another one, as `result` waits for that."""
        return (await self._newest_view()).status

    # ------------------------------------------------------------------ results

    @overload
    async def result(self, *, timeout: Duration | None = None) -> ResultT: ...
    @overload
    async def result(self, as_type: type[T], *, timeout: Duration | None = None) -> T: ...
    async def result(self, as_type: object = None, *, timeout: Duration | None = None) -> Any:
        """Wait until it has ended, and give its result as `as_type` (or as it was declared).

        Raises `ExecutionFailedError`, `ExecutionCancelledError` or `ExecutionStrandedError`, and `TimeoutError`
        after `timeout`, which leaves the execution alone; 0 looks once.
        """
        target = self._target
        promise = target if isinstance(target, bytes) else (await self.resolve()).to_bytes()
        results = self._connection.results_here() or await self._connection.results()
        if timeout is None:
            future = results.expect(promise)  # as `wait` does, with one coroutine less for each of many waiters
            try:
                ending = await future
            except BaseException:
                results.give_up(promise, future)
                raise
        elif limit := seconds(timeout, name="timeout"):
            try:
                async with asyncio.timeout(limit):
                    ending = await results.wait(promise)
            except TimeoutError:
                raise self._late(timeout) from None
        elif (known := await results.look(promise)) is not None:
            ending = known
        else:
            raise self._late(timeout)
        if ending.status is not Status.DONE:
            raise self._failure_of(ending)
        return self._result_of(ending, as_type)

    def _result_of(self, ending: Ending, as_type: object = None) -> Any:
        """What `result` gives for an execution that is done."""
        return codec_for(self._result_type if as_type is None else as_type).decode(ending.result or "null")

    def _failure_of(self, ending: Ending) -> HoldfastError:
        """What `result` raises for an execution that did not end well."""
        if ending.status is None:
            return self._unknown()
        record = decode_error(ending.error) if ending.error else None
        if ending.status is Status.FAILED:
            return ExecutionFailedError(f"{self.label} failed: {record or 'no reason was given'}", record)
        if ending.status is Status.CANCELLED:
            return ExecutionCancelledError.of(self.label, ending.cancel_reason)
        return ExecutionStrandedError(
            f"{self.label} is stranded: {record}. Nothing is lost; mend the cause, then resume it", record
        )

    # ------------------------------------------------------------------ from outside

    async def signal(self, name: str, payload: object = None, *, dedup_key: str | None = None) -> Delivery:
        """Put a signal into its inbox, durably. `SignalRefusedError` if it is finished or unknown (ruling E5)."""
        promise = self._promise or (await self.resolve()).to_bytes()
        store = await self._connection.store()
        while True:
            signal = new_signal(promise, name, payload, dedup_key, self._connection.payload_limit)
            (answer,) = await store.deliver([signal])
            tried, promise = promise, (await self.newest()).to_bytes() if answer is Delivery.ENDED else promise
            if tried == promise:
                break
        if answer is Delivery.ENDED:
            raise SignalRefusedError(f"{self.label} has ended, so the signal {name!r} would never be read")
        if answer is Delivery.UNKNOWN:
            raise SignalRefusedError(f"there is no execution {self.label} to take the signal {name!r}")
        return answer

    async def cancel(self, *, reason: str | None = None, cascade: bool = False, force: bool = False) -> Status:
        """End it as cancelled: at once if nobody works on it, else after its current step.

        `cascade` takes all its descendants along, also those of the runs that it went on from. A workflow is asked, and
        cleans up first; `force` ends what nobody works on as it stands, without: for a run that is stranded, or was
        moved elsewhere. An execution that has ended stays as it is. The first `reason` is kept, and reaches the body as
        the text of `Cancelled`, and whoever waits for the result as `reason` of the error. The status it has now.
        """
        if reason is not None and (not is_text(reason) or not reason or len(reason) > REASON_MAX_CHARS):
            raise InvalidArgumentError(f"a reason has 1 to {REASON_MAX_CHARS} characters, not {reason!r:.100}")
        promise = await self.newest()
        store = await self._connection.store()
        if force and not cascade:
            view = await store.get(promise.to_bytes())
            cascade = view is not None and view.kind == BATCH  # nobody else would end its chunks
        (status,) = await store.cancel([promise.to_bytes()], cascade=cascade, reason=reason, force=force)
        if status is None:
            raise self._unknown()
        return status

    async def pause(self) -> None:
        """Keep it from being worked on, after its current step, until `resume`."""
        promise = await self.newest()
        if not await (await self._connection.store()).pause(promise.to_bytes(), True):
            raise InvalidArgumentError(f"{self.label} cannot be paused: it has ended, or does not exist")
        await self._hold_chunks(promise.to_bytes(), True)

    async def resume(self) -> None:
        """Let a paused or stranded execution go on."""
        promise = (await self.newest()).to_bytes()
        was_live = await (await self._connection.store()).pause(promise, False)
        was_stranded = await (await self._connection.store()).resume(promise)
        if not was_live and not was_stranded:
            raise InvalidArgumentError(f"{self.label} cannot be resumed: it has ended, or does not exist")
        await self._hold_chunks(promise, False)

    async def _hold_chunks(self, promise: bytes, paused: bool) -> None:
        """The chunks of a batch's run are rows of their own: they are held, and go on, with it."""
        store = await self._connection.store()
        view = await store.get(promise)
        if view is None or view.kind != BATCH:
            return
        for chunk in await store.children(promise):
            if not chunk.status.is_terminal:
                await store.pause(chunk.promise, paused)
                if not paused:
                    await store.resume(chunk.promise)

    async def fork(self, at: int) -> Handle[ResultT]:
        """A new execution with this one's past up to and including the event `at`; this one is left as it is.

        Calls that are open there begin anew in the fork, or are `Uncertain` there if they may have begun and may not be
        repeated. For workflows; `events` and `holdfast history` list theirs.
        """
        view = await self.describe()
        store = await self._connection.store()
        promise = fresh_id()
        segments = await store.journal(view.promise)
        once = await rows_of(store, await self.resolve(), segments)
        row, past = fork_at(view, segments, at, promise, once)
        await store.fork(row, past)
        return Handle(self._connection, promise, name=view.name, result=self._result_type)

    async def retry(self) -> Handle[ResultT]:
        """Try a failed execution again: a workflow from its last good event, a machine from the step that failed.

        It goes on under a new id; the key, and who waits for this one, follow it (ruling B13). A child that failed it
        is retried below it, in the same commit.
        """
        store = await self._connection.store()
        newest = await self.newest()
        view = await store.get(newest.to_bytes())
        if view is None:
            raise self._unknown()
        if newest != await self.resolve() and view.status is not Status.FAILED:  # somebody retried it before
            return Handle(self._connection, newest, name=view.name, result=self._result_type)
        promise = newest.successor(RETRY)
        planned = await plan_retry(store, view, promise)
        await store.fork(planned.row, planned.past, replaces=view.promise, children=planned.children)
        return Handle(self._connection, promise, name=view.name, result=self._result_type)

    async def history(self) -> Sequence[Transition]:
        """What a machine with `history=True` did, step by step."""
        return await (await self._connection.store()).history((await self.resolve()).to_bytes())

    async def events(self) -> list[Event]:
        """The journal of a workflow as it is recorded; `fork` takes the `sequence` of an event."""
        promise = await self.resolve()
        segments = await (await self._connection.store()).journal(promise.to_bytes())
        return [event for segment in segments for event in events_of(str(promise), segment)]

    async def published(self) -> dict[str, Any]:
        """What the workflow shows of itself with `ctx.publish`, as of the last commit; of the newest run."""
        shown: dict[str, Any] = codec_for(Any).decode((await self._newest_view()).published or "{}")
        return shown

    @overload
    async def wait_published(
        self, name: str, *, until: Callable[[Any], bool] | None = None, timeout: Duration | None = None
    ) -> Any: ...
    @overload
    async def wait_published(
        self,
        name: str,
        as_type: type[T],
        *,
        until: Callable[[T], bool] | None = None,
        timeout: Duration | None = None,
    ) -> T: ...
    async def wait_published(
        self,
        name: str,
        as_type: object = Any,
        *,
        until: Callable[[Any], bool] | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Wait until it has published a value of this name, and give it as `as_type`; at once if it is there.

        With `until`, a value that this is true of: each that is seen is tried, and of several within a moment only the
        last is seen. Raises `NotPublishedError` if the execution ends, or is stranded, without one; and `TimeoutError`
        after `timeout`, which leaves it alone; 0 looks once. It waits for the newest run, as `result` does.
        """
        if not is_text(name) or not name:
            raise InvalidArgumentError(f"{name!r:.100} is no name that a workflow could publish a value by")
        limit = None if timeout is None else seconds(timeout, name="timeout")
        promise, codec = (await self.resolve()).to_bytes(), codec_for(as_type)
        publications = await self._connection.publications()
        ask = publications.look if limit == 0 else publications.wait
        seen: str | None = None
        try:
            async with asyncio.timeout(limit or None) as scope:
                while (found := await ask(promise, name, seen)) is not None and found.text is not None:
                    value = codec.decode(found.text)
                    if until is None or until(value):
                        return value
                    seen = found.text
        except TimeoutError:
            if not scope.expired():
                raise
            found = None
        what = f"has not published {name!r}" + ("" if seen is None else " as it was waited for")
        if found is None:
            raise self._late(limit or 0, what)
        if found.status is None:
            raise self._unknown()
        ending = await (await self._connection.results()).look(promise)
        cause = None if ending is None or ending.status is Status.DONE else self._failure_of(ending)
        raise NotPublishedError(f"{self.label} is {found.status} and {what}") from cause

    async def progress(self) -> list[CallProgress]:
        """What its tasks in flight said with their last heartbeat, as of the last commit; of the newest run.

        A task that was started alone says it of itself. So does one that a workflow called on another queue: it has an
        execution, and a handle, of its own.
        """
        view = await self._newest_view()
        return await read_progress(await self._connection.store(), view)

    async def error(self) -> ErrorRecord | None:
        """The last error that was recorded; of the newest run, as `status`."""
        text = (await self._newest_view()).error
        return None if text is None else decode_error(text)

    def _late(self, timeout: Duration, what: str = "has not ended") -> TimeoutError:
        within = format_duration(seconds(timeout, name="timeout"))
        return TimeoutError(
            f"{self.label} {what} within {within} and goes on; `holdfast show {self.id.short}` says where it stands"
        )

    def _unknown(self) -> NotFoundError:
        return NotFoundError(
            f"there is no execution {self.label}; it may have been deleted by retention, or never started: "
            "check its name and key"
        )


def new_signal(target: bytes, name: str, payload: object, dedup_key: str | None, limit: int) -> NewSignal:
    """A checked signal."""
    if not is_text(name) or not name or len(name) > SIGNAL_NAME_MAX_CHARS:
        raise InvalidArgumentError(f"{name!r} is no name of a signal; use 1 to {SIGNAL_NAME_MAX_CHARS} characters")
    if dedup_key is not None and (not is_text(dedup_key) or not dedup_key or len(dedup_key) > DEDUP_KEY_MAX_CHARS):
        raise InvalidArgumentError(f"a dedup key has 1 to {DEDUP_KEY_MAX_CHARS} characters, not {dedup_key!r}")
    return NewSignal(target, name, codec_for(annotation_of(payload)).encode(payload, max_bytes=limit), dedup_key)


def uncollided(started: list[Handle[T] | Collision]) -> list[Handle[T]]:
    """Those of a start without options: with no key of any kind nothing can be in the way."""
    return cast("list[Handle[T]]", started)
