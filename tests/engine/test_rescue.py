"""What becomes of a claim whose runner raised, beside a later claim of the same row."""

from __future__ import annotations

from holdfast.core.status import Status
from holdfast.engine.rescue import Rescue
from holdfast.testing.hand import done, go
from tests.engine.desk import Desk


async def test_a_displaced_claim_that_raises_does_not_take_the_lease_of_its_successor(desk: Desk) -> None:
    """Its row was given back and picked again here, while it still unwound."""
    (old,) = await desk.claims(1)
    assert (await desk.hand.apply(old, go("second"))).status is Status.RUNNABLE
    (new,) = await desk.hand.pick(1)
    desk.active.add(new, desk._work())
    rescue = Rescue(
        desk.store.as_store(),
        lambda: desk.hand.name,
        lambda claim, advance: desk.committer.commit(claim, (advance,)),
        desk.active.is_alive,
        desk.gate,
    )
    await rescue.save(old, RuntimeError("late"))
    assert (await desk.committer.commit(new, (done(),))).applied, "the living claim was fenced"
