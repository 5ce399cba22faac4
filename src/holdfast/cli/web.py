"""`holdfast web`: the HTTP API and the dashboard of a ledger, without a worker."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from holdfast.app import App
from holdfast.cli import config
from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.invocation import APP_NAME, Invocation, shared
from holdfast.telemetry.logs import configure_logging


@click.command("web")
@click.option("--host", help="Any other than loopback demands a token.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes a free one.  [default: 8420]")
@click.option(
    "--tokens-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tokens, one a line: read:..., operate:..., admin:...  [also: HOLDFAST_TOKENS]",
)
@click.option(
    "--operations",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder of operations to show in the dashboard.",
)
@shared
def web_command(
    call: Invocation, host: str | None, port: int | None, tokens_file: Path | None, operations: Path | None
) -> None:
    """Serve the HTTP API and the dashboard of the ledger.

    On loopback without tokens whoever can reach this machine's loopback may do everything. Ctrl-C stops.
    """
    try:
        from holdfast.web.security import Tokens
        from holdfast.web.server import serve, tokens_from_environment
    except ImportError as error:
        raise CommandError(
            f"serving needs the extra `web`: pip install 'holdfast[web]' (missing: {error.name})", Exit.WRONG_USE
        ) from error
    configure_logging("text")
    tokens = tokens_from_environment() | (Tokens() if tokens_file is None else Tokens.from_file(tokens_file))
    chosen: str = config.find("host", host).value
    number: int = port if port == 0 else config.find("port", port).value
    database = call.database()
    database.check_exists()

    def up(url: str) -> None:
        if call.as_json:
            call.out.json({"event": "serving", "url": url, "database": app_url[0]})
        else:
            call.out.line(f"serving {app_url[0]} on {url}; Ctrl-C stops", "dim")
        sys.stdout.flush()

    app_url: list[str] = []

    async def run() -> None:
        app = App(APP_NAME, database.url)
        try:
            app_url.append((await app.store()).url)
            await serve(app, host=chosen, port=number, tokens=tokens, operations=operations, on_up=up)
        finally:
            await app.close()

    asyncio.run(run())
