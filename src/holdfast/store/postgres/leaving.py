"""Steps that leave their rows alone (`store.behind`): from commits to `leave_2`, and from its answer to receipts."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.status import Status
from holdfast.store.behind import segment_beside
from holdfast.store.effects import AppendJournal, Commit
from holdfast.store.postgres.columns import Column, unset
from holdfast.store.postgres.flush import advance_of
from holdfast.store.postgres.rows import Row
from holdfast.store.values import Receipt


class Leaving:
    """Those among the commits of a flush; `rest` are the others. Both know where they stood."""

    def __init__(self, commits: Sequence[Commit], now_us: int) -> None:
        self.steps: list[Commit] = []
        self.rest: list[Commit] = []
        self._segments: list[AppendJournal] = []
        self._steps_at: list[int] = []
        self._rest_at: list[int] = []
        for at, commit in enumerate(commits):
            segment = segment_beside(commit.claim, commit.effects, now_us)
            if segment is None:
                self.rest.append(commit)
                self._rest_at.append(at)
            else:
                self.steps.append(commit)
                self._segments.append(segment)
                self._steps_at.append(at)

    def arguments(self) -> list[Column]:
        """The parameters of `leave_2` from `p_id` on."""
        claims = [commit.claim for commit in self.steps]
        return [
            [claim.row for claim in claims],
            [claim.epoch for claim in claims],
            [claim.revision for claim in claims],
            [segment.first for segment in self._segments],
            [segment.count for segment in self._segments],
            [segment.body for segment in self._segments],
            unset([advance_of(commit).step for commit in self.steps]),
        ]

    def read(self, answer: Row) -> tuple[list[Receipt], list[int]]:
        """The receipts of the steps, and which of these were refused."""
        receipts = [Receipt(True, Status.EXECUTING, untold=segment.count) for segment in self._segments]
        for position in answer["left_inbox"] or ():
            receipts[position - 1].has_inbox = True
        rows = set(answer["refused"] or ())
        return receipts, [at for at, commit in enumerate(self.steps) if commit.claim.row in rows] if rows else []

    def in_order(self, steps: Sequence[Receipt], rest: Sequence[Receipt]) -> list[Receipt]:
        """All receipts as the commits were given."""
        found = dict(zip(self._steps_at, steps, strict=True))
        found.update(zip(self._rest_at, rest, strict=True))
        return [found[at] for at in range(len(found))]
