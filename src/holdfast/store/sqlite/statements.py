"""Every statement of the SQLite store, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.store.sql import load_blocks

_TOPICS: Final = (
    "insert",
    "pick",
    "keys",
    "queues",
    "flush",
    "signals",
    "leases",
    "workers",
    "control",
    "read",
    "listeners",
    "definitions",
    "schedules",
    "batches",
    "flows",
    "records",
    "health",
    "watch",
)

SQL: Final[Mapping[str, str]] = load_blocks("holdfast.store.sqlite", *(f"sql/{topic}.sql" for topic in _TOPICS))


def json_ids(ids: Iterable[int]) -> str:
    """Numbers as a JSON array, the form in which a list is bound to one parameter."""
    return f"[{','.join(map(str, ids))}]"
