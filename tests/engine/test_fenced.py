"""A claim that is fenced though its worker has the lease: its row is put back at once, not when a lease has passed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Done, Machine, MachineContext, Outcome, Status, step
from holdfast.core.errors import StoreUnavailableError
from holdfast.testing.hand import done
from tests.engine.desk import Desk
from tests.engine.rig import Faulty, Rig, handles

ROWS = 20
WELL_BELOW_A_LEASE_SECONDS = 10


@pytest.mark.parametrize("reply", ["heard", "lost"])
async def test_what_the_server_has_as_leased_to_a_fenced_claims_worker_is_worked_on_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    """A failover forgot commits: their rows are this worker's still, and it knows of them only that they are fenced."""
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    faulty = Faulty(rig.stores.unopened())
    other = Rig(rig.stores, store=faulty.as_store())
    forgotten: set[int] = set()

    def forget(name: str, arguments: tuple[Any, ...]) -> None:
        if name not in ("flush", "flush_now"):
            return
        claims = [commit.claim for commit in arguments[1] if commit.claim.row not in forgotten]
        for claim in claims:
            forgotten.add(claim.row)
            claim.revision += 1  # acknowledged, and lost with the server
        if claims and reply == "lost":
            raise StoreUnavailableError("the connection was cut")

    @other.app.machine
    class Walk(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    try:
        async with other.app.worker():
            swept = faulty.calls["disown"]
            faulty.check = forget
            async with asyncio.timeout(WELL_BELOW_A_LEASE_SECONDS):
                started = handles(await Walk.start_many(range(ROWS)))
                assert [await handle.result() for handle in started] == list(range(ROWS))
            assert len(forgotten) == ROWS
            assert 1 <= faulty.calls["disown"] - swept < ROWS / 2, "many fenced answers are a sweep or two"
    finally:
        await other.close()


async def test_whoever_is_fenced_is_told_of(desk: Desk) -> None:
    stale, here = await desk.claims(2)
    await desk.hand.store.release(desk.hand.name, [stale])
    await asyncio.gather(*(desk.committer.commit(claim, (done(),)) for claim in (stale, here)))
    assert desk.fenced == [stale]
    assert await desk.status(here) is Status.DONE
