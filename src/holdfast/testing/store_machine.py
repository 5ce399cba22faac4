"""Random histories of a store: several workers, lost leases, late and duplicated signals, stale claims.

- `History`: what may happen next, played on every world and on the model. After every operation the rows are compared.
- `play_histories`: against the model (every answer and row is what it should be), or several stores against each
  other (the same answers and the same rows, column by column).

Each history ends with a drain: whatever is left must be able to finish. A row that nothing can move any more (a lost
wake-up, a barrier without children, a key held by nobody) fails there.

`HOLDFAST_FUZZ` sets the number of random histories; without it a small, fixed set is played.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from holdfast.core.clock import MICROSECONDS
from holdfast.core.status import PARKED, Status
from holdfast.store.values import ExecutionView
from holdfast.testing import store_ops as ops
from holdfast.testing.audit import audit
from holdfast.testing.store_model import Model
from holdfast.testing.store_ops import OUTCOMES, Op, Outcome, Spec
from holdfast.testing.store_world import World
from holdfast.testing.stores import Stores

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]

_number = st.integers(0, 10_000)
_slot = st.integers(0, 2)
_name = st.sampled_from(["x", "y"])
_dedup = st.sampled_from([None, None, "d1", "d2"])
_key = st.sampled_from([None, "k1", "k1", "k2"])
_unique = st.sampled_from([None, None, None, b"u1", b"u2"])
_seconds = st.sampled_from([0.0, 0.0, 1.0, 5.0])
_deadline = st.sampled_from([None, 1.0, 5.0])
_is_behind = st.sampled_from([False] * 7 + [True])

_spec = st.builds(
    Spec,
    again=st.sampled_from([None, None, None, None, 0, 3]),
    is_keyed=st.booleans(),
    key=_key,
    priority=st.sampled_from([0, 0, -1]),
    delay=_seconds,
    unique=_unique,
    scope=st.integers(0, len(ops.SCOPES) - 1),
    is_foreign=st.sampled_from([False, False, False, True]),
    paused=st.sampled_from([False, False, False, False, True]),
    cleans_up=st.sampled_from([False, False, True]),
)
_outcome = st.builds(
    Outcome,
    kind=st.sampled_from([*OUTCOMES, "next", "keep", *["children", "await", "call"] * 3]),
    names=st.sampled_from([("x",), ("x", "y")]),
    delay=_seconds,
    wake_after=_deadline,
    children=st.integers(0, 3),
    child_key=_key,
    child_unique=_unique,
    quorum=st.sampled_from([None, None, 1, 2]),
    wait_children=st.integers(0, 3),
    consumes=st.booleans(),
    ignores=st.booleans(),
    signal_to=st.none() | _number,
    signal_name=_name,
    signal_dedup=_dedup,
    records=st.booleans(),
    is_behind=_is_behind,
)
# With nothing beside it, a step may leave its row behind.
_walk = st.builds(Outcome, kind=st.sampled_from(["step"] * 7 + ["beat"]), is_behind=_is_behind)

# How often each happens. "nothing" comes first: what a failing history can do without becomes nothing.
_WEIGHTS = {
    "nothing": 1,
    "start": 10,
    "pick": 24,
    "flush": 30,
    "walk": 10,
    "deliver": 10,
    "time_passes": 6,
    "fire_timers": 5,
    "reap": 4,
    "release": 3,
    "reclaim": 3,
    "cancel": 2,
    "pause": 2,
    "resume": 2,
    "configure": 2,
    "register": 1,
    "give_all_back": 2,
}
_kinds = st.sampled_from([kind for kind, weight in _WEIGHTS.items() for _ in range(weight)])


class History:
    """One history, as it comes about. `draw` is hypothesis's."""

    def __init__(self, run: Run, worlds: Sequence[World], model: Model | None, draw: Callable[..., Any]) -> None:
        self._run = run
        self._worlds = worlds
        self._model = model
        self._draw = draw
        for slot in range(2):
            self._play(ops.Register(slot))

    # ------------------------------------------------------------------ playing

    def _play(self, op: Op) -> object:
        note(str(op))
        answers = [self._run(world.apply(op)) for world in self._worlds]
        if self._model is not None:
            answers.append(self._model.apply(op))
        first, *others = answers
        for other in others:
            assert first == other, f"{op}: {first} in one, {other} in the other"
        views = [self._run(world.views()) for world in self._worlds]
        found = self._model.differences(views[0]) if self._model is not None else []
        for other in views[1:]:
            found += _differences(views[0], other)
        assert not found, f"after {op}: {'; '.join(found)}"
        return first

    @property
    def _world(self) -> World:
        return self._worlds[0]

    def _some(self, strategy: st.SearchStrategy[T], most: int) -> list[T]:
        drawn: list[T] = self._draw(st.lists(strategy, min_size=1, max_size=most))
        return drawn

    def _claims(self, most: int) -> tuple[int, ...]:
        """Mostly claims that are alive, sometimes one that may be stale; each at most once."""
        count = len(self._world.claims)
        if not count:
            return ()
        views = {view.promise: view for view in self._run(self._world.views())}
        alive = [
            number
            for number, (worker, claim) in enumerate(self._world.claims)
            if (views[claim.promise].locked_by, views[claim.promise].lease_epoch) == (worker, claim.epoch)
        ]
        chosen = self._draw(st.permutations(alive))[: self._draw(st.integers(1, most))]
        if not alive or self._draw(st.sampled_from([False, False, True])):
            chosen.append(count - 1 - self._draw(_number) % count)
        return tuple(dict.fromkeys(chosen))

    def _executions(self, most: int) -> tuple[int, ...]:
        if not self._world.rows:
            return ()
        return tuple(number % len(self._world.rows) for number in self._some(_number, most))

    # ------------------------------------------------------------------ what may happen

    def happen(self, kind: str) -> None:
        getattr(self, f"_{kind}")()

    def _nothing(self) -> None:
        pass

    def _start(self) -> None:
        self._play(ops.Start(tuple(self._draw(st.lists(_spec, min_size=2, max_size=5)))))

    def _register(self) -> None:
        self._play(ops.Register(self._draw(_slot)))

    def _pick(self) -> None:
        knows_all = self._draw(st.sampled_from([True, True, True, False]))
        slot = self._draw(_slot)
        op = ops.Pick(slot, self._draw(st.integers(1, 6)), knows_all)
        if self._play(op) == (True, []):  # a lost worker takes a new identity
            self._play(ops.Register(slot))
            self._play(op)

    def _flush(self) -> None:
        commits = []
        for number in self._claims(5):
            outcome = self._draw(_outcome)
            # A barrier of what cleans up is nobody's case: machines do not, and workflows have no barriers.
            if outcome.kind == "children" and self._world.cleans_up(number):
                outcome = msgspec.structs.replace(outcome, kind="call")
            commits.append((number, outcome))
        if commits:
            self._play(ops.Flush(tuple(commits)))

    def _walk(self) -> None:
        """Several steps of the same runs, alone and beside others: after the first of a claim its row may be behind."""
        self._pick()
        claims = self._claims(5)
        for _ in range(self._draw(st.integers(2, 5)) if claims else 0):
            self._play(ops.Flush(tuple((number, self._draw(_walk)) for number in claims)))

    def _deliver(self) -> None:
        if numbers := self._executions(3):
            self._play(ops.Deliver(tuple((number, self._draw(_name), self._draw(_dedup)) for number in numbers)))

    def _time_passes(self) -> None:
        for slot in sorted(self._draw(st.sets(_slot))):
            self._play(ops.Beat(slot))
        self._play(ops.Advance(self._draw(st.sampled_from([1.0, 5.0, 5.0, 31.0]))))

    def _fire_timers(self) -> None:
        self._play(ops.FireTimers())

    def _reap(self) -> None:
        self._play(ops.Reap())

    def _release(self) -> None:
        if claims := self._claims(3):
            self._play(ops.Release(claims))

    def _reclaim(self) -> None:
        if claims := self._claims(1):
            self._play(ops.Reclaim(claims[0]))

    def _give_all_back(self) -> None:
        slot = self._draw(_slot)
        self._play(ops.Retire(slot) if self._draw(st.booleans()) else ops.Disown(slot))

    def _cancel(self) -> None:
        if numbers := self._executions(2):
            self._play(ops.Cancel(numbers, self._draw(st.booleans())))

    def _pause(self) -> None:
        if numbers := self._executions(1):
            self._play(ops.Pause(numbers[0], self._draw(st.booleans())))

    def _resume(self) -> None:
        views = self._run(self._world.views())
        stranded = [number for number, view in enumerate(views) if view.status is Status.STRANDED]
        for number in stranded[:1] or self._executions(1):
            self._play(ops.Resume(number))

    def _configure(self) -> None:
        self._play(ops.Configure(self._draw(st.booleans()), self._draw(st.sampled_from([None, 1, 2]))))

    # ------------------------------------------------------------------ the end

    def finish(self) -> None:
        """Compare what the operations did not show, then let everything end: nothing may be stuck."""
        for number, new in enumerate(self._world.rows):
            inboxes = [self._run(world.inbox(new.promise)) for world in self._worlds]
            if self._model is not None:
                inboxes.append(self._model.inbox(number))
            assert all(inbox == inboxes[0] for inbox in inboxes), f"inboxes of e{number}: {inboxes}"
        self._play(ops.Advance(31.0))
        self._play(ops.Reap())
        self._play(ops.Configure(False, None))
        self._play(ops.Register(0))
        self._drain()
        for world in self._worlds:
            faults = self._run(audit(world.store))
            assert not faults, f"the drained ledger breaks the rules: {faults}"

    def _drain(self) -> None:
        for _ in range(2 * len(self._world.rows) + 2):
            views = self._run(self._world.views())
            live = [number for number, view in enumerate(views) if not view.status.is_terminal]
            if not live:
                return
            for number in live:
                if views[number].paused:
                    self._play(ops.Pause(number, False))
                if views[number].status is Status.STRANDED:
                    self._play(ops.Resume(number))
            self._drain_once(live)
        stuck = [f"e{number} is {view.status}" for number, view in enumerate(self._run(self._world.views()))]
        raise AssertionError(f"these cannot end: {[one for one in stuck if not one.endswith(_ENDED)]}")

    def _drain_once(self, live: list[int]) -> None:
        self._play(ops.Beat(0))
        self._play(ops.Advance(6.0))
        self._play(ops.FireTimers())
        self._play(ops.Deliver(tuple((number, "x", None) for number in live)))
        first = len(self._world.claims)
        self._play(ops.Pick(0, ops.PLENTY))
        picked = range(first, len(self._world.claims))
        self._play(ops.Flush(tuple((number, Outcome(kind="done")) for number in picked)))


