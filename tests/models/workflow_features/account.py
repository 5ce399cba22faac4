"""A table of the user's own beside the ledger, for tests of transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import asyncpg

from holdfast.testing.stores import PostgresStores, SqliteStores, Stores
from tests.models.workflow.kit import Rig


class Account:
    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.table = "account" if isinstance(stores, SqliteStores) else f"{stores.schema}.account"  # type: ignore[attr-defined]

    async def execute(self, statement: str) -> list[Any]:
        if isinstance(self.stores, SqliteStores):
            with closing(sqlite3.connect(self.stores.path)) as db, db:
                return db.execute(statement).fetchall()
        assert isinstance(self.stores, PostgresStores)
        connection = await asyncpg.connect(self.stores.url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    async def make(self) -> Account:
        await self.execute(f"drop table if exists {self.table}")
        await self.execute(f"create table {self.table} (amount bigint not null)")
        return self

    async def amounts(self) -> list[int]:
        return [row[0] for row in await self.execute(f"select amount from {self.table} order by amount")]

    def adding(self, rig: Rig, after: Callable[[], None] = lambda: None, **settings: Any) -> Any:
        """The transaction that adds a row, in the form that this store takes."""
        insert = f"insert into {self.table} (amount) values "

        def add_now(db: sqlite3.Connection, amount: int | None) -> int | None:
            db.execute(insert + "(?)", (amount,))
            after()
            return amount

        async def add(db: Any, amount: int | None) -> int | None:
            await db.execute(insert + "($1)", amount)
            after()
            return amount

        chosen: Any = add_now if isinstance(self.stores, SqliteStores) else add
        return rig.app.transaction(name="add", **settings)(chosen)
