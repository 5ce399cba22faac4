"""Which ledger is used, and what is said when it cannot be: missing, down, newer, not a ledger. No secret is shown."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.cli.database import find_database
from holdfast.cli.exits import CommandError, redacted
from tests.cli.conftest import Call
from tests.cli.processes import HOLDFAST, Ran, in_pipe

SECRET = "hunter2"


def _list(folder: Path, *arguments: str, database: str | None = None) -> Ran:
    return in_pipe([*HOLDFAST, *arguments], folder=folder, database=database)


def test_the_flag_comes_before_the_variable_before_pyproject_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project" / "deeper"
    folder.mkdir(parents=True)
    monkeypatch.delenv("HOLDFAST_DATABASE", raising=False)
    assert find_database(None, folder).url == "holdfast.db"
    (tmp_path / "project" / "pyproject.toml").write_text('[tool.holdfast]\ndatabase = "data/ledger.db"\n')
    assert find_database(None, folder).url == str(tmp_path / "project" / "data" / "ledger.db")
    monkeypatch.setenv("HOLDFAST_DATABASE", "postgresql://db/orders")
    assert find_database(None, folder).url == "postgresql://db/orders"
    assert find_database("other.db", folder).url == "other.db"


def test_a_url_in_pyproject_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE", raising=False)
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\ndatabase = "postgresql://db/orders"\n')
    assert find_database(None, tmp_path).url == "postgresql://db/orders"


def test_options_of_a_sqlite_url_are_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE", raising=False)
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\ndatabase = "sqlite:///ledger.db?timeout=5"\n')
    ran = _list(tmp_path, "list")
    assert (ran.code, "leave out ?timeout=5" in ran.err) == (2, True)


@pytest.mark.parametrize("text", ["[tool.holdfast]\ndatabase = 5\n", "[tool.holdfast\n"])
def test_a_pyproject_that_makes_no_sense_is_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE", raising=False)
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(CommandError, match=r"pyproject\.toml") as caught:
        find_database(None, tmp_path)
    assert caught.value.code == 2


def test_a_pyproject_without_our_section_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE", raising=False)
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert find_database(None, tmp_path).origin == "the default"


def test_database_may_stand_before_or_after_the_command(tmp_path: Path) -> None:
    ledger = str(tmp_path / "here.db")
    assert _list(tmp_path, "--database", ledger, "migrate").code == 0
    assert _list(tmp_path, "list", "--database", ledger).code == 0
    assert _list(tmp_path, "--database", "elsewhere.db", "--json", "list", "--database", ledger).json == {
        "executions": [],
        "cursor": None,
    }
    assert not (tmp_path / "elsewhere.db").exists()


def test_looking_into_a_ledger_that_is_not_there_does_not_create_it(tmp_path: Path) -> None:
    ran = _list(tmp_path, "list")
    assert ran.code == 4
    assert ran.err == (
        "holdfast: there is no ledger at holdfast.db (the default): name another with --database, or create this one "
        "with `holdfast migrate`\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_down_is_exit_code_4_and_no_password_is_shown(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        ran = _list(tmp_path, "list", database=f"postgresql://me:{SECRET}@127.0.0.1:{port}/db")
    assert ran.code == 4
    assert f"127.0.0.1:{port}" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert SECRET not in ran.err + ran.out


def test_a_database_that_does_not_exist_is_exit_code_4(tmp_path: Path, postgres_url: str) -> None:
    missing = postgres_url.rpartition("/")[0] + "/there_is_no_such_database"
    ran = _list(tmp_path, "list", database=missing)
    assert ran.code == 4
    assert "there_is_no_such_database" in ran.err


def test_a_ledger_newer_than_the_code_is_refused_with_exit_code_4(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    _list(tmp_path, "migrate", database=str(ledger))
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("insert into schema_version (version, name, applied_at) values (9999, 'later', 0)")
        connection.commit()
    ran = _list(tmp_path, "list", database=str(ledger))
    assert ran.code == 4
    assert "9999" in ran.err
    assert "upgrade" in ran.err


def test_a_file_that_is_no_ledger_is_exit_code_4(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("this is a letter to my aunt " * 100)
    ran = _list(tmp_path, "list", database="ledger.db")
    assert ran.code == 4
    assert "no SQLite database" in ran.err


def test_a_folder_that_does_not_exist_is_exit_code_4(tmp_path: Path) -> None:
    ran = _list(tmp_path, "migrate", "--database", "no/such/folder/ledger.db")
    assert ran.code == 4
    assert "no/such/folder/ledger.db" in ran.err


@pytest.mark.parametrize("url", ["mysql://x", "sqlite://", "redis://me:hunter2@host/0", "postgresql://h:port/x"])
def test_a_url_of_no_known_store_is_wrong_use(in_process: Call, url: str) -> None:
    ran = in_process("list", "--database", url)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert SECRET not in ran.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgresql://me:hunter2@host/db now", "at postgresql://me:***@host/db now"),
        ("postgresql://host/db?user=me&password=hunter2&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("postgresql://:hunter2@host", "postgresql://:***@host"),
        ("at postgresql://me:hun/ter@2@host/db now", "at postgresql://me:***@host/db now"),
        ("see http://host:80/path", "see http://host:80/path"),
        ("http://host/at/postgresql://me:hunter2@host", "http://host/at/postgresql://me:***@host"),
        ("a@b and //me:hunter2@host", "a@b and //me:hunter2@host"),
    ],
)
def test_passwords_are_taken_out_of_whatever_is_printed(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize("part", ["a", "a://", "a://b:", "a:"])
def test_a_long_word_is_read_once(part: str) -> None:
    """One that was read again from each of its letters would take hours here."""
    text = part * 1_000_000
    assert redacted(text) == text
