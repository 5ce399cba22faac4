"""What the store does without an engine, measured beside each workload: rows, single commits, group commits."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path

BODY = json.dumps({"events": ["x" * 560]})
ROWS_A_BATCH = 1_000
GROUP = 100

_TABLE = "create table if not exists bare (id bigint, seq bigint, body {type}, primary key (id, seq))"


async def rows_a_second(store: str, n: int) -> float:
    """Batches of 1,000 rows of about the width of an execution, one commit each."""
    return await _measure(store, n, ROWS_A_BATCH)


async def single_commits_a_second(store: str, n: int) -> float:
    """One row a commit on one connection."""
    return await _measure(store, n, 1)


async def grouped_a_second(store: str, n: int) -> float:
    """A hundred rows a commit."""
    return await _measure(store, n, GROUP)


async def _measure(store: str, n: int, batch: int) -> float:
    if store.startswith("postgres"):
        return await _postgres(store, n, batch)
    return _sqlite(n, batch)


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
    return n / took


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
    return n / took


def cores() -> int:
    return os.cpu_count() or 1
