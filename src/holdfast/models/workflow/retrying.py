"""Retrying a run together with the children that it failed by.

A call that a retry makes anew may have an execution of its own, which has done work that is not to be done again:

- it is done, because it ended after the run had failed, or was retried since: its result is taken;
- it failed: it is retried too, as a child of the new run, and so on downwards;
- it was retried and is still at work: nothing is retried above it before it has ended.

All else begins from the start, as tasks with a queue do, whose only work is their call.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.workflow.fork import begun_anew, retry_of
from holdfast.models.workflow.fork_once import rows_of, withdraw
from holdfast.models.workflow.open_call import settings_of
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView, ForkedChild, JournalCopy, NewExecution

_GO_ON: Final = frozenset({"workflow", "machine"})  # kinds whose work is more than one call


class Planned(NamedTuple):
    """`children` come below the row, callers first."""

    row: NewExecution
    past: JournalCopy | None
    children: list[ForkedChild]


async def plan_retry(store: Store, view: ExecutionView, promise: PromiseId, parent: PromiseId | None = None) -> Planned:
    """What a failed run is tried again as: `promise`, the child of `parent` if it is retried with its caller."""
    source = PromiseId.from_bytes(view.promise)
    segments = await store.journal(view.promise)
    once = await rows_of(store, source, segments)
    kin: dict[str, ExecutionView] = {}
    if view.status is Status.FAILED and view.kind == "workflow":
        kin = await _kin(store, source, promise, segments, once.keys())
    children: list[ForkedChild] = []
    for call, child in kin.items():
        if child.status is Status.FAILED and child.kind in _GO_ON:
            found = await plan_retry(store, child, promise.child(int(call[1:])), promise)
            row = msgspec.structs.replace(found.row, reports=True)
            children.append(ForkedChild(row, found.past, child.promise, promise.to_bytes()))
            children += found.children
    if once and view.status is Status.FAILED:
        once = await withdraw(store, source, once)
    row, past = retry_of(view, segments, promise, once, kin, parent)
    return Planned(row, past, children)


async def _kin(
    store: Store, source: PromiseId, promise: PromiseId, segments: Sequence[str], once: Collection[str]
) -> dict[str, ExecutionView]:
    """The newest runs of the children whose calls would begin anew; at-most-once calls see to theirs (`fork_once`).

    Not those below `promise`: somebody made this retry a moment before, and is not to be refused what was made of it.
    """
    anew, had_ended = begun_anew(segments)
    calls = [call for call in anew if settings_of(call.retry_policy).is_remote and call.promise_id not in once]
    firsts = await store.get_many([source.child(int(call.promise_id[1:])).to_bytes() for call in calls])
    kin: dict[str, ExecutionView] = {}
    for call, view in zip(calls, firsts, strict=True):
        below = promise.child(int(call.promise_id[1:])).to_bytes()
        while view is not None and view.successor is not None and view.successor != below:
            view = await store.get(view.successor)
        if view is None:
            continue
        if call.promise_id in had_ended and not view.status.is_terminal:
            label = PromiseId.from_bytes(view.promise).label(view.name)
            raise InvalidArgumentError(
                f"its child {label} was retried, and is {view.status}: wait for its end, then retry this one, which "
                "has its result then"
            )
        kin[call.promise_id] = view
    return kin
