"""`holdfast check MODULE:APP`: would this code go on with everything in flight?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final, get_args

import click

from holdfast.app import App
from holdfast.cli.answers import ReplayLine, Replays
from holdfast.cli.exits import Exit
from holdfast.cli.invocation import Invocation, shared
from holdfast.cli.output import Output, counted
from holdfast.cli.worker import app_argument, load_app
from holdfast.core.status import Status
from holdfast.models.check import Checked, Verdict

STUCK: Final[dict[Verdict, str]] = {"stranded": "would be stranded", "fails": "would fail"}
TOLD_OF_EACH: Final = 10  # of a name: the others are likely to have the same reason


@click.command("check")
@app_argument
@click.option(
    "--queue",
    "queues",
    multiple=True,
    help="Only what is on this queue, as of an app that shares its ledger; may be repeated.",
)
@shared
def check_command(call: Invocation, target: str | None, queues: tuple[str, ...]) -> int:
    """Say whether the code at hand goes on with everything in flight, without effects.

    Workflows are replayed, states, inputs and items are read. Each one goes on, is patched (it takes the old path of a
    change), would be stranded, or would fail. The exit code is 1 if any would not go on.
    """
    database = call.database()
    database.check_exists()
    checked = asyncio.run(_check(load_app(target, database), queues))
    counts = Counter(one.verdict for one in checked)
    if call.as_json:
        runs = [
            ReplayLine(id=one.id, label=one.label, status=one.status, verdict=one.verdict, detail=one.detail)
            for one in checked
        ]
        found: dict[str, int] = {verdict: counts[verdict] for verdict in get_args(Verdict)}
        call.out.json(Replays(**found, runs=runs))
    else:
        _tell(call.out, [one for one in checked if one.verdict in STUCK])
        already = sum(one.verdict == "stranded" and one.status is Status.STRANDED for one in checked)
        call.out.line(
            f"{counted(len(checked), 'execution')} in flight: {counts['replays']} go on, {counts['patched']} patched, "
            f"{counts['stranded']} would be stranded{f' ({already} already)' if already else ''}, "
            f"{counts['fails']} would fail"
        )
    return Exit.FAILED if any(counts[verdict] for verdict in STUCK) else Exit.OK


def _tell(out: Output, stuck: list[Checked]) -> None:
    told = Counter[str]()
    for one in stuck:
        name = one.label.rpartition("/")[0]
        told[name] += 1
        if told[name] <= TOLD_OF_EACH:
            is_so = one.verdict == "stranded" and one.status is Status.STRANDED
            out.line(f"{one.label} {'is stranded, and stays so' if is_so else STUCK[one.verdict]}", "red")
            out.block(one.detail or "")
    for name, count in told.items():
        if count > TOLD_OF_EACH:
            out.line(f"and {count - TOLD_OF_EACH} more of {name}: see --json", "red")


async def _check(app: App, queues: Sequence[str]) -> list[Checked]:
    try:
        return [one async for one in app.check(queues=queues)]
    finally:
        await app.close()
