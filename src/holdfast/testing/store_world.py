"""Plays the operations of `store_ops` on one ledger.

What `World` answers is free of anything that two correct stores may differ in, such as their own ids.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.effects import (
    AdvanceExecution,
    AppendJournal,
    Commit,
    ConsumeSignals,
    DeliverSignal,
    Effect,
    RecordTransition,
    SpawnExecutions,
)
from holdfast.store.values import (
    CHILD,
    ExecutionClaim,
    ExecutionView,
    NewExecution,
    NewSignal,
    QueueRoom,
    QueueSettings,
    Signal,
)
from holdfast.testing import store_ops as ops
from holdfast.testing.hand import KIND
from holdfast.testing.store_ops import (
    LEASE_SECONDS,
    LIMITED_QUEUE,
    MAX_CRASHES,
    NAMES,
    PLENTY,
    QUEUES,
    Op,
    Outcome,
    child_specs,
    new_row,
)
from holdfast.testing.stores import Stores


class World:
    """One ledger under a history. Executions are numbered as they were created, claims as they were picked."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.rows: list[NewExecution] = []
        self.claims: list[tuple[str, ExecutionClaim]] = []
        self.workers: dict[int, str] = {}
        self._generation = 0
        self._started = 0
        self._events: Counter[bytes] = Counter()  # of the journals

    @property
    def store(self) -> Store:
        return self.stores.store

    async def apply(self, op: Op) -> object:
        """Play one operation; the answer, in terms that any store shares."""
        return await getattr(self, f"_{type(op).__name__.lower()}")(op)

    async def views(self) -> list[ExecutionView]:
        views = await self.store.get_many([new.promise for new in self.rows])
        return [view for view in views if view is not None]

    async def inbox(self, promise: bytes) -> list[tuple[str, str]]:
        return _read(await self.store.inbox(promise))

    def cleans_up(self, number: int) -> bool:
        """Whether the execution of a claim cleans up after a cancel."""
        promise = self.claims[number][1].promise
        return any(new.cleans_up for new in self.rows if new.promise == promise)

    # ------------------------------------------------------------------ starting and working

    async def _start(self, op: ops.Start) -> object:
        rows = []
        for spec in op.specs:
            if spec.again is not None and self.rows:
                rows.append(self.rows[spec.again % len(self.rows)])
            else:
                rows.append(new_row(self._started, spec))
                self._started += 1
        answers = await self.store.insert(rows)
        self.rows += [new for new, answer in zip(rows, answers, strict=True) if answer.created]
        return [(answer.promise, answer.created, answer.collided, answer.key_conflict) for answer in answers]

    async def _register(self, op: ops.Register) -> object:
        # A worker that was reaped takes a new identity, so every registration has one of its own.
        self._generation += 1
        self.workers[op.slot] = f"w{op.slot}.{self._generation}"
        await self.store.register_worker(
            self.workers[op.slot], host="test", pid=1, queues=QUEUES, lease_seconds=LEASE_SECONDS
        )
        return None

    async def _beat(self, op: ops.Beat) -> object:
        return await self.store.beat(self.workers.get(op.slot, "nobody"), LEASE_SECONDS)

    async def _pick(self, op: ops.Pick) -> object:
        worker = self.workers.get(op.slot, "nobody")
        handlers = [handler_of(KIND, name, 1) for name in (NAMES if op.knows_all else NAMES[:1])]
        rooms = [QueueRoom(queue, op.limit) for queue in QUEUES]
        picked = await self.store.pick(worker, rooms, handlers, op.limit)
        self.claims += [(worker, claim) for claim in picked.claims]
        return picked.worker_lost, [self._seen(claim) for claim in picked.claims]

    @staticmethod
    def _seen(claim: ExecutionClaim) -> object:
        inbox = _read(claim.inbox)
        flags = (claim.timed_out, claim.children_ready, claim.cancel_requested, claim.has_parent)
        counters = (claim.epoch, claim.revision, claim.attempt, claim.crashes, claim.barrier_round, claim.next_child)
        return claim.promise, claim.step, claim.state, counters, flags, inbox

    async def _flush(self, op: ops.Flush) -> object:
        answers: list[object] = [None] * len(op.commits)
        by_worker: dict[str, list[tuple[int, Commit, list[NewExecution]]]] = {}
        for place, (number, outcome) in enumerate(op.commits):
            worker, claim = self.claims[number]
            children = list(child_specs(claim.promise, claim.next_child, number, outcome))
            effects = self._effects(claim, outcome, number, children)
            commit = Commit(replace(claim, revision=claim.revision - 1) if outcome.is_behind else claim, effects)
            by_worker.setdefault(worker, []).append((place, commit, children))
        for worker, commits in by_worker.items():
            flushed = await self.store.flush(worker, [commit for _, commit, _ in commits])
            for (place, commit, children), receipt in zip(commits, flushed.receipts, strict=True):
                if receipt.applied:
                    receipt.at_us = flushed.at_us
                    commit.claim.went_on(commit.effects[0], receipt)  # type: ignore[arg-type]  # see `Commit`
                    self._events[commit.claim.promise] += any(isinstance(e, AppendJournal) for e in commit.effects)
                created = [child.created for child in receipt.children]
                self.rows += [new for new, was in zip(children, created, strict=False) if was]
                answers[place] = receipt.applied, receipt.status, receipt.cancel_requested, created
        return answers

    def _effects(
        self, claim: ExecutionClaim, outcome: Outcome, number: int, children: list[NewExecution]
    ) -> tuple[Effect, ...]:
        effects: list[Effect] = [_advance(claim, outcome, number)]
        if outcome.kind == "step":
            effects.append(AppendJournal(self._events[claim.promise], 1, f'"{number}"'))
        if outcome.consumes:
            effects.append(ConsumeSignals(tuple(signal.id for signal in claim.inbox)))
        if outcome.kind == "children":
            effects.append(SpawnExecutions(tuple(children), outcome.quorum))
        if outcome.kind == "call":
            effects.append(SpawnExecutions(tuple(children), barrier=False))
        if outcome.signal_to is not None:
            target = self.rows[outcome.signal_to % len(self.rows)].promise
            effects.append(DeliverSignal(NewSignal(target, outcome.signal_name, '"flush"', outcome.signal_dedup)))
        if outcome.records:
            effects.append(RecordTransition(claim.step, outcome.kind, None, claim.attempt))
        return tuple(effects)

    async def _release(self, op: ops.Release) -> object:
        count = 0
        for number in op.claims:
            worker, claim = self.claims[number]
            count += await self.store.release(worker, [claim])
        return count

    async def _reclaim(self, op: ops.Reclaim) -> object:
        worker, claim = self.claims[op.claim]
        (again,) = await self.store.reclaim(worker, [claim])
        if again is None:
            return None
        self.claims.append((worker, again))
        return self._seen(again)

    async def _disown(self, op: ops.Disown) -> object:
        return await self.store.disown(self.workers.get(op.slot, "nobody"), [])

    async def _retire(self, op: ops.Retire) -> object:
        return await self.store.retire_worker(self.workers.get(op.slot, "nobody"))

    # ------------------------------------------------------------------ time

    async def _advance(self, op: ops.Advance) -> object:
        await self.stores.advance(op.seconds)
        return None

    async def _reap(self, op: ops.Reap) -> object:
        reaped = await self.store.reap(PLENTY, MAX_CRASHES)
        return sorted(reaped.workers), reaped.released, sorted(reaped.stranded), reaped.more

    async def _firetimers(self, op: ops.FireTimers) -> object:
        fired = await self.store.fire_timers(PLENTY)
        return fired.fired, fired.next_due_seconds, fired.more

    # ------------------------------------------------------------------ from outside

    async def _deliver(self, op: ops.Deliver) -> object:
        return await self.store.deliver(
            [NewSignal(self.rows[number].promise, name, f'"{name}"', dedup) for number, name, dedup in op.signals]
        )

    async def _cancel(self, op: ops.Cancel) -> object:
        promises = [self.rows[number].promise for number in op.executions]
        return await self.store.cancel(promises, cascade=op.cascade)

    async def _pause(self, op: ops.Pause) -> object:
        return await self.store.pause(self.rows[op.execution].promise, op.paused)

    async def _resume(self, op: ops.Resume) -> object:
        return await self.store.resume(self.rows[op.execution].promise)

    async def _configure(self, op: ops.Configure) -> object:
        settings = QueueSettings(name=LIMITED_QUEUE, paused=op.paused, concurrency=op.concurrency)
        await self.store.configure_queue(settings)
        return None


