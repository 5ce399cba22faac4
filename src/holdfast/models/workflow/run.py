"""One claim of a workflow, from its pick to its release: drive the body, run its calls, commit, park.

What is committed when (ruling B15): a decision is durable before anything that depends on it is started. So a commit
comes before a call begins if something is decided, before parking, and at the end; a body that goes on after an
inline call without starting anything shares the next commit.
"""

from __future__ import annotations

import logging

import msgspec
from msgspec import Raw

from holdfast.core.codec import encode_error
from holdfast.core.errors import (
    ConfigurationError,
    DecodeError,
    EncodeError,
    ForeignAwaitError,
    HoldfastError,
    NeverAwaitedError,
    NonDeterminismError,
    PayloadError,
    StoreUnavailableError,
)
from holdfast.core.identity import id_text
from holdfast.core.status import Status
from holdfast.models.options import Options
from holdfast.models.workflow.context import Context, Info
from holdfast.models.workflow.control_flow import Cancelled, ContinueAsNew
from holdfast.models.workflow.failures import encode_failure, failure_of
from holdfast.models.workflow.fork import FORKED
from holdfast.models.workflow.lane import Lane
from holdfast.models.workflow.session import Session
from holdfast.models.workflow.transaction import Transaction
from holdfast.store.effects import ContinueExecution, DeliverSignal, strand
from holdfast.store.values import NewSignal

log = logging.getLogger("holdfast.workflow")


