"""Lines of standard input, read while a loop runs, in a way that never holds back the end of the program.

A thread of the loop's own would be waited for at the end, and one that waits inside `sys.stdin` holds its lock, without
which Python aborts: so each part is read past Python's buffer, in a thread that nobody waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

PART_BYTES: Final = 65_536


async def stdin_lines() -> AsyncIterator[bytes]:
    """Each with its end of line, but for a last one that has none."""
    rest: list[bytes] = []
    while part := await _read(sys.stdin.fileno()):
        *whole, last = part.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line, b"\n"))
            rest.clear()
        rest.append(last)
    if final := b"".join(rest):
        yield final


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    part: asyncio.Future[bytes] = loop.create_future()

    def settle(found: bytes | OSError) -> None:
        if part.done():
            return  # nobody waits any more
        if isinstance(found, OSError):
            part.set_exception(found)
        else:
            part.set_result(found)

    def read() -> None:
        found: bytes | OSError
        try:
            found = os.read(fd, PART_BYTES)
        except OSError as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=read, name="holdfast-stdin", daemon=True).start()
    return await part
