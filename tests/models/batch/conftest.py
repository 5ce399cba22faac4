"""`rig`: an app on a guarded ledger with a virtual clock, on each kind of store; every batch is audited at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from holdfast.models.batch.audit import audit_batches
from holdfast.testing.stores import Stores
from tests.engine.rig import Rig, no_hang

__all__ = ["no_hang", "rig"]


@pytest_asyncio.fixture
async def rig(stores: Stores) -> AsyncIterator[Rig]:
    made = Rig(stores)
    try:
        yield made
        faults = await audit_batches(await made.store())
    finally:
        await made.close()
    assert not faults, "the test left a batch that breaks the rules: " + "; ".join(faults)
