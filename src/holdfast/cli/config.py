"""Settings of the program, each found in one order: the flag, its variable, `[tool.holdfast]`, its default.

`SETTINGS` is the list of them; docs/reference/cli.md is held to it by a test. Of pyproject.toml the nearest one counts,
from the working folder upwards. Tokens are read from their variable alone: a file in a repository is no place for a
secret.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.app import DATABASE_VARIABLE, DEFAULT_DATABASE
from holdfast.cli.exits import CommandError, Exit
from holdfast.core.durations import parse_duration
from holdfast.core.errors import HoldfastError


@dataclass(frozen=True, slots=True)
class Found:
    """A value, and who gave it."""

    value: Any
    origin: str


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _names(value: object) -> list[str]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("names, such as mail,default")
    return list(names)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value).isdecimal() or int(value) < 1:
        raise ValueError("a whole number above 0")
    return int(value)


def _seconds(value: object) -> float:
    try:
        return parse_duration(str(value))
    except HoldfastError:
        raise ValueError("a time, such as 30s or 5m") from None


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set; `key` is its name in pyproject.toml."""

    key: str
    variable: str
    default: Any
    parse: Callable[[object], Any] = _text


SETTINGS: Final = {
    setting.key: setting
    for setting in (
        Setting("database", DATABASE_VARIABLE, DEFAULT_DATABASE),
        Setting("app", "HOLDFAST_APP", None),
        Setting("queues", "HOLDFAST_QUEUES", None, _names),
        Setting("concurrency", "HOLDFAST_CONCURRENCY", 100, _whole),
        Setting("lease", "HOLDFAST_LEASE", 30.0, _seconds),
        Setting("drain", "HOLDFAST_DRAIN", 30.0, _seconds),
        Setting("host", "HOLDFAST_HOST", "127.0.0.1"),
        Setting("port", "HOLDFAST_PORT", 8420, _whole),
    )
}


def find(key: str, flag: object = None, folder: Path | None = None) -> Found:
    """A setting when `flag` is what its flag said; an empty one counts as none."""
    setting = SETTINGS[key]
    if flag not in (None, "", ()):
        return _parsed(setting, flag, f"from --{key.removesuffix('s') if key == 'queues' else key}")
    variable = os.environ.get(setting.variable)
    if variable:
        return _parsed(setting, variable, f"from {setting.variable}")
    file, section = project(folder or Path.cwd())
    if key in section:
        return _parsed(setting, section[key], f"from {file}")
    return Found(setting.default, "the default")


def _parsed(setting: Setting, value: object, origin: str) -> Found:
    try:
        return Found(setting.parse(value), origin)
    except ValueError as error:
        raise CommandError(f"{setting.key} {origin} is {value!r}: it is {error}", Exit.WRONG_USE) from None


def project(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """`[tool.holdfast]` of the nearest pyproject.toml, checked for what nobody would read."""
    file = next((file for parent in (folder, *folder.parents) if (file := parent / "pyproject.toml").is_file()), None)
    if file is None:
        return None, {}
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read ({error}): correct it, or use --database", Exit.WRONG_USE) from None
    section = tool.get("holdfast", {}) if isinstance(tool, dict) else {}
    if not isinstance(section, dict):
        raise CommandError(f"{file} has no table under [tool.holdfast]: {section!r}", Exit.WRONG_USE)
    unknown = sorted(section.keys() - SETTINGS.keys())
    if unknown:
        raise CommandError(
            f"{file} has {', '.join(unknown)} under [tool.holdfast]; it may have {', '.join(SETTINGS)}", Exit.WRONG_USE
        )
    return file, section
