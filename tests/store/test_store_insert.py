"""Starting executions: one commit, idempotent by promise (DESIGN section 4, ruling B6; seed sections 6 and 9)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, Inserted
from holdfast.testing.hand import Hand, done, go, promise_of, row
from holdfast.testing.stores import Stores


async def test_a_new_execution_is_created_and_runnable(store: Store) -> None:
    assert await store.insert([row("a")]) == [Inserted(promise_of("a"), created=True)]
    view = await store.get(promise_of("a"))
    assert view is not None
    assert view.status is Status.RUNNABLE
    assert (view.attempt, view.crashes, view.revision, view.lease_epoch) == (0, 0, 0, 0)
    assert (view.locked_by, view.started_at, view.ended_at, view.parent) == (None, None, None, None)


async def test_every_column_arrives_as_it_was_given(stores: Stores) -> None:
    given = row(
        "a",
        kind="flow",
        name="Ship",
        version=7,
        step="pack",
        state='{"b": 1, "a": [null, 2.50, "\\u0000 ü \\ud83d\\ude00"]}',
        queue="vip queue's",
        priority=-3,
        partition_key='depot "7"',
        unique_key=b"\x00\xff",
        unique_scope=("runnable",),
        digest="d1",
        attributes='{"city": "Ulm"}',
        paused=True,
    )
    await stores.store.insert([given])
    view = await stores.store.get(given.promise)
    assert view is not None
    assert (view.kind, view.name, view.version, view.step) == ("flow", "Ship", 7, "pack")
    assert view.state == given.state, "payloads are text, and stay as they were written"
    assert (view.queue, view.priority, view.partition_key) == ("vip queue's", -3, 'depot "7"')
    assert (view.unique_key, view.digest, view.attributes) == (b"\x00\xff", "d1", '{"city": "Ulm"}')
    assert view.paused
    assert view.inserted_at == view.updated_at == view.eligible_at == stores.clock.now


async def test_nothing_to_insert_is_nothing(store: Store) -> None:
    assert await store.insert([]) == []


async def test_the_same_promise_is_found_not_inserted_again(hand: Hand) -> None:
    await hand.insert(row("a", state='"first"'))
    assert await hand.insert(row("a", state='"second"')) == [Inserted(promise_of("a"), created=False)]
    assert (await hand.view("a")).state == '"first"'


async def test_the_same_promise_twice_in_one_call_is_one_execution(hand: Hand) -> None:
    first, second, other = await hand.insert(row("a", state="1"), row("a", state="2"), row("b"))
    assert (first.created, second.created, other.created) == (True, False, True)
    assert second == Inserted(promise_of("a"), created=False)
    assert (await hand.view("a")).state == "1"


async def test_an_ended_execution_still_stands_for_its_promise(hand: Hand) -> None:
    """B6: a key is not used up by finishing."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, done('"result"'))
    assert await hand.insert(row("a")) == [Inserted(promise_of("a"), created=False)]
    assert (await hand.view("a")).status is Status.DONE


async def test_the_same_promise_with_another_input_is_a_key_conflict(hand: Hand) -> None:
    """B6: the same key with a different input is an error, and changes nothing."""
    await hand.insert(row("a", input_hash="1", state="1"))
    conflict, fine = await hand.insert(row("a", input_hash="2", state="2"), row("b"))
    assert conflict == Inserted(promise_of("a"), created=False, key_conflict=True)
    assert fine.created
    assert (await hand.view("a")).state == "1"


async def test_a_key_conflict_is_seen_within_one_call_too(hand: Hand) -> None:
    answers = await hand.insert(row("a", input_hash="1"), row("a", input_hash="2"))
    assert [answer.key_conflict for answer in answers] == [False, True]


async def test_answers_are_in_the_order_given(hand: Hand) -> None:
    await hand.insert(*(row(str(n)) for n in range(0, 20, 2)))
    keys = [19, 3, 4, 0, 7, 18, 1]
    answers = await hand.insert(*(row(str(n)) for n in keys))
    assert [answer.promise for answer in answers] == [promise_of(str(n)) for n in keys]
    assert [answer.created for answer in answers] == [n % 2 == 1 for n in keys]


async def test_a_batch_larger_than_one_statement_is_one_commit(store: Store) -> None:
    """More rows than either database takes parameters for in one statement; a repeat far behind its first."""
    rows = [row(str(n)) for n in range(5_500)]
    answers = await store.insert([*rows, rows[0], rows[5_499]])
    assert sum(answer.created for answer in answers) == 5_500
    assert [answer.created for answer in answers[-2:]] == [False, False]
    assert await store.count(ExecutionFilter()) == {Status.RUNNABLE: 5_500}


