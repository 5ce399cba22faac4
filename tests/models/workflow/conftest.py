"""`rig`: an app with workflows on a guarded ledger with a virtual clock, on each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from holdfast.testing.stores import Stores
from tests.models.workflow.kit import Rig


@pytest_asyncio.fixture
async def rig(stores: Stores) -> AsyncIterator[Rig]:
    made = Rig(stores)
    try:
        yield made
        await made.check_journals()
    finally:
        await made.close()
