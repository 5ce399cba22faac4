"""`rig`, `desk` and a `faulty` store, on both kinds of store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.testing.stores import Stores
from tests.engine.desk import Desk
from tests.engine.rig import Faulty, no_hang, rig

__all__ = ["desk", "no_hang", "rig"]


@pytest.fixture(params=["inline", "in a task"])
async def desk(stores: Stores, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    made = Desk(stores, inline=request.param == "inline")
    yield made
    await made.close()


@pytest.fixture
async def faulty(stores: Stores) -> Faulty:
    return Faulty(stores.store)
