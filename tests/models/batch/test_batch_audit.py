"""The audit finds what is wrong with a stored batch (rulings D6, D7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from holdfast.core.errors import LedgerError
from holdfast.core.sequence import FailClass, RetryGuard, SequenceLedger, State
from holdfast.models.batch.audit import audit_batches, audit_run
from holdfast.models.batch.packing import attempts_at, pack, prefix_of, state_at, unpack
from holdfast.store.batches import BatchView, ChunkView, Counters, Which
from holdfast.store.values import ExecutionView
from tests.engine.rig import Rig


class Damaged:
    """A store whose batch is read with changes."""

    def __init__(self, store: Any, view: dict[str, Any], chunk: dict[str, Any]) -> None:
        self._store = store
        self._view = view
        self._chunk = chunk
        self.get = store.get

    async def batch_status(self, promise: bytes) -> BatchView:
        found: BatchView = await self._store.batch_status(promise)
        return replace(found, **self._view)

    async def batch_chunks(self, promise: bytes, start: int, limit: int, which: Which = "") -> list[ChunkView]:
        found = await self._store.batch_chunks(promise, start, limit, which)
        return [replace(chunk, **self._chunk) if chunk.first == 0 else chunk for chunk in found]


@pytest_asyncio.fixture
async def ended(rig: Rig) -> AsyncIterator[tuple[Any, ExecutionView]]:
    @rig.app.batch(chunk=8)
    async def work(number: int) -> None: ...

    run = await work.start(range(16))
    await rig.run()
    yield await rig.store(), await run.describe()


DAMAGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"taken": 17}, {}, "has taken in 17 items, and its chunks hold 16"),
    ({"head": 15}, {}, "1 of its items are not committed"),
    ({"counters": Counters(succeeded=15, failed=1)}, {}, "counters have drifted"),
    ({"open_bytes": 3}, {}, "its open inputs take 0 bytes, and 3 are kept"),
    ({}, {"states": b"\x03" * 7 + b"\x01"}, "ended, failed and prefix are kept as (8, 0, 8), and are (7, 0, 7)"),
    (
        {},
        {"states": b"\x03" * 7 + b"\x01", "ended": 7, "prefix": 7},
        "the lane's head is 16, and seq 7 is not terminal",
    ),
    ({}, {"states": b"\x03" * 7 + b"\x07"}, "seq 7 is stored as 0x07"),
    ({}, {"ready_ms": '{"7":1}'}, "seq 7 has a time for its next attempt, and does not wait for one"),
    ({}, {"ready_ms": '{"8":1}'}, "seq 8 has a time for its next attempt, and does not wait for one"),
    ({}, {"ready_ms": "[]"}, "has times of retries that cannot be read"),
    ({}, {"states": b"\x03" * 7}, "it has 7 states for 8 items"),
    ({}, {"states": None}, "it is dispatched and has no states"),
    ({}, {"first": 1}, "a chunk begins at seq 1, where 0 was to come"),
]


@pytest.mark.parametrize(("view", "chunk", "fault"), DAMAGES, ids=[fault[:40] for *_, fault in DAMAGES])
async def test_damage_is_found(
    ended: tuple[Any, ExecutionView], view: dict[str, Any], chunk: dict[str, Any], fault: str
) -> None:
    store, row = ended
    assert await audit_batches(store) == []
    assert fault in "; ".join(await audit_run(Damaged(store, view, chunk), row))  # type: ignore[arg-type]


def test_a_ledger_survives_packing() -> None:
    ledger = SequenceLedger(lease_ms=1000, now_ms=0, length=6, base=10, retry=RetryGuard(max_attempts=3))
    ledger.take(1, 0, limit=5)
    ledger.begin_range(10, 14, 1, 0)
    ledger.finish(10, 1, 0)
    ledger.fail(11, 1, 0, FailClass.RETRYABLE)
    ledger.fail(12, 1, 0, FailClass.PERMANENT)
    states, attempts = pack(ledger.export(10, 16))
    assert states == bytes([0x03, 0x21, 0x15, 0x02, 0x01, 0x01])
    assert [attempts_at(attempts, place) for place in range(6)] == [0, 1, 0, 0, 0, 0]
    assert state_at(states, 2) == (State.TERMINAL_FAIL, FailClass.PERMANENT)
    assert prefix_of(states) == 1
    again = SequenceLedger(lease_ms=1000, now_ms=0, base=10, retry=RetryGuard(max_attempts=3))
    again.load(unpack(10, states, attempts))
    assert [found.seq for found in again.reclaim(0)] == [13]
    assert pack(again.export(10, 16)) == (
        bytes([0x03, 0x21, 0x15, 0x31, 0x01, 0x01]),
        bytes([0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
    )


@pytest.mark.parametrize("states", [b"\x00", b"\x07", b"\x08", b"\x61", b"\xff"])
def test_bytes_that_no_history_can_produce_are_refused(states: bytes) -> None:
    with pytest.raises(LedgerError, match="no state of a dispatched item"):
        unpack(0, states, None)
