"""The commonest commits: a row whose lease is kept and that just goes on, or one that ends and that nobody waits for.

`flushing` reads the fence of every commit, decides, and writes it. Here the fence is part of the write, and all rows
that change alike are one statement: a third of the time, and nearly all of it outside of Python's lock. If not every
row is as it was supposed to be (lost, cancelled, paused), nothing of this is written, and `flushing` sorts it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from holdfast.core.status import TERMINAL, Status
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit
from holdfast.store.flows import Collate
from holdfast.store.sqlite.own_row import OwnRows
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Receipt

_EXECUTING: Final = Status.EXECUTING
SEGMENTS_A_STATEMENT: Final = 16
_APPEND_MANY: Final = SQL["flush_journal"].rstrip(";") + ", (?, ?, ?, ?)" * (SEGMENTS_A_STATEMENT - 1)


def keep_one(tx: Tx, worker: str, commit: Commit) -> Receipt | None:
    """Write one commit alone, if it is plain, held, and goes on."""
    if not _is_plain(commit) or _is_end(commit):
        return None
    kept = tx.db.execute(SQL["flush_keep_one"], _parameters(tx.now, worker, commit)).fetchone()
    if kept is None:
        return None
    for effect in commit.effects[1:]:
        if type(effect) is AppendJournal:
            tx.db.execute(SQL["flush_journal"], (commit.claim.row, effect.first, effect.count, effect.body))
    return Receipt(True, _EXECUTING, inbox_count=kept[0])


def keep(tx: Tx, worker: str, commits: Sequence[Commit]) -> dict[int, Receipt]:
    """Write those that are plain, all or none: the receipts of what was written, by the identity of the commit."""
    plain = [commit for commit in commits if _is_plain(commit)]
    if not plain or not _write_rows(tx, worker, plain):
        return {}
    segments = [
        (commit.claim.row, effect.first, effect.count, effect.body)
        for commit in plain
        for effect in commit.effects[1:]
        if type(effect) is AppendJournal
    ]
    if segments:
        append_segments(tx, segments)
    return {id(commit): Receipt(True, commit.effects[0].status) for commit in plain}  # type: ignore[union-attr]


def append_segments(tx: Tx, segments: Sequence[Row]) -> None:
    """Into the journals; several rows a statement, where there are several."""
    whole = len(segments) // SEGMENTS_A_STATEMENT * SEGMENTS_A_STATEMENT
    for first in range(0, whole, SEGMENTS_A_STATEMENT):
        together = chain.from_iterable(segments[first : first + SEGMENTS_A_STATEMENT])
        tx.db.execute(_APPEND_MANY, tuple(together))
    for segment in segments[whole:]:
        tx.db.execute(SQL["flush_journal"], segment)


def is_collation(commit: Commit) -> bool:
    """Whether it is a step of the protocol of flows, with nothing else; the step itself is for `collating`."""
    effects = commit.effects
    return len(effects) == 2 and type(effects[1]) is Collate


def _is_plain(commit: Commit) -> bool:
    """Whether it keeps its lease or ends, and asks for at most a segment of its journal or a step of a flow."""
    advance, *others = commit.effects
    if type(advance) is not AdvanceExecution or len(others) > 1:
        return False
    if (
        others
        and type(others[0]) is not AppendJournal
        and not (type(others[0]) is Collate and advance.status is _EXECUTING)
    ):
        return False
    if advance.status is _EXECUTING:
        if not advance.progress or advance.error is not None or advance.awaits is not None:
            return False
    elif advance.status not in TERMINAL or commit.claim.has_parent or commit.claim.partition_key is not None:
        return False
    return (
        (advance.digest is None or advance.status is not _EXECUTING)
        and advance.beats is None
        and advance.published is None
        and advance.attributes is None
    )


def _write_rows(tx: Tx, worker: str, commits: Sequence[Commit]) -> bool:
    """All of them, or none: False if one of them is not held, or is asked to stop.

    Looked at before anything is written: undoing a part of a transaction would cost more than all of it.
    """
    by_epoch: dict[int, list[int]] = {}
    alike: dict[tuple[int, str | None], list[int]] = {}
    apart = OwnRows()
    for commit in commits:
        claim, advance = commit.claim, commit.effects[0]
        assert type(advance) is AdvanceExecution
        by_epoch.setdefault(claim.epoch, []).append(claim.row)
        if advance.status is _EXECUTING and advance.state is None and not advance.attempt:
            alike.setdefault((_added(commit), advance.step), []).append(claim.row)
        else:
            apart.add(advance.status, 0.0, advance, claim.row, tx.now, _added(commit))
    for epoch, rows in by_epoch.items():
        if tx.db.execute(SQL["flush_held"], (json_ids(rows), worker, epoch)).fetchone()[0] != len(rows):
            return False
    for (added, step), rows in alike.items():
        tx.db.execute(SQL["flush_keep_alike"], (step, added, tx.now, json_ids(rows)))
    apart.write(tx.db)
    return True


def _is_end(commit: Commit) -> bool:
    return commit.effects[0].status is not _EXECUTING  # type: ignore[union-attr]


def _added(commit: Commit) -> int:
    """How many events it adds to its journal."""
    effects = commit.effects
    return effects[1].count if len(effects) > 1 and type(effects[1]) is AppendJournal else 0


def _parameters(now: int, worker: str, commit: Commit) -> Row:
    advance: AdvanceExecution = commit.effects[0]  # type: ignore[assignment]
    claim = commit.claim
    return (advance.step, advance.state, advance.attempt, _added(commit), now, claim.row, worker, claim.epoch)
