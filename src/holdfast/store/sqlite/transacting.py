"""User code and the ledger in one transaction, and starts inside a transaction of the caller's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import ConfigurationError
from holdfast.store.effects import Commit, Effect
from holdfast.store.nesting import inside
from holdfast.store.sqlite import flushing, inserting
from holdfast.store.sqlite.lending import lent, require_open
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ExecutionClaim, Inserted, NewExecution, Receipt, refusal


class WorkFailed(Exception):  # noqa: N818
    """Carries what user code raised past the store's own translation of errors."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def transact(
    tx: Tx,
    file: str,
    worker: str,
    claim: ExecutionClaim,
    work: Callable[[Any], Any],
    effects_of: Callable[[Any], Sequence[Effect]],
    heeds: tuple[bool, bool],
) -> Receipt:
    fence = tx.db.execute(SQL["flush_fence"], (claim.row, worker)).fetchone()
    if fence is None or fence[1:3] != (claim.epoch, claim.revision):
        return Receipt(False)
    cancel_requested, paused = (bool(heeded and said) for heeded, said in zip(heeds, fence[3:5], strict=True))
    if cancel_requested or paused:
        return refusal(cancel_requested=cancel_requested)
    try:
        with lent(tx.db), inside(file):
            value = work(tx.db)
            require_open(tx.db)
        effects = tuple(effects_of(value))
    except Exception as error:
        raise WorkFailed(error) from error
    flushed = flushing.flush(tx, worker, [Commit(claim, effects)])
    (receipt,) = flushed.receipts
    receipt.at_us = flushed.at_us
    return receipt


def insert_with(path: Path, now: int, db: Any, rows: Sequence[NewExecution]) -> list[Inserted]:
    if not isinstance(db, sqlite3.Connection):
        raise ConfigurationError(
            f"a start in your own transaction on SQLite takes a sqlite3 connection, not {db!r:.100}"
        )
    if not db.in_transaction:
        raise ConfigurationError("the connection given to a start is in no transaction: begin one first")
    factories = db.row_factory, db.text_factory
    db.row_factory, db.text_factory = None, str  # rows are read as they come here
    try:
        files = [Path(file).resolve() for _, _, file in db.execute("pragma database_list") if file]
        if path.resolve() not in files[:1]:
            raise ConfigurationError(f"the connection given to a start is to {files or 'memory'}, the ledger is {path}")
        return inserting.insert(Tx(db, now), rows)
    finally:
        db.row_factory, db.text_factory = factories
