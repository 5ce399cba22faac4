"""The test kit itself: a clock that only tests move, a guard in the database, an audit that can fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.status import Status, is_legal
from holdfast.store.effects import SpawnExecutions
from holdfast.testing.audit import audit
from holdfast.testing.clock import EPOCH, VirtualClock
from holdfast.testing.hand import Hand, child_rows, done, park, row, wait_children
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores, legal_pairs


async def meddle(stores: Stores, statement: str) -> None:
    """Write into the executions past the store, as no statement of it should."""
    if isinstance(stores, SqliteStores):
        with closing(sqlite3.connect(stores.path)) as ledger, ledger:
            ledger.execute(statement)
        return
    assert isinstance(stores, PostgresStores)
    connection = await asyncpg.connect(stores.url)
    try:
        await connection.execute(statement.replace("executions", f"{stores.schema}.executions"))
    finally:
        await connection.close()


def test_a_virtual_clock_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock()
    assert clock.now == EPOCH
    clock.advance(0.25)
    assert clock.now == EPOCH + timedelta(seconds=0.25)
    clock.set(clock.now_us() + 1)
    assert clock.now == EPOCH + timedelta(seconds=0.25, microseconds=1)


def test_a_virtual_clock_does_not_go_back() -> None:
    clock = VirtualClock()
    with pytest.raises(InvalidArgumentError, match="does not go back"):
        clock.advance(-1)


def test_the_guard_lists_exactly_the_legal_transitions() -> None:
    listed = legal_pairs()
    for before in Status:
        for after in Status:
            assert (f"('{before}', '{after}')" in listed) is is_legal(before, after)


@pytest.mark.parametrize("status", ["runnable", "executing", "done"])
async def test_the_guard_stops_a_statement_that_moves_an_ended_row(stores: Stores, hand: Hand, status: str) -> None:
    await hand.apply(await hand.take(row("a")), done())
    with pytest.raises((sqlite3.IntegrityError, asyncpg.RaiseError), match="illegal status transition"):
        await meddle(stores, f"update executions set status = '{status}'")
    assert (await hand.view("a")).status is Status.DONE


async def test_the_guard_stops_a_lease_of_a_parked_row(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a")), park("go"))
    with pytest.raises((sqlite3.IntegrityError, asyncpg.RaiseError), match="illegal status transition"):
        await meddle(stores, "update executions set status = 'executing'")


FAULTS = {
    "update executions set locked_by = null where status = 'executing'": "held by None",
    "update executions set locked_by = 'w9' where status = 'runnable'": "held by w9",
    "update executions set ended_at = updated_at where status = 'runnable'": "ended at",
    "update executions set awaits = null where status = 'awaiting_signal'": "names neither one nor a time",
    "update executions set children_pending = 0 where status = 'awaiting_children'": "none is pending",
    "update executions set children_pending = 3 where status = 'awaiting_children'": "waits for 3 children",
    "update executions set wake_at = updated_at where status = 'runnable'": "is to be woken at",
    "update executions set partition_key = 'k' where status = 'executing'": "execute at once",
}


@pytest.mark.parametrize("statement", FAULTS)
async def test_a_fault_is_refused_by_the_database_or_found_by_the_audit(
    backend: str, make_stores: Callable[[str], Stores], statement: str
) -> None:
    stores = make_stores(backend)
    try:
        await stores.open()
        hand = await Hand(stores.store).start()
        parent = await hand.take(row("parent"))
        await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 2, queue="children")))
        await hand.apply(await hand.take(row("parked")), park("go"))
        await hand.insert(row("e1"), row("e2"))
        await hand.pick()
        await hand.insert(row("waiting"))
        assert await audit(stores.store) == []
        try:
            await meddle(stores, statement)
        except (sqlite3.IntegrityError, asyncpg.CheckViolationError):
            return
        assert any(FAULTS[statement] in fault for fault in await audit(stores.store))
    finally:
        await stores.close()


async def test_an_emptied_ledger_is_as_new(stores: Stores, hand: Hand) -> None:
    await hand.take(row("a"))
    await stores.reset()
    assert await stores.store.workers() == []
    fresh = await Hand(stores.store).start()
    assert (await fresh.take(row("a"))).epoch == 1


async def test_an_emptied_file_has_no_tables_but_those_of_a_ledger(tmp_path: Path) -> None:
    """A scenario that is run again and again may make its own in the ledger's file."""
    stores = SqliteStores(tmp_path)
    await stores.open()
    try:
        for _ in range(2):
            await meddle(stores, "create table accounts (amount integer references accounts)")
            await meddle(stores, "insert into accounts values (1)")
            await stores.reset()
            assert await stores.store.workers() == []
    finally:
        await stores.close()
