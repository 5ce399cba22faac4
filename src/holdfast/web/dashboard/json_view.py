"""Payloads as text that can be folded, without a script: nested `<details>`, everything escaped.

What is long is cut and says so; the whole of it is in the HTTP API and the CLI.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from markupsafe import Markup, escape

CHARACTERS_MAX = 200_000  # of a payload that is parsed at all
STRING_MAX = 2_000
ENTRIES_MAX = 200
DEPTH_MAX = 24
OPEN_ENTRIES = 12  # what has more is folded at first
INLINE_CHARACTERS = 60


def json_view(text: str | bytes | None, *, opened: bool = True) -> Markup:
    """The JSON of `text` as markup. What is no JSON is shown as it is."""
    if text is None:
        return Markup("")
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if len(shown) > CHARACTERS_MAX:
        return _plain(shown)
    try:
        value = msgspec.json.decode(shown)
    except (msgspec.DecodeError, RecursionError):
        return _plain(shown)
    return Markup('<div class="json">{}</div>').format(Markup("").join(_value(value, 0, opened)))


def one_line(text: str | bytes | None, limit: int = 80) -> str:
    """The beginning of a payload, for a table."""
    if text is None:
        return ""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _plain(text: str) -> Markup:
    note = Markup("")
    if len(text) > STRING_MAX:
        note = Markup('<p class="note">{} of {} characters</p>').format(STRING_MAX, len(text))
    return Markup('<pre class="json">{}</pre>{}').format(text[:STRING_MAX], note)


def _value(value: Any, depth: int, opened: bool) -> Iterator[Markup]:
    if isinstance(value, dict) and value:
        yield from _group(value, "{", "}", depth, opened, [(key, item) for key, item in value.items()])
    elif isinstance(value, list) and value:
        yield from _group(value, "[", "]", depth, opened, [(None, item) for item in value])
    else:
        yield _leaf(value)


def _group(
    value: Any, first: str, last: str, depth: int, opened: bool, entries: list[tuple[str | None, Any]]
) -> Iterator[Markup]:
    inline = json.dumps(value, ensure_ascii=False) if len(entries) <= 6 and _is_flat(value) else ""
    if inline and len(inline) <= INLINE_CHARACTERS and depth:
        yield Markup("<span>{}</span>").format(Markup("").join(_inline(first, last, entries)))
        return
    if depth >= DEPTH_MAX:
        yield Markup('<span class="j-more">{}…{}</span>').format(first, last)
        return
    is_open = Markup(" open") if opened and (depth == 0 or len(entries) <= OPEN_ENTRIES) else Markup("")
    count = f"{len(entries)} {'entries' if len(entries) != 1 else 'entry'}"
    yield Markup(
        '<details{}><summary><span class="j-brace">{}</span><span class="j-more">{}</span></summary><ul>'
    ).format(is_open, first, f" {count} {last}")
    for key, item in entries[:ENTRIES_MAX]:
        yield Markup("<li>")
        if key is not None:
            yield Markup('<span class="j-key">{}</span>: ').format(key)
        yield from _value(item, depth + 1, opened)
        yield Markup("</li>")
    if len(entries) > ENTRIES_MAX:
        yield Markup('<li class="j-more">and {} more</li>').format(len(entries) - ENTRIES_MAX)
    yield Markup('</ul><span class="j-brace j-end">{}</span></details>').format(last)


def _is_flat(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return not any(isinstance(item, dict | list) and item for item in items)


def _inline(first: str, last: str, entries: list[tuple[str | None, Any]]) -> Iterator[Markup]:
    yield Markup('<span class="j-brace">{}</span>').format(first)
    for at, (key, item) in enumerate(entries):
        if at:
            yield Markup(", ")
        if key is not None:
            yield Markup('<span class="j-key">{}</span>: ').format(key)
        yield _leaf(item)
    yield Markup('<span class="j-brace">{}</span>').format(last)


def _leaf(value: Any) -> Markup:
    if isinstance(value, str):
        cut = value if len(value) <= STRING_MAX else value[:STRING_MAX]
        quoted = json.dumps(cut, ensure_ascii=False)
        shown = Markup('<span class="j-string">{}</span>').format(quoted)
        if cut is not value:
            shown += Markup('<span class="j-more"> {} of {} characters</span>').format(STRING_MAX, len(value))
        return shown
    kind = "j-null" if value is None else "j-bool" if isinstance(value, bool) else "j-number"
    return Markup('<span class="{}">{}</span>').format(kind, escape(json.dumps(value)))
