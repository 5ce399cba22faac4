"""The write of a commit's own row: which statement it is, by what becomes of the row, and its parameters."""

from __future__ import annotations

from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.effects import AdvanceExecution
from holdfast.store.sqlite.rows import TEXT, Row, after, names_json

_RUNNABLE, _EXECUTING = Status.RUNNABLE, Status.EXECUTING


def own_row(status: Status, delay: float, advance: AdvanceExecution, row: int, now: int, added: int) -> tuple[str, Row]:
    """The statement that writes a commit's own row, and its parameters."""
    head = (advance.step, advance.state, advance.error, advance.attempt)
    awaits = None if advance.awaits is None else names_json(advance.awaits)
    tail = (advance.digest, added, now, row)
    if status in TERMINAL:
        return "flush_end", (TEXT[status], advance.result, now, *head, *tail)
    if status is _EXECUTING:
        if advance.progress:
            return "flush_keep", (*head, awaits, *tail)
        return "flush_replay_keep", (*head, *tail)
    wake_at = None
    if advance.wake_after is not None and status in PARKED:
        wake_at = after(now, advance.wake_after)
    if not advance.progress:
        return "flush_replay", (TEXT[status], after(now, delay), wake_at, *head, *tail)
    if status is _RUNNABLE:
        return "flush_requeue", (after(now, delay), *head, awaits, *tail)
    return "flush_park", (TEXT[status], wake_at, advance.wait_children, *head, awaits, *tail)
