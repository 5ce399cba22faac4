"""Every python block of the README and the documentation runs, and prints what it says.

A page is a program: its blocks run in order, in one module, with `await` at the top level as in `python -m asyncio`.
What a line prints stands behind it as `# -> text`, and is compared. A block that begins with a file name is a program
of its own: `# orders.py` is run as a script, `# test_orders.py` with pytest. One that begins with `# SQLite` or
`# PostgreSQL` runs on that store alone. The pages of a section run in one process,
each on a ledger of its own. Code of other systems stands in blocks of the language `py`, which are not run.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import faulthandler
import inspect
import io
import linecache
import os
import re
import shlex
import signal
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from holdfast import App
from tests.cli.databases import execute, postgres_database
from tests.cli.processes import HOLDFAST, TIMEOUT_SECONDS, environment, in_pipe

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# Python 3.12.0 to 3.12.3 took `?1` for a name (python/cpython#117995).
WARNINGS = ("-W", "error", "-W", "ignore:Binding:DeprecationWarning")
TUTORIAL = DOCS / "tutorial" / "index.md"

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# ([a-z_]+\.py)\n")
_LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")
_PRINTS = re.compile(r"# -> (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        found = _FILE_NAME.match(self.text)
        return None if found is None else found[1]

    def is_for(self, is_postgres: bool) -> bool:
        """A block that begins with the name of a store is for that one."""
        store, _, _ = self.text.partition("\n")
        return store != ("# SQLite" if is_postgres else "# PostgreSQL")

    @property
    def promised(self) -> list[str]:
        return _PRINTS.findall(self.text)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2]) for found in _FENCE.finditer(text)]


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


def programs() -> list[Block]:
    return [block for page in PAGES for block in python_blocks(page) if block.file_name is not None]


def _name(value: object) -> str:
    return f"{value.page.name}-{value.file_name}" if isinstance(value, Block) else getattr(value, "name", str(value))


SECTIONS: dict[str, list[Path]] = {}
for _page in PAGES:
    if any(block.file_name is None for block in python_blocks(_page)):
        SECTIONS.setdefault("top" if _page.parent in (ROOT, DOCS) else _page.parent.name, []).append(_page)


@pytest.fixture(scope="module")
def docs_postgres(postgres_url: str) -> Iterator[str]:
    with postgres_database(postgres_url) as url:
        yield url


@pytest.mark.parametrize("section", SECTIONS)
def test_the_pages_of_a_section_run_from_top_to_bottom(
    section: str, backend: str, docs_postgres: str, tmp_path: Path
) -> None:
    database = str(tmp_path / "ledger.db") if backend == "sqlite" else docs_postgres
    command = [sys.executable, *WARNINGS, "-m", "tests.test_docs", *map(str, SECTIONS[section])]
    ran = in_pipe(command, folder=tmp_path, database=database, extra={"PYTHONPATH": str(ROOT)})
    assert ran.code == 0, ran.out + ran.err
    assert "Traceback" not in ran.err, ran.err


ALONE = [block for block in programs() if block.page.name != "README.md" and block.page != TUTORIAL]


@pytest.mark.parametrize("program", ALONE, ids=_name)
def test_a_program_runs(program: Block, tmp_path: Path) -> None:
    assert program.file_name is not None
    file = tmp_path / program.file_name
    file.write_text(program.text)
    runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if file.name.startswith("test_") else []
    ran = in_pipe([sys.executable, *runner, str(file)], folder=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    if not runner:
        assert [line for line in program.promised if line not in ran.out.splitlines()] == []


def test_the_program_of_the_readme_survives_kill_9(tmp_path: Path) -> None:
    (program,) = [block for block in programs() if block.page.name == "README.md"]
    assert program.file_name is not None
    file = tmp_path / program.file_name
    file.write_text(program.text)
    first = subprocess.Popen(
        [sys.executable, "-u", str(file)], cwd=tmp_path, env=environment(None), stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    before = [first.stdout.readline() for _ in range(3)]
    first.send_signal(signal.SIGKILL)
    before += first.communicate(timeout=TIMEOUT_SECONDS)[0].splitlines(keepends=True)
    after = in_pipe([sys.executable, str(file)], folder=tmp_path).out.splitlines(keepends=True)
    items = [int(re.findall(r"item (\d+)", line)[0]) for line in before + after[:-1]]
    assert after[-1] == "packed: 10\n"
    # The item in flight when it was killed may have been printed already; nothing before it is ever done again.
    seam = len(before)
    assert items[:seam] == list(range(1, seam + 1))
    assert items[seam] in (seam, seam + 1)
    assert items[seam:] == list(range(items[seam], 11))
    assert in_pipe([sys.executable, str(file)], folder=tmp_path).out == "packed: 10\n"


def shell(page: Path) -> list[str]:
    """The commands of a page, in order."""
    return [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]


class Program:
    """A command of a page, with the lines that it prints."""

    def __init__(self, command: str, folder: Path) -> None:
        words = shlex.split(command)
        words = {"python": [sys.executable, "-u"], "holdfast": list(HOLDFAST)}[words[0]] + words[1:]
        self._process = subprocess.Popen(
            words, cwd=folder, env=environment(None), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout

    def line_with(self, text: str) -> str:
        """The next line with this text in it."""
        for line in self._out:
            if text in line:
                return line
        raise AssertionError(f"it ended without saying {text!r}")

    def rest(self) -> list[str]:
        return self._process.communicate(timeout=TIMEOUT_SECONDS)[0].splitlines()

    def kill(self, number: signal.Signals) -> list[str]:
        self._process.send_signal(number)
        return self.rest()


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Its files, its commands, its lines; a reader with two terminals."""
    for block in python_blocks(TUTORIAL):
        assert block.file_name is not None
        (tmp_path / block.file_name).write_text(block.text)
    place, look, work, look_again, send, kill, work_again, place_again = shell(TUTORIAL)
    placing = Program(place, tmp_path)
    placing.line_with("started fulfil/")
    assert "runnable" in in_pipe([*HOLDFAST, *shlex.split(look)[1:]], folder=tmp_path).out
    first = Program(work, tmp_path)
    while "awaiting_promise" not in (listed := in_pipe([*HOLDFAST, *shlex.split(look_again)[1:]], folder=tmp_path).out):
        assert "fulfil" in listed
    assert in_pipe([*HOLDFAST, *shlex.split(send)[1:]], folder=tmp_path).code == 0
    first.line_with("order 17 is paid by card")
    before = [first.line_with("is packed") for _ in range(3)]
    assert kill.startswith("pkill -9 ")
    before += [line for line in first.kill(signal.SIGKILL) if "is packed" in line]
    second = Program(work_again, tmp_path)
    assert placing.rest() == ["packed 6 boxes"]
    after = [line for line in second.kill(signal.SIGTERM) if "is packed" in line]
    packed = [line.split()[3] for line in before + after]
    assert list(dict.fromkeys(packed)) == ["cup", "pot", "jug", "tray", "lamp", "vase"]
    assert len(packed) <= 7, "only what was in flight is packed again"
    assert Program(place_again, tmp_path).rest()[1:] == ["packed 6 boxes"]


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    # Pages are published as a site, which knows nothing outside docs/.
    outside = [page for page in PAGES if page.parent != ROOT and "](../../" in page.read_text(encoding="utf-8")]
    assert not outside
    links = [
        (page, path, anchor)
        for page in pages
        for path, anchor in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    ]
    assert links
    dead = [f"{page.name}: {path}#{anchor}" for page, path, anchor in links if not _leads_somewhere(page, path, anchor)]
    assert not dead


