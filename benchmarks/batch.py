"""Batches: durable items a second end to end, the ledger alone in memory, and what an item takes in memory and store.

`batch` is one run over n items of a function that does nothing, from before the start call until its result is known;
`batch-results` keeps the values. `batch-ledger` is transitions in memory: four an item, one at a time and in stretches.
"""

from __future__ import annotations

import sqlite3
import time
import tracemalloc
from contextlib import closing
from typing import Any

from benchmarks import bare
from benchmarks.definitions import app
from benchmarks.environment import Round
from benchmarks.workloads import Workload
from holdfast import Batch
from holdfast.core.sequence import SequenceLedger

STRETCH = 1_000
TRANSITIONS = 4  # dispatch, begin, finish, commit


@app.batch(name="batch-nothing")
async def nothing(number: int) -> int:
    return number


@app.batch(name="batch-kept", results=True)
async def kept(number: int) -> int:
    return number


async def _to_result(batch: Batch[int, int], url: str, n: int) -> Round:
    async with app.worker() as worker:
        began, used = time.perf_counter(), time.process_time()
        run = await batch.start(range(n))
        result = await run.result()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - used
        assert result.succeeded == n, f"{result} of {n} items"
        extra = {"store_bytes_an_item": await _stored_bytes(url) / n}
        return Round(n, seconds, cpu_seconds, counters=worker.counters, extra=extra)


async def _stored_bytes(url: str) -> float:
    """What the items of all runs take in the store once they are committed: their chunks, and nothing else."""
    query = "select coalesce(sum(coalesce({length}(states), 0) + coalesce({length}(attempts), 0)), 0) from {chunks}"
    if not url.startswith("postgres"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            found: tuple[Any, ...] = connection.execute(query.format(length="length", chunks="chunks")).fetchone()
            return float(found[0])
    import asyncpg

    pg = await asyncpg.connect(url)
    try:
        return float(await pg.fetchval(query.format(length="octet_length", chunks="holdfast.chunks")))
    finally:
        await pg.close()


async def durable(url: str, n: int) -> Round:
    return await _to_result(nothing, url, n)


async def with_results(url: str, n: int) -> Round:
    return await _to_result(kept, url, n)


async def in_memory(url: str, n: int) -> Round:
    """The rate is of single transitions; of stretches, and bytes an item, beside it."""
    tracemalloc.start()
    measured = SequenceLedger(lease_ms=1000, now_ms=0, length=n)
    bytes_an_item = tracemalloc.get_traced_memory()[0] / n
    tracemalloc.stop()
    began, used = time.perf_counter(), time.process_time()
    _singly(measured, n)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - used
    ledger = SequenceLedger(lease_ms=1000, now_ms=0, length=n)
    bulk_began = time.process_time()
    _in_stretches(ledger, n)
    bulk = n * TRANSITIONS / max(1e-9, time.process_time() - bulk_began)
    extra = {"bulk_transitions_a_cpu_second": bulk, "bytes_an_item": bytes_an_item}
    return Round(n * TRANSITIONS, seconds, cpu_seconds, extra=extra)


def _singly(ledger: SequenceLedger, n: int) -> None:
    dispatch, begin, finish, lane = ledger.dispatch, ledger.begin, ledger.finish, ledger.lane
    lane.take(1)
    for seq in range(n):
        dispatch(seq, 1, 0)
        begin(seq, 1, 0)
        finish(seq, 1, 0)
        lane.commit(seq, seq + 1, 1, 0)


def _in_stretches(ledger: SequenceLedger, n: int) -> None:
    ledger.lane.take(1)
    for first in range(0, n, STRETCH):
        stop = min(n, first + STRETCH)
        ledger.dispatch_range(first, stop, 1, 0)
        ledger.begin_range(first, stop, 1, 0)
        ledger.finish_range(first, stop, 1, 0)
        ledger.lane.commit(first, stop, 1, 0)


BATCH_WORKLOADS: dict[str, Workload] = {
    "batch": Workload(durable, bare.hundred_a_commit, 100_000, "items/s"),
    "batch-results": Workload(with_results, bare.hundred_a_commit, 50_000, "items/s"),
    "batch-ledger": Workload(in_memory, bare.hundred_a_commit, 200_000, "transitions/s"),
}
