"""The documentation site: it builds without a warning, and its reference has every public name and command."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert [name for name in holdfast.__all__ if f'id="holdfast.{name}"' not in page] == []


def test_the_reference_has_the_decorators_of_an_app(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    inside = {"find_batch", "find_flow", "runners"}
    methods = {name for name in dir(holdfast.App) if not name.startswith("_")} - inside
    assert sorted(name for name in methods if f'id="holdfast.App.{name}"' not in page) == []


def test_the_reference_has_every_command_and_error(site: Path, hooks: ModuleType) -> None:
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f'id="holdfast-{name}"' not in commands] == []
    errors = (site / "reference" / "errors.html").read_text(encoding="utf-8")
    every = [*hooks.error_classes(), *hooks.operation_error_classes()]
    assert [error.__name__ for error in every if f"<code>{error.__name__}</code>" not in errors] == []


def test_the_reference_cites_no_rules_that_readers_do_not_have(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    assert re.findall(r"\bruling [A-Z]\d|\bJS-\d|\bRule [A-Z]\b", pages) == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("nav:")[-1]
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not re.search(rf"[ :]{re.escape(page)}$", navigation, re.MULTILINE)] == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """It can be read without a network, and tells nobody that it is read."""
    loaded = re.compile(r"""<(?:script|link|img)[^>]+(?:src|href)="https?://[^"]+|@import "?https?:""")
    found = [
        (page.name, loaded.findall(page.read_text(encoding="utf-8")))
        for page in [*site.rglob("*.html"), *site.rglob("*.css")]
    ]
    assert [(page, places) for page, places in found if places] == []


# What a definition gives the engine, not its users.
SEAM = {"rewrite", "open_result", "row", "child_row", "first_state", "result_codec", "is_retryable"}


def public_members() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [(name, getattr(holdfast, name)) for name in holdfast.__all__]
    for owner, value in list(found):
        if inspect.isclass(value) and not issubclass(value, BaseException):
            found += [
                (f"{owner}.{name}", member)
                for name, member in vars(value).items()
                if not name.startswith("_")
                and name not in SEAM
                and (inspect.isfunction(member) or isinstance(member, property | classmethod))
            ]
    return found


def test_every_public_function_says_what_it_does() -> None:
    """The reference shows what has a docstring."""
    silent = [name for name, member in public_members() if not inspect.getdoc(member)]
    assert set(silent) <= {"Outcome"}, "a union has no docstring"
