"""Fixtures for tests of the command line: a ledger on each store, and ways to fill it and to call the program."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from holdfast import App, Handle
from holdfast.cli.main import run
from holdfast.engine.settings import WorkerSettings
from holdfast.models.machine.start import MachineStarter
from holdfast.store import store_from_url
from tests.cli.databases import postgres_database
from tests.cli.desks import Desk
from tests.cli.processes import HOLDFAST, Ran, in_pipe, in_terminal
from tests.cli.programs import shop

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def cli_postgres(postgres_url: str) -> Iterator[str]:
    with postgres_database(postgres_url) as url:
        asyncio.run(_create(url))
        yield url


@pytest.fixture
def database(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger that exists. On PostgreSQL tests share one, and keep apart by queue and id."""
    if backend == "postgres":
        found: str = request.getfixturevalue("cli_postgres")
        return found
    path = str(tmp_path / "ledger.db")
    asyncio.run(_create(path))
    return path


async def _create(database: str) -> None:
    store = store_from_url(database)
    await store.open()
    await store.close()


@pytest.fixture
def queue() -> str:
    """A queue that no other test uses."""
    return f"q-{secrets.token_hex(4)}"


class Call(Protocol):
    def __call__(self, *arguments: str) -> Ran: ...


@pytest.fixture
def holdfast(database: str, tmp_path: Path) -> Call:
    """The program in a process of its own, its output in a pipe."""
    return lambda *arguments: in_pipe([*HOLDFAST, *arguments], folder=tmp_path, database=database)


@pytest.fixture
def holdfast_in_terminal(database: str, tmp_path: Path) -> Call:
    return lambda *arguments: in_terminal([*HOLDFAST, *arguments], folder=tmp_path, database=database)


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The program inside this process, in an empty folder: for many forms of wrong use, each of which is quick."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_DATABASE", raising=False)

    def call(*arguments: str) -> Ran:
        code = run(arguments)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


class Shop:
    """Starts orders and works on them in this process, until there is nothing to do."""

    def __init__(self, database: str, queue: str) -> None:
        self._database = database
        self.queue = queue

    def run(self, work: Callable[[App], Any]) -> Any:
        async def on_app() -> Any:
            async with shop.build(self._database) as app:
                return await work(app)

        return asyncio.run(on_app())

    def start(self, *wishes: str, work: bool = True, **options: Any) -> list[str]:
        """The ids of one order a wish, worked on as far as it goes."""

        async def start(app: App) -> list[str]:
            starter: MachineStarter[shop.Basket] = shop.Order.options(queue=self.queue, **options)
            started = await starter.start_many([shop.Basket(wish, self.queue) for wish in wishes])
            if work:
                await self._work(app)
            return [str(item.id) for item in started if isinstance(item, Handle)]

        ids: list[str] = self.run(start)
        return ids

    def work(self) -> None:
        self.run(self._work)

    def show(self, execution: str) -> dict[str, Any]:
        """What `show --json` says, without a process of its own: to check what another command did."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert run(["show", execution, "--json", "--database", self._database]) == 0
        found: dict[str, Any] = json.loads(printed.getvalue())
        return found

    async def _work(self, app: App) -> None:
        worker = await app.make_worker(WorkerSettings(queues=[self.queue]))
        await worker.open()
        await worker.run_until_idle()
        await worker.stop()


@pytest.fixture
def orders(database: str, queue: str) -> Shop:
    return Shop(database, queue)


@pytest.fixture
def desk(database: str, queue: str) -> Desk:
    return Desk(database, queue)
