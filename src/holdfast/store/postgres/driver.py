"""The driver's connection: it notices a server that fell silent, stays with its process, and knows the array types.

asyncpg asks the server about every type that it has no codec for, arrays among them, in each connection anew and with a
query that takes longer to plan than any call of the ledger takes. The server's own types have had the same numbers in
every release.
"""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import asyncpg

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection  # generic in its stubs alone


def _array(oid: int, name: str, element: int) -> tuple[int, Mapping[str, Any]]:
    return oid, {
        "oid": oid,
        "ns": "pg_catalog",
        "name": name,
        "kind": b"b",
        "basetype": None,
        "elemtype": element,
        "elemdelim": b",",
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
        "depth": 0,
        "basetype_name": None,
        "elemtype_name": name[1:],
        "range_subtype_name": None,
    }


# Its number, its name and the number of its elements' type, as in pg_type.dat.
ARRAYS: Final = dict(
    (
        _array(1000, "_bool", 16),
        _array(1001, "_bytea", 17),
        _array(1007, "_int4", 23),
        _array(1009, "_text", 25),
        _array(1016, "_int8", 20),
        _array(1022, "_float8", 701),
        _array(1185, "_timestamptz", 1184),
        _array(199, "_json", 114),
    )
)


# A firewall that forgets a connection says nothing to either side. So the kernel asks an idle server, and gives up one
# that does not confirm what was sent: well within the lease of a worker. Not every system has all of them.
SILENT_SECONDS: Final = 20
_ALIVE: Final = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", SILENT_SECONDS * 1000),
)


def _watch_over(wire: socket.socket) -> None:
    if wire.family not in (socket.AF_INET, socket.AF_INET6):
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE:
        if hasattr(socket, name):
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Answer:
    """Stands for the statement by which the driver would have asked; a name, so nothing is prepared anew."""

    name: Final = "known"


class DriverConnection(_Connection):
    """`codecs` are those that user code has set, which has it in a transaction: json is the ledger's, too."""

    __slots__ = ("codecs", "wire")

    def __init__(self, protocol: Any, transport: asyncio.BaseTransport, *arguments: Any, **named: Any) -> None:
        super().__init__(protocol, transport, *arguments, **named)
        self.wire: socket.socket = transport.get_extra_info("socket")
        _watch_over(self.wire)
        _open.add(self)
        self.codecs: list[tuple[str, str]] = []

    async def set_type_codec(self, typename: str, *, schema: str = "public", **codec: Any) -> None:
        await super().set_type_codec(typename, schema=schema, **codec)
        self.codecs.append((typename, schema))

    async def forget_codecs(self) -> None:
        for typename, schema in self.codecs:
            await self.reset_type_codec(typename, schema=schema)
        self.codecs.clear()

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> Any:
        oids = tuple(typeoids)
        if all(oid in ARRAYS for oid in oids):
            return [ARRAYS[oid] for oid in oids], _Answer
        return await super()._introspect_types(oids, timeout)  # type: ignore[misc]


_open: Final = weakref.WeakSet[DriverConnection]()


def _leave_to_parent() -> None:
    """In a forked process: what it has of its parent's connections leads nowhere from now on.

    Else it would send on them, or take them out of the parent's epoll, which it shares, when it collects them.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_open):
        if not connection.is_closed():
            os.dup2(nowhere, connection.wire.fileno(), inheritable=False)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_leave_to_parent)
