"""A worker of the batch `killed`, for tests that kill it: `python program.py LEDGER`."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from typing import Any

from holdfast import App
from holdfast.models.batch.items import BatchItem

url = sys.argv[1]
app = App("killed", store=url)


def land(db: sqlite3.Connection, items: list[BatchItem[int]]) -> None:
    # The row number is the count before it: a repeat or a gap breaks `n = seq`.
    first = db.execute("select count(*) from landed").fetchone()[0]
    db.executemany("insert into landed values (?, ?)", [(first + at, item.value) for at, item in enumerate(items)])


async def land_async(connection: Any, items: list[BatchItem[int]]) -> None:
    first = await connection.fetchval("select count(*) from landed")
    rows = [(first + at, item.value) for at, item in enumerate(items)]
    await connection.copy_records_to_table("landed", records=rows)


@app.batch(name="killed", sink=land_async if url.startswith("postgres") else land, transactional=True)
async def killed(number: int) -> int:
    return number


async def main() -> None:
    async with app, app.worker(lease_seconds=0.6):
        await asyncio.Event().wait()


asyncio.run(main())
