"""The commonest commits: a row whose lease is kept, nothing of which is asked but to go on.

`flushing` reads the fence of every commit, decides, and writes it. Here the fence is part of the write, and all rows
that change alike are one statement: a third of the time, and nearly all of it outside of Python's lock. If not every
row is as it was supposed to be (lost, cancelled, paused), nothing of this is written, and `flushing` sorts it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from holdfast.core.status import Status
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Receipt

_EXECUTING: Final = Status.EXECUTING
SEGMENTS_A_STATEMENT: Final = 16
_APPEND_MANY: Final = SQL["flush_journal"].rstrip(";") + ", (?, ?, ?, ?)" * (SEGMENTS_A_STATEMENT - 1)


def keep(tx: Tx, worker: str, commits: Sequence[Commit]) -> dict[int, Receipt]:
    """Write those that are plain, all or none: the receipts of what was written, by the identity of the commit."""
    plain = [commit for commit in commits if _is_plain(commit)]
    if not plain or not _write_rows(tx, worker, plain):
        return {}
    segments = []
    for commit in plain:
        for effect in commit.effects[1:]:
            assert type(effect) is AppendJournal
            segments.append((commit.claim.row, effect.first, effect.count, effect.body))
    if segments:
        append_segments(tx, segments)
    return {id(commit): Receipt(True, _EXECUTING) for commit in plain}


def append_segments(tx: Tx, segments: Sequence[Row]) -> None:
    """Into the journals; several rows a statement, where there are several."""
    whole = len(segments) // SEGMENTS_A_STATEMENT * SEGMENTS_A_STATEMENT
    for first in range(0, whole, SEGMENTS_A_STATEMENT):
        together = chain.from_iterable(segments[first : first + SEGMENTS_A_STATEMENT])
        tx.db.execute(_APPEND_MANY, tuple(together))
    for segment in segments[whole:]:
        tx.db.execute(SQL["flush_journal"], segment)


def _is_plain(commit: Commit) -> bool:
    """Whether it keeps its lease, adds at most a segment to its journal, and sets nothing but step and state."""
    advance, *others = commit.effects
    if type(advance) is not AdvanceExecution or advance.status is not _EXECUTING or not advance.progress:
        return False
    if others and (len(others) > 1 or type(others[0]) is not AppendJournal):
        return False
    return (
        advance.error is None
        and advance.awaits is None
        and advance.digest is None
        and advance.beats is None
        and advance.published is None
        and advance.attributes is None
    )


def _write_rows(tx: Tx, worker: str, commits: Sequence[Commit]) -> bool:
    """All of them, or none: False if one of them is not held, or is asked to stop."""
    db, now = tx.db, tx.now
    if len(commits) == 1:
        return db.execute(SQL["flush_keep_held"], _parameters(now, worker, commits[0])).rowcount == 1
    alike: dict[tuple[int, int, str | None], list[int]] = {}
    apart: list[Row] = []
    for commit in commits:
        advance: AdvanceExecution = commit.effects[0]  # type: ignore[assignment]
        if advance.state is not None or advance.attempt:
            apart.append(_parameters(now, worker, commit))
        else:
            alike.setdefault((commit.claim.epoch, _added(commit), advance.step), []).append(commit.claim.row)
    db.execute("savepoint keep")
    written = 0
    for (epoch, added, step), rows in alike.items():
        asked = (step, added, now, json_ids(rows), worker, epoch)
        written += db.execute(SQL["flush_keep_alike"], asked).rowcount
    if apart:
        written += db.executemany(SQL["flush_keep_held"], apart).rowcount
    if written != len(commits):
        db.execute("rollback to keep")
    db.execute("release keep")
    return written == len(commits)


def _added(commit: Commit) -> int:
    """How many events it adds to its journal."""
    effects = commit.effects
    return effects[1].count if len(effects) > 1 else 0  # type: ignore[union-attr]


def _parameters(now: int, worker: str, commit: Commit) -> Row:
    advance: AdvanceExecution = commit.effects[0]  # type: ignore[assignment]
    claim = commit.claim
    return (advance.step, advance.state, advance.attempt, _added(commit), now, claim.row, worker, claim.epoch)
