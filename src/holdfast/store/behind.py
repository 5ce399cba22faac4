"""Which commits may leave the execution's row alone.

A commit that adds to a journal, and changes at most the step of its row, need not write the row, now and then excepted:
a row of fifty columns costs more than the segment. What the row does not tell of is told by its claim (`Untold`) to the
commit that next writes it, by the segments to whoever reads it (`executions_now`), and so to whoever takes it from its
holder. The fence is as tight as ever: each such commit is a segment, and the revision counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.core.status import Status
from holdfast.store.effects import GO_ON, AdvanceExecution, AppendJournal, Effect
from holdfast.store.values import ExecutionClaim

UNTOLD_MOST: Final = 64  # commits that a row does not tell of: whoever reads it counts them
UNTOLD_US_MOST: Final = 1_000_000  # and for so long: nobody else says when it was last written


_EXECUTING: Final = Status.EXECUTING


def may_stay_behind(claim: ExecutionClaim, write: AdvanceExecution, segment: AppendJournal, now: int) -> bool:
    """Whether the row can be written later. Not before it tells of a journal, nor before it was written with progress
    under this claim: that ends what failed."""
    if write is not GO_ON and write != AdvanceExecution(status=_EXECUTING, step=write.step):
        return False
    if now - claim.told_at_us >= UNTOLD_US_MOST or not (segment.first and segment.count):
        return False
    untold = claim.untold
    return untold is None or untold.commits < UNTOLD_MOST


def segment_beside(claim: ExecutionClaim, effects: Sequence[Effect], now: int) -> AppendJournal | None:
    """What such a commit adds to its journal; None: its row is to be written now."""
    if len(effects) != 2 or type(segment := effects[1]) is not AppendJournal:
        return None
    write: AdvanceExecution = effects[0]  # type: ignore[assignment]  # see `Commit`
    return segment if may_stay_behind(claim, write, segment, now) else None
