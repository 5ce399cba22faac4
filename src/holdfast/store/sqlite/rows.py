"""Between rows of SQLite and the values of the contract."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.json import Decoder

from holdfast.core.clock import MICROSECONDS, to_datetime
from holdfast.core.identity import parent_bytes
from holdfast.core.status import Status
from holdfast.store.values import EXECUTIONS, ExecutionClaim, ExecutionView, Signal

STATUS: Final = {status.value: status for status in Status}
# The plain string of a status: binding a `StrEnum` member costs SQLite's driver a search for an adapter.
TEXT: Final[dict[Status, str]] = {status: str(status.value) for status in Status}

Row = tuple[Any, ...]

_names: Final[Decoder[tuple[str, ...]]] = Decoder(tuple)


def after(now: int, seconds: float) -> int:
    """The moment `seconds` after `now`, in microseconds."""
    return now + round(seconds * MICROSECONDS) if seconds else now


def names_json(names: Iterable[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)


def names_of(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else _names.decode(text)


def claim_of(row: Row, inbox: tuple[Signal, ...], now: int) -> ExecutionClaim:
    """A row as `pick_claims` returns it."""
    claim = ExecutionClaim(
        table=EXECUTIONS,
        row=row[0],
        epoch=row[1],
        kind=row[2],
        name=row[3],
        version=row[4],
        handler=row[5],
        queue=row[6],
        priority=row[7],
        attempt=row[8],
        promise=row[9],
        revision=row[10],
        step=row[11],
        state=row[12],
        digest=row[13],
        inbox=inbox,
        picked_at_us=now,
    )
    more = row[14:]
    if more != _NOTHING_MORE:
        _complete(claim, *more)
    return claim


# Of what is new and asks for nothing special: the defaults of a claim.
_NOTHING_MORE: Final = (None, 0, None, 0, 0, 0, 0, 0, None, None, 0, None, None, None, None)


def _complete(
    claim: ExecutionClaim,
    partition_key: str | None,
    crashes: int,
    awaits: str | None,
    timed_out: int,
    children_ready: int,
    barrier_round: int,
    next_child: int,
    cancel_requested: int,
    parent: int | None,
    cancel_reason: str | None,
    journal_length: int,
    idempotency_key: str | None,
    beats: str | None,
    published: str | None,
    attributes: str | None,
) -> None:
    claim.partition_key, claim.crashes, claim.awaits = partition_key, crashes, names_of(awaits)
    claim.timed_out, claim.children_ready = timed_out == 1, children_ready == 1
    claim.barrier_round, claim.next_child = barrier_round, next_child
    claim.cancel_requested, claim.cancel_reason = cancel_requested == 1, cancel_reason
    claim.journal_length, claim.idempotency_key = journal_length, idempotency_key
    claim.beats, claim.published, claim.attributes = beats, published, attributes
    if parent is not None:
        claim.has_parent, claim.parent_row, claim.parent = True, parent, parent_bytes(claim.promise)


def view_of(row: Row) -> ExecutionView:
    """A row as the `view_` statements return it."""
    return ExecutionView(
        promise=row[0],
        kind=row[1],
        name=row[2],
        version=row[3],
        step=row[4],
        status=STATUS[row[5]],
        state=row[6],
        result=row[7],
        error=row[8],
        queue=row[9],
        priority=row[10],
        partition_key=row[11],
        attempt=row[12],
        crashes=row[13],
        revision=row[14],
        lease_epoch=row[15],
        locked_by=row[16],
        awaits=names_of(row[17]),
        children_pending=row[18],
        barrier_round=row[19],
        parent=row[20],
        cancel_requested=row[21] == 1,
        paused=row[22] == 1,
        unique_key=row[23],
        digest=row[24],
        attributes=row[25],
        eligible_at=to_datetime(row[26]),
        wake_at=None if row[27] is None else to_datetime(row[27]),
        inserted_at=to_datetime(row[28]),
        started_at=None if row[29] is None else to_datetime(row[29]),
        ended_at=None if row[30] is None else to_datetime(row[30]),
        updated_at=to_datetime(row[31]),
        idempotency_key=row[32],
        cancel_reason=row[33],
        deadline_at=None if row[34] is None else to_datetime(row[34]),
        journal_length=row[35],
        reports=row[36] == 1,
        published=row[37],
        beats=row[38],
        successor=row[39],
    )


def inboxes_of(rows: Sequence[Row]) -> dict[int, tuple[Signal, ...]]:
    """Rows of (target, id, name, payload, kind) in order of id, by target."""
    found: dict[int, list[Signal]] = {}
    for target, *signal in rows:
        found.setdefault(target, []).append(Signal(*signal))
    return {target: tuple(signals) for target, signals in found.items()}
