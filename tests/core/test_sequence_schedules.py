"""Random schedules of workers, expiries, retries, crashes and cancels against a ledger that scans everything.

The plain ledger below keeps one record an item and looks at all of them each time. Decisions, states and counters of
the compact one must be the same; every seq ends once and is committed once, in order (rulings D3, D5, D6, D7).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.errors import LeaseLostError
from holdfast.core.sequence import FailClass, Reclaim, RetryGuard, SequenceLedger, State

LEASE_MS = 100
COMMITTER = 500
GUARD = RetryGuard(max_attempts=3)
TERMINAL = {State.TERMINAL_SUCCESS, State.TERMINAL_SKIP, State.TERMINAL_FAIL, State.TERMINAL_CANCEL}
HELD = {State.DISPATCHED, State.IN_FLIGHT}


@dataclass
class Item:
    state: State = State.UNSEEN
    owner: int = 0
    attempts: int = 0
    beat_ms: int = 0
    ready_ms: int = 0


@dataclass
class PlainLedger:
    """The seed, word for word, by full scans."""

    items: list[Item] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    latched: bool = False

    def take(self, owner: int, now_ms: int, limit: int) -> list[int]:
        free = [
            seq
            for seq, item in enumerate(self.items)
            if item.state is State.DISPATCHED and not item.owner and item.ready_ms <= now_ms
        ]
        unseen = [seq for seq, item in enumerate(self.items) if item.state is State.UNSEEN]
        taken = (free + unseen)[:limit]
        for seq in taken:
            item = self.items[seq]
            item.state, item.owner, item.beat_ms = State.DISPATCHED, owner, now_ms
        return taken

    def settle(self, seq: int, fail_class: FailClass, ready_ms: int = 0) -> None:
        item = self.items[seq]
        if not self.latched and GUARD.allows(fail_class, item.attempts):
            item.state, item.owner, item.ready_ms = State.DISPATCHED, 0, ready_ms
            item.attempts += 1
        else:
            self.end(seq, State.TERMINAL_FAIL)

    def end(self, seq: int, state: State) -> None:
        self.items[seq].state = state
        self.ended.append(seq)

    def reclaim(self, gone: list[int]) -> list[Reclaim]:
        decisions = []
        for seq in gone:
            item = self.items[seq]
            prior = item.state
            if prior is State.IN_FLIGHT:
                self.settle(seq, FailClass.LEASE_EXPIRED)
            else:
                item.owner = item.ready_ms = 0
            decisions.append(Reclaim(seq, prior, item.state, item.attempts))
        return decisions


class Schedules(RuleBasedStateMachine):
    @initialize(length=st.integers(0, 30))
    def start(self, length: int) -> None:
        self.now_ms = 0
        self.plain = PlainLedger([Item() for _ in range(length)])
        self.ledger = self._new(length)
        self.twin = self._new(length)  # the same inputs must give the same decisions
        self.committed: list[int] = []

    def _new(self, length: int) -> SequenceLedger:
        ledger = SequenceLedger(lease_ms=LEASE_MS, now_ms=self.now_ms, length=length, retry=GUARD)
        ledger.lane.take(COMMITTER)
        return ledger

    def _both(self) -> tuple[SequenceLedger, SequenceLedger]:
        return self.ledger, self.twin

    def _held(self, state: State) -> list[int]:
        return [seq for seq, item in enumerate(self.plain.items) if item.state is state and item.owner]

    @rule(count=st.integers(0, 10))
    def take_in(self, count: int) -> None:
        self.plain.items += [Item() for _ in range(count)]
        for ledger in self._both():
            ledger.extend(count)

    @rule(ms=st.integers(0, 150))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: not self.plain.latched)
    @rule(owner=st.integers(1, 4), limit=st.integers(1, 12))
    def take(self, owner: int, limit: int) -> None:
        expected = self.plain.take(owner, self.now_ms, limit)
        for ledger in self._both():
            taken = [seq for run in ledger.take(owner, self.now_ms, limit=limit) for seq in run]
            assert taken == expected

    @rule(data=st.data(), bulk=st.booleans())
    def begin(self, data: st.DataObject, bulk: bool) -> None:
        waiting = self._held(State.DISPATCHED)
        if not waiting:
            return
        first = data.draw(st.sampled_from(waiting))
        run = self._run(first) if bulk else range(first, first + 1)
        owner = self.plain.items[first].owner
        for ledger in self._both():
            if bulk:
                ledger.begin_range(run.start, run.stop, owner, self.now_ms)
            else:
                ledger.begin(first, owner, self.now_ms)
        for seq in run:
            self.plain.items[seq].state, self.plain.items[seq].beat_ms = State.IN_FLIGHT, self.now_ms

    @rule(data=st.data(), bulk=st.booleans(), outcome=st.sampled_from([3, 4, 6]))
    def finish(self, data: st.DataObject, bulk: bool, outcome: int) -> None:
        working = self._held(State.IN_FLIGHT)
        if not working:
            return
        first = data.draw(st.sampled_from(working))
        run = self._run(first) if bulk else range(first, first + 1)
        item = self.plain.items[first]
        for ledger in self._both():
            if bulk:
                ledger.finish_range(run.start, run.stop, item.owner, self.now_ms, outcome)
            else:
                ledger.finish(first, item.owner, self.now_ms, outcome, attempt=item.attempts)
        for seq in run:
            self.plain.end(seq, State(outcome))

    @rule(data=st.data(), fail_class=st.sampled_from(FailClass), delay_ms=st.integers(0, 60))
    def fail(self, data: st.DataObject, fail_class: FailClass, delay_ms: int) -> None:
        working = self._held(State.IN_FLIGHT)
        if not working:
            return
        seq = data.draw(st.sampled_from(working))
        item = self.plain.items[seq]
        owner = item.owner
        self.plain.settle(seq, fail_class, self.now_ms + delay_ms)
        for ledger in self._both():
            retried = ledger.fail(seq, owner, self.now_ms, fail_class, delay_ms=delay_ms)
            assert retried == (item.state is State.DISPATCHED)

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        working = self._held(State.IN_FLIGHT)
        if not working:
            return
        seq = data.draw(st.sampled_from(working))
        self.plain.items[seq].beat_ms = self.now_ms
        for ledger in self._both():
            ledger.heartbeat(seq, self.plain.items[seq].owner, self.now_ms)

    @rule(data=st.data())
    def a_stranger_answers(self, data: st.DataObject) -> None:
        seen = [seq for seq, item in enumerate(self.plain.items) if item.state is not State.UNSEEN]
        if not seen:
            return
        seq = data.draw(st.sampled_from(seen))
        for ledger in self._both():
            try:
                ledger.finish(seq, 77, self.now_ms)
            except LeaseLostError:
                continue
            raise AssertionError("ruling D8: a stale owner was believed")

    @rule()
    def reclaim(self) -> None:
        gone = [
            seq
            for seq, item in enumerate(self.plain.items)
            if item.state in HELD and item.owner and item.beat_ms + LEASE_MS <= self.now_ms
        ]
        expected = self.plain.reclaim(gone)
        for ledger in self._both():
            earliest = ledger.next_expiry_ms
            assert not gone or (earliest is not None and earliest <= self.now_ms)
            assert ledger.reclaim(self.now_ms) == expected

    @rule(owner=st.integers(1, 4))
    def a_worker_is_gone(self, owner: int) -> None:
        gone = [s for s, item in enumerate(self.plain.items) if item.state in HELD and item.owner == owner]
        expected = self.plain.reclaim(gone)
        for ledger in self._both():
            assert ledger.release(owner) == expected

    @rule(limit=st.integers(1, 20), trim=st.booleans())
    def commit(self, limit: int, trim: bool) -> None:
        for ledger in self._both():
            run = ledger.lane.ready(limit)
            assert ledger.lane.commit(run.start, run.stop, COMMITTER, self.now_ms) == len(run)
            assert ledger.lane.commit(0, run.stop, COMMITTER, self.now_ms) == 0
        head = len(self.committed)
        while len(run) > 0 and head < run.stop:
            assert self.plain.items[head].state in TERMINAL
            self.plain.items[head].state = State.COMMITTED
            self.committed.append(head)
            head += 1
        assert head == run.stop or not run
        at_head = self.plain.items[head].state if head < len(self.plain.items) else None
        assert at_head not in TERMINAL or len(run) == limit
        if trim:
            self.ledger.trim(self.ledger.lane.head)  # the twin keeps all: it must make no difference

    @rule(force=st.booleans())
    @precondition(lambda self: len(self.plain.items) > 25)
    def cancel(self, force: bool) -> None:
        self.plain.latched = True
        opened = {State.UNSEEN, State.DISPATCHED} | ({State.IN_FLIGHT} if force else set())
        cancelled = [seq for seq, item in enumerate(self.plain.items) if item.state in opened]
        for seq in cancelled:
            self.plain.items[seq].owner = COMMITTER
            self.plain.end(seq, State.TERMINAL_CANCEL)
        for ledger in self._both():
            assert ledger.cancel(COMMITTER, self.now_ms, force=force) == len(cancelled)

    @precondition(lambda self: not self.plain.latched)
    @rule()
    def everything_crashes(self) -> None:
        """Both go on from what a store kept: what was held is nobody's, delays are forgotten."""
        segment = self.twin.export(0, self.twin.end)
        expected = self.plain.reclaim(
            [seq for seq, item in enumerate(self.plain.items) if item.state is State.IN_FLIGHT]
        )
        for item in self.plain.items:
            if item.state is State.DISPATCHED:
                item.owner = item.ready_ms = 0
        self.ledger, self.twin = self._new(0), self._new(0)
        for ledger in self._both():
            ledger.load(segment)
            assert ledger.lane.head == len(self.committed)
            assert ledger.reclaim(self.now_ms) == expected

    def _run(self, first: int) -> range:
        """The neighbours from `first` on that are in the same state, with the same owner."""
        items, stop = self.plain.items, first
        while stop < len(items) and (items[stop].state, items[stop].owner) == (
            items[first].state,
            items[first].owner,
        ):
            stop += 1
        return range(first, stop)

    @invariant()
    def both_ledgers_agree(self) -> None:
        for ledger in self._both():
            ledger.check()
            assert ledger.failure is None
            assert [ledger.state(seq) for seq in range(ledger.end)] == [i.state for i in self.plain.items]
            for seq in range(ledger.base, ledger.end):
                assert ledger.attempts(seq) == self.plain.items[seq].attempts
        assert len(set(self.plain.ended)) == len(self.plain.ended), "ruling D5: one terminal event a seq"
        assert self.committed == list(range(len(self.committed))), "ruling D7: in order, once each"
        counters = self.ledger.counters()
        assert counters.terminal + counters.committed == len(self.plain.ended)
        assert counters.total == len(self.plain.items)


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
