"""The public names are typed: mypy, strict, over files of uses and of mistakes that it must find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USES = sorted(path.name for path in Path(__file__).parent.glob("*_uses.py"))


@pytest.mark.parametrize("name", USES)
def test_uses_are_typed_and_mistakes_are_found(name: str) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", f"tests/typing_checks/{name}"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
