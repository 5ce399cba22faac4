"""A connection of a client that does not come to the point is closed: anybody could hold all that a process may have.

`PromptProtocol` is uvicorn's, which waits for the rest of a request for ever. What is answered already may be slow: a
stream has no end.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 30.0  # for the head of a request, from its first byte or from the connection on


class PromptProtocol(H11Protocol):
    head_seconds: ClassVar[float] = HEAD_SECONDS
    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._be_patient()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # no head was whole, or a body comes that nobody reads
            self._be_patient()
        else:
            self._be_content()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_content()
        super().connection_lost(exc)

    def _be_patient(self) -> None:
        """Bytes that trickle in do not begin the time anew."""
        if self._giving_up is None:
            self._giving_up = asyncio.get_running_loop().call_later(self.head_seconds, self.transport.close)

    def _be_content(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
