"""Starting jobs: from an input and options to a row of the ledger."""

from __future__ import annotations

from typing import Any, Unpack

from holdfast.models.connection import Connection
from holdfast.models.flow.flow import Flow
from holdfast.models.options import Options, StartOptions
from holdfast.models.workflow.start import FunctionStarter


class FlowStarter(FunctionStarter[..., Any]):
    """`order.options(...)`: the same flow with other options."""

    def __init__(self, connection: Connection, flow: Flow, options: Options) -> None:
        super().__init__(connection, flow, options)
        self._flow = flow
        self._result = flow.result_annotation

    def options(self, **options: Unpack[StartOptions]) -> FlowStarter:
        return FlowStarter(self._connection, self._flow, self._options.updated(**options))
