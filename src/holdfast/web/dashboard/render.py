"""Templates, their filters, and what every page knows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from markupsafe import Markup
from msgspec import Raw
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast.app import App
from holdfast.core.clock import to_datetime
from holdfast.core.errors import ConfigurationError
from holdfast.core.status import Status
from holdfast.models.flow.flow import Flow
from holdfast.models.machine.definition import MachineDefinition
from holdfast.store.base import Store
from holdfast.web.dashboard import words
from holdfast.web.dashboard.gantt import failure_text
from holdfast.web.dashboard.json_view import json_view, one_line
from holdfast.web.notices import Notice
from holdfast.web.security import CSRF_FIELD, Role, access_of, csrf_token, may

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
ERROR_MAX: Final = 5_000
EVENTS_URL: Final = "/api/v1/events?overview=true"


class Link(NamedTuple):
    title: str
    path: str


NAVIGATION: Final[tuple[tuple[str, tuple[Link, ...]], ...]] = (
    ("", (Link("Overview", "/"), Link("Executions", "/executions"), Link("Dead letters", "/dead-letters"))),
    (
        "Models",
        (
            Link("Machines", "/machines"),
            Link("Flows", "/flows"),
            Link("Batches", "/batches"),
            Link("Operations", "/operations"),
        ),
    ),
    ("Engine", (Link("Queues", "/queues"), Link("Schedules", "/schedules"), Link("Workers", "/workers"))),
)


@dataclass(frozen=True, slots=True)
class Site:
    """What the pages read and act on."""

    app: App
    operations: Path | None = None  # a folder of operations
    csrf_token: Callable[[Request], str] = csrf_token
    may_operate: Callable[[Request], bool] = lambda request: may(request, Role.OPERATE)
    may_administer: Callable[[Request], bool] = lambda request: may(request, Role.ADMIN)

    async def store(self) -> Store:
        return await self.app.store()

    def find_machine(self, name: str, version: int | None = None) -> MachineDefinition | None:
        """The code, where this process has it."""
        try:
            return self.app._machines.find(name, version)
        except ConfigurationError:
            return None

    def find_flow(self, name: str, version: int | None = None) -> Flow | None:
        """The same of a flow."""
        flows = self.app._flows
        if version is None:
            return flows.find(name)
        return next((flow for flow in flows.jobs.values() if (flow.name, flow.version) == (name, version)), None)


class Page:
    """One answer to one request: everything is as of one moment of the store's clock."""

    def __init__(self, site: Site, request: Request, store: Store, now_us: int) -> None:
        self.site = site
        self.request = request
        self.store = store
        self.now_us = now_us
        self.now: datetime = to_datetime(now_us)

    @classmethod
    async def of(cls, site: Site, request: Request) -> Page:
        store = await site.store()
        return cls(site, request, store, await store.now_us())

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "").strip()

    def render(self, template: str, *, here: str, title: str, status: int = 200, **values: Any) -> Response:
        notice = Notice.taken_from(self.request)
        text = (
            _environment()
            .get_template(template)
            .render(
                here=here,
                title=title,
                now=self.now,
                base="",
                navigation=NAVIGATION,
                csrf_field=CSRF_FIELD,
                csrf_token=self.site.csrf_token(self.request),
                may_operate=self.site.may_operate(self.request),
                may_administer=self.site.may_administer(self.request),
                has_session=access_of(self.request).via == "session",
                flash=notice,
                **{"events_url": EVENTS_URL, "live_words": "connecting", "poll_seconds": 0, **values},
            )
        )
        response = HTMLResponse(text, status_code=status)
        response.headers["Cache-Control"] = "no-store"
        if notice is not None:
            notice.forget(response)
        return response


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        iso=words.iso,
        exact=words.exact,
        status_words=lambda value: words.STATUS_WORDS[Status(value)],
        status_hint=lambda value: words.STATUS_HINTS[Status(value)],
        length_us=words.length,
        took=lambda delta: words.length(max(timedelta(), delta) / timedelta(microseconds=1)),
        number=words.number,
        compact=words.compact,
        counted=words.counted,
        json=_json,
        one_line=lambda value, limit=80: one_line(_text(value), limit),
        segment=lambda text: quote(text, safe=""),
        error_line=error_line,
        error_text=error_text,
        plain_line=lambda value, limit=80: one_line(_plain(value), limit),
        failure_text=failure_text,
    )
    environment.globals["amount"] = words.amount
    environment.filters["ago"] = _relative(words.ago)
    environment.filters["age"] = _relative(words.age)
    environment.globals["static"] = static_path
    return environment


def _relative(tell: Callable[[datetime, datetime], str]) -> Callable[..., str]:
    @pass_context
    def shown(context: Any, moment: datetime) -> str:
        return tell(moment, context["now"])

    return shown


@lru_cache(maxsize=16)
def static_path(name: str) -> str:
    """With a part of its content's hash: it may be kept for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def _text(value: object) -> str | bytes | None:
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, Raw):
        return bytes(value)
    return msgspec.json.encode(value)


def _plain(value: object) -> str | bytes:
    """JSON of a decoded value, or what it says of itself where it has none."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _json(value: object, opened: bool = True) -> Markup:
    return json_view(_text(value), opened=opened)


def error_line(value: object, limit: int = 300) -> str:
    """A recorded error in one line: `ValueError: no`."""
    return one_line(" ".join(error_text(value).split()), limit)


def error_text(value: object) -> str:
    """A recorded error as it was said, with its lines."""
    text = _text(value)
    if text is None:
        return ""
    try:
        record = msgspec.json.decode(text)
    except msgspec.DecodeError:
        record = None
    if not isinstance(record, dict):
        return one_line(text, ERROR_MAX)
    return one_line(": ".join(str(record[part]) for part in ("type", "message") if record.get(part)), ERROR_MAX)
