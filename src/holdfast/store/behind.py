"""Which commits may leave the execution's row alone.

A commit that adds to a journal, and changes at most the step of its row, need not write the row, now and then excepted:
a row of fifty columns costs more than the segment. What the row does not tell of is told by its claim (`Untold`) to the
commit that next writes it, by the segments to whoever reads it (`executions_now`), and so to whoever takes it from its
holder. The fence is as tight as ever: each such commit is a segment, and the revision counts them.
"""

from __future__ import annotations

from typing import Final

from holdfast.store.effects import AppendJournal
from holdfast.store.values import ExecutionClaim

UNTOLD_MOST: Final = 16  # commits that a row does not tell of: whoever reads it counts them
UNTOLD_US_MOST: Final = 1_000_000  # and for so long: nobody else says when it was last written


def may_stay_behind(claim: ExecutionClaim, segment: AppendJournal, now: int) -> bool:
    """Whether the row can be written later. Not before it tells of a journal, nor before it was written with progress
    under this claim: that ends what failed."""
    if now - claim.told_at_us >= UNTOLD_US_MOST or not (segment.first and segment.count):
        return False
    return claim.untold is None or claim.untold.commits < UNTOLD_MOST
