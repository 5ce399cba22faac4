"""A store that is away is a pause; one that comes back may have forgotten something."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, Status
from holdfast.core.errors import StoreUnavailableError
from tests.models.workflow.kit import Rig


async def test_a_store_that_is_away_when_a_journal_is_read_costs_a_pause_not_the_run(rig: Rig) -> None:
    @rig.app.workflow
    async def waits(ctx: Context) -> int:
        return await ctx.signal("n", int)

    handle = await waits.start()
    await rig.run()
    await handle.signal("n", 7)
    worker = await rig.make_worker()  # which has no warm session
    journal, failures = worker.store.journal, [StoreUnavailableError("the connection was cut")]

    async def cut(promise: bytes) -> Any:
        if failures:
            raise failures.pop()
        return await journal(promise)

    worker.store.journal = cut  # type: ignore[method-assign]
    await worker.run_until_idle()
    assert (await handle.describe()).status is Status.DONE


async def test_a_run_is_read_anew_after_a_connection_broke(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may have taken over that lacks the last commits: what is in memory may be of a history that is gone."""
    begun: list[int] = []

    @rig.app.workflow
    async def adds(ctx: Context) -> int:
        begun.append(1)
        return await ctx.signal("n", int) + await ctx.signal("n", int) + await ctx.signal("n", int)

    handle = await adds.start()
    await rig.run()
    await handle.signal("n", 1)
    await rig.run()
    assert len(begun) == 1, "it was warm"
    before = rig.stores.store.losses
    monkeypatch.setattr(type(rig.stores.store), "losses", property(lambda _: before + 1))
    await handle.signal("n", 2)
    await rig.run()
    assert len(begun) == 2
    await handle.signal("n", 3)
    await rig.run()
    assert len(begun) == 2, "it is warm again"
    assert await handle.result() == 6
