"""Dependencies point down only, the core is pure, and SQL lives in `.sql` files.

`violations` reads one file's syntax tree and names each breach by file, line and rule. The tests run it over
the package, and over small wrong programs to prove that each rule can fail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "holdfast"

# A layer may import what is listed for it. `app` is every module directly in the package.
ALLOWED: dict[str, set[str]] = {
    "core": {"core"},
    "store": {"store", "core"},
    "engine": {"engine", "store", "core"},
    "models": {"models", "engine", "store", "core"},
    "app": {"app", "models", "engine", "store", "core"},
    "views": {"views", "app", "models", "engine", "store", "core"},
    "telemetry": {"telemetry", "app", "models", "engine", "store", "core"},
    "verify": {"verify", "models", "engine", "store", "core"},
    "transfer": {"transfer", "verify", "models", "engine", "store", "core"},
    "web": {"web", "views", "telemetry", "app", "models", "engine", "store", "core"},
    "cli": {"cli", "web", "views", "verify", "transfer", "telemetry", "app", "models", "engine", "store", "core"},
    "testing": {"testing", "views", "verify", "transfer", "app", "models", "engine", "store", "core"},
}
# Models know what a store promises, never which store keeps it.
STORE_CONTRACT = {
    "holdfast.store.base",
    "holdfast.store.batches",
    "holdfast.store.effects",
    "holdfast.store.flows",
    "holdfast.store.schedules",
    "holdfast.store.values",
    "holdfast.store.watching",
}

IMPURE_MODULES = {
    # files and processes
    "atexit", "fcntl", "fileinput", "glob", "io", "logging", "mmap", "multiprocessing", "os", "pathlib",
    "psutil", "shutil", "signal", "subprocess", "tempfile",
    # network and databases
    "asyncpg", "http", "requests", "select", "selectors", "socket", "socketserver", "sqlite3", "ssl",
    "urllib.request",
    # scheduling
    "asyncio", "concurrent", "queue", "sched", "threading", "uvloop",
    # clock and randomness
    "random", "secrets", "time",
    # terminals
    "click", "rich",
}  # fmt: skip
# Paths as values, without a file system behind them.
PURE_NAMES = {"pathlib.PurePath", "pathlib.PurePosixPath", "pathlib.PureWindowsPath"}
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4"}
IMPURE_BUILTINS = {"open", "print", "input"}

_DATA_STATEMENT = re.compile(
    r"""\s*(?:insert\s+into\s+\w | delete\s+from\s+\w | update\s+[\w.]+\s+set\s | with\s+\w+\s+as\s*\(
        | (?:create|alter|drop)\s+(?:unique\s+|or\s+replace\s+|temp\s+)*
          (?:table|index|function|schema|trigger|view)\s
        | select\s[^.]*\sfrom\s+\w)""",
    re.IGNORECASE | re.VERBOSE,
)
_SHOUTED_STATEMENT = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|TRUNCATE)\s")
# Words of a connection, not of the schema: a store speaks them itself.
_SESSION_STATEMENT = re.compile(r"\s*(?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT|PRAGMA|LISTEN|NOTIFY|UNLISTEN)\b")


def layer_of(module: str) -> str:
    """The layer of `holdfast.engine.worker` is engine; of `holdfast`, or `holdfast.app`, it is app."""
    parts = module.split(".")
    if parts[1:] == ["__main__"]:  # `python -m holdfast` is the command line
        return "cli"
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else "app"


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every import, lazy and typing-only ones included, as line and dotted name with the imported name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                keep = len(parents) - node.level + (1 if is_package else 0)
                base = ".".join(parents[:keep] + ([node.module] if node.module else []))
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def string_literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string that is a value: no docstrings; an f-string counts as one string."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
            skipped.update(id(part) for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def import_violations(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    layer = layer_of(module)
    for line, name in imported_modules(tree, module, is_package):
        if name == "holdfast" or name.startswith("holdfast."):
            target = layer_of(name)
            if target not in ALLOWED[layer]:
                yield line, f"{layer} may not import {target} ({name}): dependencies point down only"
            elif layer == "models" and target == "store" and not _in_store_contract(name):
                yield line, f"models may import the store's contract only, not {name}"
        elif layer == "core" and _is_impure(name):
            yield line, f"core may not import {name}: no I/O, no clock, no randomness"


def _is_impure(name: str) -> bool:
    return name not in PURE_NAMES and any(f"{name}.".startswith(f"{impure}.") for impure in IMPURE_MODULES)


def _in_store_contract(name: str) -> bool:
    return name in STORE_CONTRACT or name.rpartition(".")[0] in STORE_CONTRACT


def impure_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in IMPURE_CALLS:
            yield node.lineno, f"core may not call {node.func.attr}(): time and randomness are parameters"
        elif isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS | IMPURE_CALLS:
            yield node.lineno, f"core may not call {node.func.id}(): no I/O, no clock, no randomness"


def sql_violations(tree: ast.AST, layer: str) -> Iterator[tuple[int, str]]:
    for line, text in string_literals(tree):
        shown = " ".join(text.split())[:40]
        if _DATA_STATEMENT.match(text) or _SHOUTED_STATEMENT.match(text):
            yield line, f"SQL lives in .sql files of the store: {shown!r}"
        elif layer != "store" and _SESSION_STATEMENT.match(text):
            yield line, f"only the store speaks SQL: {shown!r}"


def violations(path: Path, package: Path = PACKAGE) -> list[str]:
    shown = path.relative_to(package.parents[1])
    module = module_name(path, package)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as error:
        return [f"{shown}:{error.lineno}: not the syntax of this Python: {error.msg}"]
    found = list(import_violations(tree, module, path.name == "__init__.py"))
    found += sql_violations(tree, layer_of(module))
    if layer_of(module) == "core":
        found += impure_calls(tree)
    return [f"{shown}:{line}: {rule}" for line, rule in sorted(found)]


def test_every_module_keeps_to_its_layer() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert {layer_of(module_name(path, PACKAGE)) for path in files} >= {"core", "store", "engine", "testing"}
    found = [violation for path in files for violation in violations(path)]
    assert not found, "\n".join(found)


def test_every_folder_of_the_package_is_a_known_layer() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[:1] for path in PACKAGE.rglob("*.py")}
    assert {folder[0] for folder in folders if folder} <= set(ALLOWED)


@pytest.mark.parametrize(
    ("file", "source", "rule"),
    [
        ("core/a.py", "import os", "core may not import os"),
        ("core/a.py", "def f():\n    from time import monotonic", "core may not import time.monotonic"),
        ("core/a.py", "from holdfast.store.base import Store", "core may not import store"),
        ("core/a.py", "from datetime import datetime\nx = datetime.now()", "core may not call now()"),
        ("core/a.py", "from pathlib import Path", "core may not import pathlib.Path"),
        ("core/a.py", "open('x')", "core may not call open()"),
        ("core/a.py", "def f(:", "not the syntax of this Python"),
        ("core/__init__.py", "from ..engine import worker", "core may not import engine"),
        ("store/a.py", "from holdfast.engine.worker import Worker", "store may not import engine"),
        ("store/a.py", "from ..engine.worker import Worker", "store may not import engine"),
        ("store/__init__.py", "from .. import App", "store may not import app"),
        ("engine/a.py", "import holdfast.models.machine", "engine may not import models"),
        ("engine/a.py", "from holdfast import App", "engine may not import app"),
        ("models/a.py", "from holdfast.store.sqlite import SqliteStore", "the store's contract only"),
        ("models/a.py", "from holdfast.store import sqlite", "the store's contract only"),
        ("models/a.py", "from holdfast.app import App", "models may not import app"),
        ("app.py", "from holdfast.cli.main import main", "app may not import cli"),
        ("web/a.py", "import holdfast.cli", "web may not import cli"),
        ("views/a.py", "import holdfast.web", "views may not import web"),
        ("app.py", "import holdfast.views.shapes", "app may not import views"),
        ("cli/a.py", "import holdfast.testing", "cli may not import testing"),
        ("store/a.py", "x = 'SELECT 1'", "SQL lives in .sql files"),
        ("store/a.py", "x = f'select {c} from {t}'", "SQL lives in .sql files"),
        ("store/a.py", "x = '''\n  update executions\n  set x = 1'''", "SQL lives in .sql files"),
        ("app.py", "x = 'create table t (x int)'", "SQL lives in .sql files"),
        ("engine/a.py", "x = 'BEGIN IMMEDIATE'", "only the store speaks SQL"),
    ],
)
def test_each_rule_names_file_line_and_breach(tmp_path: Path, file: str, source: str, rule: str) -> None:
    package = tmp_path / "src" / "holdfast"
    path = package / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    found = violations(path, package)
    assert len(found) == 1
    assert rule in found[0]
    assert re.match(rf"src/holdfast/{re.escape(file)}:\d+: ", found[0])


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/a.py", "from datetime import datetime\nfrom holdfast.core.errors import HoldfastError"),
        ("core/a.py", "from .errors import HoldfastError\nfrom pathlib import PurePath"),
        ("models/a.py", "from holdfast.store.base import Store\nfrom holdfast.store import effects"),
        ("engine/a.py", "import asyncio\nx = 'Select a queue, or update the worker.'"),
        ("engine/a.py", "def f():\n    '''SELECT is a word here.'''"),
        ("store/a.py", "x = 'BEGIN IMMEDIATE'"),
        ("cli/a.py", "from holdfast import App\nfrom holdfast.web import dashboard"),
        ("testing/a.py", "from holdfast.engine import worker"),
    ],
)
def test_what_the_layers_allow_is_left_alone(tmp_path: Path, file: str, source: str) -> None:
    package = tmp_path / "src" / "holdfast"
    path = package / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert violations(path, package) == []
