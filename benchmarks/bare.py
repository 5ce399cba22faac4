"""What the store does without an engine, measured beside machines, flows and batches: rows in commits of one size.

Workflows have a bare journal beside them instead, in `bare_journal` and `bare_shapes`.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.environment import Round

BODY = json.dumps({"events": ["x" * 560]})
MOST_ROWS = 2_000

_TABLE = "create table if not exists bare (id bigint, seq bigint, body {type}, primary key (id, seq))"


async def thousand_a_commit(store: str, n: int) -> Round:
    """Batches of rows of about the width of an execution."""
    return await _measure(store, n, 1_000)


async def one_a_commit(store: str, n: int) -> Round:
    """One row a commit on one connection."""
    return await _measure(store, n, 1)


async def hundred_a_commit(store: str, n: int) -> Round:
    """As many as runs in flight may have ready together."""
    return await _measure(store, n, 100)


async def _measure(store: str, n: int, batch: int) -> Round:
    rows = min(n, MOST_ROWS)
    return Round(rows, await _postgres(store, rows, batch) if store.startswith("postgres") else _sqlite(rows, batch))


def _sqlite(n: int, batch: int) -> float:
    with tempfile.TemporaryDirectory(prefix="holdfast-bare-") as folder:
        connection = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute(_TABLE.format(type="text"))
        began = time.perf_counter()
        for first in range(0, n, batch):
            connection.execute("begin immediate")
            rows = [(number, 0, BODY) for number in range(first, min(n, first + batch))]
            connection.executemany("insert into bare values (?, ?, ?)", rows)
            connection.execute("commit")
        took = time.perf_counter() - began
        connection.close()
    return took


async def _postgres(store: str, n: int, batch: int) -> float:
    import asyncpg

    connection = await asyncpg.connect(store)
    try:
        await connection.execute("drop table if exists bare")
        await connection.execute(_TABLE.format(type="json"))
        statement = await connection.prepare(
            "insert into bare select * from unnest($1::bigint[], $2::bigint[], $3::json[])"
        )
        began = time.perf_counter()
        for first in range(0, n, batch):
            ids = list(range(first, min(n, first + batch)))
            await statement.fetch(ids, [0] * len(ids), [BODY] * len(ids))
        took = time.perf_counter() - began
        await connection.execute("drop table bare")
    finally:
        await connection.close()
    return took
