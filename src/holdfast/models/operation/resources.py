"""Temporary resources: which paths may be registered, and so be deleted when an operation is cleaned up.

A path comes from a file that others write, so it is checked again before anything is deleted: only what lies
strictly inside one of the ledger's `temp_roots`, never the ledger's own files, never through a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.core.errors import InvalidArgumentError

from .files import BACKUP_FOLDER
from .filesystem import FileSystem


def check_resource(path: str | os.PathLike[str], base_path: Path, roots: Sequence[Path]) -> str:
    """The absolute form of `path`, if it may be deleted on its owner's behalf."""
    resource = Path(os.path.abspath(path))
    try:
        str(resource).encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"temp resource {str(resource)!r} is not UTF-8, which the ledger file is") from None
    if not _is_allowed(resource, base_path, roots):
        raise InvalidArgumentError(
            f"temp resource {resource} is outside the folders where cleanup may delete "
            f"({', '.join(str(root) for root in roots)}) or belongs to the ledger itself; "
            "add its folder to Ledger(temp_roots=[...])"
        )
    return str(resource)


def delete_resources(
    file_system: FileSystem, resources: Iterable[str], base_path: Path, roots: Sequence[Path]
) -> list[str]:
    """Delete each; return what could not be deleted and why. Missing ones are fine, cleanup may repeat."""
    problems = []
    for resource in resources:
        path = Path(resource)
        if not path.is_absolute() or not _is_allowed(path, base_path, roots):
            problems.append(f"temp resource {resource} is outside temp_roots and was left alone")
            continue
        try:
            file_system.remove_tree(path)
        except OSError as error:
            problems.append(f"temp resource {resource} could not be deleted: {error}")
    return problems


def _is_allowed(path: Path, base_path: Path, roots: Sequence[Path]) -> bool:
    if ".." in path.parts or not path.name:
        return False
    real = Path(os.path.realpath(path.parent)) / path.name  # the last component itself is never followed
    if real == base_path or real in base_path.parents:
        return False
    if base_path in real.parents:
        inner = real.relative_to(base_path).parts[0]
        return inner != BACKUP_FOLDER and ".operation." not in inner
    return any(root in real.parents for root in roots)
