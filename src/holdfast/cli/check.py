"""`holdfast check MODULE:APP`: would this code go on with everything in flight?"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import click

from holdfast.app import App
from holdfast.cli.answers import ReplayLine, Replays
from holdfast.cli.exits import Exit
from holdfast.cli.invocation import Invocation, shared
from holdfast.cli.output import counted
from holdfast.cli.worker import app_argument, load_app
from holdfast.core.status import Status
from holdfast.models.check import Checked

TOLD_OF_EACH: Final = 10  # of a name; many more would be stranded for the same reason


@click.command("check")
@app_argument
@shared
def check_command(call: Invocation, target: str | None) -> int:
    """Say whether the code at hand goes on with everything in flight, without effects.

    Workflows are replayed, states and inputs are read. Each one goes on, is patched (it takes the old path of a
    change), or would be stranded. The exit code is 1 if any would be.
    """
    database = call.database()
    database.check_exists()
    checked = asyncio.run(_check(load_app(target, database)))
    counts = Counter(one.verdict for one in checked)
    if call.as_json:
        runs = [
            ReplayLine(id=one.id, label=one.label, status=one.status, verdict=one.verdict, detail=one.detail)
            for one in checked
        ]
        found = (counts["replays"], counts["patched"], counts["stranded"])
        call.out.json(Replays(replays=found[0], patched=found[1], stranded=found[2], runs=runs))
    else:
        stranded = [one for one in checked if one.verdict == "stranded"]
        told = Counter[str]()
        for one in stranded:
            name = one.label.rpartition("/")[0]
            told[name] += 1
            if told[name] <= TOLD_OF_EACH:
                how = "is stranded, and stays so" if one.status is Status.STRANDED else "would be stranded"
                call.out.line(f"{one.label} {how}", "red")
                call.out.block(one.detail or "")
        for name, count in told.items():
            if count > TOLD_OF_EACH:
                call.out.line(f"and {count - TOLD_OF_EACH} more of {name}: see --json", "red")
        already = sum(one.status is Status.STRANDED for one in stranded)
        call.out.line(
            f"{counted(len(checked), 'execution')} in flight: {counts['replays']} go on, {counts['patched']} patched, "
            f"{counts['stranded']} would be stranded" + (f", {already} of them already" if already else "")
        )
    return Exit.FAILED if counts["stranded"] else Exit.OK


async def _check(app: App) -> list[Checked]:
    try:
        return [one async for one in app.check()]
    finally:
        await app.close()
