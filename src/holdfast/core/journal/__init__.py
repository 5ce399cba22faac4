"""The execution journal: events, state by fold, and every rule that a history keeps.

- `events`: the 20 events; `format`: how they are written, a segment per commit; `local_ids`: how a journal names its
  children, and the whole ids that everybody else knows them by.
- `fold`: the state they add up to; `rules`: what must hold, as data.
- `Journal`: appends with an O(1) check; `validate`: every violation of a stored journal. Both run `checks.admit`
  over a `book`, whose checks are in `lifecycle`, `calls`, `control` and `join_sets`.
- `fingerprint`: what replay compares.

Pure: time and ids are parameters, and nothing here reads or writes.
"""

from holdfast.core.journal.fingerprint import Operation, operations_of
from holdfast.core.journal.fold import JournalState, JournalStatus, fold
from holdfast.core.journal.format import Segment, decode_segment, encode_segment
from holdfast.core.journal.journal import Journal
from holdfast.core.journal.rules import RULES, Rule, Violation
from holdfast.core.journal.validate import validate, validate_segments

__all__ = [
    "RULES",
    "Journal",
    "JournalState",
    "JournalStatus",
    "Operation",
    "Rule",
    "Segment",
    "Violation",
    "decode_segment",
    "encode_segment",
    "fold",
    "operations_of",
    "validate",
    "validate_segments",
]
