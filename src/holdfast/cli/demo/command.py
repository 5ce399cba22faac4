"""The command `holdfast demo`: where its files go, and what it says at the end."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from holdfast.cli.demo.display import Display, make_display
from holdfast.cli.demo.proof import Proof
from holdfast.cli.demo.story import Ending, Place, tell
from holdfast.cli.exits import CommandError, Exit, redacted_url
from holdfast.cli.invocation import Invocation, shared
from holdfast.cli.output import Output, counted

FAULTS_SHOWN = 10


@click.command("demo")
@click.option("--orders", type=click.IntRange(1, 10_000), default=200, show_default=True, help="How many to start.")
@shared
def demo_command(call: Invocation, orders: int) -> None:
    """Watch orders finish although their worker is killed in the middle.

    Starts orders, works on them in a process of its own, kills that process with SIGKILL, starts another, and proves
    from the ledger that every order finished and no committed step ran again. The ledger is a new file in a
    temporary folder, and is kept; only `--database` names another, HOLDFAST_DATABASE is left alone.
    """
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    database = call.database_flag or str(folder / "ledger.db")
    place = Place(database, folder / "audit.log", folder / "worker.log")
    display = make_display(call.out.console, quiet=call.as_json)
    try:
        ending = asyncio.run(_tell(place, orders, display))
    finally:
        display.close()
    if call.as_json:
        call.out.json(_shape(ending, orders))
    else:
        _print_ending(call.out, ending, orders, database)
    if not ending.proof.is_sound:
        raise CommandError(f"the demo is not verified: {ending.proof.faults[0]}")


async def _tell(place: Place, orders: int, display: Display) -> Ending:
    """Ctrl-C and SIGTERM cancel it, and what it started ends with it."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await tell(place, orders, display)
    except asyncio.CancelledError:
        raise CommandError("interrupted; the worker is stopped, the ledger stays", Exit.INTERRUPTED) from None


def _print_ending(out: Output, ending: Ending, orders: int, database: str) -> None:
    proof = ending.proof
    good, bad = ("✓", "✗") if out.is_terminal else ("ok:", "FAILED:")
    if proof.is_sound:
        out.blank()
        for claim in _claims(ending, orders):
            out.line(f"{good} {claim}", "green")
    for fault in proof.faults[:FAULTS_SHOWN]:
        out.line(f"{bad} {fault}", "bold red")
    if len(proof.faults) > FAULTS_SHOWN:
        out.line(f"{bad} and {len(proof.faults) - FAULTS_SHOWN} more", "bold red")
    out.blank()
    out.line(f"All of it is in {ending.ledger}. Look into it:")
    where = f"--database {shlex.quote(redacted_url(database))}"
    for command in ("list", f"show {ending.first_order}", f"history {ending.first_order}"):
        out.line(f"  {program_again()} {command} {where}", "cyan")


def program_again() -> str:
    """How to call this program once more from the same shell: the one of `make demo` is on no path."""
    called = Path(sys.argv[0])
    if called.name != "holdfast":
        return f"{shlex.quote(sys.executable)} -m holdfast"
    found = shutil.which("holdfast")
    return "holdfast" if found is not None and called.exists() and called.samefile(found) else shlex.quote(str(called))


def _claims(ending: Ending, orders: int) -> list[str]:
    proof = ending.proof
    claims = [
        f"{orders} of {orders} orders finished, with all their parcels, in {ending.seconds:.1f} s",
        f"{proof.committed} steps are in the ledger, each committed exactly once; "
        f"{counted(proof.retried, 'payment')} failed at first and went through later",
        f"no committed step ran again; the {counted(proof.cut_short, 'step')} in flight at the kill ran a second time",
    ]
    if proof.expired:
        claims.append(
            f"{counted(proof.expired, 'step')} more ran twice, because a worker was too slow to keep its lease"
        )
    return claims


def _shape(ending: Ending, orders: int) -> dict[str, Any]:
    proof: Proof = ending.proof
    return {
        "verified": proof.is_sound,
        "database": ending.ledger,
        "orders": orders,
        "executions": proof.executions,
        "steps_committed": proof.committed,
        "steps_retried": proof.retried,
        "in_flight_at_kill": ending.in_flight,
        "steps_run_again": proof.cut_short + proof.expired,
        "approvals": ending.approvals,
        "workers": [{"pid": ending.killed_pid, "killed": True}, {"pid": ending.second_pid, "killed": False}],
        "seconds": round(ending.seconds, 3),
        "faults": proof.faults,
    }
