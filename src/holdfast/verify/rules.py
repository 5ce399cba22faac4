"""What must hold of any ledger at any moment, as data.

Some hold whatever was written through a store; others, or parts of them, only where the models alone wrote, which
tests of a store do not. Those of flows and batches are in their models (`audit`), which name the ruling. Rules of
journals are those of `core.journal.rules`, under their own names.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from holdfast.core.journal.rules import RULES as JOURNAL_RULES


class Rule(Struct, frozen=True):
    """`name` is unique and never changes; `text` says what must hold."""

    name: str
    text: str


class Fault(Struct, frozen=True, kw_only=True):
    """One rule broken: by which execution (none: by the ledger), what was found, and what the rule expects."""

    rule: str
    id: str | None
    label: str | None
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.label or 'the ledger'}: {self.found}; {self.expected} ({self.rule})"


IDENTITY: Final = Rule("identity", "an id is a root and a path, and a child's is its parent's and one number more")
PAYLOAD: Final = Rule("payload", "what is stored as JSON can be read as JSON")
LEASE: Final = Rule("lease", "a row is executing exactly if it names its worker")
HOLDER: Final = Rule("holder", "a worker's row goes only after everything it held was released")
STARTED: Final = Rule("started", "what was claimed has a start, and only what was claimed was written to by a worker")
COUNTERS: Final = Rule("counters", "no counter is below 0")
ENDED: Final = Rule("ended", "a row has an end exactly if its status is done, failed or cancelled")
ENDED_CLEAN: Final = Rule(
    "ended-clean", "what has ended has no deadline; and no inbox or dedup keys, unless it can be retried"
)
PARKED: Final = Rule("parked", "a parked row has a way to be woken: a signal, a child, a time")
WAKE: Final = Rule("wake", "only a parked row has a time to be woken at")
BARRIER: Final = Rule("barrier", "a barrier waits for no more children of its round than are alive")
BLOCKED: Final = Rule("blocked", "a row that waits behind its key is runnable, and its key is held or has a head")
PARTITION: Final = Rule("partition", "at most one row of a partition key executes, and it holds the key")
UNIQUE: Final = Rule("unique", "at most one row occupies a unique key")
UNIQUE_RELEASED: Final = Rule("unique-released", "a row outside the scope of its unique key has released it for good")
SUCCESSOR: Final = Rule("successor", "only what has ended goes on as another run, of the same call")
TRANSITIONS: Final = Rule("transitions", "no line of a history is from after the row's revision")
JOURNAL_LENGTH: Final = Rule("journal-length", "the segments of a journal follow each other and add up to its length")
ORPHANS: Final = Rule("orphans", "whatever belongs to an execution is gone when the execution is")
ATTRIBUTES: Final = Rule("attributes", "what an execution is searched by is what its row says")
LISTED: Final = Rule("listed", "whoever looks for a definition finds every execution of it")
SCHEDULE: Final = Rule("schedule", "a schedule can be read")

HANDLER: Final = Rule("handler", "the handler is the hash of kind, name and version")
OUTCOME: Final = Rule("outcome", "done has a result; failed and stranded have an error; a journal ends as its row")
JOURNAL_FORMAT: Final = Rule("journal-format", "a segment can be read, and has the events it counts")

FLOW: Final = Rule("flow", "the collation ledgers, semaphores, messages and row of a job agree")
BATCH: Final = Rule("batch", "the counters, the lane and the states of a batch's items agree")

ROW_RULES: Final = (
    *(IDENTITY, PAYLOAD, LEASE, HOLDER, STARTED, COUNTERS, ENDED, ENDED_CLEAN, PARKED, WAKE, BARRIER, BLOCKED),
    *(
        PARTITION,
        UNIQUE,
        UNIQUE_RELEASED,
        SUCCESSOR,
        TRANSITIONS,
        JOURNAL_LENGTH,
        ORPHANS,
        ATTRIBUTES,
        LISTED,
        SCHEDULE,
    ),
    *(HANDLER, OUTCOME, JOURNAL_FORMAT),
)
_JOURNAL: Final = tuple(Rule(f"journal {rule}", rule.text) for rule in JOURNAL_RULES)
RULES: Final[tuple[Rule, ...]] = (*ROW_RULES, FLOW, BATCH, *_JOURNAL)
