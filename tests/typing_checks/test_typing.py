"""The public names are typed: mypy and pyright over files of uses and of mistakes that they must find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
USES = sorted(path.name for path in HERE.glob("*_uses.py"))


@pytest.mark.parametrize("name", USES)
def test_uses_are_typed_and_mistakes_are_found(name: str) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", f"tests/typing_checks/{name}"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_pyright_finds_the_same_mistakes_and_no_others() -> None:
    """Its errors are on exactly the lines that say `type: ignore`."""
    config = str(HERE / "pyrightconfig.json")
    command = [sys.executable, "-m", "basedpyright", "-p", config, "--pythonpath", sys.executable, "--outputjson"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {
        (Path(said["file"]).name, said["range"]["start"]["line"] + 1): said["message"]
        for said in json.loads(checked.stdout)["generalDiagnostics"]
        if said["severity"] == "error"
    }
    expected = {
        (name, number)
        for name in USES
        for number, line in enumerate((HERE / name).read_text().splitlines(), 1)
        if "# type: ignore[" in line
    }
    assert expected
    assert found.keys() == expected, {place: found.get(place, "not found") for place in found.keys() ^ expected}
