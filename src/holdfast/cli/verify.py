"""`holdfast verify`: the audit of a whole ledger."""

from __future__ import annotations

import click

from holdfast.cli.answers import Verified
from holdfast.cli.exits import Exit
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import Cell, Grid, Value, counted
from holdfast.cli.progress import progress
from holdfast.verify.auditor import audit
from holdfast.verify.rules import RULES

FAULTS_SHOWN = 100


@click.command("verify")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules instead.")
@shared
def verify_command(call: Invocation, list_rules: bool) -> int:
    """Audit the ledger against every rule of every model, in one snapshot; workers may go on meanwhile.

    The report names the rule, the execution, what was found and what is expected. The exit code is 1 if anything is.
    """
    if list_rules:
        return _list(call)

    async def look(ledger: Ledger) -> Verified:
        with progress(call, "verifying", "records") as tell:
            faults, counts = await audit(ledger.store, progress=tell)
        return Verified(sound=not faults, faults=faults, looked_at=counts)

    report = call.run(look)
    if call.as_json:
        call.out.json(report)
    else:
        for fault in report.faults[:FAULTS_SHOWN]:
            call.out.line(f"{fault.rule}: {fault.label or 'the ledger'}", "bold red")
            call.out.line(f"  found     {fault.found}")
            call.out.line(f"  expected  {fault.expected}")
            if fault.id is not None:
                call.out.line(f"  id        {fault.id}", "dim")
        if len(report.faults) > FAULTS_SHOWN:
            call.out.line(f"and {len(report.faults) - FAULTS_SHOWN} more: --json has them all")
        looked = ", ".join(counted(count, _things(kind)) for kind, count in report.looked_at.items())
        verdict = "sound" if report.sound else counted(len(report.faults), "fault")
        call.out.line(f"{verdict}: looked at {looked or 'an empty ledger'}", "green" if report.sound else "bold red")
    return Exit.OK if report.sound else Exit.FAILED


def _things(kind: str) -> str:
    return {"journal": "journal segment", "signal_key": "dedup key"}.get(kind, kind)


def _list(call: Invocation) -> int:
    if call.as_json:
        call.out.json([{"name": rule.name, "text": rule.text} for rule in RULES])
        return Exit.OK
    rows: list[list[Value]] = [[Cell(rule.name, "bold"), rule.text] for rule in RULES]
    from datetime import UTC, datetime

    call.out.grid(Grid(("RULE", "WHAT MUST HOLD"), rows), now=datetime.now(UTC), empty="")
    return Exit.OK
