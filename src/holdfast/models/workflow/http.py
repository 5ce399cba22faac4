"""`ctx.http`: an HTTP request as a durable call (InvokeKind Http), on httpx, which comes with the extra `http`.

It is a task of Holdfast's own: inline, with retries and a timeout. Connections that fail, and answers that say "later"
(408, 425, 429 and every 5xx), are tried again by the policy; any other answer is a result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from msgspec import Struct

from holdfast.core.codec import annotation_of, codec_for
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import ConfigurationError, HoldfastError, InvalidArgumentError, PayloadTooLargeError
from holdfast.core.journal.events import InvokeKind
from holdfast.core.retry import RetryPolicy
from holdfast.models.workflow.current import current
from holdfast.models.workflow.task import Task

T = TypeVar("T")

LATER: Final = frozenset({408, 425, 429})
REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
TIMEOUT_SECONDS: Final = 30.0
CHARACTER_MAX_BYTES: Final = 4  # in any encoding: an answer of more bytes has more characters than the limit has bytes
IDEMPOTENCY_HEADER: Final = "Idempotency-Key"


class HttpRequest(Struct, frozen=True):
    method: str
    url: str
    headers: dict[str, str] = {}
    body: str | None = None


class HttpResponse(Struct, frozen=True):
    """What came back. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def is_success(self) -> bool:
        """Whether the status is from 200 to 299."""
        return 200 <= self.status < 300

    def json(self, as_type: type[T] | None = None) -> Any:
        """The body, decoded; as a type if one is given."""
        return codec_for(Any if as_type is None else as_type).decode(self.text)


class HttpLaterError(HoldfastError):
    """The other side asked to be tried again later, or is broken."""


def sender(payload_limit: int) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """What makes one attempt. What cannot be recorded is not read to its end either: it may have none, or be a bomb."""

    async def send(request: HttpRequest) -> HttpResponse:
        httpx = import_httpx()
        headers = dict(request.headers)
        if request.method not in REPEATABLE and not any(name.lower() == IDEMPOTENCY_HEADER.lower() for name in headers):
            headers[IDEMPOTENCY_HEADER] = current().idempotency_key  # the same in every attempt
        content = None if request.body is None else request.body.encode()
        async with (
            httpx.AsyncClient(timeout=None, follow_redirects=True) as client,
            client.stream(request.method, request.url, headers=headers, content=content) as answer,
        ):
            if answer.status_code in LATER or answer.status_code >= 500:
                raise HttpLaterError(f"{request.method} {request.url} was answered with {answer.status_code}")
            body = bytearray()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > CHARACTER_MAX_BYTES * payload_limit:
                    raise PayloadTooLargeError(
                        f"the answer to {request.method} {request.url} is over the limit of {payload_limit} bytes: "
                        "fetch it in a task that keeps it elsewhere, or raise payload_limit= of the App"
                    )
            text = body.decode(answer.encoding or "utf-8", "replace")
        return HttpResponse(answer.status_code, dict(answer.headers), text)

    return send


class HttpTask(Task[[HttpRequest], HttpResponse]):
    invoke_kind: InvokeKind = "Http"


def make_request(
    method: str, url: str, *, headers: Mapping[str, str] | None, json: object, content: str | None
) -> HttpRequest:
    """A checked request."""
    if not isinstance(method, str) or not method.isalpha():
        raise InvalidArgumentError(f"{method!r} is no method of HTTP; use 'GET', 'POST', ...")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidArgumentError(f"{url!r} is no whole URL: it begins with http:// or https://")
    if json is not None and content is not None:
        raise InvalidArgumentError("a request has one body: give json= or content=, not both")
    given = dict(headers or {})
    body = content
    if json is not None:
        body = codec_for(annotation_of(json)).encode(json)
        given.setdefault("content-type", "application/json")
    return HttpRequest(method.upper(), url, given, body)


def http_task(retry: RetryPolicy | None, timeout: Duration | None, payload_limit: int) -> HttpTask:
    limit = TIMEOUT_SECONDS if timeout is None else seconds(timeout, name="timeout")
    return _http_task(retry or RetryPolicy(), limit, payload_limit)


@lru_cache(maxsize=256)
def _http_task(retry: RetryPolicy, timeout_seconds: float, payload_limit: int) -> HttpTask:
    return HttpTask(
        sender(payload_limit),
        name="http",
        make_starter=_cannot_start,
        payload_limit=payload_limit,
        retry=retry,
        timeout=timeout_seconds,
    )


def _cannot_start(task: Any) -> Any:
    raise InvalidArgumentError("an HTTP request is a call of a workflow: use ctx.http")


def import_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ConfigurationError(
            "ctx.http needs httpx, which this worker has not: pip install 'holdfast[http]'; a worker with it goes on"
        ) from None
    return httpx


def has_httpx() -> bool:
    return find_spec("httpx") is not None
