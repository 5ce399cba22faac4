"""Shell completion: the scripts, commands, options, and ids from the ledger."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Call, Shop
from tests.cli.processes import HOLDFAST, environment, in_pipe


def completed(folder: Path, database: str | None, *words: str) -> list[str]:
    """What a shell is offered for the last of the words."""
    extra = {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdfast " + " ".join(words),
        "COMP_CWORD": str(len(words)),
    }
    ran = in_pipe([*HOLDFAST], folder=folder, database=database, extra=extra)
    assert ran.code == 0
    assert ran.err == ""
    return [line.partition(",")[2] for line in ran.out.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(in_process: Call, shell: str) -> None:
    ran = in_process("completion", shell)
    assert ran.code == 0
    assert "_HOLDFAST_COMPLETE" in ran.out
    assert in_process("completion", shell, "--json").json["shell"] == shell


def test_bash_takes_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = in_pipe([*HOLDFAST, "completion", "bash"], folder=tmp_path).out
    done = subprocess.run([bash, "-n"], input=script, text=True, env=environment(None), capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_wrong_use(in_process: Call) -> None:
    assert in_process("completion", "tcsh").code == 2


def test_commands_options_and_ids_are_completed(tmp_path: Path) -> None:
    database = str(tmp_path / "shop.db")
    shop = Shop(database, "q")
    (order,) = shop.start("done")
    assert completed(tmp_path, database, "ver") == ["verify"]
    assert "--cascade" in completed(tmp_path, database, "cancel", "--c")
    assert completed(tmp_path, database, "show", "") == [order[:8]]
    assert completed(tmp_path, database, "show", order[:5]) == [order[:8]]
    assert completed(tmp_path, database, "show", "Order/") == [f"Order/{order[:8]}"]
    assert completed(tmp_path, database, "show", "zzzz") == []


@pytest.mark.parametrize("command", ["lst", "ps"])
def test_a_misspelt_command_is_no_error_while_it_is_typed(tmp_path: Path, command: str) -> None:
    """What is wrong with it is said when it is sent, not into the line that a shell completes."""
    assert "list" in completed(tmp_path, None, command, "")


def test_no_ledger_is_no_error_and_is_not_created(tmp_path: Path) -> None:
    assert completed(tmp_path, str(tmp_path / "none.db"), "show", "") == []
    assert not (tmp_path / "none.db").exists()
