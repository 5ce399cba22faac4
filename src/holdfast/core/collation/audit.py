"""What must be true of the ledgers of a job at rest; each function names every violation it finds.

Digits out of their range are refused when a ledger is read (`ledger.py`). Here is what takes more than one
field, or more than one ledger, to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.collation.ledger import ActivityLedger, GuidRecord, Step


def audit_guid(record: GuidRecord) -> list[str]:
    """Violations inside one GUID's record."""
    ledger = record.ledger
    work, children, completion = (ledger.is_marked(step) for step in Step)
    checks = (
        (ledger.attempts >= 1, "section 7.2: a GUID is recorded, but no delivery was counted"),
        (work or not children, "section 10: children spawned without work done"),
        (children or not ledger.job_closed, "section 9.3: job closed snapshot without children spawned"),
        (ledger.job_closed or not completion, "section 13.1: completion tasks without the snapshot"),
    )
    return [f"{violation} (GUID ledger {ledger})" for holds, violation in checks if not holds]


def audit_activity(ledger: ActivityLedger, records: Sequence[GuidRecord]) -> list[str]:
    """Violations between an activity's ledger and the records of all its Leg2 GUIDs."""
    entered = [record for record in records if record.ordinal > 0]
    ordinals = [record.ordinal for record in entered]
    deliveries = sum(record.ledger.attempts for record in entered)
    checks = [
        (ledger.leg1_attempts >= 1 or not ledger.leg1_done, "section 4.1: Leg1 done without an attempt"),
        (ledger.leg1_done or not ledger.leg2_entries, "ruling A5: Leg2 entered before Leg1 was done"),
        (
            ledger.leg2_entries == deliveries,
            f"section 7.1: {ledger.leg2_entries} Leg2 entries, but {deliveries} deliveries of its GUIDs",
        ),
        (len(set(ordinals)) == len(ordinals), "ruling A3: two GUIDs share an ordinal"),
        (max(ordinals, default=0) <= ledger.leg2_entries, "ruling A3: an ordinal above the entry count"),
    ]
    for step in Step:
        reached = any(record.ledger.is_marked(step) for record in entered)
        checks.append(
            (
                ledger.is_marked(step) == reached,
                f"section 8: {step.value.name!r} differs between the activity and its GUIDs",
            )
        )
    return [f"{violation} (activity ledger {ledger})" for holds, violation in checks if not holds]


def audit_job(semaphore: int, records: Iterable[GuidRecord]) -> list[str]:
    """Violations between a job's semaphore and the records of all its GUIDs."""
    closers = sum(record.ledger.job_closed for record in records)
    violations = []
    if semaphore < 0:
        violations.append(f"section 9.1: the semaphore is {semaphore}")
    if closers > 1:
        violations.append(f"section 9.3: {closers} GUIDs claim to have closed the job")
    if (semaphore == 0) != (closers >= 1):
        violations.append(f"section 9.3: the semaphore is {semaphore}, but {closers} GUIDs closed the job")
    return violations
