"""Fills a ledger with finished executions by SQL: copies of one that really ran, its journal with it, each its own id.

A hundred thousand a transaction; afterwards PostgreSQL's tables are as its autovacuum leaves them. Each copy ended a
millisecond before the last. On PostgreSQL half of them are as if they had been started in bulk.
"""

from __future__ import annotations

import sqlite3
import time

import asyncpg

CHUNK = 100_000
_COPIED_APART = {"id", "promise"}

_POSTGRES_COLUMNS = """select column_name from information_schema.columns
  where table_schema = 'holdfast' and table_name = 'executions' order by ordinal_position"""
_POSTGRES_TEMPLATE = """select e.id from holdfast.executions e
  where e.status = 'done' and exists (select from holdfast.journal j where j.execution_id = e.id)
  order by e.id limit 1"""
_POSTGRES_EXECUTIONS = """insert into holdfast.executions (id, promise, {columns})
  select $2::bigint + g, sha256(int8send($2::bigint + g)), {values}
  from holdfast.executions e cross join generate_series(1, $3::bigint) g where e.id = $1"""
_POSTGRES_JOURNAL = """insert into holdfast.journal (execution_id, first, count, body)
  select $2::bigint + g, j.first, j.count, j.body
  from holdfast.journal j cross join generate_series(1, $3::bigint) g where j.execution_id = $1"""
_POSTGRES_CROWDS = """insert into holdfast.crowds (definition, block)
  select distinct kind || '/' || name, id >> 8 from holdfast.executions where id > $1 and not listed"""

_SQLITE_TEMPLATE = """select id from executions
  where status = 'done' and id in (select execution_id from journal) order by id limit 1"""
_SQLITE_NUMBERS = "with recursive numbers (g) as (select 1 union all select g + 1 from numbers where g < :count)"
_SQLITE_EXECUTIONS = """insert into executions (id, promise, {columns}) {numbers}
  select :base + g, randomblob(32), {values} from numbers cross join executions where id = :template"""
_SQLITE_JOURNAL = """insert into journal (execution_id, first, count, body) {numbers}
  select :base + g, first, count, body from numbers cross join journal where execution_id = :template"""


class NothingToCopyError(Exception):
    """The ledger has no finished workflow yet."""


def _told(what: str, done: int, total: int, began: float) -> None:
    print(f"  {what}: {done:,} of {total:,} finished executions, {time.monotonic() - began:.0f} s", flush=True)


def _copied(names: list[str], **others: str) -> tuple[str, str]:
    """The columns that a copy has of its template, and what is put into them: `others` are not as they are there."""
    kept = [name for name in names if name not in _COPIED_APART]
    return ", ".join(kept), ", ".join(others.get(name, name) for name in kept)


async def fill(url: str, total: int) -> None:
    """Until `total` have finished in the ledger; it needs one workflow that ran there already."""
    if url.startswith("postgres"):
        await _fill_postgres(url, total)
    else:
        _fill_sqlite(url, total)


async def _fill_postgres(url: str, total: int) -> None:
    connection = await asyncpg.connect(url)
    began = time.monotonic()
    try:
        template = await connection.fetchval(_POSTGRES_TEMPLATE)
        if template is None:
            raise NothingToCopyError(f"run one workflow in {url} first")
        names = [row["column_name"] for row in await connection.fetch(_POSTGRES_COLUMNS)]
        columns, copies = _copied(names, ended_at="ended_at - g * interval '1 ms'", listed="g > $3::bigint / 2")
        done = await connection.fetchval("select count(*) from holdfast.executions where ended_at is not null")
        sequence = "pg_get_serial_sequence('holdfast.executions', 'id')"
        await connection.execute("set synchronous_commit = off")
        while done < total:
            count = min(CHUNK, total - done)
            async with connection.transaction():
                base = await connection.fetchval("select coalesce(max(id), 0) from holdfast.executions")
                await connection.execute(
                    _POSTGRES_EXECUTIONS.format(columns=columns, values=copies), template, base, count
                )
                await connection.execute(_POSTGRES_JOURNAL, template, base, count)
                await connection.execute(_POSTGRES_CROWDS, base)
                await connection.execute(f"select setval({sequence}, $1)", base + count)
            done += count
            if done % (10 * CHUNK) == 0:
                _told("PostgreSQL", done, total, began)
        for table in ("executions", "journal", "crowds"):
            await connection.execute(f"vacuum (analyze) holdfast.{table}")
        await connection.execute("checkpoint")
    finally:
        await connection.close()


def _fill_sqlite(path: str, total: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    began = time.monotonic()
    try:
        connection.execute("pragma synchronous = off")
        connection.execute("pragma cache_size = -400000")
        found = connection.execute(_SQLITE_TEMPLATE).fetchone()
        if found is None:
            raise NothingToCopyError(f"run one workflow in {path} first")
        stored = [row[1] for row in connection.execute("pragma table_xinfo(executions)") if row[6] == 0]
        columns, copies = _copied(stored, ended_at="ended_at - g * 1000")
        (done,) = connection.execute("select count(*) from executions where ended_at is not null").fetchone()
        while done < total:
            count = min(CHUNK, total - done)
            connection.execute("begin immediate")
            (base,) = connection.execute("select max(id) from executions").fetchone()
            values = {"template": found[0], "base": base, "count": count}
            for statement in (_SQLITE_EXECUTIONS, _SQLITE_JOURNAL):
                text = statement.format(columns=columns, values=copies, numbers=_SQLITE_NUMBERS)
                connection.execute(text, values)
            connection.execute("commit")
            done += count
            if done % (10 * CHUNK) == 0:
                _told("SQLite", done, total, began)
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_checkpoint(truncate)")
    finally:
        connection.close()
