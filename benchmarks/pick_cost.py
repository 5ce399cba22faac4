"""What a pick costs in a full ledger: with a million ended and a million far-future rows, and behind a crowded key.

`median` is picks a second; `extra` has the cost of a pick in the small and in the full ledger, and their ratio, which
is to stay near one. On PostgreSQL the full ledger is as its autovacuum leaves it; `behind_ms` is the cost until it has
been there, when the million has just ended, for a worker that did not take them.
"""

from __future__ import annotations

import time

import asyncpg

from benchmarks import bare
from benchmarks.definitions import Stepper, Steps, app
from benchmarks.environment import Round
from benchmarks.workloads import Workload
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.values import QueueRoom

HANDLERS = [Stepper.__holdfast__.handler] if Stepper.__holdfast__ is not None else []
PICKS = 50
A_PICK = 20
FAR_SECONDS = 10 * 365 * 86_400


async def _cost(store: Store, worker: str) -> float:
    """The median of some picks of a few due rows each, which are ended again."""
    took = []
    for _ in range(PICKS):
        await Stepper.start_many([Steps(1)] * A_PICK)
        began = time.perf_counter()
        picked = await store.pick(worker, [QueueRoom("default", A_PICK)], HANDLERS, A_PICK)
        took.append(time.perf_counter() - began)
        assert len(picked.claims) == A_PICK
        done = AdvanceExecution(status=Status.DONE, result="0")
        await store.flush(worker, [Commit(claim, (done,)) for claim in picked.claims])
    return sorted(took)[len(took) // 2]


async def _worker(store: Store, name: str = "bench") -> str:
    await store.register_worker(name, host="bench", pid=1, queues=["default"], lease_seconds=3600)
    return name


async def machine_pick(url: str, n: int) -> Round:
    """`n` ended and `n` far-future rows."""
    store = await app.store()
    worker = await _worker(store)
    small = await _cost(store, worker)
    for first in range(0, n, 5_000):
        count = min(5_000, n - first)
        await Stepper.options(delay=FAR_SECONDS, priority=first // 5_000 % 3).start_many([Steps(1)] * count)
        await Stepper.start_many([Steps(1)] * count)
        picked = await store.pick(worker, [QueueRoom("default", count)], HANDLERS, count)
        done = AdvanceExecution(status=Status.DONE, result="0")
        await store.flush(worker, [Commit(claim, (done,)) for claim in picked.claims])
    extra = {"small_ms": small * 1e3}
    if url.startswith("postgres"):
        extra["behind_ms"] = await _cost(store, await _worker(store, "another")) * 1e3
        await _vacuum(url)
    full = await _cost(store, worker)
    return Round(PICKS, full * PICKS, extra=extra | {"full_ms": full * 1e3, "growth": full / small})


async def _vacuum(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("vacuum (analyze) holdfast.executions")
    finally:
        await connection.close()


async def machine_keys(url: str, n: int) -> Round:
    """`n` rows of one partition key wait behind one that is held."""
    store = await app.store()
    worker = await _worker(store)
    small = await _cost(store, worker)
    for first in range(0, n, 5_000):
        count = min(5_000, n - first)
        await Stepper.options(partition_key="crowded").start_many([Steps(1)] * count)
    began = time.perf_counter()
    held = await store.pick(worker, [QueueRoom("default", 1)], HANDLERS, 1)
    while (await store.pick(worker, [QueueRoom("default", 1)], HANDLERS, 1)).next_due_seconds == 0:
        pass  # it goes on taking the crowd out of its way
    first_seconds = time.perf_counter() - began
    assert len(held.claims) == 1
    full = await _cost(store, worker)
    figures = {"small_ms": small * 1e3, "full_ms": full * 1e3, "growth": full / small, "first_seconds": first_seconds}
    return Round(PICKS, full * PICKS, extra=figures)


PICK_WORKLOADS = {
    "machine-pick": Workload(machine_pick, bare.one_a_commit, 1_000_000, "picks/s"),
    "machine-keys": Workload(machine_keys, bare.one_a_commit, 100_000, "picks/s"),
}
