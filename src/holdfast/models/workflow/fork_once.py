"""Calls with `effects="at_most_once"` and a queue that are open in a past which a fork begins with.

They run on in their queue, whatever becomes of their caller, and its journal does not say whether they have begun:
their own rows do. One that has begun, or may yet, is never begun by the fork as well:

- a fork leaves the run that it comes from alone, so it takes as its own only what ended before it began;
- a retry takes such a call out of its queue first (`withdraw`), and has what the call brought, if it has ended since.

All else is `Uncertain` there, as an inline call is whose attempt was cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw

from holdfast.core.identity import PromiseId
from holdfast.core.journal import decode_segment
from holdfast.core.journal.events import (
    Err,
    Event,
    Failure,
    InvokeCompleted,
    InvokeScheduled,
    InvokeStarted,
    Ok,
    Result,
)
from holdfast.core.status import Status
from holdfast.models.workflow.failures import failure_of_text
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView

Rows = Mapping[str, ExecutionView | None]  # by the local id of the call

BEGUN: Final = "begun"  # the step of a row whose at-most-once attempt is recorded as begun
_AT_MOST_ONCE: Final = "at_most_once"


class _Settings(msgspec.Struct):
    """What is read here of a call's settings."""

    queue: str | None = None
    effects: str = "at_least_once"


_settings = msgspec.json.Decoder(_Settings).decode


def may_repeat(call: InvokeScheduled) -> bool:
    return _settings(call.retry_policy).effects != _AT_MOST_ONCE


async def rows_of(store: Store, source: PromiseId, segments: Sequence[str]) -> Rows:
    """The rows of such calls, of all that the journal of `source` has."""
    calls = [
        event.promise_id
        for text in segments
        if _AT_MOST_ONCE in text  # most journals have none, and need not be read for it
        for event in decode_segment(text).events
        if isinstance(event, InvokeScheduled) and _is_meant(event)
    ]
    return {call: await store.get(_child(source, call)) for call in calls}


async def withdraw(store: Store, source: PromiseId, rows: Rows) -> Rows:
    """Cancel those that have not begun, so that they never will, and look again."""
    waiting = [call for call, row in rows.items() if row and not row.status.is_terminal and row.step != BEGUN]
    if not waiting:
        return rows
    ids = [_child(source, call) for call in waiting]
    await store.cancel(ids, cascade=False, reason="its caller is tried again, and calls it anew")
    return {**rows, **{call: await store.get(_child(source, call)) for call in waiting}}


def settled(events: Sequence[Event], rows: Rows, *, is_retry: bool) -> list[Event]:
    """What is added to a past: the ends of such calls that are open in it, and are not to be begun anew."""
    ended = {event.promise_id for event in events if isinstance(event, InvokeCompleted)}
    started = {event.promise_id for event in events if isinstance(event, InvokeStarted)}
    added: list[Event] = []
    for call in events:
        if isinstance(call, InvokeScheduled) and call.promise_id in rows and call.promise_id not in ended:
            result = _result_of(call, rows[call.promise_id], is_retry)
            if result is not None:
                attempt = _attempt(call.promise_id, result, events[-1].timestamp)
                added += attempt[1:] if call.promise_id in started else attempt
    return added


def brought(events: Sequence[Event], kin: Mapping[str, ExecutionView]) -> list[Event]:
    """What is added to the past of a retry: the results of children that are done, whose calls are open in it."""
    ended = {event.promise_id for event in events if isinstance(event, InvokeCompleted)}
    started = {event.promise_id for event in events if isinstance(event, InvokeStarted)}
    added: list[Event] = []
    for call, child in kin.items():
        if child.status is Status.DONE and call not in ended:
            attempt = _attempt(call, Ok(Raw((child.result or "null").encode())), events[-1].timestamp)
            added += attempt[1:] if call in started else attempt
    return added


def _result_of(call: InvokeScheduled, row: ExecutionView | None, is_retry: bool) -> Result | None:
    """None: it may be begun."""
    if row is not None and row.successor is None:
        if row.status.is_terminal and row.step != BEGUN:
            return None
        if is_retry and row.status is Status.DONE:
            return Ok(Raw((row.result or "null").encode()))
        if is_retry and row.status is Status.FAILED and failure_of_text(row.error or "").kind == "user":
            return None  # it failed by itself, and is tried again as one whose end the run has seen
    told = "may have begun in the run that this one has its past from"
    return Err(Failure("uncertain", "Uncertain", f"{call.function_name} {told}"))


def _attempt(promise_id: str, result: Result, at: datetime) -> list[Event]:
    """SE-2: a call that ends has started. Their place is given when they are copied."""
    return [
        InvokeStarted(promise_id=promise_id, attempt=1, sequence=0, timestamp=at),
        InvokeCompleted(promise_id=promise_id, result=result, attempt=1, sequence=0, timestamp=at),
    ]


def _is_meant(call: InvokeScheduled) -> bool:
    settings = _settings(call.retry_policy)
    return settings.queue is not None and settings.effects == _AT_MOST_ONCE


def _child(source: PromiseId, call: str) -> bytes:
    return source.child(int(call[1:])).to_bytes()
