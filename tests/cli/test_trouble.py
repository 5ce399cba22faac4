"""What every family of commands says when something is wrong: no ledger, a newer one, no server, no module, no id."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from holdfast.store import store_from_url
from holdfast.store.values import NewExecution
from holdfast.testing.hand import row
from tests.cli.conftest import Call
from tests.cli.databases import postgres_database

# Every command that opens a ledger and creates none.
LOOKING = [
    ["list"],
    ["show", "abcd"],
    ["history", "abcd"],
    ["tail", "abcd"],
    ["start", "pay", "{}"],
    ["signal", "abcd", "go"],
    ["cancel", "abcd"],
    ["pause", "abcd"],
    ["resume", "abcd"],
    ["retry", "abcd"],
    ["fork", "abcd", "--at", "1"],
    ["queues"],
    ["queues", "set", "q", "--concurrency", "1"],
    ["schedules"],
    ["schedules", "pause", "nightly"],
    ["workers"],
    ["verify"],
    ["export", "--all"],
    ["gc", "--older-than", "1d"],
]
WITH_ID = [words for words in LOOKING if "abcd" in words] + [["export", "abcd"], ["list", "--parent", "abcd"]]


def _named(words: list[str]) -> str:
    return " ".join(words)


@pytest.fixture
def other(backend: str, postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """A database of each kind with no ledger in it."""
    if backend == "sqlite":
        path = tmp_path / "empty.db"
        path.touch()
        yield str(path)
        return
    with postgres_database(postgres_url) as url:
        yield url


def test_an_empty_database_has_no_ledger_and_gets_none(other: str, in_process: Call) -> None:
    for words in LOOKING:
        ran = in_process(*words, "--database", other)
        assert (ran.code, ran.out) == (4, ""), (words, ran.err)
        assert "there is no ledger in" in ran.err
        assert "holdfast migrate" in ran.err
    assert "there is no ledger yet" in in_process("doctor", "--database", other).out
    assert asyncio.run(store_from_url(other).schema_state()).found is None


async def _raise_version(url: str) -> None:
    store = store_from_url(url)
    await store.open()
    await store.close()
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        await connection.execute("update holdfast.schema_version set version = 9999")
        await connection.close()
        return
    with closing(sqlite3.connect(url)) as db, db:
        db.execute("insert into schema_version values (9999, 'from the future', 0)")


def test_a_ledger_of_a_newer_release_is_left_alone(other: str, in_process: Call) -> None:
    asyncio.run(_raise_version(other))
    for words in [*LOOKING, ["migrate"], ["import", "-"]]:
        ran = in_process(*words, "--database", other)
        assert (ran.code, ran.out) == (4, ""), (words, ran.err)
        assert "upgrade Holdfast" in ran.err
    ran = in_process("doctor", "--database", other)
    assert ran.code == 1
    assert "version 9999, this Holdfast knows" in ran.out


def test_a_server_that_is_down_is_told_with_what_to_do(in_process: Call) -> None:
    for words in [*LOOKING, ["migrate"]]:
        ran = in_process(*words, "--database", "postgresql://127.0.0.1:1/orders")
        assert (ran.code, ran.out) == (4, ""), words
        assert "check that the server runs and accepts connections" in ran.err
        assert len(ran.err.splitlines()) == 1
    assert in_process("doctor", "--database", "postgresql://127.0.0.1:1/orders").code == 1


def test_a_file_that_is_no_ledger_is_told(in_process: Call, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 1000)
    for words in LOOKING:
        ran = in_process(*words, "--database", "notes.txt")
        assert (ran.code, ran.out) == (4, ""), words
        assert "is no SQLite database" in ran.err


@pytest.mark.parametrize("command", ["worker", "check", "dev"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 / 0\n", "does not import: ZeroDivisionError: division by zero (FOLDER/MODULE.py:1)"),
        ("import no_such_thing\n", "does not import: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def broken(:\n", "does not import: SyntaxError: invalid syntax"),
        ("app = 17\n", "MODULE:app is a int, not an App"),
    ],
)
def test_a_module_that_does_not_import_is_wrong_use(
    in_process: Call, tmp_path: Path, command: str, text: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"broken_{command}_{abs(hash(text))}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    in_process("migrate")
    ran = in_process(command, f"{module}:app", *(["--no-reload"] if command == "dev" else []))
    assert (ran.code, ran.out) == (2, "")
    assert told.replace("FOLDER", str(tmp_path)).replace("MODULE", module) in ran.err
    assert len(ran.err.splitlines()) == 1


# ---------------------------------------------------------------------- ids


def _twins() -> list[NewExecution]:
    """Two executions whose ids begin alike, and one that stands alone."""
    names = {"abcd1": "first", "abcd2": "second", "ffff0": "alone"}
    return [row(name, promise=bytes.fromhex(digits.ljust(64, "0")), name=name) for digits, name in names.items()]


@pytest.fixture
def twins(tmp_path: Path) -> str:
    path = str(tmp_path / "twins.db")

    async def insert() -> None:
        store = store_from_url(path)
        await store.open()
        await store.insert(_twins())
        await store.close()

    asyncio.run(insert())
    return path


@pytest.mark.parametrize("words", WITH_ID, ids=_named)
def test_an_ambiguous_prefix_names_the_candidates(in_process: Call, twins: str, words: list[str]) -> None:
    ran = in_process(*words, "--database", twins)
    assert (ran.code, ran.out) == (3, "")
    assert "abcd fits 2 executions: first/abcd1, second/abcd2. Give more digits" in ran.err


@pytest.mark.parametrize("words", WITH_ID, ids=_named)
def test_an_unknown_id_is_told(in_process: Call, twins: str, words: list[str]) -> None:
    for wrong in ("0123", "first/abcd2", "abcd1.7"):
        ran = in_process(*(wrong if word == "abcd" else word for word in words), "--database", twins)
        assert (ran.code, ran.out) == (3, ""), wrong
        assert f"no execution has the id {wrong}" in ran.err
    short = in_process(*("ab" if word == "abcd" else word for word in words), "--database", twins)
    assert (short.code, "no execution has the key 'ab', and it is no id" in short.err) == (3, True)


@pytest.mark.parametrize("words", [words for words in WITH_ID if words[0] not in ("retry", "fork", "tail")], ids=_named)
def test_any_unambiguous_prefix_names_it(in_process: Call, twins: str, words: list[str]) -> None:
    for prefix in ("ffff", "alone/ffff0", "ffff0" + "0" * 59):
        ran = in_process(*(prefix if word == "abcd" else word for word in words), "--database", twins)
        assert ran.code == (1 if words[0] in ("cancel", "signal", "pause", "resume") and "ended" in ran.err else 0), (
            ran.err
        )


def test_retry_fork_and_tail_know_prefixes_too(in_process: Call, twins: str) -> None:
    assert "alone/ffff0000 is runnable; only a failed" in in_process("retry", "ffff", "--database", twins).err
    assert "alone/ffff0000 is a machine" in in_process("fork", "ffff", "--at", "0", "--database", twins).err
    in_process("cancel", "ffff", "--database", twins)
    assert in_process("tail", "ffff", "--database", twins).out.endswith("alone/ffff0000 has ended as cancelled\n")


def test_an_error_that_quotes_a_file_from_elsewhere_plays_no_tricks_on_a_terminal(
    in_process: Call, tmp_path: Path
) -> None:
    head = '{"record":"holdfast","format":1,"version":"0.1.0","at":"2026-01-01T00:00:00Z","paused":false}'
    (tmp_path / "theirs").write_text(f'{head}\n{{"record":"\\u001b]0;mine\\u0007"}}\n')
    ran = in_process("import", str(tmp_path / "theirs"), "--database", str(tmp_path / "new.db"))
    assert ran.code == 1
    assert "\\x1b]0;mine\\x07" in ran.err
    assert "\x1b" not in ran.err


def test_a_child_is_exported_with_its_parent(in_process: Call, orders_tree: tuple[str, str]) -> None:
    database, child = orders_tree
    ran = in_process("export", child, "--database", database)
    assert (ran.code, ran.out) == (1, "")
    assert "is a child of Order/" in ran.err
    assert in_process("export", "--database", database).code == 2


@pytest.fixture
def orders_tree(tmp_path: Path) -> tuple[str, str]:
    from tests.cli.conftest import Shop

    shop = Shop(str(tmp_path / "tree.db"), "q")
    (parent,) = shop.start("children")
    return str(tmp_path / "tree.db"), f"{parent}.0"
