"""Durable primitives on SQLite and PostgreSQL: `base` is the contract, `open_store` finds who keeps it."""

from __future__ import annotations

from holdfast.core.clock import Clock
from holdfast.core.errors import ConfigurationError
from holdfast.store.base import Store

__all__ = ["Store", "open_store", "sqlite_path", "store_from_url"]

_ACCEPTED = "a path, sqlite:///path or postgresql://user@host/database"


def store_from_url(url: str, *, clock: Clock | None = None) -> Store:
    """The unopened store that a URL or a plain path names. `clock` is for SQLite: PostgreSQL has its own."""
    path = sqlite_path(url)
    if path is not None:
        return _sqlite(url, path, clock)
    scheme = url.partition("://")[0]
    if scheme in ("postgresql", "postgres"):
        if clock is not None:
            raise ConfigurationError("PostgreSQL tells the time itself: give a clock to SQLite only")
        return _postgres(url)
    raise ConfigurationError(f"a store on {scheme}:// is not known: use {_ACCEPTED}")


def sqlite_path(url: str) -> str | None:
    """The file that a URL or a plain path names; None where the ledger is in none."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    if scheme != "sqlite":
        return None
    if not rest.startswith("/"):
        raise ConfigurationError(f"{url!r} names no file: write sqlite:///{rest} for a path from here")
    path, has_options, options = rest[1:].partition("?")
    if has_options:
        raise ConfigurationError(
            f"{url!r} has options, and a ledger on SQLite takes none: leave out ?{options}. A file that has a ? in its "
            f"name is given as a plain path: {rest[1:]}"
        )
    return path


async def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """The store that a URL or a plain path names, connected and migrated."""
    store = store_from_url(url, clock=clock)
    await store.open()
    return store


def _sqlite(url: str, path: str, clock: Clock | None) -> Store:
    from holdfast.store.sqlite import SqliteStore

    if not path:
        raise ConfigurationError(f"{url!r} names no file: use {_ACCEPTED}")
    if path.startswith(":memory:"):
        raise ConfigurationError(
            "a ledger in memory would be lost with the process: give a path; in tests, one in a temporary folder"
        )
    return SqliteStore(path, clock=clock)


def _postgres(url: str) -> Store:
    try:
        from holdfast.store.postgres import PostgresStore
    except ImportError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigurationError("PostgreSQL needs its driver: pip install 'holdfast[postgres]'") from error
    return PostgresStore(url)
