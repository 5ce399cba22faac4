"""Two workers by hand, for the conformance suite. `store` and `stores` come from `holdfast.testing.pytest_fixtures`."""

from __future__ import annotations

import pytest_asyncio

from holdfast.store.base import Store
from holdfast.testing.hand import Hand


@pytest_asyncio.fixture
async def hand(store: Store) -> Hand:
    """A registered worker."""
    return await Hand(store, "w1").start()


@pytest_asyncio.fixture
async def rival(store: Store) -> Hand:
    """Another registered worker."""
    return await Hand(store, "w2").start()
