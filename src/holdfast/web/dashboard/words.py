"""Times, lengths and statuses in a person's terms. Pure: now is a parameter."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from holdfast.core.clock import MICROSECONDS
from holdfast.core.status import Status
from holdfast.views.timeline import PieceKind

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
DAYS_WITH_HOURS = 10  # for so many days an age has its hours, too: what happened yesterday is told apart

STATUS_WORDS = {
    Status.RUNNABLE: "runnable",
    Status.EXECUTING: "executing",
    Status.AWAITING_SIGNAL: "awaiting signal",
    Status.AWAITING_CHILDREN: "awaiting children",
    Status.AWAITING_PROMISE: "awaiting",
    Status.STRANDED: "stranded",
    Status.DELEGATED: "delegated",
    Status.DONE: "done",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}

STATUS_HINTS = {
    Status.RUNNABLE: "Waits for a worker",
    Status.EXECUTING: "A worker holds it",
    Status.AWAITING_SIGNAL: "Parked until a signal arrives or a deadline passes",
    Status.AWAITING_CHILDREN: "Parked until its children have ended",
    Status.AWAITING_PROMISE: "Parked on calls, timers or signals",
    Status.STRANDED: "No code at hand can go on with it; nothing is lost, and it can be resumed",
    Status.DELEGATED: "Its work is in messages or chunks",
    Status.DONE: "Ended with a result",
    Status.FAILED: "Ended with an error",
    Status.CANCELLED: "Ended because someone asked for it",
}

KIND_WORDS = {
    PieceKind.WORK: "working",
    PieceKind.CHILD: "in children",
    PieceKind.RETRY: "before retries",
    PieceKind.SIGNAL: "for a signal",
    PieceKind.SLEEP: "sleeping",
    PieceKind.QUEUED: "for a worker",
    PieceKind.JOIN: "joining",
    PieceKind.IDLE: "other",
}


def length(us: int | float) -> str:
    """`12 µs`, `340 ms`, `1.2 s`, `3 min 20 s`, `2 d 4 h`: two units at most."""
    if us < 1_000:
        return f"{round(us)} µs" if us else "0 s"
    if us < 999_500:
        return f"{us / 1_000:.3g} ms"
    seconds = us / MICROSECONDS
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for (unit, size), (lower, lower_size) in pairwise(_UNITS):
        if whole >= size:
            rest = (whole % size) // lower_size
            return (
                f"{whole // size} {unit} {rest} {lower}" if rest and whole // size < 100 else f"{whole // size} {unit}"
            )
    return f"{whole} s"


def ago(moment: datetime, now: datetime) -> str:
    """`3 s ago`, `in 2 h`, `1 d 4 h ago`: rounded down, to an hour for some days."""
    seconds = (now - moment).total_seconds()
    shown = _unit(abs(seconds))
    if shown == "0 s":
        return "now"
    return f"{shown} ago" if seconds > 0 else f"in {shown}"


def age(moment: datetime, now: datetime) -> str:
    """How long ago, without saying so."""
    return _unit(max(0.0, (now - moment).total_seconds()))


def _unit(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size:
            shown = f"{int(seconds // size)} {unit}"
            hours = int(seconds % size // 3_600)  # none is left of a unit below the day
            return f"{shown} {hours} h" if hours and seconds < DAYS_WITH_HOURS * size else shown
    return "0 s"


def exact(moment: datetime) -> str:
    """To the millisecond, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC"


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number(value: int | float) -> str:
    """With thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else f"{value:,.3g}".replace(",", "\u202f")


def compact(value: int | float) -> str:
    """`1.2 M` where space is short."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            shown = value / (1e3 if unit == "k" else limit)
            return f"{shown:.3g} {unit}"
    return number(round(value) if value >= 100 or value == round(value) else value)


def amount(count: int, capped: bool, estimate: int | None) -> str:
    """How many there are: a plus where there are more than were counted, `about` where a sample says how many."""
    if estimate is not None:
        return f"about {compact(estimate)}"
    return number(count) + ("+" if capped else "")


def counted(value: int, thing: str, things: str | None = None) -> str:
    """`1 order`, `20 orders`."""
    return f"{number(value)} {thing if value == 1 else things or thing + 's'}"