def columns_of(number: int) -> dict[str, Any]:
    """A hundred rows alike but for input and key, then special ones, then such that differ from one to the next."""
    text = f'{{"n": {number}, "odd": "\\u0000 \\ud83d\\ude00 \\" \\\\ ü😀", "long": "{"x" * (number % 3 * 10_000)}"}}'
    own = {"state": text, "input_hash": str(number), "idempotency_key": None if number % 2 else f"key 'ü\\\"{number}"}
    if number < 100:
        return own
    if number < 200:
        special = {
            "partition_key": "p",
            "attributes": '{"city": "Ulm"}',
            "paused": True,
            "deadline": 60.0,
            "delay": 2.0,
        }
        return own | special
    return own | {"priority": number % 2, "version": number, "digest": f"d{number}"}


async def test_rows_arrive_together_as_they_do_alone(stores: Stores) -> None:
    many = 260
    for number in range(many):
        await stores.store.insert([row(f"alone {number}", **columns_of(number))])
    together = [row(f"together {number}", **columns_of(number)) for number in range(many)]
    assert all(answer.created for answer in await stores.store.insert(together))
    for number, given in enumerate(together):
        one = await stores.store.get(promise_of(f"alone {number}"))
        other = await stores.store.get(given.promise)
        assert one is not None
        assert other is not None
        assert other == structs.replace(one, promise=given.promise)
        assert (other.state, other.idempotency_key) == (given.state, given.idempotency_key)


async def test_rows_of_one_moment_are_picked_in_the_order_given(hand: Hand) -> None:
    rows = [row(str(n), digest=None if n < 100 else f"d{n // 40}" if n < 200 else str(n % 2)) for n in range(250)]
    await hand.insert(*rows)
    assert [claim.promise for claim in await hand.pick(len(rows))] == [given.promise for given in rows]


async def test_promises_of_any_length_fit_into_one_batch(hand: Hand) -> None:
    root = PromiseId.of("Order", "root")
    ids = [(root if n % 2 else root.child(n)).child(n).to_bytes() for n in range(100)]
    answers = await hand.insert(*(row("any", promise=promise) for promise in ids))
    assert answers == [Inserted(promise, created=True) for promise in ids]


async def test_of_many_with_one_unique_key_the_first_is_there(hand: Hand) -> None:
    rows = [row(str(n), unique_key=b"k", unique_scope=("runnable",)) for n in range(100)]
    first, *others = await hand.insert(*rows)
    assert first.created
    assert others == [Inserted(first.promise, created=False, collided=True)] * 99


async def test_a_delay_counts_from_the_stores_now(stores: Stores) -> None:
    await stores.store.insert([row("a", delay=12.5)])
    view = await stores.store.get(promise_of("a"))
    assert view is not None
    assert view.eligible_at == stores.clock.now + timedelta(seconds=12.5)
    assert view.status is Status.RUNNABLE


@pytest.mark.parametrize(("delay", "at", "expected"), [(0, 60, 60), (90, 60, 90), (30, 60, 60), (0, -60, 0)])
async def test_the_later_of_delay_and_absolute_start_holds(
    stores: Stores, delay: float, at: float, expected: float
) -> None:
    now = stores.clock.now
    await stores.store.insert([row("a", delay=delay, at=now + timedelta(seconds=at))])
    view = await stores.store.get(promise_of("a"))
    assert view is not None
    assert view.eligible_at == now + timedelta(seconds=expected)


async def test_two_processes_starting_the_same_thing_at_once_start_it_once(stores: Stores) -> None:
    rows = [row(str(n)) for n in range(50)]
    other = await stores.another()
    both = await asyncio.gather(stores.store.insert(rows), other.insert(rows[::-1]))
    created = [answer.promise for answers in both for answer in answers if answer.created]
    assert sorted(created) == sorted(new.promise for new in rows)


async def test_what_was_inserted_outlives_the_store_object(stores: Stores) -> None:
    """Section 1: committed before anything proceeds."""
    first = stores.unopened()
    await first.open()
    await first.insert([row("a", state='"kept"')])
    await first.close()
    view = await (await stores.another()).get(promise_of("a"))
    assert view is not None
    assert view.state == '"kept"'


async def test_the_input_stays_when_the_state_moves_on(hand: Hand) -> None:
    """B6: the input is compared with what the execution was started with, not with the state it has now."""
    claim = await hand.take(row("a", input_hash="1", state="1"))
    await hand.apply(claim, go(state="2"))
    same, other = await hand.insert(row("a", input_hash="1")), await hand.insert(row("a", input_hash="2"))
    assert (same[0].key_conflict, other[0].key_conflict) == (False, True)
