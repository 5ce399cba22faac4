"""The commonest commits: a row whose lease is kept and that just goes on, or one that ends and that nobody waits for.

`flushing` reads the fence of every commit, decides, and writes it. Here the fence is part of the write, and all rows
that change alike are one statement: a third of the time, and nearly all of it outside of Python's lock. If not every
row is as it was supposed to be (lost, cancelled, paused), nothing of this is written, and `flushing` sorts it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from msgspec.json import encode

from holdfast.core.status import TERMINAL, Status
from holdfast.store.effects import GO_ON, AdvanceExecution, AppendJournal, Commit
from holdfast.store.flows import Collate
from holdfast.store.sqlite.own_row import OwnRows
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Receipt

_EXECUTING: Final = Status.EXECUTING
# How many segments one statement takes, by statement: fewer statements are faster, and hand over Python's lock less.
_APPENDS: Final = tuple(
    (many, SQL["flush_journal"].rstrip(";") + ", (?, ?, ?, ?)" * (many - 1)) for many in (64, 16, 4, 1)
)


def keep_one(tx: Tx, worker: str, commit: Commit) -> Receipt | None:
    """Write one commit alone, if it is plain, held, and goes on."""
    claim, effects = commit.claim, commit.effects
    if not _is_plain(commit) or effects[0].status is not _EXECUTING:  # type: ignore[union-attr]
        return None
    advance: AdvanceExecution = effects[0]  # type: ignore[assignment]
    row, segment = claim.row, effects[1] if len(effects) > 1 and type(effects[1]) is AppendJournal else None
    added = 0 if segment is None else segment.count
    changes = (advance.step, advance.state, advance.attempt, advance.digest, added, tx.now)
    fence = (row, worker, claim.epoch, claim.revision)
    if not tx.db.execute(SQL["flush_keep_one"], changes + fence).rowcount:
        return None
    if segment is not None:
        tx.db.execute(SQL["flush_journal"], (row, segment.first, added, segment.body))
    # A read of its own: `returning` costs twice as much.
    (inbox_count,) = tx.db.execute(SQL["inbox_count"], (row,)).fetchone()
    return Receipt(True, _EXECUTING, inbox_count=inbox_count)


class Kept:
    """The commits that `keep` has written, and what is left to do for them: `live` rows have an inbox to be counted."""

    __slots__ = ("commits", "ended", "has_collations", "live", "receipts")

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.receipts: list[Receipt] = []
        self.live: dict[int, Receipt] = {}
        self.ended: list[int] = []
        self.has_collations = False


def keep(tx: Tx, worker: str, commits: Sequence[Commit]) -> Kept | None:
    """Write those that are plain, all or none: None if one of them is not held, or is asked to stop.

    Looked at before anything is written: undoing a part of a transaction would cost more than all of it.
    """
    kept = Kept()
    segments: list[Row] = []
    by_epoch: dict[int, dict[int, int]] = {}  # the revision of each row
    alike: dict[tuple[int, str | None], list[int]] = {}
    apart = OwnRows()
    for commit in commits:
        claim, effects = commit.claim, commit.effects
        row = claim.row
        if effects[0] is GO_ON and len(effects) == 2 and type(segment := effects[1]) is AppendJournal:
            # A step of a workflow, which most commits are.
            added, status = segment.count, _EXECUTING
            segments.append((row, segment.first, added, segment.body))
            change = (added, None)
            if change in alike:
                alike[change].append(row)
            else:
                alike[change] = [row]
        elif _is_plain(commit):
            advance: AdvanceExecution = effects[0]  # type: ignore[assignment]
            added, status = _added(commit), advance.status
            if added:
                segments.append((row, effects[1].first, added, effects[1].body))  # type: ignore[union-attr]
            kept.has_collations |= is_collation(commit)
            if _goes_on(advance):
                alike.setdefault((added, advance.step), []).append(row)
            else:
                apart.add(status, 0.0, advance, row, tx.now, added)
        else:
            continue
        receipt = Receipt(True, status)
        kept.commits.append(commit)
        kept.receipts.append(receipt)
        if claim.epoch in by_epoch:
            by_epoch[claim.epoch][row] = claim.revision
        else:
            by_epoch[claim.epoch] = {row: claim.revision}
        if status is _EXECUTING:
            kept.live[row] = receipt
        else:
            kept.ended.append(row)
    for epoch, known in by_epoch.items():
        if tx.db.execute(SQL["flush_held"], (encode(known).decode(), worker, epoch)).fetchone()[0] != len(known):
            return None
    for (added, step), rows in alike.items():
        tx.db.execute(SQL["flush_keep_alike"], (step, added, tx.now, json_ids(rows)))
    apart.write(tx.db)
    if segments:
        append_segments(tx, segments)
    return kept


def append_segments(tx: Tx, segments: Sequence[Row]) -> None:
    """Into the journals; several rows a statement, where there are several."""
    first = 0
    for many, statement in _APPENDS:
        while len(segments) - first >= many:
            tx.db.execute(statement, tuple(chain.from_iterable(segments[first : first + many])))
            first += many


def is_collation(commit: Commit) -> bool:
    """Whether it is a step of the protocol of flows, with nothing else; the step itself is for `collating`."""
    effects = commit.effects
    return len(effects) == 2 and type(effects[1]) is Collate


def _is_plain(commit: Commit) -> bool:
    """Whether it keeps its lease or ends, and asks for at most a segment of its journal or a step of a flow."""
    effects = commit.effects
    advance = effects[0]
    if type(advance) is not AdvanceExecution or len(effects) > 2:
        return False
    if len(effects) == 2:
        other = type(effects[1])
        if other is not AppendJournal and not (other is Collate and advance.status is _EXECUTING):
            return False
    if advance is GO_ON:
        return True
    if advance.status is _EXECUTING:
        if not advance.progress or advance.error is not None or advance.awaits is not None:
            return False
    elif advance.status not in TERMINAL or commit.claim.has_parent or commit.claim.partition_key is not None:
        return False
    return advance.beats is None and advance.published is None and advance.attributes is None


def _goes_on(advance: AdvanceExecution) -> bool:
    """Whether at most the step of a kept lease changes."""
    has_more = advance.state is not None or advance.digest is not None or advance.attempt
    return advance.status is _EXECUTING and not has_more


def _added(commit: Commit) -> int:
    """How many events it adds to its journal."""
    effects = commit.effects
    return effects[1].count if len(effects) > 1 and type(effects[1]) is AppendJournal else 0
