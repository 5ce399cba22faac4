"""An id on the command line: any unambiguous prefix, or a key; ids are completed by the shell from the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from holdfast.app import App
from holdfast.cli.database import find_database
from holdfast.core.errors import HoldfastError
from holdfast.core.identity import PREFIX_MIN_HEX, IdQuery
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.views import shapes

COMPLETED_MAX: Final = 50


class ExecutionId(click.types.StringParamType):
    """What `Ledger.find` takes; checked there, where the ledger is open."""

    name = "id"

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        # A shell that completes shows no errors: whatever is wrong, there is nothing to offer.
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            return asyncio.run(_candidates(_database_flag(context), incomplete))
        return []


EXECUTION: Final = ExecutionId()


def id_argument(command: Any) -> Any:
    """The argument ID."""
    return click.argument("execution", metavar="ID", type=EXECUTION)(command)


def _database_flag(context: click.Context) -> str | None:
    found: click.Context | None = context
    while found is not None:
        if found.obj is not None:
            flag: str | None = found.obj.database_flag
            return flag
        found = found.parent
    return None


async def _candidates(flag: str | None, incomplete: str) -> list[CompletionItem]:
    database = find_database(flag)
    database.check_exists()
    app = App("holdfast-completion", database.url)
    try:
        store = await app.store()
        name, slash, rest = incomplete.rpartition("/")
        views: list[ExecutionView] = []
        if len(rest) >= PREFIX_MIN_HEX:
            with contextlib.suppress(HoldfastError):
                views = await store.find(IdQuery.parse(incomplete), COMPLETED_MAX)
        else:
            where = ExecutionFilter(name=name if slash else None)
            views = (await store.browse(where, COMPLETED_MAX)).items
        offered = [(shapes.label_of(view) if slash else shapes.id_of(view).short, view) for view in views]
        if not slash and not rest.isalnum() and rest:
            return []
        found = [CompletionItem(text, help=_help(view)) for text, view in offered if text.startswith(incomplete)]
        if not slash and not found:
            found = [
                CompletionItem(shapes.label_of(view), help=_help(view))
                for view in views
                if shapes.label_of(view).startswith(incomplete)
            ]
        return found
    finally:
        await app.close()


def _help(view: ExecutionView) -> str:
    return f"{view.name} {view.status}"
