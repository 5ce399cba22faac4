"""Where an export goes: a file that is there only when it is whole, what a link leads to, or a pipe that stays one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.cli.exits import CommandError
from holdfast.cli.transfer import _output


def write(file: Path, text: bytes) -> None:
    with _output(str(file)) as out:
        out.write(text)


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, `-o /dev/stdout` or `-o /dev/null` would have put a file in the place of the device, for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        write(pipe, b"lines")
        assert read.result(10) == b"lines"
    assert pipe.is_fifo()


def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "today").symlink_to(tmp_path / "2026.jsonl")
    for text in (b"first", b"second"):
        write(tmp_path / "today", text)
    assert (tmp_path / "today").is_symlink()
    assert (tmp_path / "2026.jsonl").read_bytes() == b"second"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2026.jsonl", "today"]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        write(tmp_path, b"lines")
