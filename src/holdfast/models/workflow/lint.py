"""A look at the source of a workflow's body, when it is declared: what would go otherwise in a replay.

Python is no sandbox (ruling B5): fingerprints find a body that took another way, after the fact. This finds the usual
reasons before, by name, and says what to use instead. It reads the body alone, and never fails on what it cannot read.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from holdfast.core.errors import DefinitionError

Lint = Literal["warn", "error", "off"]


class DeterminismWarning(UserWarning):
    """The body of a workflow uses something that gives another answer in a replay."""


class Finding(Struct, frozen=True):
    file: str
    line: int
    used: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.used} gives another answer in every replay: {self.instead}"


_TIME: Final = "use ctx.now(), and ctx.sleep() to wait"
_CHANCE: Final = "use ctx.random() or ctx.uuid()"
_SETTINGS: Final = "pass it in as an argument, or read it in a task"
_OUTSIDE: Final = "do it in a task"
_THREADS: Final = "do it in a task (a plain `def` runs in a thread)"
_ASYNCIO: Final = "use calls of tasks with ctx.all, ctx.any and ctx.join_set, and ctx.sleep"

# Methods of a path that ask the file system; the first four say so by their names, whatever they are called on.
_FILE_CONTENT: Final = ("read_text", "read_bytes", "write_text", "write_bytes")
_OF_FILES: Final = (
    *_FILE_CONTENT,
    *("open", "exists", "is_file", "is_dir", "stat", "iterdir", "glob", "rglob", "mkdir", "touch", "unlink", "rename"),
    *("replace", "rmdir", "resolve", "cwd", "home", "expanduser"),
)

# Full names, and modules with everything in them ("random.").
_FORBIDDEN: Final = {
    **{f"pathlib.Path.{name}": _OUTSIDE for name in _OF_FILES},
    "time.": _TIME,
    "datetime.datetime.now": _TIME,
    "datetime.datetime.utcnow": _TIME,
    "datetime.datetime.today": _TIME,
    "datetime.date.today": _TIME,
    "random.": _CHANCE,
    "secrets.": _CHANCE,
    "numpy.random.": _CHANCE,
    "os.urandom": _CHANCE,
    "uuid.uuid1": _CHANCE,
    "uuid.uuid4": _CHANCE,
    "os.environ": _SETTINGS,
    "os.getenv": _SETTINGS,
    "os.getpid": _SETTINGS,
    "socket.gethostname": _SETTINGS,
    "open": _OUTSIDE,
    "input": _OUTSIDE,
    "os.": _OUTSIDE,
    "io.": _OUTSIDE,
    "socket.": _OUTSIDE,
    "subprocess.": _OUTSIDE,
    "requests.": _OUTSIDE,
    "httpx.": _OUTSIDE,
    "aiohttp.": _OUTSIDE,
    "urllib.request.": _OUTSIDE,
    "http.client.": _OUTSIDE,
    "sqlite3.": _OUTSIDE,
    "asyncpg.": _OUTSIDE,
    "psycopg.": _OUTSIDE,
    "shutil.": _OUTSIDE,
    "threading.": _THREADS,
    "multiprocessing.": _THREADS,
    "concurrent.futures.": _THREADS,
    "asyncio.": _ASYNCIO,
}
# What a body may well name: it asks nobody, and gives the same answer always.
_HARMLESS: Final = frozenset(
    {"os.path.join", "os.path.basename", "os.path.dirname", "os.path.splitext", "os.fspath", "os.sep"}
    | {"io.StringIO", "io.BytesIO", "time.struct_time", "time.strptime"}
)


def check_level(lint: str, name: str) -> None:
    if lint not in get_args(Lint):
        raise DefinitionError(f"lint of {name} is one of {', '.join(get_args(Lint))}, not {lint!r}")


def lint_body(function: Callable[..., Any], name: str, lint: Lint) -> None:
    """Warn of what the body should not use, or refuse it."""
    check_level(lint, name)
    found = [] if lint == "off" else findings(function)
    if not found:
        return
    if lint == "error":
        raise DefinitionError(f"the workflow {name} cannot be replayed:\n" + "\n".join(map(str, found)))
    for finding in found:
        warnings.warn_explicit(f"in the workflow {name}: {finding}", DeterminismWarning, finding.file, finding.line)


def findings(function: Callable[..., Any]) -> list[Finding]:
    """In the order of the lines; a line with `# holdfast: replay-safe` is left out."""
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "?"
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return []  # made without a source, such as in a shell
    found = []
    for line, used in sorted(_names(tree, function)):
        if "holdfast: replay-safe" in lines[line - 1]:
            continue
        instead = _instead(used)
        if instead is not None:
            found.append(Finding(file, first + line - 1, used, instead))
    return found


def _instead(used: str) -> str | None:
    parts = used.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    if any(prefix in _HARMLESS for prefix in prefixes):
        return None
    for prefix in prefixes:
        if prefix in _FORBIDDEN:
            return _FORBIDDEN[prefix]
        if prefix != used and f"{prefix}." in _FORBIDDEN:
            return _FORBIDDEN[f"{prefix}."]
    return None


def _names(tree: ast.Module, function: Callable[..., Any]) -> set[tuple[int, str]]:
    """Every name that the body uses, as the module calls it in full, with its line."""
    body = next((node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    if body is None:
        return set()
    local = {argument.arg for argument in (*body.args.posonlyargs, *body.args.args, *body.args.kwonlyargs)}
    imported: dict[str, str] = {}
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            local.add(node.id)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                imported[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
    named = {
        (node.lineno, full)
        for statement in body.body
        for node, path in _paths(statement)
        if (full := _full_name(path, local, imported, function)) is not None
    }
    return named | {
        (node.lineno, f"pathlib.Path.{node.attr}")
        for statement in body.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and _is_of_file(node, local, imported, function)
    }


def _is_of_file(node: ast.Attribute, local: set[str], imported: dict[str, str], function: Callable[..., Any]) -> bool:
    """`Path(...).exists`, or `path.read_text` of something that the body has."""
    on = node.value
    if isinstance(on, ast.Name):
        return node.attr in _FILE_CONTENT and on.id in local
    if not isinstance(on, ast.Call) or node.attr not in _OF_FILES:
        return False
    made = [path for at, path in _paths(on.func) if at is on.func]
    return bool(made) and _full_name(made[0], local, imported, function) == "pathlib.Path"


def _paths(tree: ast.AST) -> Iterator[tuple[ast.expr, list[str]]]:
    """The outermost chains of attributes that begin with a name: `a.b.c`, not also `a.b` and `a`."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name) or id(node) in inner or not isinstance(node.ctx, ast.Load):
            continue
        path: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute):
            path.append(at.attr)
            at = at.value
            inner.add(id(at))
        if isinstance(at, ast.Name):
            yield node, [at.id, *reversed(path)]


