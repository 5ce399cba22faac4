"""Code as bytes for a digest (ruling B6): the same in every process that has it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import CodeType
from typing import Any


def code_digest(function: Callable[..., Any], shape: bytes = b"") -> str:
    """Of its code, with what decorators wrap; and of what it reads: code whose types alone are mended tries what was
    stranded because they did not fit."""
    digest = hashlib.sha256(shape)
    wrapped: Any = function
    while wrapped is not None:
        if hasattr(wrapped, "__code__"):
            feed_code(digest, wrapped.__code__)
        wrapped = getattr(wrapped, "__wrapped__", None)
    return digest.hexdigest()[:16]


def feed_code(digest: Any, code: CodeType) -> None:
    """Bytecode, names and constants, nested functions included."""
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            feed_code(digest, constant)
        else:
            digest.update(_shown(constant).encode())


def _shown(constant: object) -> str:
    """The order of a set of texts, as in `x in {"a", "b"}`, is another one in every process."""
    return f"frozenset({sorted(map(repr, constant))})" if isinstance(constant, frozenset) else repr(constant)
