"""Who may see and do what: every page needs read, every action operate or admin; one without a rule fails here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from holdfast import App
from holdfast.web.dashboard.render import STATIC, static_path
from holdfast.web.dashboard.routes import ACTIONS, PAGES
from holdfast.web.security import Tokens
from holdfast.web.server import build

READ, OPERATE, ADMIN = "a-token-that-reads-1", "a-token-that-operates-2", "a-token-that-rules-3"
NOWHERE = {"id": "abcdef12", "name": "nothing", "action": "pause"}


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App("pages", str(tmp_path / "ledger.db"))


@pytest_asyncio.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    application = build(app, tokens=Tokens([("read", READ), ("operate", OPERATE), ("admin", ADMIN)]))
    transport = httpx.ASGITransport(application)
    async with app, httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Accept": "text/html"}


@pytest.mark.parametrize("path", [path for path, _ in PAGES])
async def test_every_page_needs_a_token_and_answers_readers(client: httpx.AsyncClient, path: str) -> None:
    address = path.format(**NOWHERE)
    turned_away = await client.get(address, headers={"Accept": "text/html"})
    assert (turned_away.status_code, turned_away.headers["location"].partition("?")[0]) == (303, "/login")
    assert (await client.get(address)).status_code == 401
    shown = await client.get(address, headers=headers(READ))
    assert shown.status_code == (404 if "{" in path else 200)
    assert "<main" in shown.text  # an unknown thing is a page too
    policy = shown.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert " style=" not in shown.text
    assert "<script>" not in shown.text


@pytest.mark.parametrize("path", [path for path, _ in ACTIONS])
async def test_every_action_needs_the_role_operate(client: httpx.AsyncClient, path: str) -> None:
    address = path.replace(":path", "").format(**NOWHERE)
    assert (await client.post(address)).status_code == 401
    assert (await client.post(address, headers=headers(READ))).status_code == 403
    answer = await client.post(address, headers=headers(OPERATE))
    assert answer.status_code in (303, 404)  # a notice on the page it came from, or no such execution


@pytest.mark.parametrize(
    ("page", "action"), [("/schedules", "/schedules/nightly/delete"), ("/queues", "/queues/mail/limits")]
)
async def test_what_the_api_leaves_to_admins_the_dashboard_does_too(
    client: httpx.AsyncClient, app: App, page: str, action: str
) -> None:
    await app.configure_queue("mail", concurrency=2)
    await app.schedules.create("nightly", "0 6 * * *", "report")
    refused = await client.post(action, headers=headers(OPERATE), data={"concurrency": "9"})
    assert refused.status_code == 403
    assert "this needs the role admin; the token has operate" in refused.text
    assert action not in (await client.get(page, headers=headers(OPERATE))).text
    assert action in (await client.get(page, headers=headers(ADMIN))).text
    assert (await client.post(action, headers=headers(ADMIN), data={"concurrency": "9"})).status_code == 303


async def test_unknown_actions_are_refused_with_a_notice(client: httpx.AsyncClient) -> None:
    answer = await client.post("/schedules/nightly/explode", headers=headers(OPERATE))
    assert answer.status_code == 303
    assert "no%20action" in answer.headers["set-cookie"]


async def test_static_files_are_kept_by_their_hash_alone(client: httpx.AsyncClient) -> None:
    for path in STATIC.iterdir():
        hashed = await client.get(static_path(path.name))
        assert hashed.status_code == 200
        assert "immutable" in hashed.headers["cache-control"]
        assert (await client.get(f"/static/{path.name}")).headers["cache-control"] == "no-cache"
    assert (await client.get("/static/../routes.py")).status_code == 404


def test_nothing_is_fetched_from_elsewhere() -> None:
    for path in [*STATIC.iterdir(), *(STATIC.parent / "templates").iterdir()]:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