def _differences(views: list[ExecutionView], others: list[ExecutionView]) -> list[str]:
    """Where two stores disagree, but for what decides nothing in the status that the row has."""
    if [view.promise for view in views] != [other.promise for other in others]:
        return ["other executions exist in one than in the other"]
    return [
        f"e{number} ({view.status}): {column} is {getattr(view, column)!r} and {getattr(other, column)!r}"
        for number, (view, other) in enumerate(zip(views, others, strict=True))
        for column in view.__struct_fields__
        if getattr(view, column) != getattr(other, column) and view.status in _USED_IN.get(column, Status)
    ]


# Columns that mean something in some statuses only: elsewhere a store may keep them or not.
_USED_IN: dict[str, frozenset[Status]] = {
    "updated_at": frozenset(),
    "eligible_at": frozenset({Status.RUNNABLE}),
    "children_pending": PARKED,
}
_ENDED = ("done", "failed", "cancelled")


def play_histories(run: Run, all_stores: Sequence[Stores], *, with_model: bool, examples: int, steps: int) -> None:
    """Play random histories on open stores: against the model, or (several stores) against each other."""
    fuzz = int(os.environ.get("HOLDFAST_FUZZ", "0"))

    @settings(
        max_examples=fuzz or examples,
        derandomize=not fuzz,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if fuzz else (Phase.generate,),  # shrinking takes minutes
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(st.lists(_kinds, min_size=steps, max_size=steps), st.data())
    def play(kinds: list[str], data: st.DataObject) -> None:
        latest = max(stores.clock.now_us() for stores in all_stores)
        for stores in all_stores:
            run(stores.reset())
            run(stores.advance((latest - stores.clock.now_us()) / MICROSECONDS))
        model = Model(all_stores[0].clock) if with_model else None
        history = History(run, [World(stores) for stores in all_stores], model, data.draw)
        for kind in kinds:
            history.happen(kind)
        history.finish()

    play()
