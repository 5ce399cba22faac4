"""Bringing the schema up to this version, however many processes try at once.

Migrations are numbered files, applied once. Routines are replaced as a set: their names carry a version, so that
processes of two releases can work side by side; a process never puts back the routines of an older release.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from holdfast.core.errors import ConfigurationError, SchemaTooNewError
from holdfast.store.sql import Migration, load_blocks, load_text, migrations

if TYPE_CHECKING:
    from holdfast.store.postgres.connections import Connection

PACKAGE = "holdfast.store.postgres"
SERVER_MIN = 140000
ENCODING = "UTF8"
# Goes up with every release that changes a routine. A routine whose parameters or answer change gets a new name.
ROUTINES = 1
# A step over a large ledger takes its time; others wait for it.
MIGRATION_SECONDS = 6 * 3600.0

Found: TypeAlias = tuple[int, int, str]  # the migration, the release of the routines, and their digest

_INCLUDE = re.compile(r"\{include ([a-z_]+)\}")
_SCHEMA_NAME = re.compile(r"(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,62}")
# Words of SQL that would have to be quoted; a test asks the server for them.
_RESERVED_WORDS = """
all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation column
concurrently constraint create cross current_catalog current_date current_role current_schema current_time
current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from
full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime
localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references returning
right select session_user similar some symmetric system_user table tablesample then to trailing true union unique user
using variadic verbose when where window with
"""
RESERVED = frozenset(_RESERVED_WORDS.split())


def check_schema(name: str) -> str:
    """`name` itself, if it can be a schema without quotes."""
    if not _SCHEMA_NAME.fullmatch(name) or name in RESERVED:
        raise ConfigurationError(
            f"{name!r} is no name for a schema: use up to 63 of the characters a-z 0-9 _, no digit first, and neither "
            "a word of SQL nor a name that begins with pg_"
        )
    return name


def routines(schema: str) -> list[str]:
    """The text of every file of routines, in order. `{include x}` stands for the file `x.part.sql`."""
    names = sorted(entry.name for entry in files(PACKAGE).joinpath("routines").iterdir())
    return [_routines_of(name, schema) for name in names if name.endswith(".sql") and not name.endswith(".part.sql")]


def _routines_of(name: str, schema: str) -> str:
    return _INCLUDE.sub(
        lambda found: _routines_of(f"{found[1]}.part.sql", schema).strip(),
        load_text(PACKAGE, f"routines/{name}", schema=schema),
    )


@cache
def routines_digest() -> str:
    """Of the files as they are: putting them together takes as long as to connect."""
    folder = files(PACKAGE).joinpath("routines")
    found = sorted((entry.name, entry.read_bytes()) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return hashlib.sha256(b"".join(text for _, text in found)).hexdigest()[:16]


@cache
def _statements(schema: str) -> Mapping[str, str]:
    return load_blocks(PACKAGE, "sql/migrate.sql", schema=schema)


@lru_cache(maxsize=8)
def _steps(schema: str) -> Sequence[Migration]:
    return migrations(PACKAGE, schema=schema)


def read_files(schema: str) -> None:
    """What a ledger is compared with: a tenth of what it takes to connect, to be done meanwhile."""
    _statements(schema)
    _steps(schema)
    routines_digest()


async def migrate(connection: Connection, schema: str, is_let_in: bool = False) -> None:
    """`is_let_in`: this process has the ledger open."""
    steps = _steps(schema)
    newest = steps[-1].version
    found = await found_version(connection, schema)
    if (is_let_in and found is not None) or _is_current(found, schema, newest):
        return
    server = connection.get_server_version()
    if server.major * 10000 < SERVER_MIN:
        raise ConfigurationError(
            f"this is PostgreSQL {server.major}, Holdfast needs {SERVER_MIN // 10000} or newer: upgrade the server"
        )
    with _obstacles(schema):
        await _migrate(connection, schema, steps)


async def _migrate(connection: Connection, schema: str, steps: Sequence[Migration]) -> None:
    sql = _statements(schema)
    newest = steps[-1].version
    async with connection.transaction():
        await connection.execute(sql["migrate_patience"])
        await connection.execute(sql["migrate_lock"], f"holdfast.{schema}", timeout=MIGRATION_SECONDS)
        await connection.execute(sql["migrate_locked"])
        if await connection.fetchval(sql["migrate_has_schema"], schema) is None:
            await connection.execute(sql["migrate_create_schema"])
        found = await found_version(connection, schema)
        if _is_current(found, schema, newest):
            return
        if found is None:
            _check_encoding(connection)
        for step in steps:
            if found is None or step.version > found[0]:
                await connection.execute(step.text, timeout=MIGRATION_SECONDS)
        if found is None or found[1] <= ROUTINES:
            for text in routines(schema):
                await connection.execute(text)
        await connection.execute(sql["migrate_note"], newest, ROUTINES, routines_digest())


@contextmanager
def _obstacles(schema: str) -> Iterator[None]:
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"the schema {schema!r} is not that of this release, and this role may not change it: {error}. Run "
            "`holdfast migrate` of this release as the role that owns it, then start again"
        ) from error
    except (asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError, asyncpg.DuplicateFunctionError) as error:
        raise ConfigurationError(
            f"the schema {schema!r} holds no ledger, and something else: {error}. Give Holdfast a schema of its own"
        ) from error


def _check_encoding(connection: Connection) -> None:
    """Before there is a ledger: later, the first text that does not fit comes with an outcome of work that was done."""
    encoding = getattr(connection.get_settings(), "server_encoding", ENCODING)
    if encoding != ENCODING:
        raise ConfigurationError(
            f"the database is encoded in {encoding} and cannot hold every text: make one with "
            f"`create database ... encoding '{ENCODING}' template template0`"
        )


def _is_current(found: Found | None, schema: str, newest: int) -> bool:
    if found is None:
        return False
    version, serial, digest = found
    if version > newest:
        raise SchemaTooNewError(
            f"the schema {schema!r} has version {version}, this Holdfast knows up to {newest}: upgrade Holdfast here"
        )
    return version == newest and (serial > ROUTINES or digest == routines_digest())


async def found_version(connection: Connection, schema: str) -> Found | None:
    # Asked in two steps: a failed select would be the end of a transaction, and an error in the server's log.
    if await connection.fetchval(_statements(schema)["migrate_has_version"], f"{schema}.schema_version") is None:
        return None
    row = await connection.fetchrow(_statements(schema)["migrate_version"])
    return None if row is None else (row["version"], row["routines"], row["routines_digest"])
