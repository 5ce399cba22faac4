"""The schema: the migrations arrive at `schema.sql`, once, whoever applies them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.errors import ConfigurationError, SchemaTooNewError
from holdfast.store.sql import load_blocks, load_text, migrations
from holdfast.store.sqlite import SqliteStore

PACKAGE = "holdfast.store.sqlite"


def catalog(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Every table, index and trigger, without comments and spacing."""
    rows = connection.execute(
        "select type, name, tbl_name, coalesce(sql, '') from sqlite_master order by 1, 2"
    ).fetchall()
    return [(kind, name, table, _bare(text)) for kind, name, table, text in rows]


def _bare(text: str) -> str:
    return " ".join(" ".join(line.partition("--")[0] for line in text.splitlines()).split())


async def test_the_migrations_arrive_at_the_schema(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as migrated, closing(sqlite3.connect(":memory:")) as wanted:
        wanted.executescript(load_text(PACKAGE, "schema.sql"))
        assert catalog(migrated) == catalog(wanted)


async def test_many_who_open_a_new_file_migrate_it_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        await store.close()
    with closing(sqlite3.connect(path)) as connection:
        applied = connection.execute("select version from schema_version order by version").fetchall()
    assert applied == [(step.version,) for step in migrations(PACKAGE)]


async def test_a_newer_schema_is_refused_but_not_in_the_midst_of_the_work(path: Path) -> None:
    """A worker's heartbeat opens its own store at its first beat; a new release may have come just before."""
    store = SqliteStore(path)
    await store.open()
    sibling = store.sibling()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("insert into schema_version values (9999, 'from the future', 0)")
    await sibling.open()
    assert not await sibling.beat("nobody", 1)
    await sibling.close()
    await store.close()
    for late in (store, store.sibling()):
        with pytest.raises(SchemaTooNewError, match=r"version 9999.*upgrade Holdfast"):
            await late.open()


async def test_a_migration_that_fails_leaves_nothing_behind(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table signals (mine text)")
    with pytest.raises(Exception, match="signals"):
        await SqliteStore(path).open()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select name from sqlite_master").fetchall() == [("signals",)]


def test_migrations_are_numbered_without_gaps() -> None:
    versions = [step.version for step in migrations(PACKAGE)]
    assert versions == list(range(1, len(versions) + 1))


def test_a_block_that_is_there_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.sql.load_text", lambda *_, **__: "-- name: a\nselect 1;\n-- name: a\nselect 2;")
    with pytest.raises(ConfigurationError, match="'a' is there twice"):
        load_blocks(PACKAGE, "sql/any.sql")


def test_blocks_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "-- why\n-- name: first\nselect 1\nfrom {schema}.t;\n\n-- why\n-- name: second\nselect 2;\n"
    monkeypatch.setattr("holdfast.store.sql.files", lambda _: _Folder(text))
    blocks = load_blocks(PACKAGE, "any.sql", schema="s")
    assert dict(blocks) == {"first": "select 1\nfrom s.t;\n\n-- why", "second": "select 2"}


class _Folder:
    def __init__(self, text: str) -> None:
        self._text = text

    def joinpath(self, *_: str) -> _Folder:
        return self

    def read_text(self, encoding: str) -> str:
        assert encoding == "utf-8"
        return self._text
