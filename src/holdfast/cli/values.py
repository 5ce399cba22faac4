"""Values that people type: JSON, moments, signals as `name=JSON`, attributes as `key=value`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from holdfast.cli.exits import CommandError, Exit

_TO_THE_MINUTE, _TO_THE_SECOND = "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"
MOMENT: Final = click.DateTime(
    ("%Y-%m-%d", _TO_THE_MINUTE, _TO_THE_SECOND, f"{_TO_THE_MINUTE}%z", f"{_TO_THE_SECOND}%z")
)


def in_utc(moment: datetime) -> datetime:
    """What was typed without a zone is meant so."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def json_value(text: str | None, what: str) -> Any:
    """What the JSON says, `-` for standard input; None where nothing was given."""
    if text is None:
        return None
    if text == "-":
        try:  # JSON is UTF-8, whatever the locale; a byte order mark is what some shells add
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise CommandError(f"{what} on standard input is no UTF-8 ({error})", Exit.WRONG_USE) from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(
            f"{what} {text[:60]!r} is no JSON ({error}): write text as '\"yes\"', an object as '{{\"ok\": true}}'",
            Exit.WRONG_USE,
        ) from None
    except RecursionError:
        raise CommandError(f"{what} {text[:60]!r} is nested too deeply to be read", Exit.WRONG_USE) from None


def parse_signal(text: str) -> tuple[str, Any]:
    """`NAME=JSON`, or the name alone: a signal and its payload."""
    name, separator, payload = text.partition("=")
    return name, json_value(payload if separator else None, "the payload")


def parse_attributes(given: Sequence[str]) -> dict[str, str | int | float | bool]:
    """`n=17` is a number, `ok=true` a truth value, `name=anna` and `name="17"` texts."""
    found: dict[str, str | int | float | bool] = {}
    for item in given:
        key, separator, text = item.partition("=")
        if not separator or not key:
            raise CommandError(f"{item!r} is no attribute: write key=value, as in customer=17", Exit.WRONG_USE)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        found[key] = value if isinstance(value, (str, int, float, bool)) else text
    return found
