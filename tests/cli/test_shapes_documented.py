"""docs/reference/cli.md lists every command, and every field of every answer; the types of `answers` are the truth."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from holdfast.cli import answers
from holdfast.cli.main import COMMANDS
from holdfast.verify.rules import Fault
from holdfast.views import ledger_shapes, shapes

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md").read_text()
# Which section documents a shape.
WHERE = {
    answers.Started: "start",
    answers.Signalled: "signal",
    answers.Cancelled: "cancel",
    answers.Paused: "pause",
    answers.PastOf: "history",
    answers.TailLine: "tail",
    answers.Deleted: "gc",
    answers.Migrated: "migrate",
    answers.Verified: "verify",
    Fault: "verify",
    answers.ExportAnswer: "export",
    answers.ImportAnswer: "import",
    answers.CheckLine: "doctor",
    answers.Diagnosis: "doctor",
    answers.ReplayLine: "check",
    answers.Replays: "check",
}
SHARED = {
    shapes.ExecutionPage: "list",
    shapes.Summary: "list",
    shapes.Details: "show",
    shapes.TransitionLine: "history",
    ledger_shapes.Queue: "queues",
    ledger_shapes.Worker: "workers",
    ledger_shapes.DefinitionLine: "definitions",
    ledger_shapes.Schedule: "schedules",
}


def section(command: str) -> str:
    found = re.search(rf"^### holdfast {command}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/reference/cli.md has no section for {command}"
    return found[1]


def test_every_answer_has_a_section() -> None:
    found = {value for _, value in inspect.getmembers(answers, inspect.isclass) if issubclass(value, msgspec.Struct)}
    own = {shape for shape in found if shape.__module__ == answers.__name__ or shape is Fault}
    assert own - {answers.Named} == set(WHERE)


@pytest.mark.parametrize("shape", [*WHERE, *SHARED], ids=lambda shape: shape.__name__)
def test_every_field_of_an_answer_is_documented(shape: type[msgspec.Struct]) -> None:
    text = section({**WHERE, **SHARED}[shape])
    if issubclass(shape, shapes.Details):
        text += section("list")
    missing = [name for name in shape.__struct_fields__ if f'"{name}"' not in text and f"`{name}`" not in text]
    assert missing == []


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"resume", "batch", "flow", "dead-letters", "web"}))
def test_every_command_has_a_section(command: str) -> None:
    assert section(command)
