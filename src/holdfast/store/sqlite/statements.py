"""Every statement of the SQLite store, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

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


def _of_one(statement: str) -> str:
    """The same for one alone, which is spared the list: that costs more than what is done with it."""
    text = SQL[statement].replace("in (select value from json_each(?))", "= ?")
    return text.replace("json_each(?) listed cross join ", "").replace("= listed.value", "= ?")


_STATEMENTS: Final = ("pick_limits", "pick_lease", "pick_claims", "pick_inboxes", "inbox_clear", "inbox_clear_keys")
OF_ONE: Final[Mapping[str, str]] = {statement: _of_one(statement) for statement in _STATEMENTS}

Ids: TypeAlias = int | str  # one id, or a JSON array of any other number of them
NO_IDS: Final = "[]"


def json_ids(ids: Iterable[int]) -> str:
    """Numbers as a JSON array, the form in which a list is bound to one parameter."""
    return f"[{','.join(map(str, ids))}]"


def packed(ids: Sequence[int]) -> Ids:
    """Ids as they are bound to what `sql_for` gives."""
    return ids[0] if len(ids) == 1 else json_ids(ids)


def joined(lists: Sequence[str]) -> Ids:
    """The same of ids that SQLite has listed already."""
    ids = ",".join(lists)
    return int(ids) if ids and "," not in ids else f"[{ids}]"


def sql_for(ids: Ids, name: str) -> str:
    return SQL[name] if isinstance(ids, str) else OF_ONE[name]
