"""The commonest commits: a row whose lease is kept and that just goes on, or one that ends and that nobody waits for.

`flushing` reads the fence of every commit, decides, and writes it. Here the fences are one question, and all rows that
change alike are one statement: a third of the time, and nearly all of it outside of Python's lock. If not every row is
as it was supposed to be (lost, cancelled, paused), nothing of this is written, and `flushing` sorts it out.

A commit that may leave its row alone (`behind`) does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Final

from msgspec.json import encode

from holdfast.core.status import TERMINAL, Status
from holdfast.store.behind import may_stay_behind
from holdfast.store.effects import GO_ON, AdvanceExecution, AppendJournal, Commit
from holdfast.store.flows import Collate
from holdfast.store.sqlite.own_row import OwnRows
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ExecutionClaim, Receipt

_EXECUTING: Final = Status.EXECUTING
STEP: Final = SQL["flush_step"]  # it writes nothing unless the fence holds and nobody asks anything of the run
# How many segments one statement takes, by statement: fewer statements are faster, and hand over Python's lock less.
# A step that is not told is no parameter: binding None costs as much as all the rest of a row.
_APPENDS: Final = {
    width: tuple(
        (many, SQL[name].rstrip(";") + f", ({', '.join('?' * width)})" * (many - 1)) for many in (64, 16, 4, 1)
    )
    for width, name in ((4, "flush_journal"), (5, "flush_journal_step"))
}


def step_values(
    worker: str, claim: ExecutionClaim, advance: AdvanceExecution, segment: AppendJournal
) -> tuple[int, str, int, int, int, int, str, str]:
    """What `STEP` takes of a commit that leaves its row alone."""
    fence = (claim.row, worker, claim.epoch, claim.told_revision)
    return (*fence, segment.first, segment.count, segment.body, advance.step or "")


def keep_one(tx: Tx, worker: str, commit: Commit) -> Receipt | None:
    """Write one commit alone, if it is plain, held, and goes on."""
    claim, effects = commit.claim, commit.effects
    advance: AdvanceExecution = effects[0]  # type: ignore[assignment]
    segment = effects[1] if len(effects) == 2 and type(effects[1]) is AppendJournal else None
    untold = 0
    if segment is not None and may_stay_behind(claim, advance, segment, tx.now):
        untold = segment.count
        if tx.db.execute(STEP, step_values(worker, claim, advance, segment)).rowcount:
            return Receipt(True, _EXECUTING, untold=untold)
    if advance.status is not _EXECUTING or not _is_plain(commit, segment):
        return None
    row = claim.row
    held = tx.db.execute(SQL["flush_held_one"], (row, worker, claim.epoch, claim.revision)).fetchone()
    if held is None:
        return None
    if not untold:
        commits, events, step_told = claim.told(0 if segment is None else segment.count, advance.step)
        changes = (step_told, advance.state, advance.attempt, advance.digest, events, tx.now, commits)
        tx.db.execute(SQL["flush_keep_one"], (*changes, row))
    if segment is not None:
        written = (row, segment.first, segment.count, segment.body)
        append_segments(tx, [(*written, advance.step) if untold and advance.step else written])
    return Receipt(True, _EXECUTING, has_inbox=bool(held[0]), untold=untold)


class Kept:
    """The commits that `keep` has written, and what is left to do for them: `live` rows may have an inbox."""

    __slots__ = ("commits", "ended", "failed", "has_collations", "live", "receipts")

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.receipts: list[Receipt] = []
        self.live: dict[int, Receipt] = {}
        self.ended: list[int] = []
        self.failed: list[int] = []
        self.has_collations = False


def keep(tx: Tx, worker: str, commits: Sequence[Commit]) -> Kept | None:
    """Write those that are plain, all or none: None if one of them is not held, or is asked to stop.

    Looked at before anything is written: undoing a part of a transaction would cost more than all of it.
    """
    kept = Kept()
    segments: list[Row] = []
    arrivals: list[Row] = []  # those whose row is left alone, and changes in its step
    by_epoch: defaultdict[int, dict[int, int]] = defaultdict(dict)  # the revision of each row
    alike: dict[tuple[int, int, str | None], list[int]] = {}
    apart = OwnRows()
    now, receipts, live = tx.now, kept.receipts, kept.live
    for commit in commits:
        claim, effects = commit.claim, commit.effects
        advance: AdvanceExecution = effects[0]  # type: ignore[assignment]
        row = claim.row
        segment = effects[1] if len(effects) == 2 and type(effects[1]) is AppendJournal else None
        if (
            advance is GO_ON and segment is not None and may_stay_behind(claim, advance, segment, now)
        ):  # what most commits are
            added = segment.count
            receipt = live[row] = Receipt(True, _EXECUTING, untold=added)
            segments.append((row, segment.first, added, segment.body))
        elif _is_plain(commit, segment):
            receipt, added = Receipt(True, advance.status), 0
            if segment is not None:
                added = segment.count
            elif len(effects) == 2:
                kept.has_collations = True
            if not _goes_on(advance):
                apart.add(advance.status, 0.0, advance, row, now, claim.told(added, advance.step))
            elif segment is not None and may_stay_behind(claim, advance, segment, now):
                receipt.untold = added
            else:
                alike.setdefault(claim.told(added, advance.step), []).append(row)
            if segment is not None:
                written = (row, segment.first, added, segment.body)
                if receipt.untold:
                    arrivals.append((*written, advance.step))
                else:
                    segments.append(written)
            if advance.status is _EXECUTING:
                live[row] = receipt
            else:
                (kept.failed if advance.status is Status.FAILED else kept.ended).append(row)
        else:
            continue
        kept.commits.append(commit)
        receipts.append(receipt)
        by_epoch[claim.epoch][row] = claim.revision
    for epoch, known in by_epoch.items():
        if tx.db.execute(SQL["flush_held"], (encode(known).decode(), worker, epoch)).fetchone()[0] != len(known):
            return None
    for (told, events, step), rows in alike.items():
        tx.db.execute(SQL["flush_keep_alike"], (step, events, told, now, json_ids(rows)))
    apart.write(tx.db)
    append_segments(tx, segments)
    append_segments(tx, arrivals)
    return kept


def append_segments(tx: Tx, segments: Sequence[Row]) -> None:
    """Into the journals, either all with a step or none; several rows a statement, where there are several."""
    first = 0
    for many, statement in _APPENDS[len(segments[0])] if segments else ():
        while len(segments) - first >= many:
            tx.db.execute(statement, tuple(chain.from_iterable(segments[first : first + many])))
            first += many


def is_collation(commit: Commit) -> bool:
    """Whether it is a step of the protocol of flows, with nothing else; the step itself is for `collating`."""
    effects = commit.effects
    return len(effects) == 2 and type(effects[1]) is Collate


def _is_plain(commit: Commit, segment: AppendJournal | None) -> bool:
    """Whether it keeps its lease or ends, and asks for at most this segment of its journal or a step of a flow."""
    advance: AdvanceExecution = commit.effects[0]  # type: ignore[assignment]
    if segment is None and len(commit.effects) > 1 and not (is_collation(commit) and advance.status is _EXECUTING):
        return False
    if advance.status is _EXECUTING:
        if not advance.progress or advance.error is not None or advance.awaits is not None:
            return False
    elif advance.status not in TERMINAL or commit.claim.has_parent or commit.claim.partition_key is not None:
        return False
    return advance.beats is None and advance.published is None and advance.attributes is None


def _goes_on(advance: AdvanceExecution) -> bool:
    """Of a plain one: whether at most the step of a kept lease changes."""
    is_kept = advance.status is _EXECUTING
    return is_kept and advance.state is None and advance.digest is None and not advance.attempt
