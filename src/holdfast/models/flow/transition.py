"""A message from its claim to its acknowledgement: Leg1, the work between the legs, Leg2.

- `go` looks at the ledgers and enters the protocol where they say; `_leg1`, `_work`, `_leg2`, `_close` are the entries.
- A child that goes on in the row of its parent is run here too, one after the other.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from holdfast.core.codec import encode_error
from holdfast.core.collation import (
    GUID_ATTEMPTS,
    LEG1_ATTEMPTS,
    LEG1_DONE,
    LEG2_ENTRIES,
    Acknowledge,
    Close,
    DeadLetter,
    JobPhase,
    Proceed,
    PutBack,
    RunLeg1,
    Step,
    receive_leg1,
    receive_leg2,
)
from holdfast.core.errors import DecodeError, HoldfastError
from holdfast.core.status import Status
from holdfast.models.flow.activity import NodeKind
from holdfast.models.flow.delivery import LeaseLost, LookAgain, stay
from holdfast.models.flow.message import Letter, message_promise, read_message
from holdfast.models.flow.outcome import ABANDONED, Outcome, failed
from holdfast.models.flow.steps import Next, Steps
from holdfast.models.flow.work import inputs_of
from holdfast.store.effects import AdvanceExecution, ConsumeSignals, Effect
from holdfast.store.flows import CLOSE, LEG1, LEG2, WORK, Look

PUT_BACK_SECONDS = 0.1  # a response that came before Leg1 committed (ruling A5)


class Transition(Steps):
    async def go(self) -> None:
        self._began = self._engine.now()
        self._heads: dict[str, tuple[str, int]] = {}
        is_known = False  # what the message says, and its ledgers, without having read them
        while is_known or await self._can_open():
            if is_known:
                part: Next = self._leg1() if self._claim.step == LEG1 else self._work()
            else:
                look = await self._look()
                if look is None:
                    return
                if look.state != self._claim.state:  # a child had taken the row over when the answer was lost
                    guid = read_message(look.state).guid(self._job)
                    self._turn_to(message_promise(self._job, guid), look.step, look.state)
                    continue
                part = self._enter(look)
            try:
                while part is not None:
                    part = await part
            except LookAgain:
                is_known = False
                continue
            except LeaseLost:
                return
            if self._next is None:
                return
            is_known = self._go_on(self._next)

    async def _can_open(self) -> bool:
        """False: the message cannot be read, and is a dead letter now."""
        try:
            self._open()
        except (msgspec.MsgspecError, HoldfastError, ValueError) as unreadable:
            await self._strand(DecodeError(f"this message of {self._flow.name} cannot be read: {unreadable}"))
        else:
            return True
        return False

    def _go_on(self, letter: Letter) -> bool:
        """The row is the child's now; whether there is no need to look at its ledgers.

        A Leg1 that was published just now has an empty one. That of a cycle's head is known from its last iteration,
        if that ran here; others may have entered it since, which matters near its ceiling alone.
        """
        node, graph = self._node, self._flow.graph
        if node.name in graph.heads:
            self._heads[node.name] = (self._message.dimension, self._activity_digits)
        self._next = None
        self._hops += 1
        row, self._message, self._dimension, self._guid = letter
        self._turn_to(row.promise, row.step, row.state)
        self._node = graph.nodes[self._message.activity]
        self._answered = self._outcome = self._guid_digits = None
        self._ordinal = self._activity_digits = 0
        self._is_closed = False  # the child is open
        if row.step == LEG1:
            return True
        dimension, digits = self._heads.get(self._node.name, ("", 0))
        self._activity_digits = digits
        return dimension == self._message.dimension and 0 < LEG2_ENTRIES.read(digits) < LEG2_ENTRIES.ceiling // 2

    async def _enter(self, look: Look) -> Next:
        try:
            self._read(look)
            if look.step != CLOSE and self._phase is JobPhase.OPEN:
                self._flow.graph.find(self._node.name, self._flow.name)
        except HoldfastError as error:  # digits that no ledger can have, or an activity that is gone
            await self._strand(error)
            return None
        if look.step == CLOSE:
            return self._close()
        if look.step == LEG1:
            return self._leg1()
        return self._work() if look.step == WORK else self._leg2(self._answered)

    # ------------------------------------------------------------------ Leg1 (section 4)

    async def _leg1(self) -> Next:
        decision = receive_leg1(self._node.name, self._ledger, record=self._record, job=self._phase)
        match decision:
            case RunLeg1():
                entered = await self._commit(stay(None), add=LEG1_ATTEMPTS.weight)
                if entered.ledger != decision.activity.value:  # there was more on it than was known
                    raise LookAgain
                if self._is_cancelled:
                    return self._leg1()
                if self._node.is_waiting and self._answered is None and not self._is_too_deep:
                    await self._wait(LEG1_DONE.weight)
                else:
                    await self._commit(stay(WORK), add=LEG1_DONE.weight)
                    return self._work()
            case Acknowledge():
                counted = decision.activity.value - self._ledger.value
                await self._commit(stay(None), add=counted, acknowledge=True)
            case Close():
                await self._commit(stay(None), acknowledge=True)
            case DeadLetter(error):
                await self._strand(error)
            case Proceed():
                self._outcome = ABANDONED
                await self._commit(stay(LEG1), guid_add=GUID_ATTEMPTS.weight, response=ABANDONED.encode())
                return self._steps(decision.step)
        return None

    # ------------------------------------------------------------------ between the legs

    async def _work(self) -> Next:
        if self._is_recorded or self._is_closed:
            return self._leg2(None)
        consumed: tuple[Effect, ...] = ()
        outcome: Outcome | None = None
        node, claim = self._node, self._claim
        if self._is_cancelled:
            if claim.next_child:
                await self._cancel_child()
            outcome = ABANDONED
        elif self._answered is not None:  # its response was there before its Leg1 (ruling A5)
            outcome = self._answered
        elif self._is_too_deep:
            outcome = self._refused()
        elif node.kind is NodeKind.SUBFLOW:
            if not claim.children_ready:
                await self._wait()
                return None
            outcome = await self._child_outcome()
        elif node.kind is NodeKind.HOOK:
            signal = next((signal for signal in claim.inbox if signal.name == node.signal), None)
            if signal is not None:
                consumed = (ConsumeSignals((signal.id,)),)
                outcome = await self._attempt([*self._message.inputs, Raw(signal.payload.encode())])
            elif claim.timed_out:
                error = TimeoutError(f"no signal {node.signal!r} came to {node.label} in {node.timeout_seconds} s")
                outcome = failed(self._flow.graph, node, error, kind="timeout")
            else:
                await self._wait()
                return None
            if outcome is None:
                return None
        elif not node.is_transaction:
            inputs = self._message.inputs
            outcome = await self._attempt(inputs or await inputs_of(node, self._message, claim, self._engine))
            if outcome is None:
                return None
        return self._leg2(outcome, *consumed)

    # ------------------------------------------------------------------ Leg2 (sections 7 to 13)

    async def _leg2(self, answered: Outcome | None, *riding: Effect) -> Next:
        decision = receive_leg2(self._node.name, self._ledger, self._record, job=self._phase)
        match decision:
            case Proceed():
                is_abandoned = decision.abandon and decision.step is not Step.COMPLETION
                is_new = not self._is_recorded
                if is_new:
                    self._outcome = answered
                else:
                    answered = None
                if is_abandoned and self._outcome is None:
                    answered = ABANDONED
                entered = await self._commit(
                    stay(LEG2),
                    *riding,
                    add=LEG2_ENTRIES.weight,
                    guid_add=GUID_ATTEMPTS.weight,
                    response=None if answered is None else answered.encode(),
                )
                if is_new and entered.guid_ledger != GUID_ATTEMPTS.weight:  # there was more on it than was known
                    raise LookAgain
                if is_abandoned:
                    self._outcome = ABANDONED
                return self._steps(decision.step)
            case Acknowledge():
                added = decision.activity.value - self._ledger.value
                counted = (
                    0
                    if decision.record is None or self._record is None
                    else (decision.record.ledger.value - self._record.ledger.value)
                )
                await self._commit(stay(None), add=added, guid_add=counted, acknowledge=True)
            case PutBack():
                later = AdvanceExecution(status=Status.RUNNABLE, delay=PUT_BACK_SECONDS, progress=False)
                await self._engine.commit(self._claim, later)
            case Close():
                await self._commit(stay(None), acknowledge=True)
            case DeadLetter(error):
                await self._strand(error)
        return None

    # ------------------------------------------------------------------ dead letters (ruling A6)

    async def _close(self) -> Next:
        """A dropped letter: no counter moves, for one may be full; what it still owes is closed (ruling A8).

        Or the message of a job whose input cannot be read, which says why.
        """
        view = await self._engine.store.get(self._claim.promise)
        if view is None:
            return None
        refused = None if self._answered is None else self._answered.error
        dropped = refused or view.error or encode_error(HoldfastError(f"a message of {self._node.label} was dropped"))
        if not self._is_recorded:
            if self._is_closed:
                await self._commit(stay(None), acknowledge=True)
                return None
            entered = GUID_ATTEMPTS.weight
            await self._commit(stay(CLOSE), guid_add=entered, response=ABANDONED.encode(), failure=dropped)
        assert self._record is not None, "it was recorded just now"
        step = self._record.ledger.next_step
        if step is None:
            await self._commit(stay(None), acknowledge=True)
            return None
        self._outcome = ABANDONED
        return self._steps(step, dropped)
