"""One message under one lease: Leg1, the work between the legs, Leg2 with its three steps, acknowledgement.

- `go` looks at the ledgers and enters the protocol where they say; `_leg1`, `_work`, `_leg2`, `_close` are the entries.
- `_Lost`: the lease is gone, whatever was under way is somebody else's now. `_LookAgain`: a commit was applied, but its
  answer was lost with a connection.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core.codec import decode_error, encode_error
from holdfast.core.collation import (
    CHILDREN_SPAWNED,
    COMPLETION_DONE,
    GUID_ATTEMPTS,
    LEG1_ATTEMPTS,
    LEG1_DONE,
    LEG2_ENTRIES,
    WORK_DONE,
    Acknowledge,
    ActivityLedger,
    Close,
    DeadLetter,
    Dimension,
    GuidLedger,
    GuidRecord,
    JobPhase,
    Proceed,
    PutBack,
    RunLeg1,
    Step,
    receive_leg1,
    receive_leg2,
)
from holdfast.core.errors import ExecutionCancelledError, ExecutionFailedError, HoldfastError, StoreError
from holdfast.core.identity import PromiseId
from holdfast.core.status import TERMINAL, Status
from holdfast.engine.runner import Engine
from holdfast.models.flow.activity import NodeKind
from holdfast.models.flow.ending import end_of, job_ending
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.job import FlowJob
from holdfast.models.flow.looking import Looking
from holdfast.models.flow.message import Letterhead, job_of, message_promise, read_message
from holdfast.models.flow.outcome import ABANDONED, Outcome, failed, read_outcome, succeeded
from holdfast.models.flow.settling import settle
from holdfast.models.flow.work import arguments, current_of, inputs_of, retry_delay, run_once
from holdfast.store.effects import AdvanceExecution, ConsumeSignals, Effect, SpawnExecutions
from holdfast.store.flows import CLOSE, LEG1, LEG2, WORK, Collate, Look, LookKey, Settle
from holdfast.store.values import Collated, ExecutionClaim, NewExecution, Receipt

PUT_BACK_SECONDS = 0.1  # a response that came before Leg1 committed (ruling A5)


class _Lost(Exception):  # noqa: N818
    pass


class _LookAgain(Exception):  # noqa: N818
    pass


class Transition:
    def __init__(self, flow: Flow, claim: ExecutionClaim, engine: Engine, looking: Looking) -> None:
        assert claim.parent_row is not None, "a message belongs to a job"
        self._flow = flow
        self._claim = claim
        self._engine = engine
        self._looking = looking
        self._job = job_of(claim.promise)
        self._next: NewExecution | None = None  # a child that goes on in this row
        self._began, self._hops = engine.now(), 0

    async def go(self) -> None:
        look: Look | None = None
        while await self._open():
            if look is None:
                look = await self._look()
                if look is None:
                    return
                if look.state != self._claim.state:  # a child had taken the row over when the answer was lost
                    guid = read_message(look.state).guid(self._job)
                    self._turn_to(message_promise(self._job, guid), look.step, look.state)
                    look = None
                    continue
            try:
                await self._enter(look)
            except _LookAgain:
                look = None
                continue
            except _Lost:
                return
            if self._next is None:
                return
            look = self._go_on(self._next)

    async def _open(self) -> bool:
        """Read what the message says; False: it cannot be read, and is a dead letter now."""
        try:
            self._message = read_message(self._claim.state)
            self._dimension = Dimension.parse(self._message.dimension)
            self._guid = self._message.guid(self._job)
            self._node = self._flow.graph.nodes[self._message.activity]
        except KeyError:
            known = HoldfastError(
                f"the flow {self._flow.name} has no activity {self._message.activity!r} (any more); run the code that "
                "has it, or give the changed flow a new version"
            )
            await self._strand(known)
            return False
        except (msgspec.MsgspecError, HoldfastError, ValueError) as error:
            await self._strand(HoldfastError(f"this message of {self._flow.name} cannot be read: {error}"))
            return False
        return True

    async def _look(self) -> Look | None:
        job = self._claim.parent_row or 0
        key = LookKey(self._claim.row, job, self._node.name, self._message.dimension, self._guid)
        return await self._looking.look(self._engine.store, key)

    def _go_on(self, child: NewExecution) -> Look | None:
        """The row is the child's now. A Leg1 that was published just now has an empty ledger: no need to look."""
        self._next = None
        self._hops += 1
        self._turn_to(child.promise, child.step, child.state)
        if child.step != LEG1:
            return None
        return Look(LEG1, child.state, Status.DELEGATED, self._is_cancelled, 1, 0, None, None, None)

    def _turn_to(self, promise: bytes, step: str, state: str) -> None:
        claim = self._claim
        claim.promise, claim.step, claim.state = promise, step, state
        claim.attempt = claim.crashes = 0  # not the barrier: its rounds go on, for earlier children are of earlier ones
        claim.inbox, claim.awaits, claim.timed_out, claim.children_ready = (), None, False, False

    async def _enter(self, look: Look) -> None:
        try:
            self._read(look)
        except HoldfastError as error:  # digits that no ledger can have
            await self._strand(error)
            return
        if look.step == CLOSE:
            await self._close()
        elif look.step == LEG1:
            await self._leg1()
        elif look.step == WORK:
            await self._work()
        else:
            response = bytes(self._message.response).decode()
            await self._leg2(read_outcome(response) if response else None)

    def _read(self, look: Look) -> None:
        self._ledger = ActivityLedger(look.ledger)
        self._record: GuidRecord | None = None
        self._outcome: Outcome | None = None
        if look.guid_ledger is not None and look.ordinal is not None:
            self._record = GuidRecord(GuidLedger(look.guid_ledger), look.ordinal)
            self._outcome = None if look.response is None else read_outcome(look.response)
        self._is_cancelled = look.job_cancelled or self._claim.cancel_requested
        self._is_closed = look.semaphore == 0 or look.job_status in TERMINAL

    @property
    def _phase(self) -> JobPhase:
        if self._is_closed:
            return JobPhase.CLOSED
        return JobPhase.CLOSING if self._is_cancelled else JobPhase.OPEN

    # ------------------------------------------------------------------ Leg1 (section 4)

    async def _leg1(self) -> None:
        decision = receive_leg1(self._node.name, self._ledger, record=self._record, job=self._phase)
        match decision:
            case RunLeg1():
                entered = await self._commit(_stay(LEG1), add=LEG1_ATTEMPTS.weight)
                if entered.ledger != decision.activity.value:  # there was more on it than was known
                    raise _LookAgain
                if self._is_cancelled:
                    await self._leg1()
                elif not await self._waits(LEG1_DONE.weight):
                    await self._commit(_stay(WORK), add=LEG1_DONE.weight)
                    await self._work()
            case Acknowledge():
                counted = decision.activity.value - self._ledger.value
                await self._commit(_stay(None), add=counted, acknowledge=True)
            case Close():
                await self._commit(_stay(None), acknowledge=True)
            case DeadLetter(error):
                await self._strand(error)
            case Proceed():
                self._outcome = ABANDONED
                await self._commit(_stay(LEG1), guid_add=GUID_ATTEMPTS.weight, response=ABANDONED.encode())
                await self._steps(decision.step)

    # ------------------------------------------------------------------ between the legs

    async def _waits(self, add: int = 0) -> bool:
        """Of a hook or a sub-flow: park the message until what it waits for is there, in the commit of Leg1."""
        node = self._node
        if node.kind is NodeKind.HOOK:
            assert node.signal is not None, "a hook waits for a signal"
            park = AdvanceExecution(
                status=Status.AWAITING_SIGNAL, step=WORK, awaits=(node.signal,), wake_after=node.timeout_seconds
            )
            await self._commit(park, add=add, awaits=node.signal)
            return True
        if node.kind is NodeKind.SUBFLOW:
            assert node.subflow is not None, "a sub-flow has a flow"
            claim = self._claim
            text = arguments_of(node.subflow, self._message.inputs)
            child = PromiseId.from_bytes(claim.promise).child(claim.next_child)
            row = node.subflow.child_row(child, text, claim.queue, self._flow.payload_limit)
            park = AdvanceExecution(status=Status.AWAITING_CHILDREN, step=WORK)
            spawn = SpawnExecutions((msgspec.structs.replace(row, reports=False),))
            await self._commit(park, spawn, add=add)
            return True
        return False

    async def _work(self) -> None:
        if self._record is not None or self._is_closed:
            await self._leg2(None)
            return
        consumed: tuple[Effect, ...] = ()
        outcome: Outcome | None = None
        node, claim = self._node, self._claim
        if self._is_cancelled:
            outcome = ABANDONED
        elif node.kind is NodeKind.SUBFLOW:
            if not claim.children_ready:
                await self._waits()
                return
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
                await self._waits()
                return
            if outcome is None:
                return
        elif not node.is_transaction:
            outcome = await self._attempt(await inputs_of(node, self._message, claim, self._engine))
            if outcome is None:
                return
        await self._leg2(outcome, *consumed)

    async def _attempt(self, inputs: list[Raw]) -> Outcome | None:
        """What the function answered; None: it is tried again later, and the message is released."""
        task = self._node.task
        assert task is not None, "only a sub-flow has no function"
        text = arguments(task, inputs, is_whole=self._message.is_entry)
        try:
            value = await run_once(task, text, self._claim, self._engine)
            return succeeded(self._flow.graph, self._node, value)
        except Exception as error:
            return await self._failed(error)

    async def _failed(self, error: Exception) -> Outcome | None:
        task, claim = self._node.task, self._claim
        assert task is not None, "only a sub-flow has no function"
        delay = None if self._is_cancelled else retry_delay(task, claim, error, self._engine)
        if delay is None:
            return failed(self._flow.graph, self._node, error)
        again = AdvanceExecution(
            status=Status.RUNNABLE,
            attempt=claim.attempt + 1,
            delay=delay,
            error=encode_error(error),
            progress=False,  # a hook's signal, and what a sub-flow answered, are there for the next attempt
        )
        await self._engine.commit(claim, again)
        return None

    async def _child_outcome(self) -> Outcome:
        """How the job of a sub-flow ended."""
        claim, node = self._claim, self._node
        (child,) = await self._engine.store.children(claim.promise, claim.barrier_round)
        label = PromiseId.from_bytes(child.promise).label(child.name)
        if child.status is Status.DONE:
            return succeeded(self._flow.graph, node, child.result or "null")
        if child.status is Status.CANCELLED:
            return failed(self._flow.graph, node, ExecutionCancelledError(f"{label} was cancelled"))
        record = None if child.error is None else decode_error(child.error)
        return failed(self._flow.graph, node, ExecutionFailedError(f"{label} failed: {record}", record))

    # ------------------------------------------------------------------ Leg2 (sections 7 to 13)

    async def _leg2(self, answered: Outcome | None, *riding: Effect) -> None:
        decision = receive_leg2(self._node.name, self._ledger, self._record, job=self._phase)
        match decision:
            case Proceed():
                is_abandoned = decision.abandon and decision.step is not Step.COMPLETION
                if self._record is None:
                    self._outcome = answered
                else:
                    answered = None
                if is_abandoned and self._outcome is None:
                    answered = ABANDONED
                await self._commit(
                    _stay(LEG2),
                    *riding,
                    add=LEG2_ENTRIES.weight,
                    guid_add=GUID_ATTEMPTS.weight,
                    response=None if answered is None else answered.encode(),
                )
                if is_abandoned:
                    self._outcome = ABANDONED
                await self._steps(decision.step)
            case Acknowledge():
                entered = decision.activity.value - self._ledger.value
                counted = (
                    0
                    if decision.record is None or self._record is None
                    else (decision.record.ledger.value - self._record.ledger.value)
                )
                await self._commit(_stay(None), add=entered, guid_add=counted, acknowledge=True)
            case PutBack():
                later = AdvanceExecution(status=Status.RUNNABLE, delay=PUT_BACK_SECONDS, progress=False)
                await self._engine.commit(self._claim, later)
            case Close():
                await self._commit(_stay(None), acknowledge=True)
            case DeadLetter(error):
                await self._strand(error)

    async def _steps(self, step: Step, dropped: str | None = None) -> None:
        """From `step` to the acknowledgement; each step is one commit.

        `dropped` is the error of a dead letter: the first of the steps records it.
        """
        if step is Step.WORK:
            if not await self._step_work(dropped):
                return
            step, dropped = Step.CHILDREN, None
        if step is Step.CHILDREN:
            if not await self._step_children(dropped):
                return
            dropped = None
        await self._step_completion(dropped)

    async def _step_work(self, dropped: str | None) -> bool:
        """Step 1; False: the message was released, to be tried again."""
        node = self._node
        if self._outcome is None:
            assert node.is_transaction, "only the work of a transaction is done in Step 1"
            return await self._transact()
        outcome = self._outcome
        failure = dropped if dropped is not None else _failure(outcome)
        await self._mark(WORK_DONE.weight, failure=failure)
        return True

    async def _transact(self) -> bool:
        """What the code writes commits with the proof that it has."""
        node, claim, engine = self._node, self._claim, self._engine
        task: Any = node.task
        inputs = await inputs_of(node, self._message, claim, engine)
        made: list[Outcome] = []

        def effects_of(value: str) -> tuple[Effect, ...]:
            made.append(succeeded(self._flow.graph, node, value))
            weight = WORK_DONE.weight
            collate = self._collate(mark=weight, guid_add=weight, response=made[-1].encode())
            return _stay(LEG2), collate

        try:
            work = task.work(arguments(task, inputs, is_whole=self._message.is_entry), current_of(claim), engine)
            receipt = await engine.transact(claim, work, effects_of)
        except HoldfastError as error:
            if not _is_users(error):
                raise
            outcome = await self._failed(error)
        except Exception as error:
            outcome = await self._failed(error)
        else:
            self._take(receipt)
            self._outcome = made[-1]
            return True
        if outcome is None:
            return False
        self._outcome = outcome
        await self._mark(WORK_DONE.weight, failure=_failure(outcome), response=outcome.encode())
        return True

    async def _step_children(self, dropped: str | None) -> bool:
        """Step 2, which acknowledges the message unless it closed the job; whether it did."""
        assert self._outcome is not None, "Step 2 comes after Step 1"
        assert self._record is not None, "Step 2 belongs to a GUID that was entered"
        index = max(0, self._record.ordinal - 1)
        head = Letterhead(
            self._job,
            self._flow.name,
            self._flow.version,
            self._claim.handler,
            self._message.queue,
            self._claim.priority,
        )
        settled = settle(self._flow.graph, self._node, self._dimension, index, self._outcome, head)
        if self._may_go_on(settled):
            settled = msgspec.structs.replace(settled, onward=True)
        collated = await self._mark(CHILDREN_SPAWNED.weight, failure=dropped, settle=settled, acknowledge=True)
        if collated.onward:
            self._next = settled.children[0]
        return collated.closed

    def _may_go_on(self, settled: Settle) -> bool:
        """Whether the first child may run here and now, in this message's row: no insert, no pick, no delete."""
        claim, children = self._claim, settled.children
        if not children or children[0].queue != claim.queue:
            return False
        return self._engine.may_keep(claim, self._hops, self._began)

    async def _step_completion(self, dropped: str | None) -> None:
        """Step 3: the completion task, and the end of the job with all that rides on it (ruling A11).

        A letter that was dropped here died of the completion task, which is not run again.
        """
        records = await self._engine.store.flow_records(self._job)
        view = await self._engine.store.get(self._job)
        assert records is not None, "a job outlives its messages"
        assert view is not None, "a job outlives its messages"
        ending = job_ending(self._flow, self._job, records, cancelled=view.cancel_requested, dropped=dropped)
        failure: str | None = None
        if self._flow.completion is not None and dropped is None:
            is_done, failure = await self._complete(ending, records.failures[0].error if records.failures else None)
            if is_done:
                return
        error = dropped if dropped is not None else records.failures[0].error if records.failures else None
        end = end_of(self._flow, ending, failure, error)
        await self._mark(COMPLETION_DONE.weight, end=end, acknowledge=True)

    async def _complete(self, ending: FlowJob, error: str | None) -> tuple[bool, str | None]:
        """Run the completion task: whether that was all there is to do now, and how it failed for good."""
        node, claim, engine = self._flow.completion, self._claim, self._engine
        assert node is not None, "there is a completion task"
        assert node.task is not None, "a completion task is a function"
        task: Any = node.task
        (name,) = task.signature.names
        text = msgspec.json.encode({name: ending}).decode()
        weight = COMPLETION_DONE.weight
        try:
            if not node.is_transaction:
                await run_once(task, text, claim, engine)
                return False, None
            end = end_of(self._flow, ending, None, error)
            collate = self._collate(mark=weight, guid_add=weight, end=end, acknowledge=True)
            receipt = await engine.transact(
                claim, task.work(text, current_of(claim), engine), lambda _: (_stay(None), collate)
            )
            self._take(receipt)
            return True, None
        except HoldfastError as failure:
            if not _is_users(failure):
                raise
            return await self._completion_failed(task, failure)
        except Exception as failure:
            return await self._completion_failed(task, failure)

    async def _completion_failed(self, task: Any, error: Exception) -> tuple[bool, str | None]:
        delay = retry_delay(task, self._claim, error, self._engine)
        record = encode_error(error)
        if delay is None:
            return False, record
        attempt = self._claim.attempt + 1
        again = AdvanceExecution(
            status=Status.RUNNABLE, step=LEG2, attempt=attempt, delay=delay, error=record, progress=False
        )
        await self._engine.commit(self._claim, again)
        return True, None

    # ------------------------------------------------------------------ dead letters (ruling A6)

    async def _strand(self, error: Exception) -> None:
        """The obligation stays open, and the job is stranded with the message: see `executions_dead_letter`."""
        label = PromiseId.from_bytes(self._job).label(self._flow.name)
        error.add_note(f"a message of {label} is a dead letter; mend the cause and retry it, or drop it")
        record = encode_error(error, kind="internal")
        advance = AdvanceExecution(status=Status.STRANDED, attempt=self._claim.attempt, progress=False, error=record)
        await self._engine.commit(self._claim, advance)

    async def _close(self) -> None:
        """A dropped letter: no counter moves, for one may be full; what it still owes is closed (ruling A8)."""
        view = await self._engine.store.get(self._claim.promise)
        if view is None:
            return
        dropped = view.error or encode_error(HoldfastError(f"a message of {self._node.label} was dropped"))
        if self._record is None:
            if self._is_closed:
                await self._commit(_stay(None), acknowledge=True)
                return
            await self._commit(_stay(CLOSE), guid_add=GUID_ATTEMPTS.weight, response=ABANDONED.encode())
        assert self._record is not None, "it was recorded just now"
        step = self._record.ledger.next_step
        if step is None:
            await self._commit(_stay(None), acknowledge=True)
            return
        self._outcome = ABANDONED
        await self._steps(step, dropped)

    # ------------------------------------------------------------------ committing

    async def _mark(self, weight: int, **collating: Any) -> Collated:
        """A step of Leg2: on the GUID's ledger, and on the activity's unless it never entered Leg2."""
        assert self._record is not None, "a step belongs to a GUID that was entered"
        mark = weight if self._record.ordinal else 0
        return await self._commit(_stay(None), mark=mark, guid_add=weight, **collating)

    async def _commit(self, advance: AdvanceExecution, *riding: Effect, **collating: Any) -> Collated:
        receipt = await self._engine.commit(self._claim, advance, self._collate(**collating), *riding)
        return self._take(receipt)

    def _collate(self, **collating: Any) -> Collate:
        return Collate(activity=self._node.name, dimension=self._message.dimension, guid=self._guid, **collating)

    def _take(self, receipt: Receipt) -> Collated:
        if not receipt.applied:
            raise _Lost
        if receipt.cancel_requested:
            self._claim.cancel_requested = self._is_cancelled = True
        collated = receipt.collated
        if collated is None or receipt.status is Status.RUNNABLE:
            # Its answer was lost; or it was paused, and is no longer ours.
            raise _LookAgain if receipt.status is Status.EXECUTING else _Lost
        self._ledger = ActivityLedger(collated.ledger)
        if collated.guid_ledger:
            self._record = GuidRecord(GuidLedger(collated.guid_ledger), collated.ordinal)
        return collated


def arguments_of(flow: Flow, inputs: list[Raw]) -> str:
    (name,) = flow.signature.names
    return msgspec.json.encode({name: inputs[0]}).decode()


def _stay(step: str | None) -> AdvanceExecution:
    """Keep the lease."""
    return AdvanceExecution(status=Status.EXECUTING, step=step)


def _failure(outcome: Outcome) -> str | None:
    """The error that fails the job: one that no edge takes (ruling A8)."""
    return outcome.error if outcome.is_unhandled else None


def _is_users(error: HoldfastError) -> bool:
    return not isinstance(error, StoreError)
