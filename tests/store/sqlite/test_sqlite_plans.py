"""Pinned plans: what hot statements walk, and which indexes they touch (rulings E8, E9, E11)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.store.sql import load_text
from holdfast.store.sqlite.own_row import ALONE
from holdfast.store.sqlite.statements import OF_ONE, SQL

BY_ROW = "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)"
BY_ROW_NOW = "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"  # of `executions_now`
UNTOLD = "SEARCH j USING COVERING INDEX sqlite_autoindex_journal_1 (execution_id=? AND first>?)"
END_OF_JOURNAL = "SEARCH j USING INDEX sqlite_autoindex_journal_1 (execution_id=?)"
PICK = "SEARCH executions USING COVERING INDEX executions_pick "

# Rows that come packed: the list is walked, and each of its rows looked up.
BY_PACKED_ROW = ["SCAN json_each VIRTUAL TABLE INDEX 1:", BY_ROW]

# Sorting what one worker holds is cheap, and every store reaps in the same order.
HELD_BY_ONE = [
    "SEARCH executions USING INDEX executions_locked (locked_by=?)",
    "USE TEMP B-TREE FOR ORDER BY",
]
HELD_BY_ONE_NOW = [line.replace("SEARCH executions", "SEARCH e") for line in HELD_BY_ONE]

PLANS = {
    "pick_next_priority": [PICK + "(queue=? AND priority>?)"],
    "key_next": [
        "SEARCH executions USING INDEX executions_blocked (partition_key=? AND queue>?)",
    ],
    "key_block": [BY_ROW],
    "key_unblock": [BY_ROW],
    "flush_fence": [BY_ROW_NOW],
    "flush_held": ["SCAN known VIRTUAL TABLE INDEX 1:", BY_ROW_NOW],
    "flush_held_one": [BY_ROW_NOW],
    "flush_keep": BY_PACKED_ROW,
    "flush_requeue": BY_PACKED_ROW,
    "flush_park": BY_PACKED_ROW,
    "flush_end": BY_PACKED_ROW,
    "flush_replay": BY_PACKED_ROW,
    "flush_replay_keep": BY_PACKED_ROW,
    "barrier_count_down": [BY_ROW],
    "barrier_release": [BY_ROW],
    "signal_target": ["SEARCH executions USING INDEX sqlite_autoindex_executions_1 (promise=?)"],
    "signal_wake": [BY_ROW],
    "insert_occupant": ["SEARCH executions USING INDEX executions_unique (unique_guard=?)"],
    "lease_held": HELD_BY_ONE,
    "reap_held": HELD_BY_ONE_NOW,
    "queue_executing": ["SCAN executions USING INDEX executions_locked"],
    "inbox_has": ["SEARCH signals USING COVERING INDEX signals_target (target_id=?)"],
    "flush_columns": [BY_ROW],
    "report_ends": [
        "SCAN listed VIRTUAL TABLE INDEX 1:",
        "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH p USING INTEGER PRIMARY KEY (rowid=?)",
    ],
    "pick_claims": ["SCAN listed VIRTUAL TABLE INDEX 1:", "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"],
    "report_count_down": [BY_ROW],
    "report_release": [BY_ROW],
    "report_holder": [BY_ROW],
    "cancel_wake": [BY_ROW],
    "deadlines_next": ["SEARCH executions USING INDEX executions_deadline (deadline_at>?)"],
}

# Rows by a list of ids: one look-up a row, whatever else the statement asks for.
BY_LIST = ["flush_fences", "pick_lease", "lease_anew", "lease_stirred"]

# Statements that walk an index in its own order from the first entry that fits.
IN_ORDER = {
    "pick_due": PICK + "(queue=? AND priority=? AND eligible_at<?)",
    "timers_due": "SEARCH executions USING COVERING INDEX executions_wake (wake_at<?)",
    "deadlines_due": "SEARCH executions USING INDEX executions_deadline (deadline_at<?)",
    "journal_of": "SEARCH j USING INDEX sqlite_autoindex_journal_1 (execution_id=?)",
    "stranded_page": "SEARCH executions USING INDEX executions_held (held=? AND queue=? AND rowid>?)",
    "purge_find": "SEARCH e USING INDEX executions_ended (ended_at<?)",
    "queue_next_held": "SEARCH executions USING INDEX executions_held (held=? AND queue>?)",
    "browse_named": "SEARCH e USING INDEX executions_named (name=? AND kind=? AND rowid>? AND rowid<?)",
    "browse_named_floor": "SEARCH executions USING COVERING INDEX executions_named (name=? AND kind=? AND rowid<?)",
    "newest_named": "SEARCH executions USING COVERING INDEX executions_named (name=? AND kind=? AND rowid<?)",
    "next_kind": "SEARCH executions USING COVERING INDEX executions_named (name=? AND kind>?)",
    "next_name": "SEARCH executions USING COVERING INDEX executions_named (name>?)",
}


@pytest.fixture(scope="module")
def ledger() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(load_text("holdfast.store.sqlite", "schema.sql"))
        yield connection


def plan(ledger: sqlite3.Connection, name: str) -> list[str]:
    """What the statement itself walks; not the columns that are queries of their own."""
    rows = ledger.execute("explain query plan " + SQL[name], _nothing(SQL[name])).fetchall()
    columns = {row[0] for row in rows if "SCALAR SUBQUERY" in row[3]}
    for row in rows:
        if row[1] in columns:
            columns.add(row[0])
    return [row[3] for row in rows if row[0] not in columns]


def is_as_pinned(found: str, pinned: str) -> bool:
    """A newer SQLite may read from an index alone where an older one went to the table as well."""
    return pinned in (found, found.replace("USING COVERING INDEX", "USING INDEX"))


def opcodes(ledger: sqlite3.Connection, name: str) -> list[str]:
    return [row[1] for row in ledger.execute("explain " + SQL[name], _nothing(SQL[name]))]


def _nothing(statement: str) -> list[None]:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return [None] * (max(numbered) if numbered else statement.count("?"))


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_the_pinned_one(ledger: sqlite3.Connection, name: str) -> None:
    found, pinned = plan(ledger, name), PLANS[name]
    assert len(found) == len(pinned)
    assert all(map(is_as_pinned, found, pinned)), found


@pytest.mark.parametrize("name", ALONE)
def test_a_row_alone_is_written_by_its_id(ledger: sqlite3.Connection, name: str) -> None:
    rows = ledger.execute("explain query plan " + ALONE[name], _nothing(ALONE[name])).fetchall()
    assert [row[3] for row in rows] == [BY_ROW]


@pytest.mark.parametrize("name", OF_ONE)
def test_one_alone_is_found_by_its_key(ledger: sqlite3.Connection, name: str) -> None:
    rows = ledger.execute("explain query plan " + OF_ONE[name], _nothing(OF_ONE[name])).fetchall()
    assert rows
    assert all(row[3].startswith("SEARCH") for row in rows), rows


@pytest.mark.parametrize("name", BY_LIST)
def test_rows_by_a_list_are_looked_up_by_their_ids(ledger: sqlite3.Connection, name: str) -> None:
    assert plan(ledger, name)[0] in (BY_ROW, BY_ROW_NOW)


@pytest.mark.parametrize("name", ["flush_fence", "flush_fences", "flush_held", "flush_held_one"])
def test_a_fence_counts_what_the_row_does_not_tell_of_by_index(ledger: sqlite3.Connection, name: str) -> None:
    rows = ledger.execute("explain query plan " + SQL[name], _nothing(SQL[name])).fetchall()
    assert [row[3] for row in rows if row[3].startswith("SEARCH j")] == [UNTOLD]


def test_a_step_finds_its_row_its_inbox_and_the_end_of_its_journal_by_index(ledger: sqlite3.Connection) -> None:
    rows = ledger.execute("explain query plan " + SQL["flush_step"], _nothing(SQL["flush_step"])).fetchall()
    found = [row[3] for row in rows if row[3].startswith(("SCAN", "SEARCH"))]
    assert found[0] == BY_ROW
    assert set(found[1:]) == {END_OF_JOURNAL, *PLANS["inbox_has"]}


@pytest.mark.parametrize("name", IN_ORDER)
def test_an_index_gives_the_order(ledger: sqlite3.Connection, name: str) -> None:
    found = plan(ledger, name)
    assert is_as_pinned(found[0], IN_ORDER[name]), found
    assert not any("TEMP B-TREE" in line and "ORDER" in line for line in found)


def test_a_look_at_a_priority_walks_the_index_of_picks_alone(ledger: sqlite3.Connection) -> None:
    statement = SQL["pick_priority"]
    rows = ledger.execute("explain query plan " + statement, _nothing(statement)).fetchall()
    found = [row[3] for row in rows]
    assert {line.removeprefix(PICK) for line in found if "executions" in line} == {
        "(queue=? AND priority>?)",  # the first one, and the next
        "(queue=? AND priority=? AND eligible_at<?)",
        "(queue=? AND priority=? AND eligible_at>?)",
    }
    assert not any("TEMP B-TREE" in line for line in found)


@pytest.mark.parametrize("name", ["flush_keep", "flush_keep_one", "flush_replay_keep"])
def test_a_kept_lease_touches_no_index(ledger: sqlite3.Connection, name: str) -> None:
    """Ruling E11: the row is rewritten, nothing else."""
    assert "IdxInsert" not in opcodes(ledger, name)
    assert "IdxDelete" not in opcodes(ledger, name)


@pytest.mark.parametrize("statement", [SQL["signal_wake"], *(OF_ONE[name] for name in OF_ONE)])
def test_what_is_asked_of_one_row_builds_no_table(ledger: sqlite3.Connection, statement: str) -> None:
    """A list does, even of constants."""
    built = [row[1] for row in ledger.execute("explain " + statement, _nothing(statement))]
    assert "OpenEphemeral" not in built


# Reads that people ask for, and that may walk a whole table; and those that walk all that is executing.
WALKERS = {"browse", "count_by_status", "count_all", "queue_executing", "queue_executing_counts", "browse_rare"}
# They count up to a bound, along an index that holds just what they count.
BOUNDED = {
    "tally_pickable": "SCAN executions USING COVERING INDEX executions_pick",
    "tally_executing": "SCAN executions USING INDEX executions_locked",
    "tally_failed": "SCAN executions USING INDEX executions_failed",
}
# Templates that read or write a whole ledger, and conditions in them.
RECORDS = {name for name in SQL if name.startswith("records_") and ("{" in SQL[name] or SQL[name].startswith("where"))}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_tally_walks_a_bounded_piece_of_its_own_index(ledger: sqlite3.Connection, name: str) -> None:
    found = plan(ledger, name)
    assert any(is_as_pinned(line, BOUNDED[name]) for line in found), found
    assert " limit ?" in SQL[name]


@pytest.mark.parametrize("name", sorted(SQL.keys() - WALKERS - BOUNDED.keys() - RECORDS))
def test_no_other_statement_walks_all_executions(ledger: sqlite3.Connection, name: str) -> None:
    assert not [line for line in plan(ledger, name) if line.startswith(("SCAN executions", "SCAN e ", "SCAN p "))]
