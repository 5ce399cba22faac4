"""The program `holdfast`: its commands, and what happens to their errors.

Each command lives in the module of its topic and is imported when it is used, so that `holdfast --help` stays quick.
"""

from __future__ import annotations

import codecs
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import click

from holdfast import __version__
from holdfast.cli.exits import Exit, code_of, one_line
from holdfast.cli.invocation import shared_options
from holdfast.cli.output import visible
from holdfast.core.errors import HoldfastError

ESCAPED: Final = "holdfast-escaped"

# In the order of `--help`: name, where it is, one line of help.
COMMANDS: Final = {
    "demo": ("holdfast.cli.demo.command:demo_command", "Watch orders finish although their worker is killed."),
    "dev": ("holdfast.cli.dev:dev_command", "Work on an app and show its dashboard, with reload."),
    "worker": ("holdfast.cli.worker:worker_command", "Work on the executions of an app."),
    "web": ("holdfast.cli.web:web_command", "Serve the HTTP API and the dashboard."),
    "check": ("holdfast.cli.check:check_command", "Would this code go on with everything in flight?"),
    "start": ("holdfast.cli.start:start_command", "Start a workflow, a task or anything else by its name."),
    "list": ("holdfast.cli.executions:list_command", "List executions, newest first."),
    "show": ("holdfast.cli.executions:show_command", "Show one execution."),
    "history": ("holdfast.cli.past:history_command", "Show the events of a workflow, or the steps of a machine."),
    "tail": ("holdfast.cli.past:tail_command", "Follow an execution until it has ended."),
    "wait": ("holdfast.cli.start:wait_command", "Wait until an execution has ended, and show its result."),
    "signal": ("holdfast.cli.control:signal_command", "Send a signal to an execution."),
    "cancel": ("holdfast.cli.control:cancel_command", "Cancel an execution."),
    "pause": ("holdfast.cli.control:pause_command", "Keep an execution from being worked on."),
    "resume": ("holdfast.cli.control:resume_command", "Let a paused or stranded execution go on."),
    "retry": ("holdfast.cli.start:retry_command", "Try a failed execution again."),
    "fork": ("holdfast.cli.start:fork_command", "Start a new run with the past of a workflow."),
    "batch": ("holdfast.cli.batch:batch_group", "Run a batch over a file; its progress, failures and outcomes."),
    "flow": ("holdfast.cli.flow:flow_group", "Draw a flow; show where a job of it stands."),
    "dead-letters": ("holdfast.cli.flow:letters_group", "List, retry and drop messages of flows that got stuck."),
    "queues": ("holdfast.cli.queues:queues_group", "List queues, set their limits, pause and resume them."),
    "schedules": ("holdfast.cli.schedules:schedules_group", "List schedules; create, pause, resume, trigger, delete."),
    "workers": ("holdfast.cli.upkeep:workers_command", "List the workers."),
    "definitions": ("holdfast.cli.upkeep:definitions_command", "List what can be started by its name."),
    "verify": ("holdfast.cli.verify:verify_command", "Audit the ledger against every rule of every model."),
    "export": ("holdfast.cli.transfer:export_command", "Write runs as JSON lines, for another ledger."),
    "import": ("holdfast.cli.transfer:import_command", "Take in runs from another ledger."),
    "doctor": ("holdfast.cli.doctor:doctor_command", "Is everything as it should be? Versions, settings, lag."),
    "gc": ("holdfast.cli.upkeep:gc_command", "Delete executions that ended long ago."),
    "ops": ("holdfast.cli.ops:ops", "Look at operations: several processes on one piece of work."),
    "migrate": ("holdfast.cli.upkeep:migrate_command", "Create a ledger, or bring it up to date."),
    "completion": ("holdfast.cli.completion:completion_command", "Print the completion script of a shell."),
}

# What the commands are called in programs that people come from.
ELSEWHERE: Final = {
    **dict.fromkeys(("dashboard", "ui", "flower", "serve"), "web"),
    **dict.fromkeys(("ps", "ls", "status", "inspect", "search"), "list"),
    **dict.fromkeys(("describe", "get"), "show"),
    **dict.fromkeys(("result", "await", "join"), "wait"),
    **dict.fromkeys(("logs", "follow", "watch"), "tail"),
    **dict.fromkeys(("run", "enqueue", "submit", "call"), "start"),
    **dict.fromkeys(("send", "notify", "event"), "signal"),
    **dict.fromkeys(("kill", "terminate", "revoke", "delete"), "cancel"),
    **dict.fromkeys(("purge", "prune", "clean"), "gc"),
    **dict.fromkeys(("init", "upgrade"), "migrate"),
    **dict.fromkeys(("beat", "cron", "schedule"), "schedules"),
    **dict.fromkeys(("replay", "validate"), "check"),
    **dict.fromkeys(("events", "journal"), "history"),
    "queue": "queues",
}


class LazyGroup(click.Group):
    """Knows its commands by name; imports the one that is used."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        meant = ELSEWHERE.get(args[0]) or next(iter(get_close_matches(args[0], COMMANDS, 1)), None)
        is_completing = context.resilient_parsing  # a shell is not told of errors
        if args[0] not in COMMANDS and meant is not None and not is_completing:
            context.fail(f"No such command {args[0]!r}: did you mean `{meant}`?")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
@shared_options
def holdfast() -> None:
    """Durable execution: look at a ledger, steer what is in it, and work on it.

    An ID is `Name/4f7a9c21`, or any prefix of its digits that fits only one execution, or the key it was started with
    (`order-17`, `Name/order-17`). Exit codes: 0 done, 1 could not be done, 2 wrong use, 3 no such id or ambiguous,
    4 the ledger cannot be used.
    """


def run(arguments: Sequence[str] | None = None, command: click.Command = holdfast, program: str = "holdfast") -> int:
    """The exit code of one call of the program, or of one of its commands alone."""
    try:
        answer = command.main(arguments, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else Exit.OK
    except getattr(click.exceptions, "NoArgsIsHelpError", ()) as error:  # click 8.1 prints it by itself
        print(error.format_message(), file=sys.stderr)
        return Exit.WRONG_USE
    except click.ClickException as error:
        return _complain(_usage_line(error), Exit.WRONG_USE)
    except HoldfastError as error:
        return _complain(one_line(error), code_of(error))
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", Exit.INTERRUPTED)
    except (BrokenPipeError, SystemExit):
        # The reader of a pipe has left (`holdfast list | head`), in which case click exits: that is no error.
        # Python must not complain about it again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def _usage_line(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    text = " ".join(error.format_message().split())
    return text if context is None else f"{text} (see `{context.command_path} --help`)"


def _complain(text: str, code: Exit) -> int:
    print(f"holdfast: {visible(text)}", file=sys.stderr)  # an error may quote a ledger, or a file from elsewhere
    return code


def main() -> None:
    """The console script."""
    _open_standard_streams()
    codecs.register_error(ESCAPED, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPED)
    sys.exit(run())


def _open_standard_streams() -> None:
    """What a program was started without (`<&- >&-`) is nothing from now on.

    Else the next file or socket that is opened would take its number: uvloop aborts at one, and what is printed would
    end in the other.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  (for as long as the process lives)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _escape(error: UnicodeError) -> tuple[str, int]:
    """What a terminal of another encoding cannot show, as JSON writes it, so that JSON stays JSON."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


if __name__ == "__main__":
    main()
