"""A store that is away is a pause."""

from __future__ import annotations

from typing import Any

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
