"""`holdfast completion SHELL`: what a shell needs to complete commands, options and ids."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from holdfast.cli.invocation import Invocation, shared

_HINTS: Final = {
    "bash": 'eval "$(holdfast completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)" in ~/.zshrc',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_HINTS)))
@shared
def completion_command(call: Invocation, shell: str) -> None:
    """Print the completion script of a shell: put `eval "$(holdfast completion bash)"` into its start file."""
    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    from holdfast.cli.main import holdfast

    source = made(holdfast, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if call.as_json:
        call.out.json({"shell": shell, "script": source})
    else:
        click.echo(f"# {_HINTS[shell]}\n{source}")
