"""A webhook: events as HTTP POST, signed.

The body is the JSON of a `HookEvent`. `Holdfast-Signature: t=<seconds>,v1=<hex>` is the HMAC-SHA256, with the secret,
of `<seconds>.<body>`: `verify_signature` checks it. `Holdfast-Delivery` is the same for a repeated event. Any answer
but 2xx counts as failed; redirects are not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from time import time
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from holdfast.core.errors import HoldfastError, InvalidArgumentError
from holdfast.models.hooks import Hook, HookEvent, Occasion, check_occasions

TIMEOUT_SECONDS: Final = 10.0
TOLERANCE_SECONDS: Final = 300.0


class WebhookError(HoldfastError):
    """The other side did not take an event."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirects)


def webhook(url: str, events: Sequence[Occasion], secret: str | None, name: str | None) -> Hook:
    check_occasions(events)
    parts = _checked(url)
    if secret is not None:
        _check_secret(secret)
    chosen = name or f"webhook:{parts.hostname}:{hashlib.sha256(url.encode()).hexdigest()[:12]}"

    async def deliver(event: HookEvent) -> None:
        await asyncio.to_thread(_post, url, parts.hostname or "", secret, event)

    return Hook(chosen, tuple(events), deliver)


def _checked(url: str) -> SplitResult:
    """Here, where it is declared, and without quoting it: a URL may hold a secret."""
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise InvalidArgumentError("the URL of a webhook begins with https:// or http:// and names a host")
    if "@" in parts.netloc:
        raise InvalidArgumentError("the URL of a webhook has a user or password in it: sign it with a secret instead")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidArgumentError("the URL of a webhook has spaces or other characters that must be percent-encoded")
    return parts


def _check_secret(secret: str) -> None:
    """An empty one, such as a variable that is not set, signs nothing: anybody makes the same signature."""
    if not secret:
        raise InvalidArgumentError("the secret of a webhook is empty: set it, or leave it out to sign nothing")


def _post(url: str, host: str, secret: str | None, event: HookEvent) -> None:
    body = msgspec.json.encode(event)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "holdfast",
        "Holdfast-Event": event.event,
        "Holdfast-Delivery": event.delivery,
    }
    if secret is not None:
        headers["Holdfast-Signature"] = sign(secret, body, int(time()))
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    # Of errors only the host is told: a URL may hold a secret.
    try:
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    except (OSError, HTTPException) as error:
        raise WebhookError(f"{host} could not be reached: {type(error).__name__}") from None
    if not 200 <= status < 300:
        raise WebhookError(f"{host} answered {status}")


def sign(secret: str, body: bytes, seconds: int) -> str:
    """The value of `Holdfast-Signature`."""
    _check_secret(secret)
    digest = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def verify_signature(secret: str, body: bytes, signature: str, *, now: float | None = None) -> bool:
    """For whoever receives: whether the body was signed with this secret, not longer ago than five minutes."""
    _check_secret(secret)
    parts = dict(part.partition("=")[::2] for part in signature.split(","))
    seconds = parts.get("t", "")
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 16):
        return False
    is_fresh = abs((time() if now is None else now) - int(seconds)) <= TOLERANCE_SECONDS
    return is_fresh and hmac.compare_digest(sign(secret, body, int(seconds)).encode(), signature.encode())
