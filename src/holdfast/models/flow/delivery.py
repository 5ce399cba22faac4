"""One message under one lease: what it says, what its ledgers say, and the commits that move them.

- `Delivery`: reads a message and its ledgers, and commits steps of the protocol for it; `attempts`, `steps` and
  `transition` build on it, in this order, and say which.
- `LeaseLost`: whatever was under way is somebody else's now. `LookAgain`: a commit was applied, but its answer was lost
  with a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, Final

from holdfast.core.codec import encode_error
from holdfast.core.collation import ActivityLedger, Dimension, GuidLedger, GuidRecord, JobPhase
from holdfast.core.identity import PromiseId
from holdfast.core.status import TERMINAL, Status
from holdfast.engine.runner import Engine
from holdfast.models.flow.activity import Activity, NodeKind
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.looking import Looking
from holdfast.models.flow.message import job_of, read_message
from holdfast.models.flow.outcome import Outcome, read_outcome
from holdfast.store.effects import GO_ON, AdvanceExecution, Effect, strand
from holdfast.store.flows import CLOSE, LEG1, LEG2, WORK, Collate, Look, LookKey
from holdfast.store.values import Collated, ExecutionClaim, Receipt

log = logging.getLogger("holdfast.flow")

_STAYS: Final[dict[str | None, AdvanceExecution]] = {
    None: GO_ON,
    **{step: AdvanceExecution(status=Status.EXECUTING, step=step) for step in (LEG1, WORK, LEG2, CLOSE)},
}


class LeaseLost(Exception):  # noqa: N818
    pass


class LookAgain(Exception):  # noqa: N818
    pass


def stay(step: str | None) -> AdvanceExecution:
    """Keep the lease."""
    return _STAYS[step]


class Delivery:
    def __init__(self, flow: Flow, claim: ExecutionClaim, engine: Engine, looking: Looking) -> None:
        assert claim.parent_row is not None, "a message belongs to a job"
        self._flow = flow
        self._claim = claim
        self._engine = engine
        self._looking = looking
        self._job = job_of(claim.promise)
        self._job_row = claim.parent_row
        # The ledgers as they were last seen; what is read from them is made when a decision asks for it.
        self._activity_digits = 0
        self._guid_digits: int | None = None
        self._ordinal = 0
        self._outcome: Outcome | None = None
        self._is_cancelled = self._is_closed = False

    # ------------------------------------------------------------------ reading

    def _open(self) -> None:
        """Read what the message says. Whatever is wrong with it is raised."""
        self._message = read_message(self._claim.state)
        self._dimension = Dimension.parse(self._message.dimension)
        self._guid = self._message.guid(self._job)
        answer = self._message.answer
        self._answered = read_outcome(answer) if answer else None
        name = self._message.activity
        # Of an activity that is gone the name is enough where it is not to work: see `Transition._enter`.
        self._node = self._flow.graph.nodes.get(name) or Activity(name, NodeKind.ACTIVITY, flow_name=self._flow.name)

    async def _look(self) -> Look | None:
        key = LookKey(self._claim.row, self._job_row, self._node.name, self._message.dimension, self._guid)
        return await self._looking.look(self._engine.store, key)

    def _read(self, look: Look) -> None:
        """Digits that no ledger can have are raised."""
        self._activity_digits = ActivityLedger(look.ledger).value
        self._guid_digits = self._outcome = None
        self._ordinal = 0
        if look.guid_ledger is not None and look.ordinal is not None:
            record = GuidRecord(GuidLedger(look.guid_ledger), look.ordinal)
            self._guid_digits, self._ordinal = record.ledger.value, record.ordinal
            self._outcome = None if look.response is None else read_outcome(look.response)
        self._is_cancelled = look.job_cancelled or self._claim.cancel_requested
        self._is_closed = look.semaphore == 0 or look.job_status in TERMINAL

    def _turn_to(self, promise: bytes, step: str, state: str) -> None:
        """The row is another message's now."""
        claim = self._claim
        claim.promise, claim.step, claim.state = promise, step, state
        claim.attempt = claim.crashes = 0  # not the barrier: its rounds go on, for earlier children are of earlier ones
        claim.inbox, claim.awaits, claim.timed_out, claim.children_ready = (), None, False, False

    @property
    def _ledger(self) -> ActivityLedger:
        return ActivityLedger(self._activity_digits)

    @property
    def _record(self) -> GuidRecord | None:
        return None if self._guid_digits is None else GuidRecord(GuidLedger(self._guid_digits), self._ordinal)

    @property
    def _is_recorded(self) -> bool:
        """Whether the GUID has been entered, in this delivery or in an earlier one."""
        return self._guid_digits is not None

    @property
    def _phase(self) -> JobPhase:
        if self._is_closed:
            return JobPhase.CLOSED
        return JobPhase.CLOSING if self._is_cancelled else JobPhase.OPEN

    # ------------------------------------------------------------------ committing

    def _mark(self, weight: int, step: str | None = None, **collating: Any) -> Coroutine[Any, Any, Collated]:
        """A step of Leg2: on the GUID's ledger, and on the activity's unless it never entered Leg2."""
        assert self._is_recorded, "a step belongs to a GUID that was entered"
        return self._commit(stay(step), mark=weight if self._ordinal else 0, guid_add=weight, **collating)

    async def _commit(self, advance: AdvanceExecution, *riding: Effect, **collating: Any) -> Collated:
        return self._take(await self._engine.commit(self._claim, advance, self._collate(**collating), *riding))

    def _collate(self, **collating: Any) -> Collate:
        message = self._message
        return Collate(activity=message.activity, dimension=message.dimension, guid=self._guid, **collating)

    def _take(self, receipt: Receipt) -> Collated:
        if not receipt.applied:
            raise LeaseLost
        if receipt.cancel_requested:
            self._claim.cancel_requested = self._is_cancelled = True
        collated = receipt.collated
        if collated is None or receipt.status is Status.RUNNABLE:
            # Its answer was lost; or it was paused, and is no longer ours.
            raise LookAgain if receipt.status is Status.EXECUTING else LeaseLost
        self._activity_digits = collated.ledger
        if collated.guid_ledger:
            self._guid_digits, self._ordinal = collated.guid_ledger, collated.ordinal
        return collated

    async def _strand(self, error: Exception) -> None:
        """A dead letter (ruling A6): the obligation stays open, and the job is stranded with the message."""
        label = PromiseId.from_bytes(self._job).label(self._flow.name)
        log.error("a message of %s is a dead letter; mend the cause and retry it, or drop it: %s", label, error)
        record = encode_error(error, kind="internal")
        await self._engine.commit(self._claim, strand(self._claim, record, self._engine.release))
