"""Which steps leave their row alone: all but the first of a claim, one in so many, and one a second."""

from __future__ import annotations

from tests.store.test_store_steps import EVENTS, step, walked

from holdfast.store.behind import UNTOLD_MOST, UNTOLD_US_MOST
from holdfast.store.effects import Commit
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.hand import Hand, keep, row
from holdfast.testing.stores import Stores


async def told(stores: Stores) -> tuple[int, int, str]:
    """What the first row itself says."""
    store, statement = stores.store, "select revision, journal_length, step from {}executions order by id limit 1"
    if isinstance(store, SqliteStore):
        found = await store._read(lambda db: db.execute(statement.format("")).fetchone())
    else:
        assert isinstance(store, PostgresStore)
        async with store._connections.any("look") as connection:
            found = await connection.fetchrow(statement.format(store._schema + "."))
    return (found[0], found[1], found[2])


async def test_a_step_leaves_its_row_alone_but_for_the_first_of_a_claim(stores: Stores) -> None:
    hand = await Hand(stores.store).start()
    await walked(hand)
    assert await told(stores) == (1, EVENTS, "first")


async def test_so_do_steps_of_many(stores: Stores) -> None:
    hand = await Hand(stores.store).start()
    await hand.insert(row("a"), row("b"))
    claims = await hand.pick(2)
    for number in range(3):
        await hand.flush(*(Commit(claim, step(number * EVENTS, f"step {number}")) for claim in claims))
    assert await told(stores) == (1, EVENTS, "step 0")


async def test_a_row_is_told_after_so_many_steps(stores: Stores) -> None:
    hand = await Hand(stores.store).start()
    claim = await walked(hand, steps=1 + UNTOLD_MOST)
    assert await told(stores) == (1, EVENTS, "first")
    await hand.apply(claim, *step((1 + UNTOLD_MOST) * EVENTS, f"step {UNTOLD_MOST}", is_new=False))
    assert await told(stores) == (2 + UNTOLD_MOST, (2 + UNTOLD_MOST) * EVENTS, f"step {UNTOLD_MOST}")
    await hand.apply(claim, *step((2 + UNTOLD_MOST) * EVENTS, "alone again"))
    assert (await told(stores))[0] == 2 + UNTOLD_MOST


async def test_a_row_is_told_after_a_second(stores: Stores) -> None:
    hand = await Hand(stores.store).start()
    claim = await walked(hand)
    other = await hand.take(row("b"))
    await stores.advance(UNTOLD_US_MOST / 1_000_000)
    await hand.apply(other, keep())  # a store that is not asked for the time goes by what it heard last
    await hand.apply(claim, *step(3 * EVENTS, "step 2", is_new=False))
    assert await told(stores) == (4, 4 * EVENTS, "step 2")


async def test_a_commit_that_changes_more_writes_the_row(stores: Stores) -> None:
    hand = await Hand(stores.store).start()
    claim = await walked(hand)
    await hand.apply(claim, keep("other"))
    assert await told(stores) == (4, 3 * EVENTS, "other")
