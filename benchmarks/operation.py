"""Operations measured: the cost of a heartbeat, calls a second, and the lock under contention.

`python benchmarks/operation.py` runs all three; `run(workload, n, rounds)` runs one and returns its figures.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from holdfast.operation import Ledger, Timing

WORKLOADS: dict[str, Callable[[Path, int, int], dict[str, object]]] = {}
Figures = tuple[list[float], float]  # the waits of one process, and how long it took in all
SEED_BEAT_SECONDS = 4.5
# Contention is what is measured: nobody may give up on the lock or be taken for dead.
PATIENT = Timing(lock_timeout_ms=600_000, staleness_ms=3_600_000)


def run(workload: str, n: int, rounds: int) -> dict[str, object]:
    """Run one workload in a folder of its own. `n`: participants, calls or processes; `rounds`: repetitions."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        figures = WORKLOADS[workload](Path(folder), n, rounds)
    return {"workload": workload, "n": n, "rounds": rounds, **figures}


def heartbeat_cost(folder: Path, n: int, rounds: int) -> dict[str, object]:
    """One participant's heartbeat while `n` participants have a frame each."""

    async def measure() -> list[float]:
        ledgers = [Ledger(folder, participant_id=f"p{number}", timing=PATIENT) for number in range(n)]
        first = await ledgers[0].create_operation(operation_id="bench")
        handles = [first] + [await ledger.join_operation("bench") for ledger in ledgers[1:]]
        for handle in handles:
            await handle.start_call()
            await handle.stop_heartbeat()
        samples = []
        for number in range(rounds):
            began = time.perf_counter()
            await handles[number % n].heartbeat()
            samples.append(time.perf_counter() - began)
        for ledger in ledgers:
            await ledger.dispose()
        return samples

    samples = asyncio.run(measure())
    mean = statistics.fmean(samples)
    return {
        **_milliseconds(samples),
        "beats_per_second": round(1 / mean, 1),
        "lock_busy_percent_at_the_seeds_pace": round(100 * n * mean / SEED_BEAT_SECONDS, 2),
    }


def calls_per_second(folder: Path, n: int, rounds: int) -> dict[str, object]:
    """One participant starting and ending `n` calls one after the other, `rounds` times."""

    async def measure() -> list[float]:
        samples = []
        async with Ledger(folder, participant_id="p", timing=PATIENT) as ledger, ledger.create_operation() as operation:
            for _ in range(rounds):
                began = time.perf_counter()
                for _ in range(n):
                    async with operation.start_call():
                        pass
                samples.append(n / (time.perf_counter() - began))
        return samples

    samples = asyncio.run(measure())
    return {"calls_per_second": round(statistics.median(samples), 1), "best": round(max(samples), 1)}


def lock_contention(folder: Path, n: int, rounds: int) -> dict[str, object]:
    """`n` processes, each beating `rounds` times as fast as it can: throughput and the longest wait of any."""
    context = multiprocessing.get_context("forkserver")
    results: SimpleQueue[Figures] = context.SimpleQueue()
    gate = context.Barrier(n + 1)

    async def create() -> None:
        ledger = Ledger(folder, participant_id="maker", timing=PATIENT)
        await ledger.create_operation(operation_id="bench")
        await ledger.dispose()

    asyncio.run(create())
    processes = [context.Process(target=_contend, args=(folder, number, rounds, gate, results)) for number in range(n)]
    for process in processes:
        process.start()
    gate.wait()
    began = time.perf_counter()
    waits, ends = zip(*(results.get() for _ in processes), strict=True)
    elapsed = time.perf_counter() - began
    for process in processes:
        process.join()
    samples = [wait for of_one in waits for wait in of_one]
    return {
        **_milliseconds(samples),
        "changes_per_second": round(n * rounds / elapsed, 1),
        "longest_wait_ms": round(1000 * max(samples), 2),
        "first_and_last_to_finish_seconds": [round(min(ends), 3), round(max(ends), 3)],
    }


def _contend(folder: Path, number: int, rounds: int, gate: Barrier, results: SimpleQueue[Figures]) -> None:
    async def work() -> tuple[list[float], float]:
        ledger = Ledger(folder, participant_id=f"p{number}", timing=PATIENT)
        operation = await ledger.join_operation("bench")
        await operation.stop_heartbeat()
        await asyncio.to_thread(gate.wait)
        began = time.perf_counter()
        samples = []
        for _ in range(rounds):
            asked = time.perf_counter()
            await operation.heartbeat()
            samples.append(time.perf_counter() - asked)
        elapsed = time.perf_counter() - began
        await ledger.dispose()
        return samples, elapsed

    results.put(asyncio.run(work()))


def _milliseconds(samples: list[float]) -> dict[str, object]:
    ordered = sorted(samples)
    return {
        "mean_ms": round(1000 * statistics.fmean(ordered), 3),
        "p50_ms": round(1000 * ordered[len(ordered) // 2], 3),
        "p99_ms": round(1000 * ordered[int(len(ordered) * 0.99)], 3),
    }


WORKLOADS |= {
    "operation-heartbeat": heartbeat_cost,
    "operation-calls": calls_per_second,
    "operation-lock": lock_contention,
}


def main() -> None:
    for workload, n, rounds in (
        ("operation-heartbeat", 1, 300),
        ("operation-heartbeat", 10, 300),
        ("operation-heartbeat", 50, 300),
        ("operation-calls", 200, 3),
        ("operation-lock", 20, 50),
    ):
        print(json.dumps(run(workload, n, rounds)))


if __name__ == "__main__":
    main()
