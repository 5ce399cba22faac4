"""Browsers: sessions, CSRF, Origin and Host; and the headers that every answer has."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message
from tests.web.kit import ADMIN, OPERATE, READ, TOKENS, Shop, client

from holdfast.core.status import Status
from holdfast.web.guard import LOGIN_MAX_BYTES, Guard
from holdfast.web.login import UNDONE
from holdfast.web.security import (
    CONTENT_SECURITY_POLICY,
    SESSION_SECONDS,
    Role,
    Tokens,
    csrf_token,
    is_same_origin,
    require,
)
from holdfast.web.server import build

PAGE = {"accept": "text/html"}


def forms(tokens: Tokens) -> Starlette:
    """A page with a form, as the dashboard has them."""

    async def page(request: Request) -> Response:
        require(request, Role.READ)
        return HTMLResponse(f'<input name="csrf_token" value="{csrf_token(request)}">')

    async def act(request: Request) -> Response:
        require(request, Role.OPERATE)
        return PlainTextResponse(str((await request.form())["what"]))

    built = Starlette(routes=[Route("/page", page), Route("/act", act, methods=["POST"])])
    built.add_middleware(Guard, tokens=tokens)
    return built


def token_in(text: str) -> str:
    found = re.search(r'value="([0-9a-f]{64})"', text)
    assert found is not None
    return found[1]


async def test_a_form_on_loopback_needs_the_token_of_its_page() -> None:
    async with client(forms(Tokens())) as browser:
        token = token_in((await browser.get("/page")).text)
        origin = {"origin": "http://localhost"}
        good = await browser.post("/act", data={"what": "it", "csrf_token": token}, headers=origin)
        assert (good.status_code, good.text) == (200, "it")
        by_header = await browser.post("/act", data={"what": "it"}, headers={**origin, "x-csrf-token": token})
        assert by_header.status_code == 200
        for data in ({"what": "it"}, {"what": "it", "csrf_token": "0" * 64}, {"what": "it", "csrf_token": "ü"}):
            assert (await browser.post("/act", data=data, headers=origin)).json()["type"].endswith("bad-csrf")
        browser.cookies.clear()
        stolen = await browser.post("/act", data={"what": "it", "csrf_token": token}, headers=origin)
        assert stolen.json()["type"].endswith("bad-csrf")


@pytest.mark.parametrize("other", ['a{b}="x', "list[0]=1", "é=1", '{"a": "b"}', "plain", 'q="\\"'])
async def test_cookies_of_other_programs_on_this_machine_are_in_nobodys_way(other: str) -> None:
    """Cookies know no ports: what another server of localhost has set comes along."""
    async with client(forms(Tokens())) as browser:
        cookie = (await browser.get("/page")).headers["set-cookie"].partition(";")[0]
        browser.cookies.clear()
        headers = [(b"origin", b"http://localhost"), (b"cookie", f"{other}; {cookie}".encode("latin-1"))]
        page = await browser.get("/page", headers=headers)
        assert "set-cookie" not in page.headers
        data = {"what": "it", "csrf_token": token_in(page.text)}
        assert (await browser.post("/act", data=data, headers=headers)).status_code == 200


async def test_of_strangers_no_body_is_read() -> None:
    read: list[bytes] = []

    async def endless() -> AsyncIterator[bytes]:
        while len(read) < 10:
            read.append(b"x")
            yield b"x"

    async with client(forms(TOKENS)) as stranger:
        answer = await stranger.post("/act", content=endless())
    assert answer.status_code == 401
    assert not read


@pytest.mark.parametrize("length", [str(2**22 + 1), "9" * 15, "9" * 16, "9" * 40])
async def test_a_body_that_is_announced_as_too_large_is_not_waited_for(length: str) -> None:
    sent: list[Message] = []

    async def never() -> Message:
        raise AssertionError("the body was read")

    async def keep(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", length.encode())]
    scope = {"type": "http", "method": "POST", "path": "/act", "headers": headers, "scheme": "http"}
    await Guard(forms(Tokens()), tokens=Tokens())(scope, never, keep)
    assert sent[0]["status"] == 413


async def test_strangers_send_a_small_form_to_sign_in(shop: Shop) -> None:
    """It is read on the event loop: what reads four megabytes of `&` stops everything else for seconds."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    async with client(build(shop.app, tokens=TOKENS)) as stranger:
        answer = await stranger.post("/login", content=b"&" * (LOGIN_MAX_BYTES + 1), headers=form)
        assert answer.status_code == 413
        there = "/executions?q=" + "a" * 2_000
        entered = await stranger.post("/login", data={"token": READ, "next": there})
    assert (entered.status_code, entered.headers["location"]) == (303, there)


