"""What both stores keep, compare and search for as it is."""

from __future__ import annotations

import math
from typing import Final

SHOWN_CHARS: Final = 100


def is_text(value: object) -> bool:
    """Whether both stores can keep it as text: no NUL, no half of a surrogate pair."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_searchable(value: object) -> bool:
    """Whether it may be the value of an attribute: JSON has no NaN, SQLite no longer integers."""
    if isinstance(value, float):
        return math.isfinite(value)
    return is_text(value) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def shown(value: object) -> str:
    """It in an error that refuses it; Python writes no numbers of thousands of digits."""
    try:
        return f"{value!r:.{SHOWN_CHARS}}"
    except ValueError:
        return f"{type(value).__name__} that is too long to be shown"
