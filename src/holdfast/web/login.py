"""`/login` and `/logout`: a token for a session cookie, for browsers."""

from __future__ import annotations

from html import escape
from time import time
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.web.notices import Notice
from holdfast.web.security import SESSION_COOKIE, SESSION_SECONDS, Tokens

STYLESHEET: Final = "/static/app.css"
UNDONE: Final = "Your session had ended: nothing was done. Sign in, and do it again."

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Holdfast</title>
<script src="/static/theme.js"></script>
<link rel="stylesheet" href="{stylesheet}">
</head>
<body class="login">
<main class="login-card">
<h1>Holdfast</h1>
<form method="post" action="/login">
<input type="hidden" name="next" value="{there}">
<input type="hidden" name="undone" value="{undone}">
<p><label for="token">Token</label></p>
<p><input id="token" name="token" type="password" autocomplete="current-password" required autofocus></p>
{alert}
<p><button type="submit">Sign in</button></p>
</form>
</main>
</body>
</html>
"""


def routes(tokens: Tokens) -> list[Route]:
    async def show(request: Request) -> Response:
        undone = request.query_params.get("undone", "")
        return _page(request.query_params.get("next", "/"), undone, UNDONE if undone else "")

    async def enter(request: Request) -> Response:
        form = await request.form()
        there, undone = str(form.get("next", "/")), str(form.get("undone", ""))
        session = tokens.open_session(str(form.get("token", "")), time())
        if session is None:
            return _page(there, undone, "This token is not known here.", 401)
        response = RedirectResponse(_own_path(there), 303)
        response.set_cookie(
            SESSION_COOKIE,
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=_is_secure(request),
        )
        if undone:
            Notice(UNDONE, is_error=True).leave(response)
        return response

    async def leave(request: Request) -> Response:
        response = RedirectResponse("/login", 303)
        response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return response

    return [
        Route("/login", show, methods=["GET"]),
        Route("/login", enter, methods=["POST"]),
        Route("/logout", leave, methods=["POST"]),
    ]


def _is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy: of one on another machine only `Origin` tells it."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def _page(there: str, undone: str, alert: str, status: int = 200) -> Response:
    text = _PAGE.format(
        stylesheet=STYLESHEET,
        there=escape(_own_path(there)),
        undone="1" if undone else "",
        alert=f'<p role="alert">{alert}</p>' if alert else "",
    )
    return HTMLResponse(text, status)


def _own_path(text: str) -> str:
    """Only paths of this server: `//elsewhere` and `/\\elsewhere` are other hosts to a browser."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and "\\" not in text
    return text if is_own else "/"