def _read(inbox: Iterable[Signal]) -> list[tuple[str, str]]:
    """Name and payload; of the end of a child, its promise and status (how JSON is spaced is a store's own)."""
    return [
        (signal.name, json.loads(signal.payload)["status"] if signal.kind == CHILD else signal.payload)
        for signal in inbox
    ]


def _advance(claim: ExecutionClaim, outcome: Outcome, number: int) -> AdvanceExecution:
    step, state = f"s{number}", str(number)
    ignore = tuple(signal.id for signal in claim.inbox) if outcome.ignores else ()
    match outcome.kind:
        case "next":
            return AdvanceExecution(status=Status.RUNNABLE, step=step, state=state, delay=outcome.delay)
        case "keep":
            return AdvanceExecution(status=Status.EXECUTING, step=step, state=state)
        case "step":
            return AdvanceExecution(status=Status.EXECUTING, step=ops.step_of(number, claim.revision))
        case "beat":
            return AdvanceExecution(status=Status.EXECUTING, attempt=claim.attempt, progress=False, beats=state)
        case "replay":
            return AdvanceExecution(
                status=Status.RUNNABLE, attempt=claim.attempt + 1, delay=outcome.delay, progress=False
            )
        case "await":
            return AdvanceExecution(
                status=Status.AWAITING_SIGNAL,
                step=step,
                awaits=outcome.names,
                ignore=ignore,
                wake_after=outcome.wake_after,
            )
        case "children":
            return AdvanceExecution(status=Status.AWAITING_CHILDREN, step=step, wake_after=outcome.wake_after)
        case "call":
            return AdvanceExecution(
                status=Status.AWAITING_PROMISE,
                step=step,
                awaits=outcome.names,
                ignore=ignore,
                wake_after=outcome.wake_after,
                wait_children=outcome.wait_children,
            )
        case "sleep":
            return AdvanceExecution(
                status=Status.AWAITING_PROMISE,
                step=step,
                awaits=outcome.names,
                ignore=ignore,
                wake_after=outcome.wake_after,
            )
        case "done":
            return AdvanceExecution(status=Status.DONE, result=state)
        case "fail":
            return AdvanceExecution(status=Status.FAILED, error='{"type":"E","message":"no"}')
        case "cancel":
            return AdvanceExecution(status=Status.CANCELLED)
        case _:
            return AdvanceExecution(status=Status.STRANDED, error='{"type":"E","message":"no"}')
