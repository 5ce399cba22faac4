"""Who may do what: tokens and roles, sessions of browsers, CSRF, Host and Origin, response headers.

For the dashboard. `guard.Guard` has already done all of this when a page or an action is called:

- `access_of(request)` says who asks: `.role` (or None), `.via` ("token", "session", "loopback" or "nobody").
  `require(request, Role.OPERATE)` raises a 403 that is shown as a page to browsers and as a problem to programs.
- `csrf_token(request)` goes into a hidden field `csrf_token` of every form (or into the header `X-CSRF-Token` of a
  fetch). The guard checks it on every unsafe method that a browser sends with a session or on loopback, together with
  `Origin` and `Sec-Fetch-Site`: an action needs to check nothing itself.
- Every response gets `HEADERS` and `CONTENT_SECURITY_POLICY`: no inline script, no style attribute, nothing from
  elsewhere.
- Who has no access and asks for a page is sent to `/login`, which takes a token and gives a session cookie.

A session is a signed cookie, made with the hash of the token that was posted: it needs no memory, survives a restart,
and ends when the token is taken out or after `SESSION_SECONDS`. Tokens are kept as hashes only and never logged.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from starlette.requests import Request

from holdfast.core.errors import ConfigurationError
from holdfast.web.problems import Problem

TOKENS_VARIABLE: Final = "HOLDFAST_TOKENS"
TOKEN_MIN_CHARS: Final = 16
SESSION_COOKIE: Final = "holdfast_session"
CSRF_COOKIE: Final = "holdfast_csrf"
CSRF_FIELD: Final = "csrf_token"
CSRF_HEADER: Final = "x-csrf-token"
SESSION_SECONDS: Final = 12 * 3_600
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Role(IntEnum):
    """Each may do what those before it may."""

    READ = 1
    OPERATE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks."""

    role: Role | None
    via: Literal["token", "session", "loopback", "nobody"]
    csrf_secret: bytes = b""


NOBODY: Final = Access(None, "nobody")


class Tokens:
    """Bearer tokens and their roles; only their hashes are kept."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._roles: dict[bytes, Role] = {}
        for role, token in pairs:
            if role.upper() not in Role.__members__:
                raise ConfigurationError(f"{role!r} is no role of a token: write read:..., operate:... or admin:...")
            if len(token) < TOKEN_MIN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
                raise ConfigurationError(
                    f"a token of the role {role} is too weak: use at least {TOKEN_MIN_CHARS} printable characters "
                    'without spaces, as `python -c "import secrets; print(secrets.token_urlsafe(32))"` makes them'
                )
            self._roles[_hashed(token)] = Role[role.upper()]

    @classmethod
    def parse(cls, text: str) -> Tokens:
        """`read:abc..., admin:xyz...`: separated by commas or white space; a line that begins with # is a comment."""
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        entries = " ".join(lines).replace(",", " ").split()
        pairs = []
        for entry in entries:
            role, colon, token = entry.partition(":")
            if not colon:
                raise ConfigurationError("a token has no role: write read:..., operate:... or admin:...")
            pairs.append((role, token))
        return cls(pairs)

    @classmethod
    def from_file(cls, path: str | Path) -> Tokens:
        try:
            found = cls.parse(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the file of tokens {path} cannot be read: {type(error).__name__}") from None
        if not len(found):  # a secret that was not mounted must not open everything to everybody
            raise ConfigurationError(f"the file of tokens {path} holds no token: write one a line, such as admin:...")
        return found

    def __or__(self, other: Tokens) -> Tokens:
        both = Tokens()
        both._roles = {**self._roles, **other._roles}
        return both

    def __len__(self) -> int:
        return len(self._roles)

    def __repr__(self) -> str:
        return f"<{len(self)} tokens>"

    def find(self, token: str) -> tuple[bytes, Role] | None:
        """The hash and role of a token. Every known one is compared, in constant time."""
        given, found = _hashed(token), None
        for known, role in self._roles.items():
            if hmac.compare_digest(known, given):
                found = known, role
        return found

    # ------------------------------------------------------------------ sessions of browsers

    def open_session(self, token: str, now: float) -> str | None:
        """The value of a session cookie, for who knows a token."""
        found = self.find(token)
        if found is None:
            return None
        key, _ = found
        body = f"{_fingerprint(key)}.{int(now) + SESSION_SECONDS}.{secrets.token_hex(16)}"
        return f"{body}.{_signed(key, 'session', body)}"

    def session(self, cookie: str, now: float) -> Access:
        """Who a session cookie stands for; nobody if it is forged, too old, or its token is gone."""
        parts = cookie.split(".")
        if len(parts) != 4 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 12:
            return NOBODY
        body = ".".join(parts[:3])
        for key, role in self._roles.items():
            if hmac.compare_digest(_fingerprint(key).encode(), parts[0].encode()):
                is_genuine = hmac.compare_digest(_signed(key, "session", body).encode(), parts[3].encode())
                if is_genuine and int(parts[1]) > now:
                    return Access(role, "session", _signed(key, "csrf", body).encode())
        return NOBODY


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"fingerprint" + key).hexdigest()[:16]


def _signed(key: bytes, purpose: str, text: str) -> str:
    return hmac.new(key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


# ---------------------------------------------------------------------- for pages and routes


def access_of(request: Request) -> Access:
    """Who asks; the guard has found it out."""
    found = request.scope.get("state", {}).get("access", NOBODY)
    assert isinstance(found, Access)
    return found


def may(request: Request, role: Role) -> bool:
    has = access_of(request).role
    return has is not None and has >= role


def require(request: Request, role: Role) -> None:
    """401 for who is nobody, 403 for who may not."""
    access = access_of(request)
    if access.role is None:
        raise Problem(401, "unauthorized", "this needs a token: send `Authorization: Bearer <token>`")
    if access.role < role:
        raise Problem(403, "forbidden", f"this needs the role {role.word}; the token has {access.role.word}")


def csrf_token(request: Request) -> str:
    """What a form of this session carries in its hidden field."""
    return hmac.new(access_of(request).csrf_secret, b"csrf", hashlib.sha256).hexdigest()


def is_csrf_token(request: Request, given: str) -> bool:
    return bool(access_of(request).csrf_secret) and hmac.compare_digest(
        csrf_token(request).encode(), given.encode("utf-8", "replace")
    )


# ---------------------------------------------------------------------- addresses


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The host of a `Host` header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_same_origin(origin: str, scheme: str, host: str) -> bool:
    """Whether the `Origin` of a request is the server it was sent to."""
    try:
        given, own = urlsplit(origin), urlsplit(f"{scheme}://{host}")
        # A proxy that ends TLS makes https of http: of the ports only one that is written counts.
        ports = [None if url.port in (80, 443) else url.port for url in (given, own)]
        return bool(given.hostname) and given.hostname == own.hostname and ports[0] == ports[1]
    except ValueError:
        return False


def check_binding(host: str, tokens: Tokens) -> None:
    """Anything but loopback demands a token."""
    if not is_loopback(host) and not len(tokens):
        raise ConfigurationError(
            f"serving on {host} lets other machines in, and there is no token: set {TOKENS_VARIABLE}="
            "'admin:<token>' (or --tokens-file), or serve on 127.0.0.1"
        )
