"""The flows an app knows, by what their rows ask of a worker."""

from __future__ import annotations

from holdfast.core.errors import DefinitionError
from holdfast.models.flow.flow import KIND, Flow
from holdfast.models.flow.message import message_handler
from holdfast.store.values import Definition


class FlowRegistry:
    """Versions stand side by side: a job finishes on the version it was started with."""

    def __init__(self) -> None:
        self.jobs: dict[int, Flow] = {}
        self.messages: dict[int, Flow] = {}

    def add(self, flow: Flow) -> None:
        if flow.handler in self.jobs:
            raise DefinitionError(f"the flow {flow.name} is declared twice; give one of them another name or version")
        self.jobs[flow.handler] = flow
        self.messages[message_handler(flow.name, flow.version)] = flow

    def find(self, name: str) -> Flow | None:
        """The newest version."""
        named = [flow for flow in self.jobs.values() if flow.name == name]
        return max(named, key=lambda flow: flow.version, default=None)

    def definitions(self) -> list[Definition]:
        """As the ledger keeps them, for starts by name."""
        return [
            Definition(
                kind=KIND,
                name=flow.name,
                version=flow.version,
                step="",
                queue=flow.queue,
                priority=flow.priority,
                parameters=flow.signature.names,
            )
            for flow in self.jobs.values()
            if flow.graph.entries
        ]

    def queues(self) -> set[str]:
        return {queue for flow in self.jobs.values() for queue in flow.queues()}
