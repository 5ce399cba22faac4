"""What the site takes from the program itself: the public names, the errors and the commands.

A page asks for it with a line of its own: `<!-- holdfast: names -->`, `errors`, `operation errors` or `commands`. The
rules that docstrings cite by number are for who changes the code, and are left out.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import click

import holdfast
import holdfast.operation
from holdfast.cli.main import COMMANDS
from holdfast.cli.main import holdfast as program
from holdfast.core import errors

# Beside what Python programs import, grouped as a reader looks for it; the rest of `__all__` follows.
GROUPS = {
    "The app": ["App", "Handle", "Collision", "resource"],
    "Workflows": [
        "Workflow",
        "Context",
        "Task",
        "current",
        "JoinSet",
        "Promise",
        "Completed",
        "RetryPolicy",
        "HttpResponse",
    ],
    "Flows": ["Flow", "Activity", "FlowJob"],
    "Batches": ["Batch", "Skip"],
    "Machines": [
        *("Machine", "step", "MachineContext", "ReceivedSignal", "ChildResult", "Outcome"),
        *("Next", "Replay", "Await", "ScheduleChildren", "Done", "Stop", "Child", "Unique"),
    ],
}

# The decorators of an app are methods of what it derives from.
WITH_INHERITED = "    options:\n      inherited_members: true\n"


def grouped_names() -> dict[str, list[str]]:
    """Every public name, in the group that it is shown in."""
    groups = {title: [name for name in names if name in holdfast.__all__] for title, names in GROUPS.items()}
    shown = {name for names in groups.values() for name in names}
    groups["More"] = [name for name in holdfast.__all__ if name not in shown]
    return groups


def names() -> str:
    lines = []
    for title, found in grouped_names().items():
        lines.append(f"## {title}\n")
        lines += [f"::: holdfast.{name}\n{WITH_INHERITED if name == 'App' else ''}" for name in found]
    return "\n".join(lines)


def error_classes() -> list[type[BaseException]]:
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, BaseException)]
    return [value for value in found if value.__module__ == errors.__name__]


def operation_error_classes() -> list[type[BaseException]]:
    found = [value for value in vars(holdfast.operation).values() if inspect.isclass(value)]
    return [value for value in found if issubclass(value, holdfast.HoldfastError)]


def error_list() -> str:
    return _error_list(error_classes())


def operation_error_list() -> str:
    return _error_list(operation_error_classes())


def _error_list(classes: list[type[BaseException]]) -> str:
    lines = ["| error | is a | |", "|---|---|---|"]
    for error in classes:
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        lines.append(f"| `{error.__name__}` | {bases} | {' '.join((inspect.getdoc(error) or '').split())} |")
    return "\n".join(lines)


def commands() -> str:
    context = click.Context(program, info_name="holdfast")
    return "\n".join(_command(program.get_command(context, name), context, name, 2) for name in COMMANDS)


def _command(command: click.Command | None, parent: click.Context, name: str, level: int) -> str:
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    text = f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        text += "".join(
            "\n" + _command(command.get_command(context, inner), context, inner, level + 1)
            for inner in command.list_commands(context)
        )
    return text


MADE = {"names": names, "errors": error_list, "operation errors": operation_error_list, "commands": commands}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls it with the text of each page."""
    for mark, make in MADE.items():
        line = f"<!-- holdfast: {mark} -->"
        if line in markdown:
            markdown = markdown.replace(line, make())
    return markdown


_CITED = re.compile(r"\s*\((?:(?:rulings? [A-Z]\d+|Rule [A-Z]|JS-\d+)(?:, )?)+\)")


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs calls it with each page as it is shown."""
    return _CITED.sub("", html)
