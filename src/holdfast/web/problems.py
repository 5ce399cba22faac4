"""Errors as problem documents (RFC 9457), and as a page for people: what happened, what to do, no stack trace."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from starlette.responses import HTMLResponse, Response

from holdfast.core.errors import (
    AmbiguousIdError,
    ClosedError,
    ConfigurationError,
    HoldfastError,
    InvalidArgumentError,
    KeyConflictError,
    NotFoundError,
    PayloadError,
    PayloadTooLargeError,
    SignalRefusedError,
    StoreError,
    StoreUnavailableError,
    UniqueConflictError,
)

MEDIA_TYPE: Final = "application/problem+json"
PREFIX: Final = "urn:holdfast:problem:"
DETAIL_MAX_CHARS: Final = 2_000  # an error may quote what was sent

TITLES: Final = {
    "invalid": "The request is not valid",
    "unauthorized": "A token is needed",
    "forbidden": "The token may not do this",
    "bad-host": "The request was sent to another host",
    "bad-origin": "The request comes from another site",
    "bad-csrf": "The form is too old, or not ours",
    "not-found": "There is no such thing",
    "ambiguous": "The id fits more than one execution",
    "method-not-allowed": "The path has no such method",
    "key-conflict": "The key was used with another input",
    "unique-conflict": "Another execution occupies the unique key",
    "refused": "What was asked for cannot be done now",
    "too-large": "The body is too large",
    "unsupported-media-type": "The body is no JSON",
    "too-many": "One reader has too many open streams",
    "unavailable": "The ledger cannot be reached",
    "internal": "Something went wrong here",
}


class ProblemDocument(Struct, frozen=True, kw_only=True):
    """What went wrong, for programs (`type`) and people (`title`, `detail`)."""

    type: Annotated[str, Meta(description=f"Stable: `{PREFIX}` and one of {', '.join(TITLES)}")]
    title: str
    status: int
    detail: str
    request_id: Annotated[str, Meta(description="Also in the header X-Request-ID, and in the server's log")]


class Problem(HoldfastError):  # noqa: N818  (the word of RFC 9457)
    """An answer that is an error. `word` is the end of its type."""

    def __init__(self, status: int, word: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        assert word in TITLES, word
        self.status = status
        self.word = word
        self.detail = detail if len(detail) <= DETAIL_MAX_CHARS else f"{detail[:DETAIL_MAX_CHARS]}…"
        self.headers = dict(headers or {})


_KINDS: Final[tuple[tuple[type[HoldfastError], int, str], ...]] = (
    (NotFoundError, 404, "not-found"),
    (AmbiguousIdError, 409, "ambiguous"),
    (KeyConflictError, 409, "key-conflict"),
    (UniqueConflictError, 409, "unique-conflict"),
    (SignalRefusedError, 409, "refused"),
    (PayloadTooLargeError, 413, "too-large"),
    (PayloadError, 422, "invalid"),
    (InvalidArgumentError, 422, "invalid"),
    (StoreUnavailableError, 503, "unavailable"),
    (ClosedError, 503, "unavailable"),
)


def problem_of(error: Exception) -> Problem:
    """What a stranger may know of an error. What is not known to be harmless is not told."""
    if isinstance(error, Problem):
        return error
    for kind, status, word in _KINDS:
        if isinstance(error, kind):
            detail = "the ledger cannot be reached; try again" if status == 503 else str(error)
            return Problem(status, word, detail)
    return Problem(500, "internal", "an error that is in the server's log under this request id")


def is_expected(error: Exception) -> bool:
    """Whether it is an answer to a client, and not a fault of ours."""
    return isinstance(error, HoldfastError) and not isinstance(error, (ConfigurationError, StoreError))


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Holdfast</title>
<script src="/static/theme.js"></script>
<link rel="stylesheet" href="/static/app.css">
</head>
<body class="login">
<main class="login-card">
<h1>{title}</h1>
<p>{detail}</p>
<p><small>Request {request_id}</small></p>
<p><a href="/">Overview</a></p>
</main>
</body>
</html>
"""


def page_of(problem: Problem, request_id: str) -> Response:
    """The same for a person, where there is no page of the dashboard to say it on."""
    title, detail = escape(TITLES[problem.word]), escape(problem.detail)
    return HTMLResponse(
        _PAGE.format(title=title, detail=detail, request_id=request_id), problem.status, _headers_of(problem)
    )


def response_of(problem: Problem, request_id: str) -> Response:
    document = ProblemDocument(
        type=PREFIX + problem.word,
        title=TITLES[problem.word],
        status=problem.status,
        detail=problem.detail,
        request_id=request_id,
    )
    return Response(msgspec.json.encode(document), problem.status, _headers_of(problem), MEDIA_TYPE)


def _headers_of(problem: Problem) -> dict[str, str]:
    return problem.headers | ({"www-authenticate": 'Bearer realm="holdfast"'} if problem.status == 401 else {})
