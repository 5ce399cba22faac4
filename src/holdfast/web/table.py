"""The routes of the API as data: routing, roles, the OpenAPI document and the tests are all made from `ROUTES`.

A handler gets a `Call` and gives back the struct that its route says, or a response of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, get_origin

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from holdfast.app import App
from holdfast.store.base import Store
from holdfast.web.problems import Problem
from holdfast.web.requests import Nothing
from holdfast.web.security import Access, Role
from holdfast.web.streams import Streams

S = TypeVar("S", bound=Struct)

PREFIX: Final = "/api/v1"
EVENT_STREAM: Final = "text/event-stream"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one route, its parts already checked."""

    request: Request
    app: App
    store: Store
    streams: Streams
    query: Any
    body: Any

    @property
    def reader(self) -> str:
        """Who reads, as far as that is known: a session, or where there is none an address."""
        access: Access = self.request.state.access
        if access.via == "session":
            return access.csrf_secret.hex()
        return "" if self.request.client is None else self.request.client.host

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`role` None: open to everybody."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    name: str
    tag: str
    role: Role | None
    summary: str
    handler: Handler
    answer: type
    query: type[Struct] = Nothing
    body: type[Struct] | None = None
    status: int = 200
    media: str = JSON
    problems: tuple[int, ...] = ()
    extra_statuses: Mapping[int, str] = field(default_factory=dict)


def on_executions(
    method: Literal["GET", "POST"],
    tag: str,
    role: Role,
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    answer: type,
    **more: Any,
) -> Route:
    """A route below `/executions`; what it names may not be there, or be one of several."""
    return Route(
        method=method,
        path=f"/executions{path}",
        name=name,
        tag=tag,
        role=role,
        summary=summary,
        handler=handler,
        answer=answer,
        problems=(404, 409),
        **more,
    )


async def respond(route: Route, call: Call) -> Response:
    answer = await route.handler(call)
    if isinstance(answer, Response):
        return answer
    return Response(msgspec.json.encode(answer), route.status, media_type=JSON)


# ---------------------------------------------------------------------- reading what was sent


def read_query(route: Route, request: Request) -> Struct:
    """The query as its struct; an unknown or repeated parameter is an error, not a typo that goes unnoticed."""
    lists = {part.encode_name for part in msgspec.structs.fields(route.query) if _is_list(part.type)}
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Problem(422, "invalid", f"the parameter {name!r:.100} is given twice")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", f"the query is not valid: {error}") from None


def _is_list(kind: Any) -> bool:
    inner = getattr(kind, "__origin__", kind)
    return list in (get_origin(kind), get_origin(inner), inner)


async def read_body(kind: type[S], request: Request) -> S:
    text = await request.body()
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if text and media != JSON:
        raise Problem(415, "unsupported-media-type", f"send {JSON}")
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", f"the body is not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "invalid", f"the body is no JSON: {error}") from None
