"""The sequence ledger of batches: each seq reaches one terminal state and is committed once, in order.

- `states.py`: the eight states, the twelve rules as a table, the retry guard
- `columns.py`: memory and counters
- `leases.py`: expiry heap and queue of free items
- `items.py`: single items
- `lane.py`: commits in order
- `ledger.py`: the ledger whole, and stretches of items in bulk
"""

from holdfast.core.sequence.columns import Counters, Segment
from holdfast.core.sequence.lane import Awaited, CommitLane
from holdfast.core.sequence.ledger import Reclaim, SequenceLedger
from holdfast.core.sequence.states import RULES, TABLE, FailClass, RetryGuard, Rule, State, check_transition

__all__ = [
    "RULES",
    "TABLE",
    "Awaited",
    "CommitLane",
    "Counters",
    "FailClass",
    "Reclaim",
    "RetryGuard",
    "Rule",
    "Segment",
    "SequenceLedger",
    "State",
    "check_transition",
]