class Run(Lane):
    """The life of one claim."""

    __slots__ = ()

    async def go(self) -> None:
        claim, engine = self._claim, self._engine
        engine.watch(claim, self._on_stir)
        try:
            self._losses = engine.store.losses
            mark = claim.revision, self._losses
            if (earlier := self._runner.leaving.get(claim.promise)) is not None:
                await earlier._come()  # a pick may be answered before the commit that made it possible
            warm = self._runner.warm.take(claim.promise, mark) if claim.journal_length else None
            if warm is not None:
                self._session = warm
            else:
                try:
                    self._session = self._new_session()
                    if claim.journal_length:
                        self._session.load(await engine.store.journal(claim.promise))
                except StoreUnavailableError:
                    raise  # nothing is wrong with the run: it is given back
                except HoldfastError as error:
                    await self._strand(error)
                    return
            self._open()
            await self._work()
        except BaseException:
            if self._session is not None:
                self._session.evict()
            raise
        finally:
            engine.watch(claim, None)
            if self._in_flight:
                await self._stop_calls()

    # ------------------------------------------------------------------ opening

    def _open(self) -> None:
        """Take in what came since the session was left, or since the run was started."""
        claim, session = self._claim, self._session
        self._set_time(claim.picked_at_us)
        if claim.attempt and session.open_calls:
            self._suspects = set(session.open_calls)
        if claim.beats:
            # A retry cuts off what came after its cause: the number of a call that beat there may be another's now.
            told = msgspec.json.decode(claim.beats, type=dict[str, Raw])
            self._beats = {call: beat for call, beat in told.items() if call in session.open_calls}
            self._has_new_beats = len(self._beats) < len(told)
        is_new = not session.journal.length
        if is_new:
            parent = None if claim.parent is None else id_text(claim.parent)
            digest, key = self._definition.digest, claim.idempotency_key
            session.start(digest, claim.state, parent, key, claim.version, claim.attributes)
        reason = (claim.cancel_reason or "cancelled") if claim.cancel_requested else None
        if claim.inbox:
            self._ingest(claim.inbox, reason)
        if not is_new:  # else it waits for nothing yet
            session.receive_wanted()  # before timers: a signal in time does not lose to a worker that came late
            session.fire_timers_behind(claim.awaits or (), claim.picked_at_us)
            session.decided |= claim.timed_out  # nothing begins before it is committed, as in `_ingest`
        if reason is not None:
            session.request_cancel(reason)

    def _new_session(self) -> Session:
        claim, definition = self._claim, self._definition
        arguments = definition.signature.decode(claim.state)
        session = Session(self._id)
        session.outside = self._runner.outside
        info = Info(self._id, claim.name, claim.version, claim.idempotency_key)
        context = Context(session, info, definition.signature, definition.payload_limit)
        session.body = definition.call(context, *arguments)
        if claim.step == FORKED:
            session.is_fork = True
        if claim.published:
            session.published = msgspec.json.decode(claim.published, type=dict[str, Raw])
        if claim.attributes:
            session.attributes = msgspec.json.decode(claim.attributes)
        return session

    # ------------------------------------------------------------------ the loop

    async def _work(self) -> None:
        session, engine = self._session, self._engine
        steps, since = 0, self._time_base
        while True:
            if not session.is_finished and session.can_resume:
                try:
                    session.drive()
                except HoldfastError as error:
                    await self._strand(error)
                    return
                if session.late_us:
                    session.fire_late_timers()
                    continue
            if session.to_cancel:
                await self._cancel_left()
                continue  # what ended with that may be what the body waits for
            if session.is_finished:
                if isinstance(session.failure, ForeignAwaitError):
                    await self._strand(session.failure)
                    return
                if self._in_flight:
                    await self._stop_calls()
                if self._is_committing:
                    await self._come()
                if not self._is_over:
                    self._is_over = True
                    status, result, failure = self._conclude()
                    engine.conclude(self._claim, *self._effects(status, result=result, error=failure))
                return
            plain = self._next_in_lane()
            if plain is not None and (not steps or engine.may_keep(self._claim, steps, since)):
                went = await self._go_on_in_lane(plain, steps, since)
                if went is None:
                    return
                steps = went
                continue
            todo = self._startable()
            lacking = self._lacking()
            if lacking is not None and self._in_flight:
                todo = []  # what has begun ends first: given up, it would be repeated, or uncertain
            elif lacking is not None:
                if not await self._commit():  # what has ended is not to be repeated either
                    return
                if session.awaits_cancel():
                    continue
                await self._strand(lacking)
                return
            if not todo and not self._in_flight:
                await self._park()
                return
            if steps and not self._in_flight and not engine.may_keep(self._claim, steps, since):
                await self._commit(Status.RUNNABLE)  # the worker drains, or more urgent work waits
                return
            steps += 1
            wait = session.wait
            if todo and isinstance(todo[0].callee, Transaction):
                if not await self._transact(todo[0], todo[0].callee):
                    return
                continue
            alone = len(todo) == 1 and not self._in_flight and wait is not None
            if alone and wait is not None and wait.waiting_on == (todo[0].promise_id,):
                goes_on = await self._call_in_place(todo[0])
            else:
                goes_on = await self._call_beside(todo)
            if not goes_on:
                return

    async def _park(self) -> None:
        session = self._session
        wait = session.wait
        assert wait is not None
        due_us = self._asleep_until_us()
        if due_us is not None:
            await self._commit(Status.AWAITING_PROMISE, awaits=(), wake_at_us=due_us)
            return
        names = tuple(sorted({s.signal_name for s in wait.signals if s.promise_id not in session.settled}))
        unsettled = [promise_id for promise_id in wait.waiting_on if promise_id not in session.settled]
        remote = sum(1 for promise_id in unsettled if self._is_remote(promise_id))
        if wait.join_set_id is not None:
            remote += session.join_sets[wait.join_set_id].remote
        due = [session.timers[pid] for pid in unsettled if pid in session.timers]
        retry_us = None if session.agenda is None else session.agenda.next_retry_us(session.open_calls)
        if retry_us is not None:
            due.append(retry_us)
        if not names and not remote and not due:
            await self._strand(HoldfastError("the body waits for something that nothing can bring; this is a bug"))
            return
        children = 0 if not remote else (1 if wait.kind == "Any" else remote)
        due_us = min(due, default=None)
        await self._commit(Status.AWAITING_PROMISE, awaits=names, wake_at_us=due_us, wait_children=children)

    def _asleep_until_us(self) -> int | None:
        """When the body goes on, if it sleeps and nothing else is going on: whatever else parks takes a longer look."""
        session, wait = self._session, self._session.wait
        if wait is None or wait.kind != "Single" or session.open_calls:
            return None
        return session.timers.get(wait.waiting_on[0])

    def _conclude(self) -> tuple[Status, str | None, str | None]:
        """Append the last event; the status that the row gets with it, its result and its error."""
        session, definition = self._session, self._definition
        error = session.failure
        if session.open_calls and (error is None or isinstance(error, ContinueAsNew)):
            error = session.failure = self._forgotten() or error
        if error is None:
            try:
                raw, _ = definition.signature.result.write(session.result, max_bytes=definition.payload_limit)
            except (EncodeError, PayloadError) as bad:
                error = session.failure = bad
            else:
                text = raw.decode()
                session.conclude(text, None)
                return Status.DONE, text, None
        if isinstance(error, ContinueAsNew):
            return self._continue(error)
        if isinstance(error, Cancelled) and session.cancel_sequence is not None:  # S-5: else it is an error like any
            session.conclude(None, None)
            return Status.CANCELLED, None, None
        failure = failure_of(error)
        session.conclude(None, failure)
        return Status.FAILED, None, encode_failure(failure)

    def _forgotten(self) -> NeverAwaitedError | None:
        """A body that ends without having awaited a call of its own: nothing would ever run it, or say so."""
        session = self._session
        for call in session.open_calls.values():
            if not call.is_remote and not call.attempt and call.promise_id not in session.watched:
                name = call.function_name
                return NeverAwaitedError(
                    f"{name} was called and never awaited, so it did not run: write `await {name}(...)`, submit it to "
                    "a join set, or give it a queue, where it runs on its own"
                )
        return None

    def _continue(self, again: ContinueAsNew) -> tuple[Status, str | None, str | None]:
        """End this journal and begin another, in one commit; whoever waits for the result follows."""
        definition, claim = self._definition, self._claim
        session = self._session
        promise = self._promise.successor("continued")
        options = Options(
            queue=claim.queue,
            priority=claim.priority,
            partition_key=claim.partition_key,
            attributes=session.attributes or None,
        )
        row = definition.row(promise, again.text, options, claim.idempotency_key)
        session.conclude(msgspec.json.encode({"continued_as": str(promise)}).decode(), None)
        # Signals that this run took in and did not read are read by the next one, before those still in the inbox.
        unread = [
            DeliverSignal(NewSignal(promise.to_bytes(), name, bytes(payload).decode()))
            for _, name, payload in sorted(
                (sequence, name, payload)
                for name, delivered in session.buffered.items()
                for sequence, payload in delivered
            )
        ]
        self._extra_effects = [*unread, ContinueExecution(row)]
        return Status.DONE, None, None

    async def _record_ends(self) -> bool:
        """The body is right, and this code cannot go on with it: what ended or is in flight must not be repeated."""
        session = self._session
        while self._in_flight and not session.awaits_cancel():
            if not await self._call_beside([]):
                return False
        return not session.decided or await self._commit()

    async def _strand(self, error: HoldfastError) -> None:
        """What a body that diverged asked for is not recorded, and its inbox stays. Loud, and resumable (ruling B5)."""
        label = self._promise.label(self._claim.name)
        log.error("%s is stranded: %s", label, error)
        session = self._session
        if session is not None:
            session.evict()
            has_diverged = session.divergence is not error or isinstance(error, NonDeterminismError)
            if not has_diverged and not await self._record_ends():
                return
        await self._stop_calls()
        kind = "internal" if isinstance(error, DecodeError | ConfigurationError) else "nondeterminism"
        record = encode_error(error, kind=kind)
        await self._engine.commit(self._claim, strand(self._claim, record, self._engine.release))
