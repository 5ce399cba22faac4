"""One small machine for each outcome kind, and the scenario that takes it through. Every test here crashes them.

A scenario names what it starts by a key and what it sends by a dedup key, so that a client that died says it again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from holdfast import (
    App,
    Await,
    Child,
    Done,
    Machine,
    Next,
    Replay,
    RetryPolicy,
    ScheduleChildren,
    Status,
    Stop,
    Unique,
    step,
)
from holdfast.core.errors import InvalidArgumentError
from holdfast.store.values import Retention
from holdfast.testing.crash import Scenario, Simulation

app = App("outcomes", store="unused.db")

HOUR: Final = 3_600.0
Ctx = Any


@dataclass(frozen=True)
class Work:
    """A state that every machine here shares."""

    n: int = 0
    seen: tuple[str, ...] = ()


def saw(state: Work, *what: str) -> Work:
    return replace(state, seen=state.seen + what)


@app.machine(history=True)
class Steps(Machine[Work]):
    """Three transitions under one kept lease, and a result."""

    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        return Next(self.two, saw(ctx.state, "one"))

    @step
    def two(self, ctx: Ctx) -> Any:
        return Next(self.three, saw(ctx.state, "two"))

    @step
    async def three(self, ctx: Ctx) -> Any:
        return Done(list(ctx.state.seen))


@app.machine(history=True)
class Again(Machine[Work]):
    """Replays itself by its state, not by its attempts: a crash adds to those."""

    @step(initial=True)
    async def count(self, ctx: Ctx) -> Any:
        if ctx.state.n < 2:
            return Replay(replace(ctx.state, n=ctx.state.n + 1), delay=5)
        return Done(ctx.state.n)


@app.machine(history=True)
class Fails(Machine[Work]):
    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        return Stop("no more of this")


@app.machine(history=True)
class Handles(Machine[Work]):
    """An exception becomes an outcome: first Replay, then Next."""

    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        raise ValueError(f"bad {ctx.state.n}")

    @step
    async def two(self, ctx: Ctx) -> Any:
        return Done(ctx.state.n)

    async def handle(self, error: Exception, ctx: Ctx) -> Any:
        if ctx.state.n < 1:
            return Replay(replace(ctx.state, n=1), delay=1)
        return Next(self.two, replace(ctx.state, n=ctx.state.n + 10))


@app.machine(history=True)
class HandleRaises(Machine[Work]):
    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        raise ValueError("bad")

    async def handle(self, error: Exception, ctx: Ctx) -> Any:
        raise RuntimeError("worse")


@app.machine(retry=RetryPolicy(max_attempts=3, initial_delay=2, jitter=0))
class Retries(Machine[Work]):
    """No `handle`: the default policy tries again, then it fails."""

    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        raise OSError("never works")


@app.machine(history=True)
class Waits(Machine[Work]):
    """Awaits `go` or `stop`, with a deadline of an hour."""

    @step(initial=True)
    async def begin(self, ctx: Ctx) -> Any:
        return Await({"go", "stop"}, self.woken, saw(ctx.state, "parked"), timeout=timedelta(hours=1))

    @step
    async def woken(self, ctx: Ctx) -> Any:
        if ctx.timed_out:
            return Next(self.end, saw(ctx.state, "timed out"))
        return Next(self.end, saw(ctx.state, *(f"{s.name}={s.payload}" for s in ctx.awaited)))

    @step
    async def end(self, ctx: Ctx) -> Any:
        return Done([list(ctx.state.seen), [s.name for s in ctx.inbox]])


@app.machine(history=True)
class Packs(Machine[Work]):
    """Collects two signals into one step before it goes on (seed section 5, ruling E3)."""

    @step(initial=True)
    async def begin(self, ctx: Ctx) -> Any:
        return Await({"a", "b"}, self.collect, ctx.state)

    @step
    async def collect(self, ctx: Ctx) -> Any:
        if len(ctx.awaited) < 2:
            return Await({"a", "b"}, self.collect, ctx.state)
        return Next(self.end, saw(ctx.state, *(s.name for s in ctx.awaited)))

    @step
    async def end(self, ctx: Ctx) -> Any:
        return Done([list(ctx.state.seen), len(ctx.inbox)])


@app.machine(history=True)
class Sends(Machine[Work]):
    """Two machines that signal each other in the commits of their steps."""

    @step(initial=True)
    async def begin(self, ctx: Ctx) -> Any:
        ctx.signal(app.handle("Waits", key="partner").id, "go", ctx.state.n)
        return Done("sent")


@app.machine(history=True)
class Leaf(Machine[Work]):
    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        return Next(self.two, saw(ctx.state, "leaf"))

    @step
    async def two(self, ctx: Ctx) -> Any:
        return Stop("odd") if ctx.state.n % 2 else Done(ctx.state.n * 10)


@app.machine(history=True)
class Sleeper(Machine[Work]):
    """A child that nobody wakes."""

    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        return Await("never", self.two, ctx.state)

    @step
    async def two(self, ctx: Ctx) -> Any:
        return Done()


@app.machine(history=True)
class Meddles(Machine[Work]):
    """Does to itself, in the middle of a step, what a person may do from outside: `seen` says what."""

    @step(initial=True)
    async def one(self, ctx: Ctx) -> Any:
        me = app.handle(ctx.id)
        for word in ctx.state.seen:
            if word == "cancel":
                await me.cancel()
            elif word == "pause" and ctx.attempt == 0:
                await me.pause()
            elif word == "signal":
                await me.signal("go", 1, dedup_key="itself")
        if "spawn" in ctx.state.seen:
            return ScheduleChildren(self.two, [Child(Leaf, Work(2))], ctx.state)
        if "park" in ctx.state.seen:
            return Await("go", self.two, ctx.state)
        return Next(self.two, ctx.state)

    @step
    async def two(self, ctx: Ctx) -> Any:
        return Done([signal.name for signal in ctx.awaited])


def told(ctx: Ctx) -> list[list[object]]:
    return [[child.machine, str(child.status), child.result] for child in ctx.children]


@app.machine(history=True)
class Family(Machine[Work]):
    """Waits for all its children, one of which fails; then for a second round of them (ruling E7)."""

    @step(initial=True)
    async def spawn(self, ctx: Ctx) -> Any:
        return ScheduleChildren(self.again, [Child(Leaf, Work(n)) for n in range(3)], ctx.state)

    @step
    async def again(self, ctx: Ctx) -> Any:
        return ScheduleChildren(self.join, [Child(Leaf, Work(8))], saw(ctx.state, str(told(ctx))))

    @step
    async def join(self, ctx: Ctx) -> Any:
        return Done([list(ctx.state.seen), told(ctx)])


@app.machine(history=True)
class Quorum(Machine[Work]):
    """Goes on when one of two has ended; the other keeps running (ruling E10)."""

    @step(initial=True)
    async def spawn(self, ctx: Ctx) -> Any:
        children = [Child(Leaf, Work(2)), Child(Sleeper, Work())]
        return ScheduleChildren(self.join, children, ctx.state, quorum=1)

    @step
    async def join(self, ctx: Ctx) -> Any:
        return Done(told(ctx))


@app.machine(history=True)
class Deadline(Machine[Work]):
    """Gives its children an hour."""

    @step(initial=True)
    async def spawn(self, ctx: Ctx) -> Any:
        return ScheduleChildren(self.join, [Child(Sleeper, Work())], ctx.state, timeout=HOUR)

    @step
    async def join(self, ctx: Ctx) -> Any:
        return Done([ctx.timed_out, told(ctx)])


@app.machine(history=True)
class Dropped(Machine[Work]):
    """One child is refused by its unique key; of the second round all are, so the barrier is open at once."""

    @step(initial=True)
    async def spawn(self, ctx: Ctx) -> Any:
        children = [Child(Sleeper, Work(), unique=Unique(key="only")), Child(Leaf, Work(4))]
        return ScheduleChildren(self.again, children, ctx.state)

    @step
    async def again(self, ctx: Ctx) -> Any:
        children = [Child(Sleeper, Work(), unique=Unique(key="only"))]
        return ScheduleChildren(self.join, children, saw(ctx.state, str(told(ctx))))

    @step
    async def join(self, ctx: Ctx) -> Any:
        return Done([list(ctx.state.seen), told(ctx)])


@app.machine(history=True)
class Nested(Machine[Work]):
    """A child that has children of its own: each level is a barrier of its own (seed section 11)."""

    @step(initial=True)
    async def spawn(self, ctx: Ctx) -> Any:
        below = Nested if ctx.state.n > 1 else Leaf
        return ScheduleChildren(self.join, [Child(below, Work(ctx.state.n - 1)), Child(Leaf, Work(6))], ctx.state)

    @step
    async def join(self, ctx: Ctx) -> Any:
        return Done(told(ctx))


# ---------------------------------------------------------------------- scenarios


async def next_and_done(sim: Simulation) -> None:
    await sim.call(lambda: Steps.options(key="a").start(Work()))
    await sim.work()


async def replay_with_delay(sim: Simulation) -> None:
    await sim.call(lambda: Again.options(key="a").start(Work()))
    for _ in range(3):
        await sim.work()
        await sim.advance(5)


async def stop(sim: Simulation) -> None:
    await sim.call(lambda: Fails.options(key="a").start(Work()))
    await sim.work()


async def exception_through_handle(sim: Simulation) -> None:
    await sim.call(lambda: Handles.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(1)
    await sim.work()


async def handle_that_raises(sim: Simulation) -> None:
    await sim.call(lambda: HandleRaises.options(key="a").start(Work()))
    await sim.work()


async def default_retry(sim: Simulation) -> None:
    await sim.call(lambda: Retries.options(key="a").start(Work()))
    for _ in range(4):
        await sim.work()
        await sim.advance(10)


async def await_then_signal(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: waits.signal("other", 0, dedup_key="0"))
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.work()


async def await_with_the_signal_there(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.call(lambda: waits.signal("stop", 1, dedup_key="1"))
    await sim.work()


async def await_until_its_deadline(sim: Simulation) -> None:
    await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(HOUR)
    await sim.work()


async def await_a_pack(sim: Simulation) -> None:
    packs = await sim.call(lambda: Packs.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: packs.signal("a", dedup_key="1"))
    await sim.work()
    await sim.call(lambda: packs.signal("b", dedup_key="2"))
    await sim.work()


async def signal_from_a_step(sim: Simulation) -> None:
    await sim.call(lambda: Waits.options(key="partner").start(Work()))
    await sim.work()
    await sim.call(lambda: Sends.options(key="a").start(Work(7)))
    await sim.work()


async def children_all(sim: Simulation) -> None:
    await sim.call(lambda: Family.options(key="a").start(Work()))
    await sim.work()


async def children_quorum(sim: Simulation) -> None:
    await sim.call(lambda: Quorum.options(key="a").start(Work()))
    await sim.work()


async def children_deadline(sim: Simulation) -> None:
    await sim.call(lambda: Deadline.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(HOUR)
    await sim.work()


async def children_dropped_by_uniqueness(sim: Simulation) -> None:
    await sim.call(lambda: Sleeper.options(key="first", unique=Unique(key="only")).start(Work()))
    await sim.call(lambda: Dropped.options(key="a").start(Work()))
    await sim.work()


async def children_nested(sim: Simulation) -> None:
    await sim.call(lambda: Nested.options(key="a").start(Work(2)))
    await sim.work()


async def cancel_before_it_runs(sim: Simulation) -> None:
    steps = await sim.call(lambda: Steps.options(key="a").start(Work()))
    await sim.call(lambda: steps.cancel())
    await sim.work()


async def cancel_while_parked(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: waits.signal("other", dedup_key="0"))
    await sim.call(lambda: waits.cancel())
    await sim.work()


async def cancel_cascades(sim: Simulation) -> None:
    deadline = await sim.call(lambda: Deadline.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: deadline.cancel(cascade=True))
    await sim.work()


async def cancel_of_a_child_opens_the_barrier(sim: Simulation) -> None:
    await sim.call(lambda: Deadline.options(key="a").start(Work()))
    await sim.work()
    child = app.handle(app.handle("Deadline", key="a").id.child(0))
    await sim.call(lambda: child.cancel())
    await sim.work()


async def cancel_while_executing(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel",))))
    await sim.work()


async def cancel_instead_of_parking(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel", "park"))))
    await sim.work()


async def cancel_instead_of_spawning(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel", "spawn"))))
    await sim.work()


async def cancel_of_a_paused_one(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel", "pause", "park"))))
    await sim.work()


async def pause_while_executing(sim: Simulation) -> None:
    meddles = await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("pause",))))
    await sim.work()

    async def resume() -> None:
        with contextlib.suppress(InvalidArgumentError):  # a second attempt does not pause, and has ended
            await meddles.resume()

    await sim.call(resume)
    await sim.work()


async def signal_before_parking(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("signal", "park"))))
    await sim.work()


async def pause_and_resume(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.call(lambda: waits.pause())
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.work()
    await sim.call(lambda: waits.resume())
    await sim.work()


async def partition_key(sim: Simulation) -> None:
    for n in range(3):
        await sim.call(lambda n=n: Steps.options(key=f"k{n}", partition_key="depot", priority=-n).start(Work(n)))  # type: ignore[misc]
    await sim.call(lambda: Steps.options(key="free").start(Work()))
    await sim.work()


async def drain_and_restart(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.restart()
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.work()
    await sim.restart()


async def retention(sim: Simulation) -> None:
    await sim.call(lambda: Steps.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(HOUR)
    await sim.call(lambda: Steps.options(key="b").start(Work()))
    await sim.work()

    async def purge() -> int:
        return await (await sim.store()).purge(Retention(age_seconds=HOUR / 2), 10)

    await sim.call(purge)


# Each scenario, and how the execution it is about ends.
SCENARIOS: Final[dict[Scenario, tuple[str, str, Status, object]]] = {
    next_and_done: ("Steps", "a", Status.DONE, ["one", "two"]),
    replay_with_delay: ("Again", "a", Status.DONE, 2),
    stop: ("Fails", "a", Status.FAILED, None),
    exception_through_handle: ("Handles", "a", Status.DONE, 11),
    handle_that_raises: ("HandleRaises", "a", Status.FAILED, None),
    default_retry: ("Retries", "a", Status.FAILED, None),
    await_then_signal: ("Waits", "a", Status.DONE, [["parked", "go=1"], ["other"]]),
    await_with_the_signal_there: ("Waits", "a", Status.DONE, [["parked", "stop=1"], []]),
    await_until_its_deadline: ("Waits", "a", Status.DONE, [["parked", "timed out"], []]),
    await_a_pack: ("Packs", "a", Status.DONE, [["a", "b"], 0]),
    signal_from_a_step: ("Waits", "partner", Status.DONE, [["parked", "go=7"], []]),
    signal_before_parking: ("Meddles", "a", Status.DONE, ["go"]),
    children_all: (
        "Family",
        "a",
        Status.DONE,
        [
            ["[['Leaf', 'done', 0], ['Leaf', 'failed', None], ['Leaf', 'done', 20]]"],
            [["Leaf", "done", 80]],
        ],
    ),
    children_quorum: (
        "Quorum",
        "a",
        Status.DONE,
        [["Leaf", "done", 20], ["Sleeper", "awaiting_signal", None]],
    ),
    children_deadline: ("Deadline", "a", Status.DONE, [True, [["Sleeper", "awaiting_signal", None]]]),
    children_dropped_by_uniqueness: ("Dropped", "a", Status.DONE, [["[['Leaf', 'done', 40]]"], []]),
    children_nested: (
        "Nested",
        "a",
        Status.DONE,
        [["Nested", "done", [["Leaf", "done", 0], ["Leaf", "done", 60]]], ["Leaf", "done", 60]],
    ),
    cancel_before_it_runs: ("Steps", "a", Status.CANCELLED, None),
    cancel_while_parked: ("Waits", "a", Status.CANCELLED, None),
    cancel_while_executing: ("Meddles", "a", Status.CANCELLED, None),
    cancel_instead_of_parking: ("Meddles", "a", Status.CANCELLED, None),
    cancel_instead_of_spawning: ("Meddles", "a", Status.CANCELLED, None),
    cancel_of_a_paused_one: ("Meddles", "a", Status.CANCELLED, None),
    cancel_cascades: ("Deadline", "a", Status.CANCELLED, None),
    cancel_of_a_child_opens_the_barrier: ("Deadline", "a", Status.DONE, [False, [["Sleeper", "cancelled", None]]]),
    pause_and_resume: ("Waits", "a", Status.DONE, [["parked", "go=1"], []]),
    pause_while_executing: ("Meddles", "a", Status.DONE, []),
    partition_key: ("Steps", "k1", Status.DONE, ["one", "two"]),
    drain_and_restart: ("Waits", "a", Status.DONE, [["parked", "go=1"], []]),
    retention: ("Steps", "b", Status.DONE, ["one", "two"]),
}
# What a crash may change of these: a crash is an attempt (seed section 4.3), and the default policy counts attempts; an
# execution whose cancel was asked for ends at its next claim, whether or not the step that ran then was recorded.
MAY_DIFFER: Final[dict[Scenario, frozenset[str]]] = {
    default_retry: frozenset({"revision"}),
    cancel_while_executing: frozenset({"revision", "step", "history"}),
    cancel_instead_of_parking: frozenset({"revision", "step", "history"}),
    cancel_instead_of_spawning: frozenset({"revision", "step", "history"}),
    cancel_of_a_paused_one: frozenset({"revision", "step", "history"}),
}
