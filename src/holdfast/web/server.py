"""The application, and how it is served.

`build` makes a Starlette application of an app, a store or a URL: `/api/v1`, `/metrics`, `/health`, `/ready`, and the
dashboard at `/`. `serve` runs it with uvicorn on the running event loop, so that a worker may share the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount
from starlette.routing import Route as StarletteRoute
from starlette.types import Scope

from holdfast.app import App
from holdfast.core.errors import ConfigurationError, HoldfastError
from holdfast.core.identity import ROOT_BYTES
from holdfast.store.base import Store
from holdfast.web import login, openapi
from holdfast.web.api import ROUTES
from holdfast.web.connections import PromptProtocol
from holdfast.web.guard import BODY_MAX_BYTES, Guard, http_problem
from holdfast.web.metrics import Metrics
from holdfast.web.problems import Problem
from holdfast.web.security import TOKENS_VARIABLE, Role, Tokens, check_binding, csrf_token, may, require
from holdfast.web.streams import Streams
from holdfast.web.table import EVENT_STREAM, JSON, PREFIX, Call, Route, read_body, read_query, respond

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8420
APP_NAME: Final = "holdfast-web"
DRAIN_SECONDS: Final = 5
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def build(
    source: App | Store | str,
    *,
    tokens: Tokens | None = None,
    operations: Path | None = None,
    body_max_bytes: int = BODY_MAX_BYTES,
    streams: Streams | None = None,
    dashboard: bool = True,
) -> Starlette:
    """The application. An app that is handed in stays its owner's to close; a store or URL is opened anew here.

    Without `tokens` everything is open, but only to requests for a name of loopback: see `security`. `operations` is
    a folder of operations for the dashboard.
    """
    app = source if isinstance(source, App) else App(APP_NAME, source if isinstance(source, str) else source.sibling())
    known = tokens if tokens is not None else Tokens()
    live = streams if streams is not None else Streams()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            live.close()
            if app is not source:
                await app.close()

    routes: list[BaseRoute] = [
        StarletteRoute("/health", _health, methods=["GET"]),
        StarletteRoute("/ready", _ready(app), methods=["GET"]),
        StarletteRoute("/metrics", _metrics(app), methods=["GET"]),
        *login.routes(known),
        Mount(PREFIX, routes=[_openapi_route(), *(_api_route(route, app, live) for route in ROUTES)]),
    ]
    if dashboard:
        routes += _dashboard(app, operations)
    built = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, tokens=known, body_max_bytes=body_max_bytes)],
        exception_handlers={HTTPException: _raise_http, HoldfastError: _raise},
    )
    built.state.streams = live
    return built


def tokens_from_environment() -> Tokens:
    """Of `HOLDFAST_TOKENS`: `read:<token>,admin:<token>`."""
    return Tokens.parse(os.environ.get(TOKENS_VARIABLE, ""))


async def serve(
    source: App | Store | str,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    tokens: Tokens | None = None,
    operations: Path | None = None,
    handle_signals: bool = True,
    on_up: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGINT or SIGTERM, or until cancelled. `ConfigurationError` off loopback without a token.

    Tokens are those of `HOLDFAST_TOKENS` unless given. With `handle_signals=False` the caller's own handlers stay, and
    cancelling is how to stop. `on_up` is called with the URL once it listens.
    """
    known = tokens if tokens is not None else tokens_from_environment()
    check_binding(host, known)
    loop = asyncio.get_running_loop()
    with listening(host, port) as listener:
        server = make_server(build(source, tokens=known, operations=operations), host, port)
        for number in SIGNALS if handle_signals else ():
            loop.add_signal_handler(number, server.stop)
        serving = asyncio.ensure_future(server.serve([listener]))
        up = asyncio.ensure_future(server.is_up.wait())
        try:
            await asyncio.wait([serving, up], return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                on_up(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/")
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.stop()
            await serving
            raise
        finally:
            up.cancel()
            for number in SIGNALS if handle_signals else ():
                loop.remove_signal_handler(number)


def listening(host: str, port: int) -> socket.socket:
    """Bound here: uvicorn would end the process if the port is taken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"could not serve on {host} port {port}: {reason}; use another --port") from error


class Server(uvicorn.Server):
    """Leaves signals to its caller. `is_up` once it listens; `stop` ends the open streams, which it would wait for."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        application: Any = self.config.app
        application.state.streams.close()
        self.should_exit = True


def make_server(application: Starlette, host: str, port: int) -> Server:
    return Server(
        uvicorn.Config(
            application,
            host=host,
            port=port,
            http=PromptProtocol,  # of h11, the one that limits the size of headers
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
    )


# ---------------------------------------------------------------------- the routes


def _api_route(route: Route, app: App, streams: Streams) -> StarletteRoute:
    async def endpoint(request: Request) -> Response:
        if route.role is not None:
            require(request, route.role)
        query = read_query(route, request)
        if request.method == "HEAD" and route.media == EVENT_STREAM:
            return Response(media_type=EVENT_STREAM)  # a stream has no end, and nobody would read it
        body = None if route.body is None else await read_body(route.body, request)
        call = Call(request, app, await app.store(), streams, query, body)
        return await respond(route, call)

    # Names may hold a slash, which arrives as one whether it was percent-encoded or not.
    path = route.path.replace("{name}", "{name:path}")
    return StarletteRoute(path, endpoint, methods=[route.method], name=route.name)


def _openapi_route() -> StarletteRoute:
    text = msgspec.json.encode(openapi.document(ROUTES))

    async def endpoint(_: Request) -> Response:
        return Response(text, media_type=JSON)

    return StarletteRoute("/openapi.json", endpoint, methods=["GET"])


async def _health(_: Request) -> Response:
    """The process lives; nothing is asked of the ledger."""
    return Response(b'{"status":"ok"}', media_type=JSON)


def _ready(app: App) -> Any:
    async def endpoint(_: Request) -> Response:
        """The ledger answers; else 503. It is read: the time of a SQLite ledger is that of its machine."""
        await (await app.store()).get(bytes(ROOT_BYTES))
        return Response(b'{"status":"ready"}', media_type=JSON)

    return endpoint


def _metrics(app: App) -> Any:
    metrics = Metrics()

    async def endpoint(request: Request) -> Response:
        require(request, Role.READ)
        return Response(await metrics.render(await app.store()), media_type=metrics.media_type)

    return endpoint


def _dashboard(app: App, operations: Path | None) -> list[BaseRoute]:
    from holdfast.web.dashboard.render import Site
    from holdfast.web.dashboard.routes import routes

    site = Site(app, operations, csrf_token, lambda request: may(request, Role.OPERATE))
    return list(routes(site))


def _raise(_: Request, error: Exception) -> Response:
    raise error  # to the guard, which answers it


def _raise_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        scope = {**request.scope, "root_path": request.scope.get("app_root_path", "")}
        error.headers = {"allow": ", ".join(sorted(_methods(request.app.routes, scope)))}
    problem: Problem = http_problem(error)
    raise problem


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> set[str]:
    """Of all routes with this path; Starlette names those of the first."""
    found: set[str] = set()
    for route in routes:
        match, below = route.matches(scope)
        if match is not Match.NONE:
            found |= _methods(getattr(route, "routes", None) or [], {**scope, **below})
            found |= getattr(route, "methods", None) or set()
    return found
