"""Chunks that were ended as they stood, by force: nobody works on their items any more, so the run closes those.

A chunk that is asked to cancel closes its items itself. One that is stranded hears nothing, and one that somebody ends
with `cancel --force` is not asked: without this its items would stay open, and the lane would wait for them for ever.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.identity import PromiseId
from holdfast.core.sequence.states import CANCEL, DISPATCHED, IN_FLIGHT
from holdfast.core.status import Status
from holdfast.models.batch.items import keep_inputs
from holdfast.models.batch.packing import count_states
from holdfast.store.base import Store
from holdfast.store.batches import ChunkView, Counters, MarkItems
from holdfast.store.values import CHILD, ChildEnd, ExecutionClaim

_OPEN: Final = (DISPATCHED, IN_FLIGHT)
_CLOSED: Final = bytes(CANCEL if byte & 0x0F in _OPEN else byte for byte in range(256))
_child_end = msgspec.json.Decoder(ChildEnd).decode


def ended_chunks(claim: ExecutionClaim, status: Status) -> list[tuple[int, ChildEnd]]:
    """The first seqs of the chunks that the inbox of their run says have ended so."""
    ends = [(signal.name, _child_end(signal.payload)) for signal in claim.inbox if signal.kind == CHILD]
    return [(PromiseId.from_bytes(bytes.fromhex(name)).path[-1], end) for name, end in ends if end.status is status]


async def close_items(store: Store, run: bytes, first: int) -> MarkItems | None:
    """Cancel what the chunk left open (rules 6 and 7); None: it left nothing."""
    found = await store.batch_chunks(run, first, 1, "whole")
    if not found or found[0].first != first or found[0].ended == found[0].count:
        return None
    return _closing(found[0])


def _closing(chunk: ChunkView) -> MarkItems:
    assert chunk.states is not None, "a chunk that has ended was dispatched"
    counted = count_states(chunk.states)
    dispatched, in_flight = (counted[state] for state in counted if state in _OPEN)
    states = chunk.states.translate(_CLOSED)
    return MarkItems(
        first=chunk.first,
        states=states,
        attempts=chunk.attempts,
        prefix=chunk.count,
        changed=Counters(dispatched=-dispatched, in_flight=-in_flight, cancelled=dispatched + in_flight),
        notes=chunk.notes,
        results=chunk.results,
        inputs=keep_inputs(chunk.inputs, states),
        is_final=True,
        own_run=True,
    )


async def end_stranded(store: Store, chunks: list[bytes], statuses: list[Status | None], reason: str | None) -> None:
    """Of chunks that were just asked to cancel: those that cannot hear it are ended as they stand."""
    stranded = [chunk for chunk, status in zip(chunks, statuses, strict=True) if status is Status.STRANDED]
    if stranded:
        await store.cancel(stranded, reason=reason, force=True)
