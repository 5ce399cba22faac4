"""Code inside a transaction of a ledger's one writer that asks for another one, which would wait for its own.

Its thread is known by `inside`; what it asks of another thread, and waits for, carries that along with `asking`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from holdfast.core.errors import ConfigurationError

_here = threading.local()
_asked_from: Final[ContextVar[str | None]] = ContextVar("holdfast_asked_from", default=None)


@contextmanager
def inside(file: str) -> Iterator[None]:
    """This thread runs user code in a transaction on this file."""
    _here.file = file
    try:
        yield
    finally:
        _here.file = None


@contextmanager
def asking() -> Iterator[None]:
    """What is begun in here, in whatever thread, is waited for by this one."""
    token = _asked_from.set(getattr(_here, "file", None))
    try:
        yield
    finally:
        _asked_from.reset(token)


def is_nested(file: str) -> bool:
    return file in (_asked_from.get(), getattr(_here, "file", None))  # of a loop of its own, this thread


def refuse_nested(file: str) -> None:
    if is_nested(file):
        raise ConfigurationError(
            f"code in a transaction on {file} wants to write to it in another one, for which it would wait for ever: "
            "give a start the transaction's connection, as `.options(connection=...)`, and do the rest after it"
        )
