"""Commands that pages advise to type: they are there, with the options that they are shown with."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from click import Context

from holdfast.cli.main import holdfast

TEMPLATES = [each for each in files("holdfast.web.dashboard").joinpath("templates").iterdir() if each.is_file()]
ADVICE = {
    command
    for template in TEMPLATES
    for command in re.findall(r"(?:\\n|\b)(holdfast [a-z-]+(?: [^\"<\\#]*)?)", template.read_text(encoding="utf-8"))
}


def test_there_is_some_advice() -> None:
    assert len(ADVICE) >= 4


@pytest.mark.parametrize("advice", sorted(ADVICE))
def test_what_a_page_says_to_type_can_be_typed(advice: str) -> None:
    _, name, *rest = advice.split()
    command = holdfast.get_command(Context(holdfast), name)
    assert command is not None, advice
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= options, advice
