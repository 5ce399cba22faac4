"""Holdfast: durable execution for Python.

Work written with it goes on where it stopped after a crash, a deploy or a lost machine, because every decision is
in a ledger before the next one is taken.
"""

from holdfast.app import App
from holdfast.core.errors import HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.outcomes import Await, Child, Done, Next, Outcome, Replay, ScheduleChildren, Stop, Unique
from holdfast.core.retry import RetryPolicy
from holdfast.core.status import Status
from holdfast.models.handle import Collision, Handle
from holdfast.models.machine.context import ChildResult, MachineContext, ReceivedSignal
from holdfast.models.machine.definition import Machine, step

__version__ = "0.1.0"

__all__ = [
    "App",
    "Await",
    "Child",
    "ChildResult",
    "Collision",
    "Done",
    "Handle",
    "HoldfastError",
    "Machine",
    "MachineContext",
    "Next",
    "Outcome",
    "PromiseId",
    "ReceivedSignal",
    "Replay",
    "RetryPolicy",
    "ScheduleChildren",
    "Status",
    "Stop",
    "Unique",
    "step",
]
