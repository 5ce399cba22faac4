"""Code as bytes for a digest (ruling B6): the same in every process that has it."""

from __future__ import annotations

from types import CodeType
from typing import Any


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
