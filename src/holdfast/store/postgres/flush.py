"""A flush as one call: from commits to arrays, and from the answer to receipts.

Commits that only write their own row and journal and wait for nothing but time take a short routine, ends of children
too; any other in the same flush sends all of them through the long one. Every one gets the commits in the order of
their rows, so that no two flushes can wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.clock import to_datetime, to_us
from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.effects import (
    GO_ON,
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
from holdfast.store.postgres.collating import Collation
from holdfast.store.postgres.columns import (
    Column,
    execution_columns,
    insertion_order,
    scattered,
    signal_columns,
    sparse,
    text_array,
    unset,
)
from holdfast.store.postgres.rows import Row
from holdfast.store.values import Flushed, Inserted, NewExecution, NewSignal, Receipt


class Call(NamedTuple):
    """A routine's block name, its arguments after the worker, and what is needed to read the answer."""

    block: str
    arguments: Sequence[object]
    commits: Sequence[Commit]
    order: list[int]  # order[i]: where the commit of array position i + 1 stood in the call
    effects: Effects | None
    collation: Collation | None = None  # of flows; for the block `flush` it is a call of its own

    @property
    def is_apart(self) -> bool:
        """Whether its collation is another call in the same transaction."""
        return self.block == "flush" and self.collation is not None

    @property
    def publishes(self) -> bool:
        return self.effects is not None and any(write.published is not None for write in self.effects.columns)


_PLAIN_EFFECTS = (AppendJournal, Collate, OpenJob)
_ALONE_EFFECTS = (AdvanceExecution, AppendJournal, ConsumeSignals)


def is_plain(commit: Commit) -> bool:
    effects = commit.effects
    if len(effects) != 1 and (len(effects) != 2 or type(effects[1]) not in _PLAIN_EFFECTS):
        return False
    write = advance_of(commit)
    return (write.status not in PARKED or waits_for_time_alone(write)) and not has_columns(write)


def is_plain_alone(commit: Commit) -> bool:
    """Whether `flush_one_2` can write it: it neither waits for children nor ends one, and consumes at the most."""
    write = advance_of(commit)
    if write.status is Status.AWAITING_CHILDREN or (commit.claim.parent_row is not None and write.status in TERMINAL):
        return False
    if write.status in PARKED and (write.wait_children or not write.progress):
        return False
    kinds = [type(effect) for effect in commit.effects]
    return not has_columns(write) and kinds.count(AppendJournal) < 2 and all(kind in _ALONE_EFFECTS for kind in kinds)


def waits_for_time_alone(write: AdvanceExecution) -> bool:
    """A `sleep`: nothing in the inbox could wake it, so there is no need to look after the lock is had."""
    return write.status is Status.AWAITING_PROMISE and not write.awaits and not write.wait_children


def kept_arguments(worker: str, commit: Commit) -> tuple[object, ...] | None:
    """The parameters of `flush_kept_2`, where it writes the same as any other routine would."""
    effects, write, claim = commit.effects, advance_of(commit), commit.claim
    if len(effects) == 1:
        journal: tuple[int | None, int | None, str | None] = (None, None, None)
    elif len(effects) == 2 and type(segment := effects[1]) is AppendJournal:
        journal = (segment.first, segment.count, segment.body)
    else:
        return None
    if write is not GO_ON and not (
        write.status is Status.EXECUTING
        and write.progress
        and (write.result, write.error, write.awaits) == (None, None, None)
        and not (write.attempt or write.delay or write.wait_children or has_columns(write))
    ):
        return None
    _, events, step = claim.told(journal[1] or 0, write.step)
    return (worker, claim.row, claim.epoch, claim.revision, step, write.state, write.digest, events, *journal)


def has_columns(write: AdvanceExecution) -> bool:
    return write.beats is not None or write.published is not None or write.attributes is not None


def build_call(commits: Sequence[Commit]) -> Call:
    if len(commits) == 1 and is_plain_alone(commits[0]):
        return Call("flush_one", _one_row(commits[0]), commits, [0], None)
    order = sorted(range(len(commits)), key=lambda at: commits[at].claim.row)
    ordered = [commits[at] for at in order]
    collation = Collation(ordered)
    ending = _ending(commits)
    if all(map(is_plain, ordered)) and (not ending or collation.is_empty):
        if not collation.is_empty:
            own = [*_own_columns(ordered), *_journal_columns(ordered)]
            arguments = [*own, *collation.locks(), *collation.arguments()]
            return Call("flush_flows", arguments, commits, order, None, collation)
        if ending:
            ends = [sorted({parent for _, parent in ending}), [row for row, _ in ending]]
            return Call("flush_ends", [*_own_columns(ordered), *_journal_columns(ordered), *ends], commits, order, None)
        return Call("flush_plain", [*_own_columns(ordered), *_journal_columns(ordered)], commits, order, None)
    effects = Effects(commits, order, ending)
    return Call("flush", effects.arguments(), commits, order, effects, None if collation.is_empty else collation)


