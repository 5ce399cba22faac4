"""Would the code at hand go on with every workflow in flight? Each is replayed in memory; nothing is written.

Before a deploy: `holdfast check module:app`. A run that would strand (ruling B5) is known before it does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from holdfast.core.errors import ForeignAwaitError, HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.stamp import Stamp
from holdfast.core.status import TERMINAL, Status
from holdfast.models.workflow.context import Context, Info
from holdfast.models.workflow.definition import KIND, Workflow
from holdfast.models.workflow.session import Session
from holdfast.store.base import Store, handler_of
from holdfast.store.values import ExecutionFilter, ExecutionView

Verdict = Literal["replays", "patched", "stranded"]

LIVE: Final = tuple(status for status in Status if status not in TERMINAL)
PAGE: Final = 100


class Checked(Struct, frozen=True):
    """What would become of one run."""

    id: str
    label: str
    status: Status
    verdict: Verdict
    detail: str | None = None  # why it would strand


async def check_runs(store: Store, workflows: Mapping[int, Workflow[..., Any]]) -> AsyncIterator[Checked]:
    """Every workflow that has not ended, newest first."""
    now_us = await store.now_us()
    where = ExecutionFilter(kind=KIND, statuses=LIVE)
    cursor: str | None = None
    while True:
        page = await store.browse(where, PAGE, cursor)
        for view in page.items:
            definition = workflows.get(handler_of(view.kind, view.name, view.version))
            segments = await store.journal(view.promise) if view.journal_length else []
            yield _checked(view, definition, segments, now_us)
        if page.cursor is None:
            return
        cursor = page.cursor


def _checked(view: ExecutionView, definition: Workflow[..., Any] | None, segments: list[str], now_us: int) -> Checked:
    promise = PromiseId.from_bytes(view.promise)
    label = promise.label(view.name)
    if definition is None:
        detail = f"there is no version {view.version} of {view.name} here: no worker with this code would pick it"
        return Checked(str(promise), label, view.status, "stranded", detail)
    try:
        is_patched = _replay(view, definition, segments, now_us)
    except HoldfastError as error:
        return Checked(str(promise), label, view.status, "stranded", str(error))
    return Checked(str(promise), label, view.status, "patched" if is_patched else "replays")


def _replay(view: ExecutionView, definition: Workflow[..., Any], segments: list[str], now_us: int) -> bool:
    """Whether the run takes the old path of a change (`ctx.patched`). Raises what it would strand with."""
    promise = PromiseId.from_bytes(view.promise)
    arguments = definition.signature.decode(view.state)
    session = Session(str(promise))
    session.now_us, session.stamp = now_us, Stamp(now_us)
    session.load(segments)
    if not session.journal.length:
        session.start(definition.digest, view.state, None, view.idempotency_key, view.version)
    info = Info(str(promise), view.name, view.version, view.idempotency_key, view.attempt)
    session.body = definition.call(Context(session, info, definition.payload_limit), *arguments)
    try:
        session.drive()
        if isinstance(session.failure, ForeignAwaitError):
            raise session.failure
    finally:
        session.evict()
    return not all(session.journal.patches.values())