async def test_a_request_that_breaks_off_is_not_carried_out(shop: Shop) -> None:
    """Without its body a cancel is a whole request, that of a smaller cancel."""
    order = await shop.order.start(5)
    sent: list[Message] = []
    parts: list[Message] = [
        {"type": "http.request", "body": b"", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return parts.pop(0)

    async def keep(message: Message) -> None:
        sent.append(message)

    path = f"/api/v1/executions/{order.id}/cancel"
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"16")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "scheme": "http", "query_string": b""}
    await build(shop.app, dashboard=False)(scope, receive, keep)
    assert not sent
    assert await order.status() is Status.RUNNABLE


async def test_another_site_can_do_nothing_on_loopback() -> None:
    async with client(forms(Tokens())) as browser:
        token = token_in((await browser.get("/page")).text)
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://localhost:9"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            answer = await browser.post("/act", data={"what": "it", "csrf_token": token}, headers=headers)
            assert answer.json()["type"].endswith("bad-origin"), headers
        program = await browser.post("/act", data={"what": "it"})
        assert program.status_code == 200  # no browser: nobody else's authority is abused


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", ""])
async def test_without_a_token_only_names_of_loopback_are_served(host: str) -> None:
    """DNS rebinding: a foreign name that leads to 127.0.0.1."""
    async with client(forms(Tokens())) as browser:
        answer = await browser.get("/page", headers={"host": host})
        assert answer.status_code == 421
        assert answer.json()["type"].endswith("bad-host")
        assert (await browser.get("/page", headers={"host": "[::1]:8420"})).status_code == 200
    async with client(forms(TOKENS), READ) as browser:
        assert (await browser.get("/page", headers={"host": host})).status_code == 200


