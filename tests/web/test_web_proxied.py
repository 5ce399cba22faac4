"""Behind a proxy that ends TLS, which the server itself does not see."""

from __future__ import annotations

import pytest
from tests.web.kit import READ, TOKENS, Shop, client

from holdfast.web.server import build


@pytest.mark.parametrize(
    ("scheme", "origin", "is_secure"),
    [("http", "http://localhost", False), ("http", "https://localhost", True), ("https", "https://localhost", True)],
)
async def test_a_session_that_came_by_tls_stays_there(shop: Shop, scheme: str, origin: str, is_secure: bool) -> None:
    """Also behind a proxy on another machine, whose `X-Forwarded-Proto` nobody believes."""
    async with client(build(shop.app, tokens=TOKENS)) as browser:
        url = f"{scheme}://localhost/login"
        entered = await browser.post(url, data={"token": READ}, headers={"origin": origin})
    assert entered.status_code == 303
    assert ("secure" in entered.headers["set-cookie"].lower()) is is_secure


@pytest.mark.parametrize(("path", "there"), [("/executions/?a=1", "/executions?a=1"), ("/login/", "/login")])
async def test_a_slash_too_many_leads_to_no_other_host_or_scheme(shop: Shop, path: str, there: str) -> None:
    async with client(build(shop.app, tokens=TOKENS)) as browser:
        answer = await browser.get(path, headers={"host": "elsewhere.example"})
    assert (answer.status_code, answer.headers["location"]) == (307, there)
