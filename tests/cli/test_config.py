"""Settings: the flag, then the variable, then pyproject.toml, then the default; and no secret is ever shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import config
from holdfast.cli.config import SETTINGS, find
from holdfast.cli.exits import CommandError, redacted
from holdfast.cli.worker import worker_settings
from tests.cli.conftest import Call

ROOT = Path(__file__).resolve().parents[2]
# A flag, a variable, what stands in pyproject.toml, and what each means.
GIVEN: dict[str, tuple[object, str, str, tuple[Any, Any, Any]]] = {
    "database": ("flag.db", "variable.db", '"file.db"', ("flag.db", "variable.db", "file.db")),
    "app": ("a:flag", "a:variable", '"a:file"', ("a:flag", "a:variable", "a:file")),
    "queues": (("x", "y"), "mail, default", '["slow"]', (["x", "y"], ["mail", "default"], ["slow"])),
    "concurrency": (7, "8", "9", (7, 8, 9)),
    "lease": ("7s", "8s", '"1m"', (7.0, 8.0, 60.0)),
    "drain": ("7s", "8", "9", (7.0, 8.0, 9.0)),
    "host": ("::1", "localhost", '"0.0.0.0"', ("::1", "localhost", "0.0.0.0")),
    "port": (7, "8", "9", (7, 8, 9)),
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.chdir(tmp_path)


def test_every_setting_is_tried() -> None:
    assert set(GIVEN) == set(SETTINGS)


@pytest.mark.parametrize("key", GIVEN)
def test_each_setting_is_found_in_the_one_order(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag, variable, text, meant = GIVEN[key]
    assert find(key) == config.Found(SETTINGS[key].default, "the default")
    (tmp_path / "pyproject.toml").write_text(f"[tool.holdfast]\n{key} = {text}\n")
    assert find(key) == config.Found(meant[2], f"from {tmp_path / 'pyproject.toml'}")
    monkeypatch.setenv(SETTINGS[key].variable, variable)
    assert find(key) == config.Found(meant[1], f"from {SETTINGS[key].variable}")
    assert find(key, flag).value == meant[0]
    monkeypatch.setenv(SETTINGS[key].variable, "")
    assert find(key).value == meant[2]


@pytest.mark.parametrize(
    ("key", "text"),
    [("concurrency", "0"), ("concurrency", "many"), ("lease", "soon"), ("queues", ","), ("port", "-1")],
)
def test_a_value_that_makes_no_sense_says_where_it_is_from(
    key: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTINGS[key].variable, text)
    with pytest.raises(CommandError, match=f"{key} from {SETTINGS[key].variable} is") as caught:
        find(key)
    assert caught.value.code == 2


def test_what_nobody_reads_is_no_setting(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\ndatabse = "x"\n')
    with pytest.raises(CommandError, match=r"has databse under \[tool.holdfast\]; it may have database, app, queues"):
        find("database")


def test_a_worker_is_set_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_QUEUES", "mail,slow")
    monkeypatch.setenv("HOLDFAST_LEASE", "5s")
    made = worker_settings((), None, None, None)
    assert (list(made.queue_limits()), made.lease_seconds, made.concurrency) == (["mail", "slow"], 5.0, 100)
    assert list(worker_settings(("one",), None, None, None).queue_limits()) == ["one"]


def test_an_app_may_be_named_once_for_all_commands(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process("migrate")
    assert "no app is named: write MODULE:APP" in in_process("check").err
    monkeypatch.setenv("HOLDFAST_APP", "nowhere:app")
    ran = in_process("check")
    assert (ran.code, "there is no module 'nowhere'" in ran.err) == (2, True)


def test_the_documentation_lists_every_setting() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for setting in SETTINGS.values():
        assert re.search(rf"\| `{setting.key}` \|[^|]*\| `{setting.variable}` \|", text), setting.key


SECRET = "hunter2-and-more"
URLS = [
    f"postgresql://ann:{SECRET}@127.0.0.1:1/orders",
    f"postgresql://127.0.0.1:1/orders?password={SECRET}",
    f"postgresql://ann:{SECRET}@127.0.0.1:1/orders?sslmode=nonsense",
    f"postgresql://ann:{SECRET}@127.0.0.1:port/orders",
    f"mysql://ann:{SECRET}@db/orders",
    f"postgresql://ann:{SECRET}/{SECRET}@127.0.0.1:1/orders",
    f"postgresql://ann:{SECRET}@{SECRET}@127.0.0.1:1/orders",
    f"postgresql://ann:a {SECRET}@127.0.0.1:1/orders",
    f"postgresql://ann:{SECRET}?{SECRET}#{SECRET}@127.0.0.1:1/orders",
]


@pytest.mark.parametrize("url", URLS)
def test_no_command_shows_a_secret(in_process: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TOKENS", f"admin:{SECRET}")
    for words in (["list"], ["doctor"], ["doctor", "--json"], ["migrate"], ["show", "abcd"], ["export", "--all"]):
        ran = in_process(*words, "--database", url)
        assert ran.code != 0
        assert SECRET not in ran.out + ran.err, words


def test_a_secret_in_pyproject_is_not_shown_either(in_process: Call, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.holdfast]\ndatabase = "{URLS[0]}"\n')
    ran = in_process("list")
    assert (ran.code, SECRET in ran.err) == (4, False)
    assert redacted(URLS[0]) == "postgresql://ann:***@127.0.0.1:1/orders"