def _leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    if not target.exists():
        return False
    headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
    # As GitHub makes them: lower case, no punctuation, dashes for spaces.
    return not anchor or anchor in {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def test_every_command_is_documented() -> None:
    from holdfast.cli.main import COMMANDS

    (page,) = DOCS.rglob("cli.md")
    text = page.read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"holdfast {name}" not in text] == []


def test_pages_name_errors_commands_and_settings_that_exist() -> None:
    from holdfast import errors, operation
    from holdfast.cli.main import COMMANDS
    from holdfast.engine.settings import WorkerSettings

    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    known = {*vars(errors), *vars(operation), *vars(builtins)}
    wrong = [
        f"{page.name}: {name}"
        for page, text in texts.items()
        for name in re.findall(r"`(\w+Error)\b", text)
        if name not in known
    ]
    wrong += [
        f"{page.name}: holdfast {name}"
        for page, text in texts.items()
        for name in re.findall(r"(?:^|`)holdfast ([a-z][a-z-]*)", text, re.MULTILINE)
        if name not in COMMANDS
    ]
    assert wrong == []
    running = texts[DOCS / "operations" / "running.md"]
    assert [field.name for field in fields(WorkerSettings) if f"`{field.name}`" not in running] == []


# ------------------------------------------------------------------ running pages: python -m tests.test_docs PAGE...


async def run_pages(pages: Sequence[Path]) -> None:
    for page in pages:
        await _empty(os.environ["HOLDFAST_DATABASE"])
        await _run_page(page)
    faulthandler.cancel_dump_traceback_later()


async def _empty(database: str) -> None:
    """Each page begins with a new ledger, as its reader does."""
    if database.startswith("postgresql"):
        await execute(database, "drop schema if exists holdfast cascade")
    else:
        for leftover in Path(database).parent.glob(f"{Path(database).name}*"):
            leftover.unlink()


async def _run_page(page: Path) -> None:
    module = types.ModuleType("page")
    sys.modules[module.__name__] = module
    is_postgres = os.environ["HOLDFAST_DATABASE"].startswith("postgresql")
    for block in python_blocks(page):
        if block.file_name is None and block.is_for(is_postgres):
            await _run_block(block, module)
    for value in list(vars(module).values()):
        if isinstance(value, App):
            await value.close()


async def _run_block(block: Block, module: types.ModuleType) -> None:
    where = f"{block.page.name}:{block.line}"
    faulthandler.dump_traceback_later(TIMEOUT_SECONDS - 5, exit=True)
    code = compile(block.text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    linecache.cache[where] = (len(block.text), None, block.text.splitlines(keepends=True), where)  # for inspect
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            running = eval(code, module.__dict__)
            if inspect.iscoroutine(running):
                await running
    except BaseException:
        print(f"{where} failed", file=sys.stderr)
        raise
    if printed.getvalue().splitlines() != block.promised:
        sys.exit(f"{where} promises {block.promised} and prints {printed.getvalue().splitlines()}")


if __name__ == "__main__":
    asyncio.run(run_pages([Path(page) for page in sys.argv[1:]]))
