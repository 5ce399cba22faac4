"""The statuses of an execution and the transitions between them, as data.

The status of a row says who may claim it. A workflow's journal state is another thing, folded from its events.
`LEGAL` is the whole table: the stores' statements keep to it, and the conformance suite installs it as a guard in
the database itself, so that a statement that breaks it fails there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """Where an execution stands, and so who may claim it."""

    RUNNABLE = "runnable"  # waits for a worker, from `eligible_at` on
    EXECUTING = "executing"  # leased: `locked_by` and `lease_epoch` say to whom
    AWAITING_SIGNAL = "awaiting_signal"  # parked until a signal of `awaits` arrives, or `wake_at`
    AWAITING_CHILDREN = "awaiting_children"  # parked on the barrier of its children, or until `wake_at`
    AWAITING_PROMISE = "awaiting_promise"  # a workflow, blocked on calls, timers or signals; a batch, on its chunks
    STRANDED = "stranded"  # no code at hand can go on with it: loud, and resumable
    DELEGATED = "delegated"  # a job of a flow: its work is in messages; never leased itself
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended: done, failed or cancelled."""
        return self in TERMINAL

    @property
    def is_parked(self) -> bool:
        """Whether it waits for a signal, for children or for what it called."""
        return self in PARKED


TERMINAL: Final = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})
PARKED: Final = frozenset({Status.AWAITING_SIGNAL, Status.AWAITING_CHILDREN, Status.AWAITING_PROMISE})
LIVE: Final = frozenset(Status) - TERMINAL

LEGAL: Final[dict[Status, frozenset[Status]]] = {
    # pick; cancel of a row nobody holds
    Status.RUNNABLE: frozenset({Status.EXECUTING, Status.CANCELLED}),
    # a holder's outcome may lead anywhere; `executing` to itself is a kept lease (ruling E11)
    Status.EXECUTING: frozenset(Status),
    # a signal, the barrier, the deadline; cancel
    Status.AWAITING_SIGNAL: frozenset({Status.RUNNABLE, Status.CANCELLED}),
    Status.AWAITING_CHILDREN: frozenset({Status.RUNNABLE, Status.CANCELLED}),
    Status.AWAITING_PROMISE: frozenset({Status.RUNNABLE, Status.CANCELLED}),
    # resume; give up
    Status.STRANDED: frozenset({Status.RUNNABLE, Status.DELEGATED, Status.CANCELLED}),
    # the commit that closes the last obligation; a dead letter strands it (ruling A6)
    Status.DELEGATED: frozenset({Status.STRANDED, *TERMINAL}),
    Status.DONE: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
}


def is_legal(before: Status, after: Status) -> bool:
    """Whether a row may go from one status to the other; staying is legal for all but the ended."""
    return after in LEGAL[before] or (before is after and before not in TERMINAL)
