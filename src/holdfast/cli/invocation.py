"""What every command shares: `--database`, `--json`, an open ledger, and one event loop for its work.

`@shared` adds the options to a command and hands it an `Invocation`. Both options may stand before or after the
name of the command; the later one counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from holdfast.app import App
from holdfast.cli.database import Database, find_database
from holdfast.cli.exits import CommandError, Exit, one_line, redacted_url
from holdfast.cli.output import Output
from holdfast.core.clock import to_datetime
from holdfast.core.errors import ConfigurationError
from holdfast.core.identity import PromiseId
from holdfast.models.handle import Handle
from holdfast.store import store_from_url
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView
from holdfast.views import finding

APP_NAME: Final = "holdfast-cli"

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Ledger:
    """An open ledger, and its time when it was opened."""

    app: App
    store: Store
    now: datetime

    async def find(self, text: str) -> Handle[Any]:
        """The execution that an id, any unambiguous prefix of one, or a key names."""
        return self._handle(await finding.find(self.store, text))

    async def find_newest(self, text: str) -> Handle[Any]:
        """The run that it is now: what is done to one that was retried, or continued, is done to the last."""
        return self._handle(await finding.find(self.store, await (await self.find(text)).newest()))

    def _handle(self, view: ExecutionView) -> Handle[Any]:
        return Handle(self.app._connection, PromiseId.from_bytes(view.promise), name=view.name)


@dataclass(slots=True)
class Invocation:
    """One call of the program."""

    database_flag: str | None = None
    as_json: bool = False
    _output: Output | None = field(default=None, repr=False)

    @property
    def out(self) -> Output:
        if self._output is None:
            self._output = Output(as_json=self.as_json)
        return self._output

    def database(self) -> Database:
        return find_database(self.database_flag)

    def run(self, work: Callable[[Ledger], Awaitable[T]], *, create: bool = False) -> T:
        """Do the command's work on the ledger; `create` allows a file that does not exist yet."""
        database = self.database()
        if not create:
            database.check_exists()
        return asyncio.run(_on_ledger(database, work, create))


async def _on_ledger(database: Database, work: Callable[[Ledger], Awaitable[T]], create: bool) -> T:
    app = App(APP_NAME, database.url)
    try:
        try:
            if not create and (await store_from_url(database.url).schema_state()).found is None:
                raise CommandError(
                    f"there is no ledger in {redacted_url(database.url)} ({database.origin}): name another with "
                    "--database, or create this one with `holdfast migrate`",
                    Exit.STORE_UNAVAILABLE,
                )
            store = await app.store()
        except ConfigurationError as error:  # a URL of the right form that leads nowhere
            raise CommandError(one_line(error), Exit.STORE_UNAVAILABLE) from error
        return await work(Ledger(app, store, to_datetime(await store.now_us())))
    finally:
        await app.close()


def _keep_database(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).database_flag = value


def _keep_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Invocation).as_json = True


def shared_options(command: C) -> C:
    """`--database` and `--json`, remembered in the invocation."""
    database = click.option(
        "--database",
        metavar="URL",
        expose_value=False,
        callback=_keep_database,
        help="The ledger: a path or URL.  [default: HOLDFAST_DATABASE, pyproject.toml, ./holdfast.db]",
    )
    as_json = click.option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_keep_json, help="Print JSON for programs."
    )
    return database(as_json(command))


def shared(command: C) -> Callable[..., Any]:
    """The shared options, and the invocation as the first argument."""
    return shared_options(click.make_pass_decorator(Invocation, ensure=True)(command))