async def test_a_token_becomes_a_session(shop: Shop) -> None:
    web = build(shop.app, tokens=TOKENS, dashboard=False)
    async with client(web) as browser:
        away = await browser.get("/queues", headers=PAGE)
        assert away.status_code == 404 or away.headers["location"] == "/login?next=/queues"
        assert "Token" in (await browser.get("/login?next=/queues")).text
        wrong = await browser.post("/login", data={"token": "x" * 20})
        assert wrong.status_code == 401
        assert "set-cookie" not in wrong.headers
        entered = await browser.post("/login", data={"token": OPERATE, "next": "/queues"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/queues")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert OPERATE not in cookie
        assert (await browser.get("/api/v1/queues")).status_code == 200
        blind = await browser.post("/api/v1/queues/q/pause")
        assert blind.json()["type"].endswith("bad-csrf")


async def test_a_session_may_what_its_token_may() -> None:
    async with client(forms(TOKENS)) as browser:
        for token, allowed in ((READ, 403), (OPERATE, 200), (ADMIN, 200)):
            session = TOKENS.open_session(token, 4_000_000_000)
            assert session is not None
            headers = {"cookie": f"holdfast_session={session}"}
            value = token_in((await browser.get("/page", headers=headers)).text)
            answer = await browser.post("/act", data={"what": "it", "csrf_token": value}, headers=headers)
            assert answer.status_code == allowed


def test_a_session_that_is_old_forged_or_without_its_token_is_nobodys() -> None:
    session = TOKENS.open_session(READ, 1_000)
    assert session is not None
    assert TOKENS.session(session, 1_000 + SESSION_SECONDS - 1).role is Role.READ
    assert TOKENS.session(session, 1_000 + SESSION_SECONDS).role is None
    name, expires, nonce, mac = session.split(".")
    for forged in (
        f"{name}.{int(expires) + 9}.{nonce}.{mac}",
        f"{name}.{expires}.{nonce}.{'0' * 64}",
        f"{name}.{expires}.{nonce}",
        f"{name}.x.{nonce}.{mac}",
        "",
        "....",
        "é.1.é.é",
    ):
        assert TOKENS.session(forged, 1_000).role is None, forged
    assert Tokens([("admin", ADMIN)]).session(session, 1_000).role is None


@pytest.mark.parametrize("there", ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\nb", ""])
async def test_a_login_leads_nowhere_else(shop: Shop, there: str) -> None:
    async with client(build(shop.app, tokens=TOKENS, dashboard=False)) as browser:
        entered = await browser.post("/login", data={"token": READ, "next": there})
        assert entered.headers["location"] == "/"


@pytest.mark.parametrize(
    ("path", "referer", "there"),
    [
        ("GET /executions?status=failed&q=a%3D1", None, "/executions?status=failed&q=a%3D1"),
        ("GET /machines/a%3Fb", None, "/machines/a%3Fb"),
        ("POST /logout", None, "/"),
        ("POST /executions/ab12/cancel", "http://localhost/executions/ab12?rows=50#top", "/executions/ab12?rows=50"),
        ("POST /executions/ab12/cancel", "http://elsewhere/executions", "/"),
        ("POST /executions/ab12/cancel", "http://[", "/"),
    ],
)
async def test_signing_in_leads_back_to_the_page_one_was_on(
    shop: Shop, path: str, referer: str | None, there: str
) -> None:
    method, _, target = path.partition(" ")
    async with client(build(shop.app, tokens=TOKENS)) as browser:
        headers = {"accept": "text/html"} | ({} if referer is None else {"referer": referer})
        sent = await browser.request(method, f"http://localhost{target}", headers=headers)
        assert sent.status_code == 303
        shown = (await browser.get(sent.headers["location"])).text
        hidden = re.search(r'name="next" value="([^"]*)"', shown)
        assert hidden is not None
        entered = await browser.post("/login", data={"token": READ, "next": unescape(hidden[1])})
        assert entered.headers["location"] == there


@pytest.mark.parametrize(
    ("path", "is_undone"), [("GET /queues", False), ("POST /queues/q/pause", True), ("POST /logout", False)]
)
async def test_who_was_signed_out_is_told_that_a_form_was_not_heeded(shop: Shop, path: str, is_undone: bool) -> None:
    async with client(build(shop.app, tokens=TOKENS)) as browser:
        sent = await browser.request(*path.split(), headers={"accept": "text/html"})
        asked = (await browser.get(sent.headers["location"])).text
        hidden = re.search(r'name="undone" value="([^"]*)"', asked)
        assert hidden is not None
        form = {"undone": hidden[1], "next": "/queues"}
        wrong = (await browser.post("/login", data={**form, "token": "x" * 20})).text
        assert "This token is not known here." in wrong
        assert hidden[0] in wrong
        await browser.post("/login", data={**form, "token": READ})
        shown, again = [(await browser.get("/queues", headers={"accept": "text/html"})).text for _ in range(2)]
        assert [UNDONE in page for page in (asked, shown, again)] == [is_undone, is_undone, False]


@pytest.mark.parametrize("path", ["/nowhere", "/executions/%00", "/logout"])
async def test_people_are_told_on_a_page_what_programs_read_in_a_document(shop: Shop, path: str) -> None:
    async with client(build(shop.app)) as browser:
        page = await browser.get(path, headers={"accept": "text/html"})
        document = await browser.get(path)
    assert page.status_code == document.status_code
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert f"<p>{document.json()['detail']}</p>" in page.text
    assert page.headers["x-request-id"] in page.text
    assert page.headers.get("allow") == document.headers.get("allow")


async def test_a_form_that_is_too_old_is_said_on_a_page() -> None:
    async with client(forms(Tokens())) as browser:
        headers = {"origin": "http://localhost", "accept": "text/html"}
        refused = await browser.post("/act", data={"what": "<b>"}, headers=headers)
    assert refused.status_code == 403
    assert "load the page again" in refused.text
    assert refused.text.startswith("<!doctype html>")


async def test_every_answer_has_the_headers(shop: Shop) -> None:
    async with client(build(shop.app, dashboard=False)) as http:
        for path in ("/health", "/nowhere", "/login", "/api/v1/queues"):
            headers = (await http.get(path)).headers
            assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers
    assert "unsafe" not in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize(
    ("origin", "host", "is_same"),
    [
        ("http://localhost:8420", "localhost:8420", True),
        ("https://holdfast.example", "holdfast.example", True),
        ("http://localhost", "localhost:8420", False),
        ("http://localhost:8420", "127.0.0.1:8420", False),
        ("null", "localhost", False),
        ("http://[", "localhost", False),
    ],
)
def test_an_origin_is_the_same_by_name_and_port(origin: str, host: str, is_same: bool) -> None:
    assert is_same_origin(origin, "http", host) is is_same


def test_every_starlette_that_we_allow_can_make_the_guard() -> None:
    """Of 0.40 a middleware gets its application by name, so that it can take nothing else by position."""
    (given,) = build("never.db").user_middleware
    assert not given.args
