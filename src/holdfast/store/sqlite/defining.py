"""What workers have had code for."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.store.sqlite.rows import names_json, names_of
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Definition


def register(tx: Tx, definitions: Sequence[Definition]) -> None:
    tx.db.executemany(
        SQL["definition_put"],
        [(d.name, d.version, d.kind, d.step, d.queue, d.priority, names_json(d.parameters)) for d in definitions],
    )


def definitions(db: sqlite3.Connection, name: str | None) -> list[Definition]:
    return [
        Definition(
            name=row[0],
            version=row[1],
            kind=row[2],
            step=row[3],
            queue=row[4],
            priority=row[5],
            parameters=names_of(row[6]) or (),
        )
        for row in db.execute(SQL["definition_list"], (name,))
    ]
