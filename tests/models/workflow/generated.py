"""Workflows made at random: a program is data, and one workflow interprets it with every operation there is.

- `Op`, `Program`: what to do; `draw_program` makes one from any source of choices, so that hypothesis can shrink it
  and a seeded simulation can repeat it.
- `declare`: the interpreter and the tasks, workflows and machine it calls, on an app.
- `ran`: how often each call's function was begun, by idempotency key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast import (
    App,
    Cancelled,
    Completed,
    Context,
    Done,
    Machine,
    MachineContext,
    Outcome,
    RetryPolicy,
    TaskFailed,
    Uncertain,
    Workflow,
    current,
    step,
)

NAMES = ("red", "blue")
CALLS = ("inline", "flaky", "fail", "remote", "remote_flaky", "child", "machine")
WAITS = (*CALLS, "sleep", "signal")
# Threads only one at a time: which of two ends first is up to the machine.
ALONE = ("pick", "thread", "deadline", "random", "uuid", "now", "patched", "publish", "attribute", "transact", "once")
PLAIN = (*WAITS, *ALONE)
GROUPS = ("all", "any", "join", "quorum", "leave", "drop", "behind", "late", "limited")
QUEUES = ["default", "remote"]

Choose = Callable[[int], int]  # a number from 0 below the one given


@dataclass
class Op:
    kind: str
    number: int = 0
    ops: list[Op] = field(default_factory=list)


@dataclass
class Program:
    ops: list[Op]
    clean_up: list[Op] = field(default_factory=list)


class DeclinedError(Exception):
    pass


def draw_program(choose: Choose, depth: int = 2, most: int = 5) -> Program:
    ops = [_draw_op(choose, depth) for _ in range(1 + choose(most))]
    return Program(ops, [_draw_op(choose, 0, is_clean_up=True) for _ in range(choose(3))])


def _draw_op(choose: Choose, depth: int, *, is_clean_up: bool = False) -> Op:
    """Clean-up does all of it, and waits for `rest`, whatever the cancel found open."""
    if choose(3) == 0:
        kind = GROUPS[choose(len(GROUPS))]
        kinds = WAITS if kind in ("all", "any", "behind") else CALLS
        return Op(kind, choose(3), [_draw_plain(choose, kinds, depth) for _ in range(1 + choose(3))])
    return _draw_plain(choose, (*PLAIN, "rest") if is_clean_up else PLAIN, depth)


def _draw_plain(choose: Choose, kinds: tuple[str, ...], depth: int) -> Op:
    kind = kinds[choose(len(kinds))]
    if kind == "sleep" and kinds is WAITS:  # beside calls that run: which of two ends first is up to the machine
        return Op(kind, 1 + choose(3))
    if kind != "child":
        return Op(kind, choose(4))
    if depth == 0:
        return Op("remote", choose(4))
    return Op("child", 0, draw_program(choose, depth - 1, 2).ops)


def declare(
    app: App, ran: Counter[str], *, backend: str, statement: Callable[[], str] = lambda: "select 1"
) -> Workflow[[Program], list[Any]]:
    """The workflow that interprets a program. `statement` is what its transactions run."""

    def count() -> None:
        ran[current().idempotency_key] += 1

    @app.task(name="inline")
    async def inline(number: int) -> int:
        count()
        if number % 2:  # some wait on their way, others return at once
            await asyncio.sleep(0)
        return number * 10

    @app.task(name="thread")
    def thread(number: int) -> int:
        count()
        return number * 11

    @app.task(name="flaky", retry=RetryPolicy(initial_delay=2, jitter=0.2))
    async def flaky(number: int) -> int:
        count()
        if number % 2:
            await asyncio.sleep(0)
        if current().attempt <= number:
            raise ConnectionError(f"attempt {current().attempt}")
        return number * 100

    @app.task(name="fail", raises=(DeclinedError,), retry=RetryPolicy(max_attempts=1))
    async def fail(number: int) -> int:
        count()
        if number % 2:
            raise DeclinedError(f"no {number}")
        raise ValueError(f"bad {number}")

    @app.task(name="remote", queue="remote")
    async def remote(number: int) -> int:
        count()
        return number * 1000

    @app.task(name="remote_flaky", queue="remote", retry=RetryPolicy(initial_delay=1, jitter=0))
    async def remote_flaky(number: int) -> int:
        count()
        if current().attempt <= number % 2:
            raise ConnectionError(f"attempt {current().attempt}")
        return number * 1001

    @app.task(name="once", effects="at_most_once")
    async def once(number: int) -> int:
        count()
        if number % 2:
            await asyncio.sleep(0)
        return number * 12

    @app.transaction(name="transact")
    def transact(db: Any, number: int) -> int:
        count()
        db.execute(statement())
        return number * 13

    @app.transaction(name="transact_there")
    async def transact_there(db: Any, number: int) -> int:
        count()
        await db.execute(statement())
        return number * 13

    @app.machine(name="Doubler")
    class Doubler(Machine[int]):
        @step(initial=True)
        async def double(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state * 2)

    def call(ctx: Context, op: Op) -> Any:
        match op.kind:
            case "inline":
                return ctx.invoke(inline, op.number)
            case "thread":
                return ctx.invoke(thread, op.number)
            case "flaky":
                return ctx.invoke(flaky, op.number)
            case "fail":
                return ctx.invoke(fail, op.number)
            case "remote":
                return ctx.invoke(remote, op.number)
            case "remote_flaky":
                return ctx.invoke(remote_flaky, op.number)
            case "child":
                return ctx.invoke(generated, Program(op.ops))
            case "machine":
                return ctx.invoke(Doubler, op.number)
            case "transact":
                return ctx.transaction(transact if backend == "sqlite" else transact_there, op.number)
            case "sleep":
                return ctx.sleep(op.number)
            case "signal":
                return ctx.signal(NAMES[op.number % 2], int)
        raise AssertionError(op.kind)

    async def one(ctx: Context, op: Op, begun: list[Any]) -> Any:
        match op.kind:
            case "rest":
                return [await _outcome(promise) for promise in begun]
            case "deadline":
                try:
                    return await ctx.signal(NAMES[op.number % 2], int, timeout=op.number)
                except TimeoutError:
                    return "timeout"
            case "pick":
                return await picked(ctx, op, begun)
            case "random":
                return ctx.random()
            case "uuid":
                return str(ctx.uuid())
            case "now":
                return bool(ctx.now())
            case "patched":
                return ctx.patched(f"change-{op.number}")
            case "publish":
                return ctx.publish("stage", op.number)
            case "attribute":
                return ctx.set_attributes(stage=op.number)
            case "again":
                ctx.continue_as_new(Program(op.ops))
            case "once":
                with contextlib.suppress(Uncertain):  # if its worker died in it
                    await once(op.number)
                return "at most once"
            case "all":
                return await ctx.all(*[begin(ctx, member, begun) for member in op.ops])
            case "any":
                return _shown(await ctx.any(*[begin(ctx, member, begun) for member in op.ops]))
            case "behind":
                behind = [begin(ctx, member, begun) for member in op.ops]
                return [ctx.random(), *[await member for member in behind]]
            case "join" | "quorum" | "leave" | "drop" | "late" | "limited":
                return await joined(ctx, op, begun)
        return await begin(ctx, op, begun)

    async def picked(ctx: Context, op: Op, begun: list[Any]) -> list[Any]:
        """One of several signals; the others are asked for later."""
        first, second, third = (ctx.signal(NAMES[at % 2], int) for at in (op.number, op.number + 1, op.number))
        if op.number % 2 == 0:
            taken = [_shown(await ctx.any(first, second, third))]
            return taken + (await ctx.all(second, first) if op.number else [await third, await second])
        beside = begin(ctx, Op("flaky" if op.number == 1 else "remote", 2), begun)
        taken = [_shown(await ctx.any(beside, first, second)), _shown(await ctx.any(second, third))]
        return [*taken, await first, await beside]

    def begin(ctx: Context, op: Op, begun: list[Any]) -> Any:
        promise = call(ctx, op)
        if op.kind != "signal":
            begun.append(promise)
        return promise

    async def joined(ctx: Context, op: Op, begun: list[Any]) -> list[Any]:
        taken: list[Any] = []
        members: list[Any] = []
        async with ctx.join_set(cancel_rest=op.kind in ("drop", "late")) as jobs:
            members += [jobs.submit(begin(ctx, member, begun)) for member in op.ops]
            if op.kind == "limited":
                try:
                    taken.append(_shown(await jobs.next(timeout=1 + op.number)))
                except TimeoutError:
                    taken.append("timeout")
            elif op.kind == "join":
                taken += [_shown(done) async for done in jobs]
            elif op.kind == "quorum":
                taken += [_shown(done) for done in await jobs.first(1 + op.number % len(op.ops))]
            elif op.number:
                taken.append(_shown(await jobs.next()))
        if op.kind == "late":  # the rest was cancelled, wherever it stood
            taken += [await _outcome(member) for member in members]
        return taken

    @app.workflow(name="generated")
    async def generated(ctx: Context, program: Program) -> list[Any]:
        results: list[Any] = []
        begun: list[Any] = []
        try:
            for op in program.ops:
                try:
                    results.append(await one(ctx, op, begun))
                except (TaskFailed, DeclinedError) as error:
                    results.append(f"{type(error).__name__}: {error}")
        except Cancelled:
            for op in program.clean_up:
                try:
                    results.append(await one(ctx, op, begun))
                except (TaskFailed, DeclinedError) as error:
                    results.append(f"{type(error).__name__}: {error}")
            ctx.publish("cleaned", results)
            raise
        return results

    return generated


async def _outcome(promise: Any) -> Any:
    try:
        return await promise
    except (TaskFailed, DeclinedError) as error:
        return f"{type(error).__name__}: {error}"


def _shown(done: Completed[Any]) -> Any:
    try:
        return done.result()
    except (TaskFailed, DeclinedError) as error:
        return f"{type(error).__name__}: {error}"
