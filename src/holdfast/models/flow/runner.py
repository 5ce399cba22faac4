"""Runs flows: begins jobs, and takes each message through the protocol of the seed.

Every step is decided by `core.collation` from ledgers that were read under the message's lease, and written in one
commit. A message goes on under the lease it has, from Leg1 to its acknowledgement; should the worker die, whoever picks
it up next looks at the ledgers and goes on after the last step that they prove.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Any

from msgspec import Raw

from holdfast.core.codec import encode_error
from holdfast.core.collation import Dimension
from holdfast.core.errors import HoldfastError
from holdfast.core.status import Status
from holdfast.engine.lifespan import Resources
from holdfast.engine.runner import Engine
from holdfast.models.flow.flow import KIND, Flow
from holdfast.models.flow.looking import Looking
from holdfast.models.flow.message import Letterhead, message_handler
from holdfast.models.flow.registry import FlowRegistry
from holdfast.models.flow.transition import Transition
from holdfast.store.effects import AdvanceExecution
from holdfast.store.flows import OpenJob
from holdfast.store.values import ExecutionClaim, NewExecution

RUNNING = "running"  # the step of a job that has begun


class FlowRunner:
    """Implements `engine.runner.Runner` for the jobs and messages of every flow of one app."""

    kind = KIND

    def __init__(self, registry: FlowRegistry) -> None:
        self._registry = registry
        self._looking = Looking()

    @property
    def handlers(self) -> Collection[int]:
        return [*self._registry.jobs, *self._registry.messages]

    def check(self, resources: Resources) -> None:
        for flow in self._registry.jobs.values():
            for node in (*flow.graph.nodes.values(), *filter(None, [flow.completion])):
                if node.task is not None:
                    resources.given(node.task.resources, by=node.label)

    def close(self) -> None:
        """Nothing is kept between two runs."""

    def run(self, claim: ExecutionClaim, engine: Engine) -> Coroutine[Any, Any, None]:
        flow = self._registry.messages.get(claim.handler)
        if flow is None:
            return _begin(self._registry.jobs[claim.handler], claim, engine)
        return Transition(flow, claim, engine, self._looking).go()


async def _begin(flow: Flow, claim: ExecutionClaim, engine: Engine) -> None:
    """The job's row, its semaphore and the Leg1 messages of its entries commit together (ruling A8).

    Of one that is cancelled too: its messages close it, and its completion task runs (ruling A11). So does that of one
    whose input cannot be read: its only message closes it, with the error.
    """
    head = letterhead(flow, claim.promise, claim.queue, claim.priority)
    messages: tuple[NewExecution, ...]
    try:
        flow.signature.decode(claim.state)
    except HoldfastError as error:
        messages = (head.refusal(flow.graph.entries[0], encode_error(error)),)
    else:
        given = [Raw(claim.state.encode())]
        messages = tuple(head.leg1(node, Dimension(), given, is_entry=True).row for node in flow.graph.entries)
    begun = AdvanceExecution(status=Status.DELEGATED, step=RUNNING, digest=flow.digest)
    await engine.commit(claim, begun, OpenJob(messages))


def letterhead(flow: Flow, job: bytes, queue: str, priority: int) -> Letterhead:
    return Letterhead(job, flow.name, flow.version, message_handler(flow.name, flow.version), queue, priority)
