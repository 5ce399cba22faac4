"""An operation owned by one block of code: what a task of a workflow uses, without a ledger to look after."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .ledger import Ledger
from .operation import Operation
from .timing import Timing


@asynccontextmanager
async def open_operation(
    base_path: str | os.PathLike[str],
    *,
    participant_id: str | None = None,
    join: str | None = None,
    operation_id: str | None = None,
    description: str | None = None,
    timing: Timing | None = None,
) -> AsyncIterator[Operation]:
    """Create an operation (or `join` one) and own it for the block.

    Leaving the block completes or leaves it; leaving by an error aborts it, or leaves with calls cancelled, and sees
    a cleanup that this process coordinates to its end. An attempt that is run again needs an id of its own: an
    operation that has ended is history and cannot be opened again.
    """
    async with Ledger(base_path, participant_id=participant_id, timing=timing) as ledger:
        opening = (
            ledger.create_operation(operation_id=operation_id, description=description)
            if join is None
            else ledger.join_operation(join)
        )
        async with opening as operation:
            yield operation
