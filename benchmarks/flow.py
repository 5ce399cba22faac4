"""Flows: ten activities in a row, a diamond, a fan-out with a join, a cycle. `n` counts activities."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks import bare
from benchmarks.definitions import app
from benchmarks.environment import Round
from benchmarks.workloads import Workload
from holdfast import Flow

TEN = 10
DIAMOND = 4
BRANCHES = 1_000


def _linear() -> Flow:
    flow = app.flow("bench-linear")
    last: Any = None
    for number in range(TEN):
        last = flow.activity(after=last, name=f"a{number}")(_add)
    return flow


async def _add(n: int) -> int:
    return n + 1


async def _sum(a: int, b: int) -> int:
    return a + b


async def _count() -> int:
    return BRANCHES


def _diamond() -> Flow:
    flow = app.flow("bench-diamond")
    top: Any = flow.activity(name="top")(_add)
    sides = [flow.activity(after=top, name=name)(_add) for name in ("left", "right")]
    flow.join(after=sides, name="bottom")(_sum)
    return flow


def _fan_out() -> Flow:
    flow = app.flow("bench-fan-out")
    top: Any = flow.activity(name="top")(_add)
    flow.join(after=[flow.activity(after=top, name=f"b{n}")(_add) for n in range(BRANCHES)], name="join")(_count)
    return flow


def _cycle() -> Flow:
    flow = app.flow("bench-cycle")
    turn: Any = flow.activity(name="turn")(_add)
    flow.repeat(after=turn, to=turn, when=lambda n: n % BRANCHES != 0)
    return flow


LINEAR, DIAMONDS, FAN_OUT, CYCLE = _linear(), _diamond(), _fan_out(), _cycle()


async def _to_result(flow: Flow, jobs: int, activities: int) -> Round:
    """From before the start call until the last result is known; `commits` are the protocol's and the jobs' own."""
    async with app.worker(concurrency=200) as worker:
        began, used = time.perf_counter(), time.process_time()
        handles: list[Any] = await flow.start_many([0] * jobs)
        await asyncio.gather(*(handle.result() for handle in handles))
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - used
        count = jobs * activities
        extra = {"commits_an_activity": worker.counters["commits"] / count}
        return Round(count, seconds, cpu_seconds, counters=worker.counters, extra=extra)


async def linear(url: str, n: int) -> Round:
    return await _to_result(LINEAR, max(1, n // TEN), TEN)


async def diamond(url: str, n: int) -> Round:
    return await _to_result(DIAMONDS, max(1, n // DIAMOND), DIAMOND)


async def fan_out(url: str, n: int) -> Round:
    return await _to_result(FAN_OUT, max(1, n // (BRANCHES + 2)), BRANCHES + 2)


async def cycle(url: str, n: int) -> Round:
    return await _to_result(CYCLE, max(1, n // BRANCHES), BRANCHES)


FLOW_WORKLOADS: dict[str, Workload] = {
    "flow-linear": Workload(linear, bare.hundred_a_commit, 5_000, "activities/s"),
    "flow-diamond": Workload(diamond, bare.hundred_a_commit, 4_000, "activities/s"),
    "flow-fan-out": Workload(fan_out, bare.hundred_a_commit, 1_002, "activities/s"),
    "flow-cycle": Workload(cycle, bare.one_a_commit, 1_000, "activities/s"),
}
