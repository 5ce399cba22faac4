"""Runs workflows: finds or rebuilds the session of a claim and lets a `Run` carry it on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from functools import cached_property
from typing import Any

from holdfast.engine.lifespan import Resources
from holdfast.engine.runner import Engine
from holdfast.engine.settings import WARM_BYTES, WARM_MOST
from holdfast.models.workflow.definition import KIND, FunctionRegistry
from holdfast.models.workflow.hidden_loop import Outside, look_outside
from holdfast.models.workflow.inline_calls import InlineCalls
from holdfast.models.workflow.run import Run
from holdfast.models.workflow.run_ledger import RunLedger
from holdfast.models.workflow.warm import WarmSessions
from holdfast.store.values import ExecutionClaim

BEAT_COMMIT_SECONDS = 1.0


class WorkflowRunner:
    """Implements `engine.runner.Runner` for every workflow of one app."""

    kind = KIND

    def __init__(self, registry: FunctionRegistry, *, warm_most: int = WARM_MOST, warm_bytes: int = WARM_BYTES) -> None:
        self._registry = registry
        self.warm = WarmSessions(warm_most, warm_bytes)
        self.leaving: dict[bytes, RunLedger] = {}  # by promise: whose park, or the like, is not answered yet
        self.background: set[asyncio.Task[Any]] = set()
        self._beating: set[InlineCalls] = set()

    @property
    def handlers(self) -> Collection[int]:
        return self._registry.workflows.keys()

    def check(self, resources: Resources) -> None:
        for task in self._registry.tasks.values():
            resources.given(task.resources, by=task.name)

    @cached_property
    def outside(self) -> Outside:
        """Of its worker's loop: a body never runs on another."""
        return look_outside()

    def run(self, claim: ExecutionClaim, engine: Engine) -> Coroutine[Any, Any, None]:
        return Run(self, self._registry.workflows[claim.handler], claim, engine).go()

    def close(self) -> None:
        """The worker leaves: bodies are dropped, which runs their `finally` blocks (ruling B16)."""
        self.warm.clear()

    def note_beat(self, run: InlineCalls) -> None:
        """Heartbeats become durable about once a second, together with whatever else is committed."""
        if run not in self._beating:
            self._beating.add(run)
            asyncio.get_running_loop().call_later(BEAT_COMMIT_SECONDS, self._commit_beats, run)

    def _commit_beats(self, run: InlineCalls) -> None:
        self._beating.discard(run)
        task = asyncio.get_running_loop().create_task(run.commit_beats())
        self.background.add(task)
        task.add_done_callback(self.background.discard)
