"""The program as a whole: help, version, wrong use, and a reader that leaves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
import pytest

from holdfast import __version__
from holdfast.cli.main import COMMANDS, ELSEWHERE, holdfast
from tests.cli.conftest import Call
from tests.cli.processes import HOLDFAST, environment, in_pipe, in_terminal


def test_help_lists_every_command_with_a_line(tmp_path: Path) -> None:
    ran = in_pipe([*HOLDFAST, "--help"], folder=tmp_path, fresh=True)
    assert ran.code == 0
    listed = [line.split()[0] for line in ran.out.partition("Commands:\n")[2].splitlines()]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "ops"])
def test_every_command_has_help_and_the_shared_options(in_process: Call, command: str) -> None:
    found = holdfast.get_command(click.Context(holdfast), command)
    names: list[list[str]] = [[command]]
    if isinstance(found, click.Group) and not found.invoke_without_command:
        names = [[command, name] for name in found.commands]
    for words in names:
        ran = in_process(*words, "--help")
        assert ran.code == 0
        assert "--database URL" in ran.out, words
        assert "--json" in ran.out, words


def test_version(tmp_path: Path) -> None:
    assert in_pipe([*HOLDFAST, "--version"], folder=tmp_path, fresh=True).out == f"holdfast {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["lst"], "No such command 'lst': did you mean `list`? (see `holdfast --help`)"),
        (["dashboard"], "No such command 'dashboard': did you mean `web`? (see `holdfast --help`)"),
        (["zzz"], "No such command 'zzz'. (see `holdfast --help`)"),
        (["list", "--colour"], "No such option '--colour'"),
        (["show"], "Missing argument 'ID'. (see `holdfast show --help`)"),
        (["list", "--status", "asleep"], "'asleep' is not one of"),
        (["list", "--limit", "0"], "0 is not in the range"),
        (["queues", "drop"], "No such command 'drop'. (see `holdfast queues --help`)"),
        (["demo", "--orders", "0"], "0 is not in the range"),
    ],
)
def test_wrong_use_explains_itself_in_one_line(in_process: Call, arguments: list[str], complaint: str) -> None:
    ran = in_process(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("holdfast: ")
    assert complaint in ran.err
    assert len(ran.err.splitlines()) == 1


def test_wrong_use_in_a_process_of_its_own(tmp_path: Path) -> None:
    ran = in_pipe([*HOLDFAST, "lst"], folder=tmp_path, fresh=True)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "holdfast: No such command 'lst': did you mean `list`? (see `holdfast --help`)\n"


def test_an_error_is_a_line_on_click_8_1_as_well(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """That release, the lowest allowed, has no error of its own for a call without arguments."""
    monkeypatch.delattr(click.exceptions, "NoArgsIsHelpError")
    ran = in_process("lst")
    assert (ran.code, ran.err) == (2, "holdfast: No such command 'lst': did you mean `list`? (see `holdfast --help`)\n")


def test_no_command_at_all_shows_the_help(tmp_path: Path) -> None:
    ran = in_pipe([*HOLDFAST], folder=tmp_path, fresh=True)
    assert ran.code == 2
    assert "Commands:" in ran.err


def test_no_color_is_respected(tmp_path: Path) -> None:
    in_pipe([*HOLDFAST, "migrate"], folder=tmp_path)
    in_pipe([*HOLDFAST, "queues", "pause", "q"], folder=tmp_path)
    ran = in_terminal([*HOLDFAST, "queues"], folder=tmp_path, extra={"NO_COLOR": "1"})
    assert "paused" in ran.plain
    assert "\x1b[33m" not in ran.out


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    in_pipe([*HOLDFAST, "migrate"], folder=tmp_path)
    process = subprocess.Popen(
        [*HOLDFAST, "list", "--json"],
        cwd=tmp_path,
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    complaint = process.stderr.read()
    assert process.wait() == 0
    assert complaint == ""
    process.stderr.close()


def test_what_a_terminal_of_another_encoding_cannot_show_is_escaped(tmp_path: Path) -> None:
    in_pipe([*HOLDFAST, "migrate"], folder=tmp_path)
    for name in ("Zürich", "日本\U0001f355", "caf\udce9"):
        in_pipe([*HOLDFAST, "queues", "pause", name], folder=tmp_path)
    narrow = {"PYTHONIOENCODING": "ascii"}
    ran = in_pipe([*HOLDFAST, "queues"], folder=tmp_path, extra=narrow, fresh=True)
    assert (ran.code, ran.err) == (0, "")
    assert "Z\\u00fcrich" in ran.out
    ran = in_pipe([*HOLDFAST, "queues", "--json"], folder=tmp_path, extra=narrow, fresh=True)
    assert {queue["name"] for queue in ran.json["queues"]} == {"Zürich", "日本\U0001f355"}
    ran = in_pipe([*HOLDFAST, "schedules", "pause", "caf\udce9"], folder=tmp_path, extra=narrow, fresh=True)
    assert (ran.code, ran.err.count("\n")) == (3, 1)


def test_names_of_elsewhere_lead_to_commands_that_exist() -> None:
    assert set(ELSEWHERE.values()) <= set(COMMANDS)
    assert not set(ELSEWHERE) & set(COMMANDS)
