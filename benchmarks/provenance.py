"""Which code was measured: its commit, and whether anything that is measured differed from it."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("src", "benchmarks")  # what is written about it may differ


def source() -> dict[str, str | bool | None]:
    """`commit` in short, and whether the tree was `dirty`; both None where there is no checkout."""
    if _git("rev-parse", "--show-toplevel") != str(ROOT):  # none, or one of something that Holdfast only lies in
        return {"commit": None, "dirty": None}
    return {"commit": _git("rev-parse", "--short", "HEAD"), "dirty": bool(_git("status", "--porcelain", *MEASURED))}


def code() -> str:
    """A digest of the commit and of every file that is measured: a run goes on only with results of the same code."""
    found = hashlib.sha256(repr(source()).encode())
    for path in sorted(path for folder in MEASURED for path in (ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".sql"):
            found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def shown(found: Mapping[str, Any]) -> str:
    """As a line of a chart has it."""
    if found["commit"] is None:
        return "commit not known"
    return f"commit {found['commit']}" + (", changed" if found["dirty"] else "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
