"""`rig`: an app on a guarded ledger with a virtual clock, on each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from holdfast.testing.stores import Stores
from tests.engine.rig import Rig, no_hang

__all__ = ["no_hang", "rig"]


@pytest_asyncio.fixture
async def rig(stores: Stores) -> AsyncIterator[Rig]:
    made = Rig(stores)
    try:
        yield made
    finally:
        await made.close()
