"""What one execution's row says of itself, and whether that can be true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.identity import PromiseId, parent_bytes, place_bytes
from holdfast.core.status import Status
from holdfast.store.base import handler_of
from holdfast.store.records import ExecutionRecord, id_bytes
from holdfast.verify import rules
from holdfast.verify.rules import Fault, Rule

_PAYLOADS: Final = ("state", "result", "error", "attributes", "published", "beats")
_COUNTERS: Final = (
    *("attempt", "crashes", "revision", "lease_epoch", "children_pending", "barrier_round", "next_child"),
    "journal_length",
)
_INNER: Final = frozenset({"chunk", "message"})  # parts of a batch and of a flow: what came of them is in those
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)


class Named(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


class Owner(NamedTuple):
    """Of which no more is known."""

    id: str
    name: str


def label_of(record: Named) -> str:
    root, dot, path = record.id.partition(".")
    return f"{record.name}/{root[:8]}{dot}{path}"


def fault_of(record: Named, rule: Rule, found: str, expected: str | None = None) -> Fault:
    return Fault(rule=rule.name, id=record.id, label=label_of(record), found=found, expected=expected or rule.text)


def is_json(text: str) -> bool:
    try:
        _JSON.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def of_row(record: ExecutionRecord, *, models: bool) -> Iterator[Fault]:
    """The faults of a row alone; with `models`, also against what the models promise."""
    try:
        promise = id_bytes(record.id)
    except InvalidArgumentError:
        yield fault_of(record, rules.IDENTITY, f"its id is {record.id!r}")
        return
    yield from _succession(record, promise)
    for name in _PAYLOADS:
        text = getattr(record, name)
        if text is not None and not is_json(text):
            yield fault_of(record, rules.PAYLOAD, f"its {name} is no JSON: {text[:60]!r}")
    for name in _COUNTERS:
        if getattr(record, name) < 0:
            yield fault_of(record, rules.COUNTERS, f"its {name} is {getattr(record, name)}")
    yield from _life(record)
    yield from _waiting(record)
    if record.unique_key is not None and not record.unique_released and record.status not in _scope(record):
        found = f"it is {record.status} and still has its unique key, for {', '.join(_scope(record))}"
        yield fault_of(record, rules.UNIQUE_RELEASED, found)
    if record.key_blocked and (record.status is not Status.RUNNABLE or record.partition_key is None):
        found = f"it is {record.status}, with the partition key {record.partition_key!r}, and waits behind it"
        yield fault_of(record, rules.BLOCKED, found)
    if models:
        yield from _of_models(record)


def _succession(record: ExecutionRecord, promise: bytes) -> Iterator[Fault]:
    if record.successor is not None:
        if not record.status.is_terminal:
            yield fault_of(record, rules.SUCCESSOR, f"it is {record.status} and has gone on as {record.successor}")
        elif place_bytes(id_bytes(record.successor)) != place_bytes(promise):
            yield fault_of(record, rules.SUCCESSOR, f"{record.successor} goes on in its place")


def _life(record: ExecutionRecord) -> Iterator[Fault]:
    if (record.status is Status.EXECUTING) != (record.locked_by is not None):
        yield fault_of(record, rules.LEASE, f"it is {record.status} and held by {record.locked_by}")
    if record.status.is_terminal != (record.ended_at is not None):
        yield fault_of(record, rules.ENDED, f"it is {record.status} and ended at {record.ended_at}")
    if record.lease_epoch > 0 and record.started_at is None:
        yield fault_of(record, rules.STARTED, f"it was claimed {record.lease_epoch} times and never started")
    if record.revision > 0 and record.lease_epoch == 0:
        yield fault_of(record, rules.STARTED, f"its revision is {record.revision} and it was never claimed")


def _waiting(record: ExecutionRecord) -> Iterator[Fault]:
    if record.wake_at is not None and not record.status.is_parked:
        yield fault_of(
            record,
            rules.ENDED_CLEAN if record.status.is_terminal else rules.WAKE,
            f"it is {record.status} and is to be woken at {record.wake_at}",
        )
    if record.status is Status.AWAITING_SIGNAL and not record.awaits and record.wake_at is None:
        yield fault_of(record, rules.PARKED, "it awaits signals, and names neither one nor a time")
    if record.status is Status.AWAITING_CHILDREN and record.children_pending < 1:
        yield fault_of(record, rules.PARKED, "it awaits children and none is pending")


def _of_models(record: ExecutionRecord) -> Iterator[Fault]:
    # A message of a flow is its job's id and four numbers, a child its parent's and one.
    # It may be below another run of its parent's: a retry takes over the children that its first step has before it.
    above = place_bytes(parent_bytes(id_bytes(record.id)))
    if record.parent is not None and not above.startswith(place_bytes(id_bytes(record.parent))):
        yield fault_of(record, rules.IDENTITY, f"its parent is {PromiseId.parse(record.parent).short}")
    is_deaf = not record.awaits and record.wake_at is None and record.children_pending < 1
    if record.status is Status.AWAITING_PROMISE and is_deaf:
        yield fault_of(record, rules.PARKED, "it awaits neither a signal nor a child nor a time")
    handler = handler_of(record.kind, record.name, record.version)
    if record.handler != handler:
        found = f"its handler is {record.handler}"
        expected = f"that of version {record.version} of the {record.kind} {record.name} is {handler}"
        yield fault_of(record, rules.HANDLER, found, expected)
    if record.kind in _INNER:
        return
    if record.status is Status.DONE and record.result is None and record.successor is None:
        yield fault_of(record, rules.OUTCOME, "it is done and has no result")
    if record.status in (Status.FAILED, Status.STRANDED) and record.error is None:
        yield fault_of(record, rules.OUTCOME, f"it is {record.status} and has no error")


def _scope(record: ExecutionRecord) -> tuple[str, ...]:
    return record.unique_scope or ()
