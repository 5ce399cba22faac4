"""Would the code at hand go on with everything in flight? Workflows are replayed in memory, of the rest it is read what
they go on with; nothing is written.

Before a deploy: `holdfast check module:app`. What would be stranded (ruling B5) is known before it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import product
from typing import Any, Final, Literal

from msgspec import Struct

from holdfast.core.errors import DecodeError, ForeignAwaitError, HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.stamp import stamp_at
from holdfast.core.status import TERMINAL, Status
from holdfast.models.batch.definition import KIND as BATCH
from holdfast.models.batch.definition import Batch, BatchRegistry
from holdfast.models.batch.spec import read_spec
from holdfast.models.flow.flow import KIND as FLOW
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.message import peek_message
from holdfast.models.flow.registry import FlowRegistry
from holdfast.models.machine.definition import KIND as MACHINE
from holdfast.models.machine.registry import MachineRegistry
from holdfast.models.workflow.context import Context, Info
from holdfast.models.workflow.definition import KIND as WORKFLOW
from holdfast.models.workflow.definition import FunctionRegistry, Workflow
from holdfast.models.workflow.session import Session
from holdfast.models.workflow.task import KIND as TASK
from holdfast.store.base import Store, handler_of
from holdfast.store.flows import CLOSE
from holdfast.store.values import ExecutionFilter, ExecutionView

Verdict = Literal["replays", "patched", "stranded", "fails"]

KINDS: Final = (WORKFLOW, MACHINE, TASK, FLOW, BATCH)
LIVE: Final = tuple(status for status in Status if status not in TERMINAL)
PAGE: Final = 100
CHUNKS: Final = 16


class Checked(Struct, frozen=True):
    """What would become of one run."""

    id: str
    label: str
    status: Status
    verdict: Verdict
    detail: str | None = None  # why it would not go on


class Checker(Struct, frozen=True):
    """Of everything that an app declares."""

    store: Store
    functions: FunctionRegistry
    machines: MachineRegistry
    flows: FlowRegistry
    batches: BatchRegistry

    async def runs(self, queues: Sequence[str] = ()) -> AsyncIterator[Checked]:
        """Everything that has not ended, or what of it is on these queues: kind by kind, newest first."""
        now_us = await self.store.now_us()
        for kind, queue in product(KINDS, dict.fromkeys(queues) or (None,)):
            where, cursor = ExecutionFilter(kind=kind, queue=queue, statuses=LIVE), None
            while True:
                page = await self.store.browse(where, PAGE, cursor)
                for view in page.items:
                    yield await self._checked(view, now_us)
                if page.cursor is None:
                    break
                cursor = page.cursor

    async def _checked(self, view: ExecutionView, now_us: int) -> Checked:
        promise = PromiseId.from_bytes(view.promise)
        label = promise.label(view.name)
        verdict: Verdict
        try:
            verdict, detail = "patched" if await self._is_patched(view, now_us) else "replays", None
        except _Fails as error:
            verdict, detail = "fails", str(error)
        except HoldfastError as error:
            verdict, detail = "stranded", str(error)
        return Checked(str(promise), label, view.status, verdict, detail)

    async def _is_patched(self, view: ExecutionView, now_us: int) -> bool:
        """Raises what it would be stranded or fail with."""
        handler = handler_of(view.kind, view.name, view.version)
        if (workflow := self.functions.workflows.get(handler)) is not None:
            segments = await self.store.journal(view.promise) if view.journal_length else []
            return _replay(view, workflow, segments, now_us)
        if (task := self.functions.tasks.get(handler)) is not None:
            task.signature.decode(task.input_of(view.state))
        elif (machine := self.machines.by_handler.get(handler)) is not None:
            machine.read(view.step, view.state)
        elif (flow := self.flows.jobs.get(handler)) is not None:
            await self._check_job(flow, view)
        elif (batch := self.batches.by_handler.get(handler)) is not None:
            await self._check_items(batch, view)
        else:
            raise HoldfastError(
                f"there is no version {view.version} of {view.name} here: no worker with this code would pick it"
            )
        return False

    async def _check_job(self, flow: Flow, view: ExecutionView) -> None:
        if not view.step:  # it has not begun
            try:
                flow.signature.decode(view.state)
            except DecodeError as error:
                raise _Fails(str(error)) from error
        records = None if view.cancel_requested else await self.store.flow_records(view.promise)
        for message in () if records is None else records.messages:
            if message.step != CLOSE:
                flow.graph.find(peek_message(message.state).activity, flow.name)

    async def _check_items(self, batch: Batch[Any, Any], view: ExecutionView) -> None:
        """Of what was given with the start, or is taken in and has not ended."""
        status = await self.store.batch_status(view.promise)
        if status is None:
            _read_items(batch, bytes(read_spec(view.state).items).decode(), "its items")
        at = 0 if status is None else status.head
        while True:
            chunks = await self.store.batch_chunks(view.promise, at, CHUNKS, "whole")
            for chunk in chunks:
                if chunk.inputs is not None and chunk.ended < chunk.count:
                    _read_items(batch, chunk.inputs, f"its items from {chunk.first} to {chunk.stop - 1}")
            if len(chunks) < CHUNKS:
                return
            at = chunks[-1].stop


class _Fails(HoldfastError):  # noqa: N818
    """What cannot be read is recorded as failed: a job with its input, an item of a batch."""


def _read_items(batch: Batch[Any, Any], text: str, what: str) -> None:
    try:
        batch.list_codec.decode(text)
    except DecodeError as error:
        raise _Fails(f"{what}: {error}") from error


def _replay(view: ExecutionView, definition: Workflow[..., Any], segments: list[str], now_us: int) -> bool:
    """Whether the run takes the old path of a change (`ctx.patched`). Raises what it would strand with."""
    promise = PromiseId.from_bytes(view.promise)
    arguments = definition.signature.decode(view.state)
    session = Session(str(promise))
    session.now_us, session.stamp = now_us, stamp_at(now_us)
    session.load(segments)
    if not session.journal.length:
        session.start(definition.digest, view.state, None, view.idempotency_key, view.version)
    info = Info(str(promise), view.name, view.version, view.idempotency_key)
    context = Context(session, info, definition.signature, definition.payload_limit)
    session.body = definition.call(context, *arguments)
    try:
        session.drive()
        if isinstance(session.failure, ForeignAwaitError):
            raise session.failure
    finally:
        session.evict()
    return not all(session.journal.patches.values())
