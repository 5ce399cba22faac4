"""From a URL or a path to the store that keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import ConfigurationError
from holdfast.store import open_store, store_from_url
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.clock import VirtualClock


@pytest.mark.parametrize("form", ["{path}", "sqlite:///{path}"])
async def test_a_path_and_a_url_open_the_same_file(path: Path, form: str) -> None:
    clock = VirtualClock()
    store = await open_store(form.format(path=path), clock=clock)
    assert isinstance(store, SqliteStore)
    assert store.url == f"sqlite:///{path}"
    assert await store.now_us() == clock.now_us()
    await store.close()


def test_three_slashes_start_from_here_and_four_from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_from_url("sqlite:///a.db").url == f"sqlite:///{tmp_path}/a.db"
    assert store_from_url("a.db").url == f"sqlite:///{tmp_path}/a.db"
    assert store_from_url("sqlite:////srv/a.db").url == "sqlite:////srv/a.db"


@pytest.mark.parametrize("url", ["postgresql://db/orders", "postgres://db/orders"])
def test_both_names_of_postgresql_are_known(url: str) -> None:
    assert type(store_from_url(url)).__name__ == "PostgresStore"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "use a path"),
        ("sqlite:///", "names no file"),
        ("sqlite://a.db", "sqlite:///a.db"),
        ("sqlite:///a.db?timeout=5", r"takes none: leave out \?timeout=5.*plain path: a.db\?timeout=5"),
        ("sqlite:///:memory:", "would be lost"),
        (":memory:", "would be lost"),
        ("mysql://db/orders", r"mysql:// is not known: use a path, sqlite:///path or postgresql://"),
    ],
)
def test_anything_else_is_refused_with_what_to_write_instead(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        store_from_url(url)


async def test_a_file_with_a_question_mark_in_its_name_is_a_plain_path(tmp_path: Path) -> None:
    store = await open_store(f"{tmp_path}/what?.db")
    await store.close()
    assert (tmp_path / "what?.db").is_file()


def test_a_clock_is_for_sqlite_alone() -> None:
    with pytest.raises(ConfigurationError, match="tells the time itself"):
        store_from_url("postgresql://db/orders", clock=VirtualClock())
