"""Ledgers of simulations live in memory where the system has a place for that.

Nothing here loses the machine's memory, so waiting for a disk would prove nothing and cost minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-sim-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)
