"""Which rows to insert are alike: stores write those that differ in `OWN_FIELDS` alone with one statement."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import fields

from holdfast.store.values import NewExecution

OWN_FIELDS: Final = ("promise", "input_hash", "state", "idempotency_key")
shared_of: Final = attrgetter(*(field.name for field in fields(NewExecution) if field.name not in OWN_FIELDS))


def asks_for_nothing_but(names: tuple[str, ...]) -> Callable[[NewExecution], bool]:
    """Whether a row has the default in every field but these."""
    others = {field.name: field.default for field in fields(NewExecution) if field.name not in names}
    others_of: Callable[[NewExecution], Any] = attrgetter(*others)
    defaults = tuple(others.values())
    return lambda row: others_of(row) == defaults