def advance_of(commit: Commit) -> AdvanceExecution:
    """Every commit begins with it."""
    advance = commit.effects[0]
    assert type(advance) is AdvanceExecution, f"the first effect of a commit is {type(advance).__name__}"
    return advance


def _own_columns(commits: Sequence[Commit]) -> list[Column]:
    """The parameters of `advance_1` from `p_id` on."""
    writes = [advance_of(commit) for commit in commits]
    untold = [commit.claim.untold for commit in commits]
    # Many rows of many flushes just go on: they are passed over, ten times.
    told_at = [at for at, write in enumerate(writes) if write is not GO_ON or untold[at]]
    told = [writes[at] for at in told_at]
    steps = [write.step for write in told]
    for place, at in enumerate(told_at):
        if steps[place] is None and (behind := untold[at]) is not None:
            steps[place] = behind.step
    columns: list[Column] = [
        unset(steps),
        unset([write.state for write in told]),
        sparse([write.attempt for write in told]),
        sparse([not write.progress for write in told]),
        unset([write.result for write in told]),
        unset([write.error for write in told]),
        sparse([write.delay for write in told]),
        unset([None if write.awaits is None else text_array(write.awaits) for write in told]),
        unset([write.wake_after for write in told]),
        unset([None if write.wake_at_us is None else to_datetime(write.wake_at_us) for write in told]),
        unset([write.digest for write in told]),
    ]
    return [
        [commit.claim.row for commit in commits],
        [commit.claim.epoch for commit in commits],
        [commit.claim.revision for commit in commits],
        [write.status.value for write in writes],
        *(scattered(column, told_at, len(writes)) for column in columns),
        sparse([commit.claim.cancel_requested for commit in commits]),
    ]


def _journal_columns(commits: Sequence[Commit]) -> list[Column]:
    """`p_added`, which counts the events of each commit that are new to its row, and the segments."""
    added = [0 if (behind := commit.claim.untold) is None else behind.events for commit in commits]
    ords: list[int] = []
    segments: list[AppendJournal] = []
    for at, commit in enumerate(commits):
        if len(commit.effects) > 1:
            for effect in commit.effects:
                if type(effect) is AppendJournal:
                    added[at] += effect.count
                    ords.append(at + 1)
                    segments.append(effect)
    return [
        sparse(added),
        ords,
        [segment.first for segment in segments],
        [segment.count for segment in segments],
        [segment.body for segment in segments],
    ]


def _one_row(commit: Commit) -> list[object]:
    """The parameters of `flush_one_2` from `p_id` on."""
    claim, write = commit.claim, advance_of(commit)
    consumed = [signal for effect in commit.effects if type(effect) is ConsumeSignals for signal in effect.ids]
    first, count, body = _one_segment(commit)
    _, events, step = claim.told(count or 0, write.step)
    return [
        claim.row,
        claim.epoch,
        claim.revision,
        write.status.value,
        step,
        write.state,
        write.attempt,
        not write.progress,
        write.result,
        write.error,
        write.delay,
        write.digest,
        claim.cancel_requested,
        events,
        first,
        count,
        body,
        consumed or None,
        write.awaits,
        write.wake_after,
        None if write.wake_at_us is None else to_datetime(write.wake_at_us),
        [*consumed, *write.ignore],
    ]


def _one_segment(commit: Commit) -> tuple[int | None, int | None, str | None]:
    for effect in commit.effects:
        if type(effect) is AppendJournal:
            return effect.first, effect.count, effect.body
    return None, None, None


def _ending(commits: Sequence[Commit]) -> list[tuple[int, int]]:
    """Rows of children that end and their parents', in the order in which they do: reports follow it."""
    return [
        (commit.claim.row, commit.claim.parent_row)
        for commit in commits
        if commit.claim.parent_row is not None and advance_of(commit).status in TERMINAL
    ]


