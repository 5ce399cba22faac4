"""Which ledger a command works on.

In this order: `--database`, `HOLDFAST_DATABASE`, `database` under `[tool.holdfast]` of the nearest pyproject.toml
(from the working folder upwards; a relative path there is relative to that file), `./holdfast.db`.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from holdfast.app import DATABASE_VARIABLE, DEFAULT_DATABASE
from holdfast.cli.exits import CommandError, Exit

SQLITE_SCHEME = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Database:
    """A URL or path, and who named it."""

    url: str
    origin: str

    @property
    def file(self) -> Path | None:
        """The file, where the ledger is one."""
        if self.url.startswith(SQLITE_SCHEME):
            return Path(self.url.removeprefix(SQLITE_SCHEME)).expanduser()
        return None if "://" in self.url else Path(self.url).expanduser()

    def check_exists(self) -> None:
        """Looking into a ledger must not create an empty one beside the one that was meant."""
        if self.file is not None and not self.file.exists():
            raise CommandError(
                f"there is no ledger at {self.file} ({self.origin}): name another with --database, or create this "
                "one with `holdfast migrate`",
                Exit.STORE_UNAVAILABLE,
            )


def find_database(flag: str | None, folder: Path | None = None) -> Database:
    """The database to use when `flag` is what `--database` said."""
    if flag:
        return Database(flag, "from --database")
    variable = os.environ.get(DATABASE_VARIABLE)
    if variable:
        return Database(variable, f"from {DATABASE_VARIABLE}")
    return _configured(folder or Path.cwd()) or Database(DEFAULT_DATABASE, "the default")


def _configured(folder: Path) -> Database | None:
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        if file.is_file():
            return _from_pyproject(file)
    return None


def _from_pyproject(file: Path) -> Database | None:
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read ({error}): correct it, or use --database", Exit.WRONG_USE) from None
    section = tool.get("holdfast", {}) if isinstance(tool, dict) else {}
    url = section.get("database") if isinstance(section, dict) else None
    if url is None:
        return None
    if not isinstance(url, str) or not url:
        raise CommandError(
            f"{file} has database = {url!r} under [tool.holdfast]: give a path or a URL as text", Exit.WRONG_USE
        )
    database = Database(url, f"from {file}")
    if database.file is None:
        return database
    return Database(str(file.parent / database.file), database.origin)
