"""A virtual environment for each peer, made once and kept; what does not install is named with its reason."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.catalogue import Peer

INSTALL_SECONDS = 300
_ADDRESS = re.compile(r"\S*(?:://|/)\S*")  # addresses and paths are nobody's business


@dataclass(frozen=True)
class Environment:
    """Where a peer lives; `failure` says why it does not."""

    python: Path
    version: str = ""
    failure: str = ""


def digest(peer: Peer) -> str:
    """Of what is installed: another list is another environment."""
    return hashlib.sha256("\n".join((sys.version, *peer.requirements)).encode()).hexdigest()[:16]


def reason(output: str) -> str:
    """The line of an installer's or a driver's output that says why, without addresses."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    chosen = (errors or lines or ["it said nothing"])[-1]
    return " ".join(_ADDRESS.sub("...", chosen).split())[:200]


def prepare(name: str, peer: Peer, cache: Path) -> Environment:
    """The environment of a peer, made if it is not there."""
    folder = cache / "environments" / name
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not (ready.exists() and ready.read_text() == digest(peer)):
        print(f"installing {', '.join(peer.requirements)} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *peer.requirements]
        for command in ([sys.executable, "-m", "venv", str(folder)], install):
            failed = _run(command)
            if failed:
                return Environment(python, failure=f"did not install: {failed}")
        ready.write_text(digest(peer))
    found = subprocess.run(
        [str(python), "-c", f"import importlib.metadata as m; print(m.version({peer.package!r}))"],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode != 0:
        return Environment(python, failure=f"did not install: {reason(found.stderr)}")
    return Environment(python, version=found.stdout.strip())


def _run(command: list[str]) -> str:
    """Empty, or why it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {INSTALL_SECONDS} s"
    except OSError as error:
        return reason(str(error))
    return "" if done.returncode == 0 else reason(done.stderr or done.stdout)
