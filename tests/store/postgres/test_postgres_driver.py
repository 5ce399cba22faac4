"""What the driver's connection knows without asking is what the server would have answered."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from holdfast.core.status import Status
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit, ConsumeSignals, SpawnExecutions
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.connections import connect
from holdfast.store.postgres.driver import ARRAYS
from holdfast.store.values import NewSignal
from holdfast.testing.hand import Hand, child_rows, done, keep, park, row


async def test_the_known_arrays_are_what_the_server_says(ledger: PostgresStore) -> None:
    connection = await connect(ledger._address)
    try:
        asked, _ = await asyncpg.Connection._introspect_types(connection, list(ARRAYS), None)  # type: ignore[attr-defined]
    finally:
        await connection.close()
    said = {found["oid"]: dict(found) for found in asked if found["elemtype"]}
    shown = "elemtype_name"  # only for messages
    assert {oid: {**found, shown: ""} for oid, found in said.items()} == {
        oid: {**known, shown: ""} for oid, known in ARRAYS.items()
    }


async def test_the_calls_of_a_worker_ask_for_no_type(ledger: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: object, typeoids: Any, timeout: float | None) -> Any:
        raise AssertionError(f"the server was asked about the types {list(typeoids)}")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", refuse)
    store = PostgresStore(*ledger._given_urls[:1], schema=ledger._schema)
    await store.open()
    try:
        hand = await Hand(store, "w9").start()
        await store.insert([row("a", unique_key=b"u", unique_scope=("runnable",)), row("b", deadline=60)])
        first, second = await hand.pick()
        spawn = SpawnExecutions(child_rows(first, 1, reports=True), barrier=False)
        wait = AdvanceExecution(status=Status.AWAITING_PROMISE, wait_children=1)
        await hand.flush(Commit(first, (wait, spawn, AppendJournal(0, 1, "[1]"))), Commit(second, (park("go"),)))
        await store.deliver([NewSignal(second.promise, "go", "1"), NewSignal(second.promise, "go", "2")])
        child, second = sorted(await hand.pick(), key=lambda claim: claim.parent_row is None)
        await hand.flush(Commit(child, (done(),)), Commit(second, (keep(),)))
        await hand.flush(Commit(second, (done(), ConsumeSignals(tuple(signal.id for signal in second.inbox)))))
        first = await hand.take()
        await hand.flush(Commit(first, (done(),)))
        await store.fire_timers(10)
        await store.reap(10, 3)
        await store.stirred(hand.name, [first.row])
        await store.endings([first.promise])
        await store.retire_worker(hand.name)
    finally:
        await store.close()


async def test_other_types_are_asked_for(ledger: PostgresStore) -> None:
    connection = await connect(Address(ledger._address.dsn))
    try:
        assert await connection.fetchval("select $1::date[]", []) == []
        assert await connection.fetchval("select $1::int2[] || $2::int4[]::int2[]", [1], [2]) == [1, 2]
    finally:
        await connection.close()
