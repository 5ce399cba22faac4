"""Collation: the digit arithmetic that makes each step of a flow happen once.

- `ledger.py`: the two 15-digit ledgers and their fields
- `protocol.py`: what to do with a message, given its ledgers
- `address.py`: dimensions of cycles, deterministic GUIDs
- `audit.py`: what must hold over a whole job
"""

from holdfast.core.collation.address import Dimension, Guid, leg1_guid, response_guid
from holdfast.core.collation.audit import audit_activity, audit_guid, audit_job
from holdfast.core.collation.ledger import (
    CHILDREN_SPAWNED,
    COMPLETION_DONE,
    GUID_ATTEMPTS,
    JOB_CLOSED,
    LEDGER_LIMIT,
    LEG1_ATTEMPTS,
    LEG1_DONE,
    LEG2_ENTRIES,
    WORK_DONE,
    ActivityLedger,
    Field,
    GuidLedger,
    GuidRecord,
    Step,
)
from holdfast.core.collation.protocol import (
    Acknowledge,
    Close,
    DeadLetter,
    JobPhase,
    Leg1Decision,
    Leg2Decision,
    Proceed,
    PutBack,
    RunLeg1,
    commit_step,
    enter_leg2,
    receive_leg1,
    receive_leg2,
    semaphore_delta,
    set_status_and_collate,
)

__all__ = [
    "CHILDREN_SPAWNED",
    "COMPLETION_DONE",
    "GUID_ATTEMPTS",
    "JOB_CLOSED",
    "LEDGER_LIMIT",
    "LEG1_ATTEMPTS",
    "LEG1_DONE",
    "LEG2_ENTRIES",
    "WORK_DONE",
    "Acknowledge",
    "ActivityLedger",
    "Close",
    "DeadLetter",
    "Dimension",
    "Field",
    "Guid",
    "GuidLedger",
    "GuidRecord",
    "JobPhase",
    "Leg1Decision",
    "Leg2Decision",
    "Proceed",
    "PutBack",
    "RunLeg1",
    "Step",
    "audit_activity",
    "audit_guid",
    "audit_job",
    "commit_step",
    "enter_leg2",
    "leg1_guid",
    "receive_leg1",
    "receive_leg2",
    "response_guid",
    "semaphore_delta",
    "set_status_and_collate",
]