class Effects:
    """The effects of all commits, sorted by kind; every one knows its commit's position."""

    def __init__(self, given: Sequence[Commit], order: Sequence[int], ending: Sequence[tuple[int, int]]) -> None:
        self.commits = [given[at] for at in order]
        self.ending = [row for row, _ in ending]
        self.parents = [parent for _, parent in ending]
        self.column_ord: list[int] = []
        self.columns: list[AdvanceExecution] = []
        self.ignore_ord: list[int] = []
        self.ignore_id: list[int] = []
        self.consume_ord: list[int] = []
        self.consume_id: list[int] = []
        self.spawn_ord: list[int] = []
        self.spawn_quorum: list[int | None] = []
        self.child_ord: list[int] = []
        self.children: list[NewExecution] = []
        self.signal_ord: list[int] = []
        self.signals: list[NewSignal] = []
        self.continue_ord: list[int] = []
        self.continue_to: list[bytes] = []
        self.line_ord: list[int] = []
        self.lines: list[RecordTransition] = []
        # In the order given: of two signals with one dedup key, or children with one unique key, the first wins.
        for at, ord_ in sorted(zip(order, range(1, len(order) + 1), strict=True)):
            self._add(ord_, given[at])
        self.child_order = insertion_order(self.children)

    def _add(self, ord_: int, commit: Commit) -> None:
        for effect in commit.effects:
            match effect:
                case AdvanceExecution():
                    self.ignore_ord += [ord_] * len(effect.ignore)
                    self.ignore_id += effect.ignore
                    if has_columns(effect):
                        self.column_ord.append(ord_)
                        self.columns.append(effect)
                case ConsumeSignals(ids):
                    self.consume_ord += [ord_] * len(ids)
                    self.consume_id += ids
                case SpawnExecutions(rows, quorum, barrier):
                    if barrier:
                        self.spawn_ord.append(ord_)
                        self.spawn_quorum.append(quorum)
                    self.child_ord += [ord_] * len(rows)
                    self.children += rows
                case ContinueExecution(row):
                    self.continue_ord.append(ord_)
                    self.continue_to.append(row.promise)
                    self.child_ord.append(ord_)
                    self.children.append(row)
                case DeliverSignal(signal):
                    self.signal_ord.append(ord_)
                    self.signals.append(signal)
                case RecordTransition():
                    self.line_ord.append(ord_)
                    self.lines.append(effect)

    def arguments(self) -> list[Column]:
        lines = self.lines
        return [
            *_own_columns(self.commits),
            *_journal_columns(self.commits),
            sparse([advance_of(commit).wait_children for commit in self.commits]),
            self.column_ord,
            [write.beats for write in self.columns],
            [write.published for write in self.columns],
            [write.attributes for write in self.columns],
            self.parents,
            self.ending,
            self.ignore_ord,
            self.ignore_id,
            self.consume_ord,
            self.consume_id,
            self.spawn_ord,
            self.spawn_quorum,
            [self.child_ord[at] for at in self.child_order],
            *execution_columns(self.children, self.child_order),
            self.signal_ord,
            *signal_columns(self.signals),
            self.line_ord,
            [line.step for line in lines],
            [line.outcome for line in lines],
            [line.next_step for line in lines],
            [line.attempt for line in lines],
            unset([line.error for line in lines]),
            self.continue_ord,
            self.continue_to,
        ]


def read_answer(call: Call, answer: Row) -> Flushed:
    """The receipts, in the order the commits were given."""
    if call.block == "flush_one":
        if answer["status"] is None:
            return Flushed([Receipt(False)], at_us=to_us(answer["at"]))
        receipt = Receipt(True, Status(answer["status"]), answer["cancel_requested"], answer["has_inbox"])
        return Flushed([receipt], answer["woke"], to_us(answer["at"]))
    receipts = [Receipt(True, advance_of(commit).status) for commit in call.commits]
    for position, status, cancel in zip(
        answer["odd"] or (), answer["odd_status"] or (), answer["odd_cancel"] or (), strict=True
    ):
        receipt = receipts[call.order[position - 1]]
        receipt.status = Status(status)
        receipt.cancel_requested = cancel
    for position in answer["inbox"] or ():
        receipts[call.order[position - 1]].has_inbox = True
    for position in answer["fenced"] or ():
        receipts[call.order[position - 1]] = Receipt(False)
    if call.effects is not None and call.effects.children:
        _add_children(call, call.effects, answer, receipts)
    if call.block == "flush_flows" and call.collation is not None:
        call.collation.read(answer, call.order, receipts)
    return Flushed(receipts, answer["woke"], to_us(answer["at"]))


def _add_children(call: Call, effects: Effects, answer: Row, receipts: list[Receipt]) -> None:
    refused = {
        effects.child_order[position - 1]: Inserted(promise, False, collided, conflict)
        for position, promise, collided, conflict in zip(
            answer["child_position"] or (),
            answer["child_promise"] or (),
            answer["child_collided"] or (),
            answer["child_conflict"] or (),
            strict=True,
        )
    }
    unspawned = set(answer["unspawned"] or ())
    children: dict[int, list[Inserted]] = {}
    successors = dict(zip(effects.continue_to, effects.continue_ord, strict=True))
    for at, (position, child) in enumerate(zip(effects.child_ord, effects.children, strict=True)):
        if child.promise in successors:
            receipt = receipts[call.order[position - 1]]
            if receipt.applied:
                receipt.successor = child.promise
        elif position not in unspawned:
            children.setdefault(position, []).append(refused.get(at) or Inserted(child.promise, True))
    for position, inserted in children.items():
        receipt = receipts[call.order[position - 1]]
        if receipt.applied:
            receipt.children = tuple(inserted)
