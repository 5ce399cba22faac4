"""The repository itself: its two commands, and nothing of the machine it was written on."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Folders of one person's machine, and the addresses packages were once fetched from.
_MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:home|Users|root|work|opt|mnt)/[\w.-]+")
_REGISTRY = re.compile(r"files\.pythonhosted|index[-_]url|find[-_]links|https?://[\w.:-]+(?:/[\w.-]+)*/simple\b")


def _tracked_files() -> list[Path]:
    # A clone may belong to another user than the one who tests it, which git refuses by default.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _foreign_places(text: str) -> list[str]:
    return [match.group() for pattern in (_MACHINE_PATH, _REGISTRY) for match in pattern.finditer(text)]


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in _tracked_files():
        if path != Path(__file__).resolve():
            places = _foreign_places(path.read_bytes().decode("utf-8", "replace"))
            found += [f"{path.relative_to(ROOT)}: {place}" for place in places]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ["see /home/ann/holdfast", "--index-url=x", "https://packages.example.com/a/simple", "'/root/x.db'"],
)
def test_machine_paths_and_registries_are_recognised(text: str) -> None:
    assert _foreign_places(text)


@pytest.mark.parametrize(
    "text",
    ["GET /executions/root/2", "https://example.com/home/page", "a simple rule", "/tmp/x", "$HOME/work/x"],
)
def test_ordinary_text_is_not_taken_for_a_machine_path(text: str) -> None:
    assert not _foreign_places(text)


def test_no_lock_file_is_tracked() -> None:
    """Lock files record the addresses of registries."""
    assert not [path for path in _tracked_files() if path.name in {"uv.lock", "poetry.lock", "pdm.lock"}]


def test_ci_is_the_command_a_contributor_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-2:] == ["make test", "make test-browser"]


def test_help_lists_every_command_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    shown = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in shown.stdout.splitlines()} == phony
    assert {"demo", "test", "lint", "types", "test-browser", "bench", "clean", "help"} <= phony


@pytest.mark.parametrize(("user", "code", "says"), [("0", 2, "could not be installed"), ("1000", 0, "only root")])
def test_only_who_cannot_install_a_browser_may_go_without(tmp_path: Path, user: str, code: int, says: str) -> None:
    """Issue 8: as root a browser is installed, or it fails; others are told loudly that nothing was tested."""
    for name, body in {"id": f"echo {user}", "apt-get": "exit 100"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOLDFAST_CHROMIUM": "no-such-browser"}
    command = ["make", "--no-print-directory", "--old-file=.venv/.ready", "test-browser"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == code
    assert "THE DASHBOARD WAS NOT TESTED" in done.stderr
    assert says in done.stderr


def test_package_is_marked_as_typed_and_supports_the_python_it_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (ROOT / "src" / "holdfast" / "py.typed").is_file()
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "Apache-2.0"
