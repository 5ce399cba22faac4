"""A database URL, as libpq and hosted databases write it: what asyncpg connects to, and what may be shown.

asyncpg hands every parameter that it does not know to the server, which refuses those that are libpq's own. And it has
one timeout for all servers of a URL: of a failover from a machine that is silent it would never come to the second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import monotonic
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from holdfast.core.errors import ConfigurationError

CONNECT_SECONDS = 10.0
CONNECT_SECONDS_EACH = 5.0  # of several servers
SILENT_LAST_SECONDS = 30.0  # so long a server that did not answer is asked after the others

SCHEMA_PARAMETER: Final = "holdfast_schema"  # not `schema`, which in other tools' URLs is that of their own tables

_EXAMPLE = "write it as postgresql://user:password@host:5432/database"
# What makes no difference to what is sent and believed.
_LEFT_OUT: Final = frozenset(
    {
        "fallback_application_name",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "sslcompression",
        "sslsni",
        "tcp_user_timeout",
    }
)
_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
# What asyncpg cannot do. Whoever only prefers it can be served.
_DEMANDS: Final = frozenset({"channel_binding", "gssencmode"})


class Address:
    """`server` names the host or hosts; `shown` is the URL without its secrets."""

    def __init__(self, url: str, *, pooled: bool = False) -> None:
        try:
            parts = urlsplit(url)
            where = ",".join(_place(one) for one in parts.netloc.rpartition("@")[2].split(","))
            if "@" in parts.path:  # else half a password would be shown as the name of the database
                raise ValueError
        except ValueError:  # which quotes a part of a password that is not percent-encoded
            raise ConfigurationError(
                f"the PostgreSQL URL cannot be read: {_EXAMPLE}, with :, /, @, ? and # of a password percent-encoded"
            ) from None
        if parts.scheme not in ("postgresql", "postgres"):
            raise ConfigurationError(f"{parts.scheme!r} is no scheme of a PostgreSQL URL: {_EXAMPLE}")
        options = {name: value for name, value in parse_qsl(parts.query) if name not in _LEFT_OUT}
        # `pgbouncer=true` is how other tools' URLs say that a pooler in transaction mode is in between.
        self.pooled = options.pop("pgbouncer", "false").lower() in ("true", "1") or pooled
        self.schema = options.pop(SCHEMA_PARAMETER, None)
        seconds = _seconds(options.pop("connect_timeout", "0"))
        for name in _DEMANDS.intersection(options):
            if options.pop(name) == "require":
                raise ConfigurationError(
                    f"asyncpg cannot do what {name}=require asks for: take it out of the PostgreSQL URL; "
                    "sslmode=verify-full makes sure of the server"
                )
        self._files = {name: options.get(name) or os.environ.get(f"PG{name.upper()}", "") for name in _FILES}
        self.trusts_system = self._files["sslrootcert"] == "system"
        if self.trusts_system:
            del self._files["sslrootcert"]
            options.pop("sslrootcert", None)
        self.dsn = urlunsplit(parts._replace(query=urlencode(options)))
        self._each = [urlunsplit(one) for one in _apart(parts, options)]
        self._silent: dict[str, float] = {}
        self.connect_seconds = seconds or (CONNECT_SECONDS if len(self._each) == 1 else CONNECT_SECONDS_EACH)
        user = f"{quote(unquote(parts.username))}@" if parts.username else ""
        self.shown = f"postgresql://{user}{where}{parts.path}"
        self.server = f"{where or options.get('host', 'localhost')}"

    def servers(self) -> list[str]:
        """A URL for each, in the order to ask them."""
        now = monotonic()
        return sorted(self._each, key=lambda one: self._silent.get(one, 0.0) > now)

    def unreadable_files(self) -> list[str]:
        """Of those that the URL, or libpq's variables, name for encryption: the driver does not say which it is."""
        return [f"{path} ({name})" for name, path in self._files.items() if path and not os.access(path, os.R_OK)]

    def note_silence(self, server: str) -> None:
        self._silent[server] = monotonic() + SILENT_LAST_SECONDS


def _apart(parts: SplitResult, options: Mapping[str, str]) -> list[SplitResult]:
    user, at, hosts = parts.netloc.rpartition("@")
    if hosts or "," not in options.get("host", ""):
        query = urlencode(options)
        return [parts._replace(netloc=f"{user}{at}{host}", query=query) for host in hosts.split(",")]
    names = options["host"].split(",")
    ports = options["port"].split(",") if "port" in options else [""]
    return [
        parts._replace(query=urlencode({**options, "host": name, **({"port": port} if port else {})}))
        for name, port in zip(names, ports * len(names) if len(ports) == 1 else ports, strict=False)
    ]


def _place(one: str) -> str:
    """One of the hosts; its port is that of no other."""
    parts = urlsplit(f"//{one}")
    host, port = parts.hostname or "", parts.port
    return (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        raise ConfigurationError(
            f"connect_timeout of the PostgreSQL URL is a number of seconds, not {text!r}"
        ) from None
