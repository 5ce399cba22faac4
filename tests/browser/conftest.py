"""A real Chromium against a real server on a ledger full of everything.

Collected only where it is asked for by name (`make test-browser`, or `pytest tests/browser`): a browser is no part of
what `make test` needs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Playwright, ViewportSize, sync_playwright

from holdfast.web.security import Tokens
from holdfast.web.server import build, make_server
from tests.browser.world import Shop, World, fill

HERE = Path(__file__).resolve().parent
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 800}
R = TypeVar("R")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Unless named on the command line, nothing here is collected."""
    asked = [(config.invocation_params.dir / str(argument).partition("::")[0]).resolve() for argument in config.args]
    is_asked = any(path == HERE or HERE in path.parents for path in asked)
    return None if is_asked else True


def chromium_path() -> str:
    found = shutil.which(os.environ.get("HOLDFAST_CHROMIUM", "chromium"))
    assert found, "no Chromium: install Debian's `chromium`, or name one in HOLDFAST_CHROMIUM"
    return found


def apart(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run it on a loop of another thread: Playwright has this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


class Served:
    """A server in a thread of its own."""

    def __init__(self, shop: Shop, tokens: Tokens | None = None, operations: Path | None = None) -> None:
        self._shop = shop
        self._tokens = tokens
        self._operations = operations
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.url = ""

    async def _run(self) -> None:
        application = build(self._shop.app, tokens=self._tokens, operations=self._operations)
        self._server = make_server(application, "127.0.0.1", 0)
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:  # noqa: ASYNC110  (uvicorn tells nobody)
            await asyncio.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await serving
        await self._shop.app.close()

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(20), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._thread.join(20)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    path = tmp_path_factory.mktemp("world") / "shop.db"
    return apart(lambda: fill(path))


@pytest.fixture(scope="session")
def served(world: World) -> Iterator[Served]:
    with Served(Shop(str(world.path)), operations=world.operations) as server:
        yield server


@pytest.fixture(scope="session")
def playwright_driver() -> Iterator[Playwright]:
    with sync_playwright() as driver:
        yield driver


def launched(driver: Playwright) -> Browser:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
    return driver.chromium.launch(executable_path=chromium_path(), args=arguments)


@pytest.fixture(scope="session")
def browser(playwright_driver: Playwright) -> Iterator[Browser]:
    browser = launched(playwright_driver)
    yield browser
    browser.close()


class Visitor:
    """A page that keeps what went wrong on it: errors in the console, scripts that raised, broken policies."""

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self.context = browser.new_context(base_url=url, **context)
        self.context.set_default_timeout(10_000)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.expected: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.problems.append(f"raised: {error}"))
        self.page.on("dialog", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self.expected):
            self.problems.append(f"{message.type}: {message.text} at {message.location.get('url')}")

    def _asked(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def visit(self, path: str) -> Page:
        answer = self.page.goto(path)
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status}"
        return self.page

    def close(self) -> None:
        self.context.close()
        assert not self.problems, self.problems


def accessibility_problems(page: Page, **options: Any) -> list[str]:
    """What axe finds, but for trifles."""
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:160] for node in violation['nodes'][:3]]}"
        for violation in Axe().run(page, options=options).response["violations"]
        if violation["impact"] in ("serious", "critical", "moderate")
    ]


@pytest.fixture
def visitor(browser: Browser, served: Served) -> Iterator[Visitor]:
    made = Visitor(browser, served.url, viewport=DESKTOP)
    yield made
    made.close()
