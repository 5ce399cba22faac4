"""SQL lives in `.sql` files; this reads them.

- `load_blocks`: a file of named blocks (`-- name: pick_due`), as a mapping from name to statement.
- `load_text`: a whole file.
- `migrations`: the numbered files of a dialect's `migrations` folder, in order.

The same name stands for the same statement in both dialects where both need it. `{schema}` is replaced where given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from holdfast.core.errors import ConfigurationError

_NAME_LINE = re.compile(r"^-- name: *([a-z][a-z0-9_]*) *$", re.MULTILINE)
_MIGRATION_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class Migration(NamedTuple):
    version: int
    name: str
    text: str


def load_text(package: str, file: str, *, schema: str | None = None) -> str:
    """The text of one `.sql` file inside a package."""
    text = files(package).joinpath(*file.split("/")).read_text(encoding="utf-8")
    return text if schema is None else text.replace("{schema}", schema)


def load_blocks(package: str, *file_names: str, schema: str | None = None) -> Mapping[str, str]:
    """The named blocks of one or more files; a name may occur once."""
    blocks: dict[str, str] = {}
    for file in file_names:
        parts = _NAME_LINE.split(load_text(package, file, schema=schema))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in blocks:
                raise ConfigurationError(f"the SQL block {name!r} is there twice: rename the one in {file}")
            blocks[name] = body.strip().rstrip(";")
    return MappingProxyType(blocks)


def migrations(package: str, *, schema: str | None = None) -> list[Migration]:
    """Every migration of a dialect, in order."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        match = _MIGRATION_FILE.fullmatch(entry.name)
        if match:
            text = load_text(package, f"migrations/{entry.name}", schema=schema)
            found.append(Migration(int(match[1]), match[2], text))
    return sorted(found)
