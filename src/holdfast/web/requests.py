"""The shapes of what clients send: bodies and queries, checked before anything is done."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.core.status import Status
from holdfast.models.options import (
    CONCURRENCY_MOST,
    PARTITION_KEY_MAX_CHARS,
    PRIORITY_HIGHEST,
    PRIORITY_LOWEST,
    QUEUE_MAX_CHARS,
    RATE_LEAST,
    RATE_MOST,
    RATE_PERIOD_LEAST,
    UNIQUE_KEY_MAX_BYTES,
)
from holdfast.models.schedule import WINDOW_SECONDS, CatchUp, Overlap

# No NUL: PostgreSQL keeps none in text.
_NO_NUL = r"^[^\u0000]*$"
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern=_NO_NUL)]
QueueName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=QUEUE_MAX_CHARS, pattern=_NO_NUL)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=315_360_000)]
Cursor: TypeAlias = Annotated[str, Meta(pattern="^[0-9]{1,18}$", description="Of the page before")]
Priority: TypeAlias = Annotated[int, Meta(ge=PRIORITY_LOWEST, le=PRIORITY_HIGHEST, description="Smaller is earlier")]
PartitionKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=PARTITION_KEY_MAX_CHARS, pattern=_NO_NUL)]
UniqueKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=UNIQUE_KEY_MAX_BYTES)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True, description="Not before then")]
Scalar: TypeAlias = str | int | float | bool
IdOrKey: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2_000,  # an id of many levels
        pattern=_NO_NUL,
        description="An id, any prefix of one (at least four digits) that fits no other execution, or a key",
    ),
]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class ListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to list; every given parameter narrows."""

    status: Annotated[list[Status], Meta(description="May be repeated")] = []
    name: Annotated[Text | None, Meta(description="Of this definition")] = None
    queue: QueueName | None = None
    kind: Annotated[Text | None, Meta(description="workflow, task, machine, flow or batch")] = None
    parent: IdOrKey | None = None
    where: Annotated[
        list[Annotated[str, Meta(pattern=r"^[^=\u0000]+=[^\u0000]*$", max_length=1_000)]],
        Meta(description="An attribute, `name=value`; may be repeated. A value that is a JSON scalar is taken as one"),
    ] = []
    before: Annotated[datetime, Meta(tz=True, description="Only what was started before then")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50
    cursor: Cursor | None = None


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of a list."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50
    cursor: Cursor | None = None


class NamesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of what is known by its name."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50
    cursor: (
        Annotated[str, Meta(min_length=1, max_length=250, pattern=_NO_NUL, description="Of the page before")] | None
    ) = None


class LettersQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters."""

    flow: Annotated[Text | None, Meta(description="Of this flow")] = None


class FailedQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed items."""

    after: Annotated[int, Meta(ge=-1, le=2**53, description="Only items with a higher seq")] = -1
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class JournalQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events."""

    after: Annotated[int, Meta(ge=-1, le=2**53, description="Only events with a higher sequence")] = -1
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class StreamQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stream of the whole ledger tells."""

    status: Annotated[list[Status], Meta(description="Only ends with these statuses; may be repeated")] = []
    name: Annotated[Text | None, Meta(description="Only of this definition")] = None
    starts: Annotated[bool, Meta(description="An event `started` for what is started too, before its end")] = False
    overview: Annotated[bool, Meta(description="An event `overview` too, when it has changed")] = False


class SignalRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal to deliver."""

    name: Text
    payload: Any = None
    dedup_key: Annotated[Text | None, Meta(description="A key that was seen before is not delivered again")] = None


class StartRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to start, with what, and how."""

    name: Annotated[Text, Meta(description="Of a definition that workers have registered")]
    input: Annotated[
        Any, Meta(description="An object of arguments by name; a machine's state; the `items` of a batch")
    ] = None
    key: Annotated[Text | None, Meta(description="The same name and key is the same execution, for ever")] = None
    queue: QueueName | None = None
    priority: Priority | None = None
    partition_key: PartitionKey | None = None
    delay: Annotated[Seconds, Meta(description="Seconds from now")] = 0.0
    at: Moment | None = None
    attributes: dict[str, Scalar] | None = None
    deadline: Annotated[Seconds | None, Meta(description="So long after its start its cancel is requested")] = None
    unique_key: Annotated[
        UniqueKey | None, Meta(description="Refused with 409 while another live execution has the same")
    ] = None
    signal: Annotated[
        SignalRequest | None,
        Meta(description="Delivered in the same commit, also to what the key had started before; it needs a key"),
    ] = None


class CancelRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a cancel goes, and why."""

    cascade: Annotated[bool, Meta(description="With all its descendants")] = False
    force: Annotated[
        bool,
        Meta(description="End what nobody works on as it stands, without its clean-up; this needs the role admin"),
    ] = False
    reason: (
        Annotated[
            str,
            Meta(min_length=1, max_length=1000, pattern=_NO_NUL, description="What its clean-up and people are told"),
        ]
        | None
    ) = None


class ForkRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to fork."""

    at: Annotated[int, Meta(ge=0, le=2**53, description="The sequence of the last event that the fork has too")]


class QueueRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue; what is left out stays as it is, null lifts a limit."""

    paused: bool | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MOST)] | UnsetType | None = UNSET
    rate: Annotated[float, Meta(ge=RATE_LEAST, le=RATE_MOST)] | UnsetType | None = UNSET
    rate_seconds: Annotated[float, Meta(ge=RATE_PERIOD_LEAST, le=31_536_000)] | UnsetType = UNSET


class ScheduleRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is started when, and by which rules; what is left out has its default."""

    cron: Annotated[Text, Meta(description="Minute, hour, day, month, weekday")]
    definition: Annotated[Text, Meta(description="The name of what it starts")]
    timezone: Annotated[Text, Meta(description="Such as Europe/Berlin")] = "UTC"
    input: Annotated[Any, Meta(description="As in a start by name")] = None
    queue: QueueName | None = None
    overlap: Annotated[Overlap, Meta(description="While the last one still runs")] = "skip"
    catch_up: Annotated[CatchUp, Meta(description="Of ticks that no worker was there for")] = "latest"
    window_seconds: Annotated[Seconds, Meta(description="How far back they are caught up")] = WINDOW_SECONDS


def attributes_of(where: list[str]) -> dict[str, Scalar]:
    """`name=value` pairs: a value that reads as a JSON number, true or false is one; in quotes it is text."""
    found: dict[str, Scalar] = {}
    for pair in where:
        name, _, text = pair.partition("=")
        try:
            value = msgspec.json.decode(text.encode())
        except (msgspec.DecodeError, UnicodeEncodeError):
            value = text
        found[name] = value if isinstance(value, (str, int, float, bool)) else text
    return found
