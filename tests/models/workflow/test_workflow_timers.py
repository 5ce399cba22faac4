"""How long a timer runs."""

from __future__ import annotations

from holdfast import Context
from tests.models.workflow.kit import Rig


async def test_a_sleep_that_follows_a_call_is_as_long_as_it_says(rig: Rig) -> None:
    @rig.app.task
    async def slow() -> None:
        await rig.advance(0.4)

    @rig.app.workflow
    async def naps(ctx: Context) -> None:
        await slow()
        await ctx.sleep(0.3)

    handle = await naps.start()
    began = rig.stores.clock.now
    await rig.once()
    view = await handle.describe()
    assert view.wake_at is not None
    assert (view.wake_at - began).total_seconds() >= 0.7
