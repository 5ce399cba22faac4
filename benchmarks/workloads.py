"""The workloads: what is done, how it is timed, and which bare figure stands beside it.

`machine-w1`.. are machines, `w1`.. workflows: w1 many of one step, w2 many of ten, w3 one of n steps, w4 fan-out and
join, w5 a signal's round trip between processes, w6 starts alone, w7 recovery after a kill, w8 sleepers, w9 several
worker processes.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bare
from benchmarks import bare_shapes as shapes
from benchmarks.bare_shapes import beside
from benchmarks.definitions import Echo, FanOut, Stepper, Steps, app, echo, held_after, sequence, sleeper, tree
from benchmarks.environment import Round, worker_processes
from benchmarks.peers.catalogue import Figure
from benchmarks.peers.drivers.rounds import LEASE_OVER_SECONDS, await_marks, marks
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.models.handle import Handle

BATCH = 2_000
TEN = 10
AT_ONCE = 200
NAP_SECONDS = 1.0
LEASE_SECONDS = 2.0  # of the worker that w7 kills
CROWD = 800  # of many runs that take no time, on PostgreSQL, as beside the peers; on SQLite nothing would be gained


@dataclass(frozen=True)
class Workload:
    """`size` is what is measured when nothing else is asked for; `unit` is what the rate counts.

    `bare` is what stands beside it: the same store without an engine. `figure` is what of both is compared.
    """

    measure: Callable[[str, int], Awaitable[Round]]
    bare: Callable[[str, int], Awaitable[Round]]
    size: int
    unit: str
    figure: Figure = Figure.RATE


# ---------------------------------------------------------------------- parts


async def _start(definition: Any, inputs: Sequence[Any]) -> list[Handle[Any]]:
    """In batches, two at a time: one is made ready while the store writes the other."""
    handles: list[Handle[Any]] = []
    batches = iter(range(0, len(inputs), BATCH))

    async def start_some() -> None:
        for first in batches:
            handles.extend(await definition.start_many(inputs[first : first + BATCH]))

    await asyncio.gather(start_some(), start_some())
    return handles


def _crowd(url: str) -> int:
    return CROWD if url.startswith("postgres") else AT_ONCE


async def _drain(count: int, at_once: int) -> tuple[float, float, Worker]:
    """Seconds from the first pick until `count` have ended, in this process; and of CPU."""
    ended = asyncio.Event()
    left = count

    def on_ended(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            ended.set()

    worker = Worker(await app.store(), app.runners(), WorkerSettings(concurrency=at_once), on_ended=on_ended)
    began, used = time.perf_counter(), time.process_time()
    async with worker:
        await ended.wait()
        return time.perf_counter() - began, time.process_time() - used, worker


async def _drained(definition: Any, inputs: Sequence[Any], steps: int, at_once: int = AT_ONCE) -> Round:
    await _start(definition, inputs)
    seconds, cpu_seconds, worker = await _drain(len(inputs), at_once)
    return Round(len(inputs) * steps, seconds, cpu_seconds, counters=worker.counters)


async def _to_result(definition: Any, inputs: Sequence[Any], steps: int, at_once: int = AT_ONCE) -> Round:
    """From before the start call until the last result is known."""
    async with app.worker(concurrency=at_once) as worker:
        began, used = time.perf_counter(), time.process_time()
        handles = await _start(definition, inputs)
        await app.results(handles)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - used
        return Round(len(inputs) * steps, seconds, cpu_seconds, counters=worker.counters)


async def _pings(definition: Any, value: Any, url: str, n: int) -> Round:
    """A waiting execution in another process is sent a message: from before the send to after the receive."""
    async with worker_processes(url, 1):
        handle = await definition.start(value)
        for _ in range(n):
            while (await handle.describe()).status not in ("awaiting_signal", "awaiting_promise"):
                await asyncio.sleep(0.001)
            await handle.signal("ping", time.time())
        took = [float(item) * 1e3 for item in await handle.result()]
    return Round(n, sum(took) / 1e3, latencies_ms=took)


async def _by_processes(definition: Any, inputs: Sequence[Any], url: str, processes: int) -> Round:
    """Started in one commit beside workers that wait for it, so that none begins before the clock runs."""
    async with worker_processes(url, processes):
        handles = [handle for handle in await definition.start_many(inputs) if isinstance(handle, Handle)]
        began = time.perf_counter()
        await app.results(handles)
        return Round(len(inputs), time.perf_counter() - began)


# ---------------------------------------------------------------------- machines


async def machine_w1(url: str, n: int) -> Round:
    return await _to_result(Stepper, [Steps(1)] * n, 1, _crowd(url))


async def machine_w2(url: str, n: int) -> Round:
    return await _drained(Stepper, [Steps(TEN)] * n, TEN, _crowd(url))


async def machine_w3(url: str, n: int) -> Round:
    return await _drained(Stepper, [Steps(n)], n)


async def machine_w4(url: str, n: int) -> Round:
    return await _to_result(FanOut, [Steps(n)], n)


async def machine_w5(url: str, n: int) -> Round:
    return await _pings(Echo, Steps(n), url, n)


async def machine_w6(url: str, n: int) -> Round:
    began, used = time.perf_counter(), time.process_time()
    await _start(Stepper, [Steps(1)] * n)
    return Round(n, time.perf_counter() - began, time.process_time() - used)


async def machine_drain(url: str, n: int) -> Round:
    return await _drained(Stepper, [Steps(1)] * n, 1, _crowd(url))


async def machine_w9(url: str, n: int) -> Round:
    return await _by_processes(Stepper, [Steps(1)] * n, url, 2)


# ---------------------------------------------------------------------- workflows


async def w1(url: str, n: int) -> Round:
    return await _to_result(sequence, [1] * n, 1, _crowd(url))


async def w2(url: str, n: int) -> Round:
    return await _drained(sequence, [TEN] * n, TEN, _crowd(url))


async def w3(url: str, n: int) -> Round:
    """In a ledger that has been written to, like the bare journal: the log of a new one grows with each commit."""
    await _drained(sequence, [n], n)
    return await _drained(sequence, [n], n)


async def w4(url: str, n: int) -> Round:
    return await _to_result(tree, [n], n)


async def w5(url: str, n: int) -> Round:
    return await _pings(echo, n, url, n)


async def w6(url: str, n: int) -> Round:
    began, used = time.perf_counter(), time.process_time()
    await _start(sequence, [1] * n)
    return Round(n, time.perf_counter() - began, time.process_time() - used)


async def w7(url: str, n: int) -> Round:
    """Kill a worker at work, `n` steps recorded and a call begun; wait until its lease is over, which is not counted.

    Then from before another one connects, its modules loaded, to when the run is past the last of these steps.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "marks"
        arguments, variables = ("1", str(LEASE_SECONDS)), {"BENCH_MARKS": str(file)}
        handle = await held_after.start(n)
        async with worker_processes(url, 1, *arguments, **variables, BENCH_HANG="1"):
            await asyncio.to_thread(await_marks, file, 2)  # past the steps, and in the call: which was committed before
        before = len(marks(file))  # two; more, if it lost its lease on the way and did all of it again
        await asyncio.sleep(LEASE_SECONDS + LEASE_OVER_SECONDS)
        status = (await handle.describe()).status
        assert status == "executing", f"the dead worker should hold the run, which is {status}"
        async with worker_processes(url, 1, *arguments, **variables) as (began,):
            past = await asyncio.to_thread(await_marks, file, before + 1)
            await handle.result()
    return Round(n, past - began)


