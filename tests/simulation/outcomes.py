"""One small machine for each outcome kind. `scenarios` takes them through, and the tests crash them everywhere."""

from __future__ import annotations

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
    Stop,
    Unique,
    step,
)

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
