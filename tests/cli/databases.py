"""Ledgers for programs that run in processes of their own: real files, real databases, the real time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg


@contextlib.contextmanager
def postgres_database(server_url: str) -> Iterator[str]:
    """The URL of a new database on this server, dropped at the end."""
    name = f"holdfast_cli_{secrets.token_hex(4)}"
    asyncio.run(execute(server_url, f"create database {name}"))
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        asyncio.run(execute(server_url, f"drop database {name} with (force)"))


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
