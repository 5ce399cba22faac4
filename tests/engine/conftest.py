"""`rig` and `desk` on both stores, as in the tests of machines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.testing.stores import Stores
from tests.engine.desk import Desk
from tests.engine.rig import no_hang, rig

__all__ = ["desk", "no_hang", "rig"]


@pytest.fixture(params=["inline", "in a task"])
async def desk(stores: Stores, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    made = Desk(stores, inline=request.param == "inline")
    yield made
    await made.close()
