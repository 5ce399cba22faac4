"""Holdfast: durable execution for Python.

Work written with it goes on where it stopped after a crash, a deploy or a lost machine, because every decision is
in a ledger before the next one is taken.
"""

from holdfast.app import App
from holdfast.core.error_record import ErrorRecord
from holdfast.core.errors import HoldfastError, TaskCancelled, TaskFailed, TaskTimedOut, Uncertain
from holdfast.core.identity import PromiseId
from holdfast.core.outcomes import Await, Child, Done, Next, Outcome, Replay, ScheduleChildren, Stop, Unique
from holdfast.core.retry import RetryPolicy
from holdfast.core.status import Status
from holdfast.engine.lifespan import resource
from holdfast.models.batch.definition import Batch, Skip
from holdfast.models.flow.activity import Activity
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.job import FlowJob
from holdfast.models.handle import Collision, Handle
from holdfast.models.machine.context import ChildResult, MachineContext, ReceivedSignal
from holdfast.models.machine.definition import Machine, step
from holdfast.models.operation.ledger import Ledger
from holdfast.models.workflow.context import Context
from holdfast.models.workflow.control_flow import Cancelled, Evicted
from holdfast.models.workflow.current import current
from holdfast.models.workflow.definition import Workflow
from holdfast.models.workflow.http import HttpResponse
from holdfast.models.workflow.join_set import JoinSet
from holdfast.models.workflow.lint import DeterminismWarning
from holdfast.models.workflow.promise import Completed, Promise
from holdfast.models.workflow.task import Task

__version__ = "0.1.0"

__all__ = [
    "Activity",
    "App",
    "Await",
    "Batch",
    "Cancelled",
    "Child",
    "ChildResult",
    "Collision",
    "Completed",
    "Context",
    "DeterminismWarning",
    "Done",
    "ErrorRecord",
    "Evicted",
    "Flow",
    "FlowJob",
    "Handle",
    "HoldfastError",
    "HttpResponse",
    "JoinSet",
    "Ledger",
    "Machine",
    "MachineContext",
    "Next",
    "Outcome",
    "Promise",
    "PromiseId",
    "ReceivedSignal",
    "Replay",
    "RetryPolicy",
    "ScheduleChildren",
    "Skip",
    "Status",
    "Stop",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskTimedOut",
    "Uncertain",
    "Unique",
    "Workflow",
    "current",
    "resource",
    "step",
]
