"""Which ledger a command works on.

In this order: `--database`, `HOLDFAST_DATABASE`, `database` under `[tool.holdfast]` of the nearest pyproject.toml
(from the working folder upwards; a relative path there is relative to that file), `./holdfast.db`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.cli import config
from holdfast.cli.exits import CommandError, Exit
from holdfast.store import sqlite_path


@dataclass(frozen=True, slots=True)
class Database:
    """A URL or path, and who named it."""

    url: str
    origin: str

    @property
    def file(self) -> Path | None:
        """The file, where the ledger is one."""
        path = sqlite_path(self.url)
        return None if path is None else Path(path).expanduser()

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
    found = config.find("database", flag, folder)
    database = Database(found.value, found.origin)
    # A relative path in a file is relative to that file.
    home = Path(found.origin.removeprefix("from ")) if found.origin.endswith("pyproject.toml") else None
    if home is None or database.file is None:
        return database
    return Database(str(home.parent / database.file), database.origin)
