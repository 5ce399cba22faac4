"""The steps of flows in a flush: from effects to the arrays of `collate_1`, and from its answer to receipts."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.status import Status
from holdfast.store.effects import Commit
from holdfast.store.flows import Arrival, Collate, OpenJob, Settle
from holdfast.store.postgres.columns import Column, execution_columns, insertion_order, sparse, unset
from holdfast.store.postgres.rows import Row
from holdfast.store.values import Collated, NewExecution, Receipt

_NO_CLAIM = 0


class Collation:
    """The protocol's part of a flush; positions are those of the commits in the order of their rows, from 1."""

    def __init__(self, ordered: Sequence[Commit]) -> None:
        self.ids = [commit.claim.row for commit in ordered]
        self.opens: list[tuple[int, int]] = []
        self.steps: list[tuple[int, int, Collate]] = []  # position, job, effect
        self._arrivals: list[tuple[int, Arrival, int | None]] = []  # with the place of its message in `_children`
        self._children: list[tuple[int, NewExecution]] = []
        self.ended = False  # a job did, in the answer that was read
        self._onward: dict[int, int] = {}  # by position: the place of the child that takes the row over
        self._going_on: set[bytes] = set()
        for position, commit in enumerate(ordered, 1):
            for effect in commit.effects[1:]:
                if type(effect) is Collate:
                    self.steps.append((position, commit.claim.parent_row or _NO_CLAIM, effect))
                    self._publish(position, effect)
                elif type(effect) is OpenJob:
                    self.opens.append((position, len(effect.messages)))
                    self._children += [(position, message) for message in effect.messages]

    def _publish(self, position: int, effect: Collate) -> None:
        if effect.settle is None:
            return
        if effect.settle.onward and (child := effect.settle.children[0].promise) not in self._going_on:
            self._going_on.add(child)  # one row a promise: of two that go on to one child, the second publishes it
            self._onward[position] = len(self._children)
        self._children += [(position, child) for child in effect.settle.children]
        for arrival in effect.settle.arrivals:
            if arrival.message is None:
                self._arrivals.append((position, arrival, None))
            else:
                self._arrivals.append((position, arrival, len(self._children)))
                self._children.append((position, arrival.message))

    @property
    def is_empty(self) -> bool:
        return not self.steps and not self.opens

    def locks(self) -> list[Column]:
        """The jobs that must be locked before the messages: those that end, and those whose inbox a hook looks into."""
        ending = [job for _, job, effect in self.steps if effect.end is not None]
        waiting = [job for _, job, effect in self.steps if effect.awaits is not None]
        return [ending + waiting, ending]

    def arguments(self) -> list[Column]:
        """The parameters of `collate_1` from `p_open_ord` on."""
        effects = [effect for _, _, effect in self.steps]
        children = [child for _, child in self._children]
        order = insertion_order(children)
        place = {at: sorted_at + 1 for sorted_at, at in enumerate(order)}
        arrivals = [arrival for _, arrival, _ in self._arrivals]
        ends = [effect.end for effect in effects]
        return [
            [position for position, _ in self.opens],
            [count for _, count in self.opens],
            [position for position, _, _ in self.steps],
            [job for _, job, _ in self.steps],
            [effect.activity for effect in effects],
            sparse([effect.dimension for effect in effects]),
            [effect.guid for effect in effects],
            sparse(self._waves()),
            sparse([effect.add for effect in effects]),
            sparse([effect.mark for effect in effects]),
            sparse([effect.guid_add for effect in effects]),
            unset([effect.response for effect in effects]),
            unset([effect.failure for effect in effects]),
            sparse([effect.settle is not None and moves_semaphore(effect.settle) for effect in effects]),
            sparse([0 if effect.settle is None else effect.settle.threshold for effect in effects]),
            unset([None if end is None else end.status.value for end in ends]),
            unset([None if end is None else end.result for end in ends]),
            unset([None if end is None else end.error for end in ends]),
            unset([effect.awaits for effect in effects]),
            sparse([effect.acknowledge for effect in effects]),
            [position for position, _, _ in self._arrivals],
            [arrival.activity for arrival in arrivals],
            [arrival.dimension for arrival in arrivals],
            [arrival.source for arrival in arrivals],
            unset([arrival.value for arrival in arrivals]),
            [arrival.needed for arrival in arrivals],
            [None if at is None else place[at] for _, _, at in self._arrivals],
            [place[self._onward[position]] if position in self._onward else None for position, _, _ in self.steps]
            if self._onward
            else [],
            [self._children[at][0] for at in order],
            *execution_columns(children, order),
        ]

    def _waves(self) -> list[int]:
        """A statement writes a row once: the second step on one activity's ledger comes in a second wave."""
        seen: dict[tuple[int, str, str], int] = {}
        waves = []
        for _, job, effect in self.steps:
            key = (job, effect.activity, effect.dimension)
            wave = seen[key] = seen.get(key, -1) + 1
            waves.append(wave)
        return waves

    def read(self, answer: Row, order: Sequence[int], receipts: Sequence[Receipt]) -> None:
        """Complete the receipts of the commits whose fence held."""
        self.ended = answer["ended"]
        closed, gone, onward = (set(answer[name] or ()) for name in ("closed", "gone", "onward"))
        for position, ledger, guid_ledger, ordinal in zip(
            answer["positions"], answer["ledgers"], answer["guid_ledgers"], answer["ordinals"], strict=False
        ):
            receipt = receipts[order[position - 1]]
            if receipt.applied:
                receipt.collated = Collated(ledger, guid_ledger, ordinal, position in closed, position in onward)
                if position in gone:
                    receipt.status = Status.DONE
        for position in answer["routed"] or ():
            receipts[order[position - 1]].status = Status.RUNNABLE


def moves_semaphore(settle: Settle) -> bool:
    """Not if one child takes the place of its parent: that leaves the job's semaphore as it is, above 0 (9.2)."""
    return settle.threshold != 0 or len(settle.children) != 1 or bool(settle.arrivals)
