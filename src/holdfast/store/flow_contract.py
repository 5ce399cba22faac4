"""What a store promises to flows, beside the effects of `store.flows`. Part of `store.base.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.store.flows import Closing, ClosingKey, JobRecords, Look, LookKey


class FlowLedger(Protocol):
    async def flow_look(self, keys: Sequence[LookKey]) -> list[Look | None]:
        """What the decisions about these messages need, in one read; None: the message's row is gone."""

    async def flow_arrived(self, job: int, activity: str, dimension: str) -> dict[str, str | None]:
        """What a join has got: the value of each of its sources, None of one that was skipped."""

    async def flow_closing(self, keys: Sequence[ClosingKey]) -> list[Closing]:
        """What Step 3 needs to know of these jobs, in one read."""

    async def flow_records(self, job: bytes) -> JobRecords | None:
        """All ledgers, semaphores and messages of a job; None: there is no such execution."""

    async def retry_letter(self, message: bytes) -> bool:
        """Put a dead letter back to work, with the GUID that it has. False: it is none.

        A job without any other dead letter goes on (ruling A6).
        """

    async def drop_letter(self, message: bytes) -> bool:
        """Give a dead letter up: its obligation is closed without its work, and its job fails (rulings A6, A8)."""
