"""The writer's connection in the hands of user code: nothing is run on it once its transaction is gone."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.lending import LendableConnection, lent, require_open

INSERT = "insert into t (n) values (?)"


class OwnCursor(sqlite3.Cursor):
    """As users have them."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = connect(tmp_path / "ledger.db", 1.0)
    db.execute("create table t (n int unique)")
    db.execute(INSERT, (1,))
    yield db
    db.close()


@pytest.mark.parametrize(
    "run",
    [
        lambda db: db.execute(INSERT, (2,)),
        lambda db: db.executemany(INSERT, [(2,)]),
        lambda db: db.executescript("insert into t (n) values (2)"),
        lambda db: db.cursor().execute(INSERT, (2,)),
        lambda db: db.cursor().executemany(INSERT, [(2,)]),
        lambda db: db.cursor(OwnCursor).execute(INSERT, (2,)),
        lambda db: db.cursor(factory=OwnCursor).executemany(INSERT, [(2,)]),
    ],
    ids=["execute", "executemany", "executescript", "cursor", "cursors-many", "own-cursor", "own-cursors-many"],
)
def test_after_an_error_that_rolled_back_nothing_is_written(
    db: sqlite3.Connection, run: Callable[[sqlite3.Connection], Any]
) -> None:
    db.execute("begin immediate")
    with lent(db):
        db.execute(INSERT, (7,))
        with pytest.raises(sqlite3.IntegrityError):
            db.execute("insert or rollback into t (n) values (1)")
        with pytest.raises(sqlite3.OperationalError, match="rolled the transaction back"):
            run(db)
        with pytest.raises(sqlite3.OperationalError, match="rolled the transaction back"):
            require_open(db)
    assert db.execute("select n from t").fetchall() == [(1,)]


def test_it_works_as_any_connection_does_until_then(db: sqlite3.Connection) -> None:
    db.execute("begin immediate")
    with lent(db):
        db.execute(INSERT, (2,))
        assert db.executemany(INSERT, [(3,), (4,)]).rowcount == 2
        assert isinstance(db.cursor(OwnCursor), OwnCursor)
        db.row_factory = sqlite3.Row
        assert [row["n"] for row in db.execute("select n from t order by n")] == [1, 2, 3, 4]
        assert db.cursor().execute("select n from t where n = 3").fetchone()["n"] == 3
        db.row_factory = None
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            db.commit()
        with pytest.raises(TypeError):
            db.cursor(lambda *_: object())  # type: ignore[type-var]
    assert not vars(db), "what stood before its methods is gone"
    db.execute("commit")
    assert db.execute("select count(*) from t").fetchone() == (4,)


def test_rows_made_on_the_way_are_not_written_either(db: sqlite3.Connection) -> None:
    def rows() -> Iterator[tuple[int]]:
        yield (2,)
        with contextlib.suppress(sqlite3.IntegrityError):
            db.execute("insert or rollback into t (n) values (1)")
        yield (3,)

    db.execute("begin immediate")
    with lent(db), pytest.raises(sqlite3.OperationalError, match="rolled the transaction back"):
        db.executemany(INSERT, rows())
    assert db.execute("select n from t").fetchall() == [(1,)]


def test_a_limit_interrupts_while_the_connection_is_lent_and_not_after(db: sqlite3.Connection) -> None:
    assert isinstance(db, LendableConnection)
    endless = "with recursive c(n) as (select 1 union all select n + 1 from c limit ?) select count(*) from c"
    db.execute("begin")
    with lent(db):
        db.interrupt_when(lambda: True)
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            db.execute(endless, (10_000,)).fetchall()
    assert db.execute(endless, (10_000,)).fetchall() == [(10_000,)]


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip((column[0] for column in cursor.description), row, strict=True))


def _set(name: str, value: Any) -> Callable[[sqlite3.Connection], None]:
    return lambda db: setattr(db, name, value)


@pytest.mark.parametrize(
    "leave",
    [
        _set("row_factory", _as_dict),
        _set("row_factory", sqlite3.Row),
        _set("text_factory", bytes),
        lambda db: db.set_progress_handler(lambda: 1, 1),
        lambda db: db.set_trace_callback(lambda _: None),
    ],
    ids=["dict", "row", "bytes", "interrupt", "trace"],
)
def test_what_user_code_leaves_behind_is_gone(
    db: sqlite3.Connection, leave: Callable[[sqlite3.Connection], None]
) -> None:
    db.execute("begin immediate")
    with lent(db):
        leave(db)
    assert db.execute("select 'text', n from t").fetchall() == [("text", 1)]
    db.execute("rollback")
