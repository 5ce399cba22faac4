"""Partition keys between several pickers (ruling E9): nobody stays behind, and a crowd hides nothing."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.postgres.conftest import Connection
from tests.store.postgres.held import pick_in

from holdfast.core.status import Status
from holdfast.store.effects import Commit
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import NewExecution
from holdfast.testing.hand import HANDLER, Hand, done, promise_of, row


def keyed(key: str) -> NewExecution:
    return row(key, partition_key="k")


async def drain(hand: Hand, count: int) -> list[bytes]:
    """Finish rows one by one, as many as there are; the order they came in."""
    order: list[bytes] = []
    for _ in range(2 * count + 2):
        claims = await hand.pick()
        assert len(claims) <= 1, "two rows of one key at once"
        for claim in claims:
            order.append(claim.promise)
            await hand.apply(claim, done())
    return order


async def test_a_row_blocked_while_its_key_is_settled_does_not_stay_behind(
    ledger: PostgresStore, hand: Hand, held: Connection
) -> None:
    """Who blocks a row holds its key's lock row; who settles the key passes over it and comes again."""
    await hand.insert(keyed("a"), keyed("b"))
    (claim,) = await hand.pick()
    # This pick finds "b" behind the holder and blocks it, but has not committed.
    assert await pick_in(held, ledger, hand.name, 5) == []
    await hand.apply(claim, done())
    assert await hand.pick() == []
    await held.execute("commit")
    assert await drain(hand, 1) == [promise_of("b")]


async def test_a_key_that_is_just_being_settled_blocks_nobody(
    ledger: PostgresStore, hand: Hand, held: Connection
) -> None:
    await hand.insert(keyed("a"), keyed("b"), keyed("c"))
    (claim,) = await hand.pick()
    await hand.apply(claim, done())
    # This pick settles the key and takes "b", but has not committed; then it is lost.
    assert await pick_in(held, ledger, hand.name, 5) == [promise_of("b")]
    rival = await Hand(ledger, "w2", lease_seconds=3600).start()
    assert await rival.pick() == []
    await held.execute("rollback")
    assert await drain(hand, 2) == [promise_of("b"), promise_of("c")]


async def test_pickers_that_meet_at_many_keys_take_each_once(ledger: PostgresStore, hand: Hand) -> None:
    """They take keys in one order, so none is the victim of a deadlock."""
    rows = [row(f"{n}", partition_key=f"k{n % 20}") for n in range(100)]
    await hand.insert(*rows)
    hands = [await Hand(ledger, f"p{n}", lease_seconds=3600).start() for n in range(4)]
    ended: list[bytes] = []
    while len(ended) < len(rows):
        picked = await asyncio.gather(*(one.pick(7) for one in hands))
        keys = [claim.partition_key for claims in picked for claim in claims]
        assert len(keys) == len(set(keys))
        assert keys, f"{len(rows) - len(ended)} rows are left, and nobody can take one"
        flushes = [
            one.flush(*(Commit(claim, (done(),)) for claim in claims))
            for one, claims in zip(hands, picked, strict=True)
            if claims
        ]
        await asyncio.gather(*flushes)
        ended += [claim.promise for claims in picked for claim in claims]
    assert len(set(ended)) == len(rows)


async def test_a_crowd_behind_one_key_does_not_hide_the_rows_behind_it(ledger: PostgresStore, hand: Hand) -> None:
    """Even where its rows end one after the other between two picks, so that no pick ever finds the key held."""
    crowd = 2_500
    await hand.insert(*(keyed(f"{n}") for n in range(crowd)))
    await hand.insert(row("other", partition_key="another"))
    picked: list[bytes] = []
    for _ in range(10):
        for claim in await hand.pick():
            picked.append(claim.promise)
            await hand.apply(claim, done())
    assert promise_of("other") in picked
    assert len(picked) == 11


@pytest.mark.parametrize("cancelled", [False, True], ids=["known-elsewhere", "cancelled"])
async def test_a_crowd_behind_an_unknown_definition_hides_nothing_and_keeps_its_order(
    ledger: PostgresStore, hand: Hand, cancelled: bool
) -> None:
    """A first row that nobody here knows holds its key (ruling E9), until a worker that knows it takes it."""
    stranger = row("stranger", name="Stranger", partition_key="k")
    await hand.insert(stranger, *(keyed(f"{n}") for n in range(1_500)))
    await hand.insert(row("other", partition_key="another"))
    picked = [claim.promise for _ in range(5) for claim in await hand.pick()]
    assert picked == [promise_of("other")]
    if cancelled:
        assert await ledger.cancel([stranger.promise]) == [Status.CANCELLED]
    else:
        (claim,) = await hand.pick(handlers=[HANDLER, stranger.handler])
        assert claim.promise == stranger.promise
        await hand.apply(claim, done())
    for n in range(3):
        (claim,) = await hand.pick()
        assert claim.promise == promise_of(f"{n}")
        await hand.apply(claim, done())
