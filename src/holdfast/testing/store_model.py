"""What a store should do, in plain Python: no SQL, no concurrency, one list of rows.

`Model` plays the operations of `store_ops` and answers as `World` does. It says nothing where the contract says
nothing: `eligible_at` of a row that was given back, for one, is taken from the store and only checked for sense.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from holdfast.core.status import PARKED, Status
from holdfast.store.values import Delivery, ExecutionView, NewExecution
from holdfast.testing import store_ops as ops
from holdfast.testing.clock import VirtualClock
from holdfast.testing.store_model_rows import Claim, Row, compared
from holdfast.testing.store_ops import LEASE_SECONDS, LIMITED_QUEUE, MAX_CRASHES, NAMES, Outcome, new_row


class Model:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.rows: list[Row] = []
        self.claims: list[Claim] = []
        self.workers: dict[int, str] = {}
        self._leases: dict[str, datetime] = {}
        self._generation = 0
        self._started = 0
        self._sent = 0
        self._queue_paused = False
        self._queue_concurrency: int | None = None

    @property
    def now(self) -> datetime:
        return self._clock.now

    def apply(self, op: ops.Op) -> object:
        return getattr(self, f"_{type(op).__name__.lower()}")(op)

    # ------------------------------------------------------------------ starting

    def _start(self, op: ops.Start) -> object:
        existing = len(self.rows)
        answers = []
        for spec in op.specs:
            if spec.again is not None and existing:
                found = self.rows[spec.again % existing]
                answers.append((found.new.promise, False, False, False))
                continue
            answers.append(self._insert(new_row(self._started, spec)))
            self._started += 1
        return answers

    def _insert(
        self, new: NewExecution, parent: Row | None = None, parent_round: int = 0
    ) -> tuple[bytes, bool, bool, bool]:
        for row in self.rows:
            if row.new.promise == new.promise:
                return new.promise, False, False, False
        if new.unique_key is not None:
            for row in self.rows:
                if row.is_occupying and row.new.unique_key == new.unique_key:
                    return row.new.promise, False, True, False
        row = Row(new, len(self.rows), self.now + timedelta(seconds=new.delay), new.step, new.state, paused=new.paused)
        row.parent, row.parent_round = parent, parent_round
        self.rows.append(row)
        return new.promise, True, False, False

    # ------------------------------------------------------------------ workers

    def _register(self, op: ops.Register) -> object:
        self._generation += 1
        self.workers[op.slot] = f"w{op.slot}.{self._generation}"
        self._leases[self.workers[op.slot]] = self.now + timedelta(seconds=LEASE_SECONDS)
        return None

    def _beat(self, op: ops.Beat) -> object:
        worker = self.workers.get(op.slot, "nobody")
        if worker not in self._leases:
            return False
        self._leases[worker] = self.now + timedelta(seconds=LEASE_SECONDS)
        return True

    def _held_by(self, worker: str) -> list[Row]:
        return [row for row in self.rows if row.locked_by == worker]

    def _give_back(self, rows: Iterable[Row]) -> int:
        count = 0
        for row in rows:
            row.move(Status.RUNNABLE)
            row.eligible_at = None
            count += 1
        return count

    def _retire(self, op: ops.Retire) -> object:
        worker = self.workers.get(op.slot, "nobody")
        self._leases.pop(worker, None)
        return self._give_back(self._held_by(worker))

    def _disown(self, op: ops.Disown) -> object:
        return self._give_back(self._held_by(self.workers.get(op.slot, "nobody")))

    def _is_held(self, claim: Claim) -> bool:
        row = claim.row
        return row.status is Status.EXECUTING and row.locked_by == claim.worker and row.epoch == claim.epoch

    def _release(self, op: ops.Release) -> object:
        claims = [self.claims[number] for number in op.claims]
        return sum(self._give_back([claim.row]) for claim in claims if self._is_held(claim))

    def _reclaim(self, op: ops.Reclaim) -> object:
        claim = self.claims[op.claim]
        row = claim.row
        # A later epoch counts as held: the reply of an earlier reclaim may be lost too.
        if row.status is not Status.EXECUTING or row.locked_by != claim.worker:
            return None
        row.epoch += 1
        return self._claim(claim.worker, row)

    def _reap(self, op: ops.Reap) -> object:
        dead = sorted(worker for worker, expires_at in self._leases.items() if expires_at <= self.now)
        released, stranded = 0, []
        for row in [row for worker in dead for row in self._held_by(worker)]:
            row.crashes += 1
            if row.crashes >= MAX_CRASHES:
                row.move(Status.STRANDED)
                row.attempt = None
                stranded.append(row.new.promise)
            else:
                assert row.attempt is not None
                row.attempt += 1
                released += self._give_back([row])
        for worker in dead:
            del self._leases[worker]
        return dead, released, sorted(stranded), False

    # ------------------------------------------------------------------ picking

    def _pick(self, op: ops.Pick) -> object:
        worker = self.workers.get(op.slot, "nobody")
        if worker not in self._leases:
            return True, []
        return False, [self._take(worker, row) for row in self._candidates(op)]

    def _take(self, worker: str, row: Row) -> object:
        row.move(Status.EXECUTING)
        row.locked_by = worker
        row.epoch += 1
        return self._claim(worker, row)

    def _claim(self, worker: str, row: Row) -> object:
        assert row.attempt is not None
        inbox, asked = tuple(row.inbox), row.cancel_requested
        self.claims.append(Claim(worker, row, row.epoch, row.attempt, row.next_child, inbox, asked))
        counters = (row.epoch, row.revision, row.attempt, row.crashes, row.barrier_round, row.next_child)
        flags = (row.timed_out, row.children_ready, row.cancel_requested, row.parent is not None)
        return row.new.promise, row.step, row.state, counters, flags, self.inbox(row.number)

    def _candidates(self, op: ops.Pick) -> list[Row]:
        def place(row: Row) -> tuple[int, datetime, int]:
            assert row.eligible_at is not None
            return row.new.priority, row.eligible_at, row.number

        def is_eligible(row: Row) -> bool:
            assert row.eligible_at is not None
            return row.status is Status.RUNNABLE and not row.paused and row.eligible_at <= self.now

        taken: list[Row] = []
        keys = {row.new.partition_key for row in self.rows if row.status is Status.EXECUTING} - {None}
        room = op.limit
        if self._queue_paused:
            room = 0
        elif self._queue_concurrency is not None:
            executing = sum(row.status is Status.EXECUTING and row.new.queue == LIMITED_QUEUE for row in self.rows)
            room = max(0, self._queue_concurrency - executing)
        for row in sorted(filter(is_eligible, self.rows), key=place):
            key = row.new.partition_key
            if len(taken) == op.limit:
                break
            if key is not None:
                if key in keys:
                    continue
                keys.add(key)  # taken or not: the head of a key holds it, whoever knows its code
            if row.new.name != NAMES[0] and not op.knows_all:
                continue
            if row.new.queue == LIMITED_QUEUE:
                if room == 0:
                    continue
                room -= 1
            taken.append(row)
        return taken

    # ------------------------------------------------------------------ committing

    def _flush(self, op: ops.Flush) -> object:
        answers: list[object] = [None] * len(op.commits)
        by_worker: dict[str, list[tuple[int, int, Outcome]]] = {}
        for place, (number, outcome) in enumerate(op.commits):
            by_worker.setdefault(self.claims[number].worker, []).append((place, number, outcome))
        targets = list(self.rows)  # numbers mean what was there when the commits were made
        for commits in by_worker.values():
            for place, answer in self._flush_one(commits, targets):
                answers[place] = answer
        return answers

    def _flush_one(self, commits: list[tuple[int, int, Outcome]], targets: list[Row]) -> list[tuple[int, object]]:
        """One call: own rows, then children, then signals, then barriers, then the re-check of what parks."""
        held = [
            (place, number, outcome, self._is_held(self.claims[number]) and not outcome.is_behind)
            for place, number, outcome in commits
        ]
        diverted = {number: self._advance_row(number, outcome) for _, number, outcome, is_held in held if is_held}
        children: dict[int, list[bool]] = {}
        for _, number, outcome, is_held in held:
            row = self.claims[number].row
            # What cleans up has journaled its calls in this very commit, so they are started.
            if is_held and outcome.kind in ("children", "call") and (not diverted[number] or row.new.cleans_up):
                children[number] = self._spawn(number, outcome)
        for _, _, outcome, is_held in held:
            if is_held and outcome.signal_to is not None:
                target = targets[outcome.signal_to % len(targets)]
                self._send(target, outcome.signal_name, '"flush"', outcome.signal_dedup)
        for _, number, _, is_held in held:
            if is_held and self.claims[number].row.status.is_terminal:
                self._end(self.claims[number].row)
        for _, number, outcome, is_held in held:
            if is_held:
                self._recheck(self.claims[number], outcome)
        answers: list[tuple[int, object]] = []
        for place, number, _, is_held in held:
            row = self.claims[number].row
            answer = (True, row.status, row.cancel_requested, children.get(number, []))
            answers.append((place, answer if is_held else (False, None, False, [])))
        return answers

    def _advance_row(self, number: int, outcome: Outcome) -> bool:
        """Write the own row; whether its cancel diverted it."""
        claim = self.claims[number]
        row = claim.row
        if outcome.consumes:
            gone = {sent[0] for sent in claim.inbox}
            row.inbox = [sent for sent in row.inbox if sent[0] not in gone]
        if outcome.kind in ("replay", "beat"):
            row.attempt = claim.attempt + (outcome.kind == "replay")
        else:
            row.attempt, row.crashes = 0, 0
            row.awaits = outcome.names if outcome.kind in ("await", "call", "sleep") else None
            row.timed_out = row.children_ready = False
            row.pending = 0
        if outcome.kind in ("next", "keep", "await", "children", "call", "sleep"):
            row.step = f"s{number}"
        if outcome.kind == "step":
            row.step, row.journal_length = ops.step_of(number, row.revision) or row.step, row.journal_length + 1
        row.revision += 1
        if outcome.kind in ("next", "keep"):
            row.state = str(number)
        if outcome.kind == "done":
            row.result = str(number)
        row.eligible_at = self.now + timedelta(seconds=outcome.delay if outcome.kind in ("next", "replay") else 0)
        status = {
            "next": Status.RUNNABLE,
            "replay": Status.RUNNABLE,
            "keep": Status.RUNNABLE if row.paused else Status.EXECUTING,
            "step": Status.RUNNABLE if row.paused else Status.EXECUTING,
            "beat": Status.EXECUTING,
            "await": Status.AWAITING_SIGNAL,
            "children": Status.AWAITING_CHILDREN,
            "call": Status.AWAITING_PROMISE,
            "sleep": Status.AWAITING_PROMISE,
            "done": Status.DONE,
            "fail": Status.FAILED,
            "cancel": Status.CANCELLED,
            "strand": Status.STRANDED,
        }[outcome.kind]
        is_told = row.new.cleans_up and claim.knows_of_cancel
        asked = row.cancel_requested and not is_told and not status.is_terminal
        diverted = asked and status is not Status.EXECUTING
        row.move(Status.RUNNABLE if diverted else status)
        if diverted or (outcome.kind in ("keep", "step") and row.paused):
            row.eligible_at = self.now if diverted else None
        if not diverted and status in PARKED and outcome.wake_after is not None:
            row.wake_at = self.now + timedelta(seconds=outcome.wake_after)
        return diverted

    def _spawn(self, number: int, outcome: Outcome) -> list[bool]:
        claim = self.claims[number]
        row = claim.row
        is_barrier = outcome.kind == "children"
        row.barrier_round += is_barrier
        children = ops.child_specs(row.new.promise, claim.next_child, number, outcome)
        created = [self._insert(new, row, row.barrier_round)[1] for new in children]
        if not is_barrier:
            return created
        row.next_child += outcome.children
        row.pending = min(sum(created), outcome.quorum or sum(created))
        if row.pending == 0:
            row.children_ready = True
            row.move(Status.RUNNABLE)
        return created

    def _end(self, row: Row) -> None:
        """What ends with an execution, and the barrier it was in."""
        has_failed = row.status is Status.FAILED
        row.inbox = [sent for sent in row.inbox if has_failed and not sent[3]]
        if not has_failed:
            row.dedup_keys.clear()
        parent = row.parent
        if parent is None or parent.status.is_terminal:
            return
        if row.new.reports:
            self._sent += 1
            parent.inbox.append((self._sent, row.new.promise.hex(), str(row.status), True))
            is_waiting = parent.status is Status.AWAITING_PROMISE and parent.pending > 0
        else:
            is_waiting = parent.status is Status.AWAITING_CHILDREN and parent.barrier_round == row.parent_round
        if is_waiting:
            parent.pending -= 1
            if parent.pending == 0:
                parent.children_ready = not row.new.reports
                self._wake(parent)

    def _wake(self, row: Row) -> None:
        row.move(Status.RUNNABLE)
        row.eligible_at = self.now

    def _recheck(self, claim: Claim, outcome: Outcome) -> None:
        row = claim.row
        if row.status not in (Status.AWAITING_SIGNAL, Status.AWAITING_PROMISE):
            return
        if outcome.kind == "call" and outcome.wait_children:
            row.pending = max(outcome.wait_children - sum(sent[3] for sent in row.inbox), 0)
            if row.pending == 0:
                self._wake(row)
        ignored = {sent[0] for sent in claim.inbox} if outcome.ignores else set()
        assert row.awaits is not None
        if any(sent[1] in row.awaits and sent[0] not in ignored and not sent[3] for sent in row.inbox):
            self._wake(row)

    # ------------------------------------------------------------------ signals and time

    def _send(self, row: Row, name: str, payload: str, dedup: str | None) -> Delivery:
        if row.status.is_terminal:
            return Delivery.ENDED
        if dedup is not None:
            if dedup in row.dedup_keys:
                return Delivery.DUPLICATE
            row.dedup_keys.add(dedup)
        self._sent += 1
        row.inbox.append((self._sent, name, payload, False))
        if row.awaits is not None and name in row.awaits:
            row.timed_out = False
            if row.status.is_parked:
                self._wake(row)
        return Delivery.DELIVERED

    def _deliver(self, op: ops.Deliver) -> object:
        return [self._send(self.rows[number], name, f'"{name}"', dedup) for number, name, dedup in op.signals]

    def _advance(self, op: ops.Advance) -> object:
        return None

    def _firetimers(self, op: ops.FireTimers) -> object:
        parked = [row for row in self.rows if row.wake_at is not None]
        due = [row for row in parked if row.wake_at is not None and row.wake_at <= self.now]
        for row in due:
            row.timed_out = True
            self._wake(row)
        later = [row.wake_at for row in parked if row.wake_at is not None]
        next_due = (min(later) - self.now).total_seconds() if later else None
        return len(due), next_due, False

    # ------------------------------------------------------------------ from outside

    def _cancel(self, op: ops.Cancel) -> object:
        asked = [self.rows[number] for number in op.executions]
        reached = {row.number for row in asked}
        while op.cascade:
            further = {row.number for row in self.rows if row.parent is not None and row.parent.number in reached}
            if further <= reached:
                break
            reached |= further
        ended = []
        for number in sorted(reached):
            row = self.rows[number]
            if row.status.is_terminal:
                continue
            if row.status is Status.EXECUTING or row.new.cleans_up:
                if not row.cancel_requested and row.status in PARKED | {Status.RUNNABLE}:
                    self._wake(row)
                row.cancel_requested = True
                row.paused = False  # a cancel is not held up by a pause
            else:
                row.move(Status.CANCELLED)
                ended.append(row)
        for row in ended:
            self._end(row)
        return [row.status for row in asked]

    def _pause(self, op: ops.Pause) -> object:
        row = self.rows[op.execution]
        if row.status.is_terminal:
            return False
        row.paused = op.paused and not row.cancel_requested
        return True

    def _resume(self, op: ops.Resume) -> object:
        row = self.rows[op.execution]
        if row.status is not Status.STRANDED:
            return False
        row.move(Status.RUNNABLE)
        assert row.attempt is not None
        row.attempt = max(row.attempt - row.crashes, 0)
        row.crashes, row.eligible_at = 0, None
        return True

    def _configure(self, op: ops.Configure) -> object:
        self._queue_paused, self._queue_concurrency = op.paused, op.concurrency
        return None

    # ------------------------------------------------------------------ comparing

    def differences(self, views: list[ExecutionView]) -> list[str]:
        """Where the store and the model disagree, of all that is promised."""
        if [view.promise for view in views] != [row.new.promise for row in self.rows]:
            return ["other executions exist than should"]
        return [
            f"e{row.number} ({row.status}): {what} is {actual!r}, should be {expected!r}"
            for row, view in zip(self.rows, views, strict=True)
            for what, actual, expected in compared(row, view, self.now)
            if actual != expected
        ]

    def inbox(self, number: int) -> list[tuple[str, str]]:
        return [(name, payload) for _, name, payload, _ in self.rows[number].inbox]