def _full_name(path: list[str], local: set[str], imported: dict[str, str], function: Callable[..., Any]) -> str | None:
    head, *rest = path
    if head in imported:
        return ".".join([imported[head], *rest])
    if head in local:
        return None
    found = _lookup(head, function)
    if found is None or _is_exception(found, rest):
        return None
    if inspect.ismodule(found):
        return ".".join([found.__name__, *rest])
    name = getattr(found, "__qualname__", None)
    module = getattr(found, "__module__", None)
    if module in ("builtins", "io", "_io") and name in ("open", "input"):
        return str(name)
    if found is os.environ:
        return ".".join(["os.environ", *rest])
    owner = getattr(found, "__self__", None)
    if owner is not None and type(owner).__module__ == "random":
        return f"random.{name}"
    if name is None or module is None:
        return None
    public = str(module).partition("._")[0]  # where a class is written: Path in pathlib._local from Python 3.13 on
    return ".".join([public, str(name), *rest])


def _lookup(name: str, function: Callable[..., Any]) -> Any:
    """What the name means in the body, as far as that is known now."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in cells:
        try:
            return cells[name].cell_contents
        except ValueError:  # not assigned yet
            return None
    return function.__globals__.get(name, getattr(builtins, name, None))


def _is_exception(found: Any, rest: list[str]) -> bool:
    """To catch an error by its class asks nobody anything."""
    for name in rest:
        found = getattr(found, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)