async def w8(url: str, n: int) -> Round:
    return await _to_result(sleeper, [NAP_SECONDS] * n, 1)


async def w9(url: str, n: int) -> Round:
    return await _by_processes(sequence, [1] * n, url, 2)


WORKLOADS: dict[str, Workload] = {
    "machine-w1": Workload(machine_w1, bare.hundred_a_commit, 5_000, "machines/s"),
    "machine-w2": Workload(machine_w2, bare.hundred_a_commit, 2_000, "steps/s"),
    "machine-w3": Workload(machine_w3, bare.one_a_commit, 2_000, "steps/s"),
    "machine-w4": Workload(machine_w4, bare.hundred_a_commit, 1_000, "children/s"),
    "machine-w5": Workload(machine_w5, bare.one_a_commit, 200, "signals/s"),
    "machine-w6": Workload(machine_w6, bare.thousand_a_commit, 20_000, "starts/s"),
    "machine-w9": Workload(machine_w9, bare.hundred_a_commit, 5_000, "machines/s"),
    "machine-drain": Workload(machine_drain, bare.hundred_a_commit, 20_000, "machines/s"),
    "w1": Workload(w1, beside(shapes.workflows(1)), 10_000, "workflows/s"),
    "w2": Workload(w2, beside(shapes.workflows(TEN)), 4_000, "steps/s"),
    "w3": Workload(w3, beside(shapes.sequence), 1_000, "steps/s"),
    "w4": Workload(w4, beside(shapes.fan_out), 1_000, "children/s", Figure.SECONDS),
    "w5": Workload(w5, beside(shapes.signals), 200, "signals/s", Figure.P50_MS),
    "w6": Workload(w6, beside(shapes.starts), 20_000, "starts/s"),
    "w7": Workload(w7, beside(shapes.recovery), 1_000, "steps/s", Figure.SECONDS),
    "w8": Workload(w8, beside(shapes.sleepers), 1_000, "sleepers/s", Figure.SECONDS),
    "w9": Workload(w9, bare.hundred_a_commit, 10_000, "workflows/s"),
}
