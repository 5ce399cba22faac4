"""What a store says of its own health: its version, its settings, its place, its indexes. For `holdfast doctor`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # works, and should be looked at
    BAD = "bad"  # a promise cannot be kept


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at: what was found, and what to do about it."""

    name: str
    level: Level
    found: str
    advice: str | None = None


class SchemaState(Struct, frozen=True):
    """The migration that a ledger has; None: there is no ledger. `known` is this program's."""

    found: int | None
    known: int


MIB: Final = 1024 * 1024
_AHEAD_SECONDS: Final = 60.0


def size_text(size: float) -> str:
    """`12.3 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def times_check(ahead_seconds: float) -> Check:
    """By how much the last start or end of the ledger is later than now, which it cannot be."""
    if ahead_seconds < _AHEAD_SECONDS:
        return Check(name="times", level=Level.OK, found="none is ahead of the ledger's clock")
    advice = (
        "its clock was set back, or it comes from where the clock is ahead: until then leases of the dead hold, and "
        "nothing that was to be due wakes; set the clock right"
    )
    return Check(name="times", level=Level.BAD, found=f"up to {ahead_seconds:.0f} s ahead of its clock", advice=advice)


def missing_check(missing: list[str]) -> Check:
    if not missing:
        return Check(name="indexes", level=Level.OK, found="all there")
    names = ", ".join(missing)
    advice = "a pick or a look would read the whole table: create them as in schema.sql of this version"
    return Check(name="indexes", level=Level.BAD, found=f"missing: {names}", advice=advice)
