"""The middleware around everything: who asks, from where, how much; request ids, errors, headers.

In this order: a request id; the Host header (without a token only names of loopback are served, so that a foreign name
that resolves to 127.0.0.1 gets nothing: DNS rebinding); who asks (of strangers no body is read, but at the login); the
size of the body; Origin and CSRF of what a browser sends; then the application. Whatever it raises is answered with a
problem document, to a person's browser with a page.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import MutableMapping
from time import time
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web.problems import Problem, is_expected, page_of, problem_of, response_of
from holdfast.web.security import (
    CSRF_COOKIE,
    CSRF_FIELD,
    CSRF_HEADER,
    HEADERS,
    NOBODY,
    SAFE_METHODS,
    SESSION_COOKIE,
    Access,
    Role,
    Tokens,
    host_name,
    is_csrf_token,
    is_loopback,
    is_same_origin,
    require,
)

log = logging.getLogger("holdfast.web")

BODY_MAX_BYTES: Final = 4 * 1024 * 1024
LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
LOGIN_MAX_BYTES: Final = 64 * 1024  # of a form that strangers may send: what reads it takes a microsecond a byte
LOGIN_SECONDS: Final = 30.0
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FORM: Final = "application/x-www-form-urlencoded"
_CSRF_NONCE: Final = re.compile(r"[0-9a-f]{32}")


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, body_max_bytes: int = BODY_MAX_BYTES) -> None:
        # By name alone: Starlette 0.40 gives a middleware its application by name, after all that has none.
        self._app = app
        self._tokens = tokens
        self._body_max_bytes = body_max_bytes
        self._key = secrets.token_bytes(32)  # of CSRF tokens on loopback, where there is no session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()

    # ------------------------------------------------------------------ who asks

    def access(self, headers: Headers, cookies: MutableMapping[str, str]) -> Access:
        if not len(self._tokens):
            nonce = cookies.get(CSRF_COOKIE, "")
            return Access(Role.ADMIN, "loopback", self._key + nonce.encode() if nonce else b"")
        given = headers.get("authorization")
        if given is not None:
            scheme, _, token = given.partition(" ")
            found = self._tokens.find(token.strip()) if scheme.lower() == "bearer" else None
            return NOBODY if found is None else Access(found[1], "token")
        session = cookies.get(SESSION_COOKIE)
        return NOBODY if session is None else self._tokens.session(session, time())

    @property
    def is_open(self) -> bool:
        """Without tokens: for this machine only."""
        return not len(self._tokens)


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard = guard
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = Headers(scope=scope)
        self._new_cookie: str | None = None
        self._began = False
        given = self._headers.get("x-request-id", "")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)

    async def run(self) -> None:
        scope = self._scope
        state = scope.setdefault("state", {})
        state["request_id"] = self.request_id
        try:
            self._check_host()
            if "\0" in scope["path"]:  # no name or id holds one, and PostgreSQL takes none
                raise Problem(404, "not-found", "there is no such path")
            cookies = cookie_parser(self._headers.get("cookie", ""))
            if self._guard.is_open and not _CSRF_NONCE.fullmatch(cookies.get(CSRF_COOKIE, "")):
                self._new_cookie = cookies[CSRF_COOKIE] = secrets.token_hex(16)
            state["access"] = self._guard.access(self._headers, cookies)
            receive = self._receive
            if scope["method"] not in SAFE_METHODS:
                if scope["path"] != LOGIN:
                    require(Request(scope), Role.READ)
                body = await self._read_body()
                self._check_browser(body)
                receive = _replay(body, self._receive)
            await self._guard._app(scope, receive, self._answer)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception as error:
            await self._fail(error)

    def _check_host(self) -> None:
        if self._guard.is_open and not is_loopback(host_name(self._headers.get("host", ""))):
            raise Problem(421, "bad-host", "without a token only localhost, 127.0.0.1 and [::1] are served")

    async def _read_body(self) -> bytes:
        if self._scope["path"] != LOGIN:
            return await self._read_at_most(self._guard._body_max_bytes)
        try:
            async with asyncio.timeout(LOGIN_SECONDS):
                return await self._read_at_most(min(self._guard._body_max_bytes, LOGIN_MAX_BYTES))
        except TimeoutError:
            raise Problem(400, "invalid", f"the form did not arrive within {LOGIN_SECONDS:.0f} seconds") from None

    async def _read_at_most(self, most: int) -> bytes:
        length = self._headers.get("content-length", "")
        if length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > most):
            raise _too_large(most)
        body = bytearray()
        while (message := await self._receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                return bytes(body)
        raise ClientDisconnect  # a part of a request may read as another request: nothing is done

    def _check_browser(self, body: bytes) -> None:
        """What a browser sends on its own behalf must come from a page of ours. A token in a header proves as much."""
        access = self._scope["state"]["access"]
        headers = self._headers
        if access.via == "token":
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            raise Problem(403, "bad-origin", "this was sent by a page of another site")
        if origin is not None and not is_same_origin(origin, self._scope["scheme"], headers.get("host", "")):
            raise Problem(403, "bad-origin", "this was sent by a page of another site")
        is_browser = origin is not None or site is not None or access.via == "session"
        if not is_browser or access.role is None:
            return
        given = headers.get(CSRF_HEADER, "")
        if not given and headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
            given = parse_qs(body.decode("utf-8", "replace")).get(CSRF_FIELD, [""])[0]
        if not is_csrf_token(Request(self._scope), given):
            raise Problem(403, "bad-csrf", "the form carries no valid CSRF token: load the page again and repeat")

    # ------------------------------------------------------------------ answering

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._began = True
            headers = message["headers"] = [_without_host(*line) for line in message.get("headers", [])]
            present = {name.lower() for name, _ in headers}
            added = {**HEADERS, "x-request-id": self.request_id}
            if not any(name == b"cache-control" for name in present):
                added["cache-control"] = "no-store"
            headers.extend((k.encode(), v.encode()) for k, v in added.items() if k.encode() not in present)
            is_page = any(k.lower() == b"content-type" and v.startswith(b"text/html") for k, v in headers)
            if self._new_cookie is not None and is_page:  # programs have no forms
                cookie = f"{CSRF_COOKIE}={self._new_cookie}; HttpOnly; Path=/; SameSite=Strict"
                headers.append((b"set-cookie", cookie.encode()))
        await self._send(message)

    async def _fail(self, error: Exception) -> None:
        if not is_expected(error):
            path = self._scope["path"]
            log.error("%s %r failed, request id %s", self._scope["method"], path, self.request_id, exc_info=error)
        if self._began:
            raise error
        problem = problem_of(error)
        response: Response = response_of(problem, self.request_id)
        if self._wants_page():
            response = page_of(problem, self.request_id)
            if problem.status == 401:
                is_done = self._scope["method"] in SAFE_METHODS or self._scope["path"] == LOGOUT
                undone = "" if is_done else "&undone=1"
                response = RedirectResponse(f"{LOGIN}?next={quote(self._way_back(), safe='/')}{undone}", 303)
        await response(self._scope, self._receive, self._answer)

    def _way_back(self) -> str:
        """Where to go on after signing in: this page with its filters, or the one whose form was sent."""
        if self._scope["method"] in SAFE_METHODS:
            path = self._scope.get("raw_path") or quote(self._scope["path"]).encode()
            query = self._scope.get("query_string", b"")
            return bytes(path + (b"?" + query if query else b"")).decode("latin-1")
        page = self._headers.get("referer", "")
        if not is_same_origin(page, self._scope["scheme"], self._headers.get("host", "")):
            return "/"
        return urlsplit(page)._replace(scheme="", netloc="", fragment="").geturl() or "/"

    def _wants_page(self) -> bool:
        is_api = self._scope["path"].startswith(("/api/", "/metrics"))
        return not is_api and "text/html" in self._headers.get("accept", "")


def http_problem(error: HTTPException) -> Problem:
    """What Starlette itself refuses."""
    if error.status_code == 404:
        return Problem(404, "not-found", "there is no such path")
    if error.status_code == 405:
        return Problem(405, "method-not-allowed", "the path has no such method", headers=error.headers)
    return Problem(error.status_code, "invalid", error.detail)


def _too_large(most: int) -> Problem:
    return Problem(413, "too-large", f"the body is over the limit of {most} bytes")


def _without_host(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A path to go on to, where Starlette (of one slash too many) names a host: behind TLS it would lead out of it."""
    if name.lower() == b"location" and value.startswith((b"http://", b"https://")):
        return name, b"/" + value.split(b"/", 2)[2].partition(b"/")[2].lstrip(b"/")
    return name, value


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, once more; then whatever comes, such as a disconnect."""
    given = False

    async def again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
