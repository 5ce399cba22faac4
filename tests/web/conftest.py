"""The shop, and a rig for definitions of a test's own, on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.engine.rig import rig
from tests.web.kit import Shop

from holdfast.testing.stores import Stores

__all__ = ["rig", "shop"]


@pytest_asyncio.fixture
async def shop(stores: Stores) -> AsyncIterator[Shop]:
    made = Shop(stores)
    try:
        await made.app.register()
        yield made
    finally:
        await made.close()
