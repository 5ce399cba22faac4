"""Applying commits: all in one transaction, each only if its fence holds (ruling E1).

`BEGIN IMMEDIATE` holds off every other writer, so the fences of all commits are read with one statement, and what the
held ones ask for is gathered and written effect by effect. In this order: own rows, consumed signals, history, journal,
children, successors, delivered signals, barriers, reports, the re-check at parking (rulings E2, E3), partition keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.batches import BATCH_EFFECTS, BatchEffect
from holdfast.store.effects import (
    AdvanceExecution,
    AppendJournal,
    Commit,
    ConsumeSignals,
    ContinueExecution,
    DeliverSignal,
    RecordTransition,
    SpawnExecutions,
)
from holdfast.store.flows import Collate, OpenJob
from holdfast.store.sqlite import (
    barriers,
    batching,
    collating,
    continuing,
    inboxes,
    inserting,
    keeping,
    keys,
    reports,
    signalling,
)
from holdfast.store.sqlite.own_row import OwnRows
from holdfast.store.sqlite.rows import Row, names_json
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ExecutionClaim, Flushed, NewSignal, Receipt

_RUNNABLE, _EXECUTING = Status.RUNNABLE, Status.EXECUTING


def flush(tx: Tx, worker: str, commits: Sequence[Commit]) -> Flushed:
    alone = keeping.keep_one(tx, worker, commits[0]) if len(commits) == 1 else None
    if alone is not None:
        if alone.untold:  # a step of a workflow
            return Flushed([alone], at_us=tx.now)
        return _flush_alone(tx, commits[0], alone)
    kept = keeping.keep(tx, worker, commits) if len(commits) > 1 else None
    if kept is not None and len(kept.commits) == len(commits) and not kept.has_collations:
        if kept.ended:
            tx.ended = True
            inboxes.clear(tx, kept.ended)
        if kept.failed:
            tx.ended = True
            inboxes.keep(tx, kept.failed)
        inboxes.note(tx, kept.live)
        return Flushed(kept.receipts, at_us=tx.now)
    written = {} if kept is None else {id(c): r for c, r in zip(kept.commits, kept.receipts, strict=True)}
    rest = [commit.claim.row for commit in commits if id(commit) not in written]
    fences = _fences(tx, worker, rest) if rest else {}
    batch = _Batch(tx)
    for commit in commits:
        fence = fences.get(commit.claim.row)
        if id(commit) in written:
            batch.add_kept(commit, written[id(commit)])
        elif fence is None or fence[1:3] != (commit.claim.epoch, commit.claim.revision):
            batch.receipts.append(Receipt(False))
        else:
            batch.add(commit, fence)
    batch.write()
    return Flushed(batch.receipts, batch.woke, tx.now)


def _flush_alone(tx: Tx, commit: Commit, kept: Receipt) -> Flushed:
    """What a single commit asks for beside its row, which is written."""
    if not keeping.is_collation(commit):
        return Flushed([kept], at_us=tx.now)
    batch = _Batch(tx)
    batch.add_kept(commit, kept, is_counted=True)
    batch.write()
    return Flushed(batch.receipts, batch.woke, tx.now)


def _fences(tx: Tx, worker: str, rows: list[int]) -> dict[int, Row]:
    """Those of the rows that this worker holds; a single commit is spared the list, which costs as much as it does."""
    if len(rows) == 1:
        held = tx.db.execute(SQL["flush_fence"], (rows[0], worker)).fetchall()
    else:
        held = tx.db.execute(SQL["flush_fences"], (json_ids(rows), worker)).fetchall()
    return {row[0]: row for row in held}


class _Batch:
    """What the commits of one flush ask for, by statement."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.receipts: list[Receipt] = []
        self.woke = False
        self._own_rows = OwnRows()
        self._ended: list[int] = []
        self._failed: list[int] = []
        self._live: dict[int, Receipt] = {}
        self._consumed: list[tuple[int, int]] = []
        self._spawns: list[tuple[Receipt, Row, SpawnExecutions]] = []
        self._continued: list[continuing.Continued] = []
        self._signals: list[NewSignal] = []
        self._history: list[Row] = []
        self._segments: list[Row] = []
        self._columns: list[Row] = []
        self._barriers: Counter[tuple[int, int]] = Counter()  # (parent, round) -> children that ended
        self._reports: list[tuple[int, int]] = []  # (child, parent) of ends that are reported
        self._parked: dict[int, tuple[Receipt, AdvanceExecution]] = {}
        self._parked_with_key: set[int] = set()
        self._dropped_keys: list[tuple[str, int]] = []
        self._items: list[tuple[ExecutionClaim, BatchEffect]] = []
        self._emptied: list[int] = []
        self._opened_jobs: list[tuple[int, OpenJob]] = []
        self._collations: list[collating.Collation] = []

    def add_kept(self, commit: Commit, receipt: Receipt, *, is_counted: bool = False) -> None:
        """One whose own row `keeping` has written; it may have counted the inbox too."""
        row = commit.claim.row
        self.receipts.append(receipt)
        if keeping.is_collation(commit):
            self._add_collation(commit.claim, commit.effects[1], receipt)  # type: ignore[arg-type]
        if receipt.status is _EXECUTING:
            if not is_counted:
                self._live[row] = receipt
        else:
            self._note_end(row, receipt.status)

    def add(self, commit: Commit, fence: Row) -> None:
        """Gather one commit whose fence holds."""
        row, cancel_requested = fence[0], fence[3]
        effects = commit.effects
        advance = effects[0]
        assert isinstance(advance, AdvanceExecution), "the first effect of a commit is the advance of its row"
        receipt = Receipt(True, None, cancel_requested == 1)
        self.receipts.append(receipt)
        added = 0
        opened: OpenJob | None = None
        for effect in effects[1:]:
            if isinstance(effect, Collate):
                self._add_collation(commit.claim, effect, receipt)
            elif isinstance(effect, AppendJournal):
                self._segments.append((row, effect.first, effect.count, effect.body))
                added += effect.count
            elif isinstance(effect, ConsumeSignals):
                self._consumed.extend((signal_id, row) for signal_id in effect.ids)
            elif isinstance(effect, DeliverSignal):
                self._signals.append(effect.signal)
            elif isinstance(effect, RecordTransition):
                line = (effect.step, effect.outcome, effect.next_step, effect.attempt, effect.error)
                self._history.append((row, fence[2] + 1, self.tx.now, *line))
            elif isinstance(effect, ContinueExecution):
                assert advance.status is Status.DONE, "what goes on as another run ends as done"
                self._continued.append(continuing.Continued(row, commit.claim.promise, effect.row))
                receipt.successor = effect.row.promise
            elif isinstance(effect, OpenJob):
                opened = effect
            elif isinstance(effect, SpawnExecutions) and (not cancel_requested or fence[10]):
                self._spawns.append((receipt, fence, effect))
            elif isinstance(effect, BATCH_EFFECTS):
                self._items.append((commit.claim, effect))
        receipt.status = self._advance(receipt, fence, advance, commit.claim, added)
        if opened is not None and receipt.status is Status.DELEGATED:  # not if a cancel has overtaken it
            self._opened_jobs.append((row, opened))

    def _add_collation(self, claim: ExecutionClaim, effect: Collate, receipt: Receipt) -> None:
        assert claim.parent_row is not None, "a message belongs to a job"
        self._collations.append((claim.parent_row, claim.row, effect, receipt))
        if effect.acknowledge and claim.inbox:  # a hook's; a signal only ever comes to a parked one
            self._emptied.append(claim.row)

    def _advance(
        self, receipt: Receipt, fence: Row, advance: AdvanceExecution, claim: ExecutionClaim, added: int
    ) -> Status:
        """Gather the write of the commit's own row; the status it leads to."""
        row, _, _, cancel_requested, paused, partition_key, parent, parent_round, _, reporting, cleans_up, has_key = (
            fence
        )
        status, delay = advance.status, advance.delay
        if receipt.successor is not None:  # its successor reports, and counts
            self.tx.ended = True
        elif status in TERMINAL:
            self._note_end(row, status)
            if parent is not None:
                if parent_round is not None:
                    self._barriers[parent, parent_round] += 1
                if reporting:
                    self._reports.append((row, parent))
        elif cancel_requested and not (cleans_up and claim.cancel_requested):
            # Whoever picks it next ends it; parking or waiting first would only delay that. What cleans up parks as it
            # likes once its holder knows of the cancel.
            status, delay = (_EXECUTING if status is _EXECUTING else _RUNNABLE), 0.0
        elif paused and status is _EXECUTING and advance.progress:
            # What is no progress (a heartbeat, the start of an attempt) says that a step is on its way: it may end.
            status, delay = _RUNNABLE, 0.0
        if status is not _EXECUTING and partition_key is not None:
            self._dropped_keys.append((partition_key, row))
        if status not in TERMINAL:
            self._live[row] = receipt
        if status in PARKED:
            self._parked[row] = (receipt, advance)
            if has_key:
                self._parked_with_key.add(row)
        elif status is Status.STRANDED:
            self.tx.ended = True
        elif status is _RUNNABLE:
            self.tx.work |= not paused
            self.woke |= not paused and delay <= 0
        if advance.beats is not None or advance.published is not None or advance.attributes is not None:
            self._columns.append((advance.beats, advance.published, advance.attributes, row))
            self.tx.published |= advance.published is not None
        self._own_rows.add(status, delay, advance, row, self.tx.now, claim.told(added, advance.step))
        return status

    def _note_end(self, row: int, status: Status | None) -> None:
        (self._failed if status is Status.FAILED else self._ended).append(row)

    # ------------------------------------------------------------------ writing

    def write(self) -> None:
        tx, db = self.tx, self.tx.db
        for continued in self._continued:
            continuing.take_unique_key(tx, continued)
        self._own_rows.write(db)
        for job, opened in self._opened_jobs:
            collating.open_job(tx, job, opened)
            self.woke = True
        if self._collations:
            self._collate()
        if self._emptied:
            inboxes.clear(tx, self._emptied)
        if self._ended:
            tx.ended = True
            inboxes.clear(tx, self._ended)
        if self._failed:
            tx.ended = True
            inboxes.keep(tx, self._failed)
        if self._consumed:
            db.executemany(SQL["flush_remember_keys"], self._consumed)
            db.executemany(SQL["flush_consume"], self._consumed)
        if self._history:
            db.executemany(SQL["flush_record"], self._history)
        if self._columns:
            db.executemany(SQL["flush_columns"], self._columns)
        keeping.append_segments(tx, self._segments)
        for receipt, fence, spawn in self._spawns:
            self._spawn(receipt, fence, spawn)
        for continued in self._continued:
            continuing.place(tx, continued)
            self.woke = True
        woken = {row for s in self._signals if (row := signalling.deliver_one(tx, s)[1]) is not None}
        for continued in self._continued:
            continuing.carry_inbox(tx, continued)
            inboxes.clear(tx, [continued.row])
        woken.update(barriers.count_down(tx, self._barriers))
        if self._reports:
            woken.update(reports.report(tx, self._reports))
        if self._parked:
            woken.update(self._recheck())
        for job, row, effect, _ in self._collations:
            is_waiting = effect.awaits is not None and row in self._parked and row not in woken
            if is_waiting and signalling.route_to(tx, job, row, effect.awaits or ""):
                woken.add(row)
        for row in woken & self._parked.keys():
            self._parked[row][0].status = _RUNNABLE
        stayed = self._parked_with_key & (woken | (self._parked_with_key - self._parked.keys()))
        if stayed:
            db.executemany(SQL["flush_keep_key"], [(row,) for row in stayed])
        self.woke |= bool(woken) or tx.stirred
        if self._dropped_keys:
            self.woke |= keys.drop(tx, self._dropped_keys)
        if self._items:
            batching.apply(tx, self._items)
        inboxes.note(tx, self._live)

    def _collate(self) -> None:
        others, self.tx.work = self.tx.work, False
        for ended in collating.collate(self.tx, self._collations):
            self._ended.append(ended.job)
            if ended.parent is not None:
                if ended.parent_round is not None:
                    self._barriers[ended.parent, ended.parent_round] += 1
                if ended.reports:
                    self._reports.append((ended.job, ended.parent))
        for _, row, _, receipt in self._collations:
            if receipt.status is Status.DONE:
                self._live.pop(row, None)
        self.woke |= self.tx.work  # messages were published
        self.tx.work |= others

    def _spawn(self, receipt: Receipt, fence: Row, spawn: SpawnExecutions) -> None:
        """Insert the children and open the barrier on those that are really there (seed section 11)."""
        tx, row = self.tx, fence[0]
        children = inserting.insert(tx, spawn.rows, row, fence[8] + 1 if spawn.barrier else None)
        receipt.children += tuple(children)
        created = sum(child.created for child in children)
        if not spawn.barrier:
            self.woke |= any(child.delay <= 0 and not child.paused for child in spawn.rows)
        elif created:
            pending = created if spawn.quorum is None else min(spawn.quorum, created)
            tx.db.execute(SQL["flush_spawned"], (len(children), pending, row))
            self.woke |= any(child.delay <= 0 and not child.paused for child in spawn.rows)
        elif receipt.status in TERMINAL:
            tx.db.execute(SQL["flush_spawned"], (len(children), 0, row))
        else:
            tx.db.execute(SQL["flush_none_spawned"], (len(children), tx.now, row))
            if receipt.status is _EXECUTING and fence[5] is not None:
                self._dropped_keys.append((fence[5], row))
            receipt.status = _RUNNABLE
            self._parked.pop(row, None)
            tx.work = self.woke = True

    def _recheck(self) -> list[int]:
        """Rows that parked although what they wait for is already there (rulings E2, E3)."""
        tx = self.tx
        woken = barriers.recheck(
            tx,
            [
                row
                for row, (receipt, advance) in self._parked.items()
                if advance.status is Status.AWAITING_CHILDREN and not receipt.children
            ],
        )
        for row, (_, advance) in self._parked.items():
            if advance.wait_children and reports.recheck(tx, row, advance.wait_children):
                woken.append(row)
        waiting = [row for row, (_, advance) in self._parked.items() if advance.awaits]
        if not waiting:
            return woken
        for row in inboxes.those_with(tx, waiting):
            advance = self._parked[row][1]
            match = (row, names_json(advance.awaits or ()), json_ids(advance.ignore))
            if tx.db.execute(SQL["inbox_matches"], match).fetchone() is not None:
                signalling.wake(tx, row)
                woken.append(row)
        return woken
