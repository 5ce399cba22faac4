"""Picks from where a worker is in a long queue: each as full as one from the very first row, and none is forgotten."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from tests.store.postgres.conftest import Connect

from holdfast.core.status import Status
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres import front as fronts
from holdfast.store.postgres.front import SECONDS, THE_FIRST, Front, Place
from holdfast.store.values import ExecutionClaim, NewExecution, QueueChange, QueueRoom
from holdfast.testing.hand import Hand, done, row

SHORT = 6  # rows: a long queue, here


@pytest.fixture(autouse=True)
def _long_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "LONG", SHORT)
    monkeypatch.setattr(fronts, "SECONDS", 3600.0)


class Places:
    """Notes where each pick of a store began."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began: list[Place] = []
        self._place = store._front.place
        monkeypatch.setattr(store._front, "place", self._noted)

    def _noted(self, worker: str, queues: list[QueueRoom]) -> Place:
        place = self._place(worker, queues)
        self.began.append(place)
        return place

    def are_first(self) -> list[bool]:
        return [place == THE_FIRST for place in self.began]


@pytest.fixture
def places(ledger: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(ledger, monkeypatch)


async def start(store: PostgresStore, *keys: str, **columns: object) -> None:
    await store.insert([row(key, **columns) for key in keys])


async def empty(hand: Hand, count: int) -> None:
    """Until picks go from where the worker is."""
    for _ in range(count):
        assert len(await hand.pick(1)) == 1


async def test_a_long_queue_is_emptied_from_where_its_worker_is(
    ledger: PostgresStore, hand: Hand, places: Places
) -> None:
    await start(ledger, *map(str, range(3 * SHORT)))
    rows = [claim.row for _ in range(3 * SHORT) for claim in await hand.pick(1)]
    assert rows == sorted(rows)
    assert len(rows) == 3 * SHORT
    assert places.are_first() == [True] * SHORT + [False] * 2 * SHORT
    assert await hand.pick(1) == []


async def test_what_comes_to_be_in_front_is_taken_when_the_rest_is_too_little(
    ledger: PostgresStore, hand: Hand, places: Places, connect: Connect
) -> None:
    await start(ledger, *map(str, range(SHORT + 3)))
    await empty(hand, SHORT)
    await start(ledger, "early")
    schema = ledger._schema
    early = await (await connect()).fetchval(
        f"update {schema}.executions set eligible_at = eligible_at - interval '1 hour' "
        f"where id = (select max(id) from {schema}.executions) returning id"
    )
    (passed,) = await hand.pick(1)
    assert passed.row < early
    assert not places.are_first()[-1]
    claims = await hand.pick(3)
    assert claims[0].row == early
    assert len(claims) == 3
    assert await hand.pick(1) == []


async def test_what_comes_to_be_in_front_is_taken_after_a_second(
    ledger: PostgresStore, hand: Hand, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(fronts, "monotonic", lambda: now)
    monkeypatch.setattr(fronts, "SECONDS", SECONDS)
    await start(ledger, *map(str, range(4 * SHORT)))
    await empty(hand, SHORT)
    early = await (await connect()).fetchval(
        f"update {ledger._schema}.executions set eligible_at = eligible_at - interval '1 hour' "
        f"where id = (select max(id) from {ledger._schema}.executions) returning id"
    )
    (passed,) = await hand.pick(1)
    assert passed.row < early
    now += SECONDS
    (claim,) = await hand.pick(1)
    assert claim.row == early
    (claim,) = await hand.pick(1)
    assert claim.row == passed.row + 1


async def test_a_more_urgent_row_is_taken_at_once(
    ledger: PostgresStore, hand: Hand, places: Places, connect: Connect
) -> None:
    await start(ledger, *map(str, range(3 * SHORT)))
    await empty(hand, SHORT)
    await start(ledger, "urgent", "urgent too", priority=-1)
    await (await connect()).execute(
        f"update {ledger._schema}.executions set eligible_at = eligible_at - interval '1 hour' "
        f"where priority = -1 and id = (select max(id) from {ledger._schema}.executions)"
    )
    for wanted in (-1, -1, 0):
        (claim,) = await hand.pick(1)
        assert claim.priority == wanted
        assert not places.are_first()[-1]
    await start(ledger, "keyed", priority=-2, partition_key="k")
    (claim,) = await hand.pick(1)
    assert claim.partition_key == "k"


async def test_a_paused_queue_gives_nothing_to_a_worker_in_its_middle(ledger: PostgresStore, hand: Hand) -> None:
    await start(ledger, *map(str, range(3 * SHORT)))
    await empty(hand, SHORT)
    await ledger.change_queue("default", QueueChange(paused=True))
    assert await hand.pick(1) == []
    await ledger.change_queue("default", QueueChange(paused=False))
    assert len(await hand.pick(1)) == 1


async def test_a_worker_that_lost_its_lease_is_told_so_in_the_middle(
    ledger: PostgresStore, hand: Hand, connect: Connect
) -> None:
    await start(ledger, *map(str, range(3 * SHORT)))
    await empty(hand, SHORT)
    await (await connect()).execute(f"update {ledger._schema}.workers set expires_at = now()")
    await ledger.reap(100, max_crashes=10)
    assert (await hand.ask(1)).worker_lost
    await hand.start()
    (claim,) = await hand.pick(1)
    assert claim.epoch == 2, "the first row, which was taken back"


@pytest.mark.parametrize("seed", range(12))
async def test_a_pick_has_as_many_rows_as_one_from_the_very_first_and_the_most_urgent_ones(
    ledger: PostgresStore, hand: Hand, connect: Connect, seed: int
) -> None:
    """Rows of three priorities come, due earlier or later, in front of where the workers are as well as behind."""
    chance = random.Random(seed)
    other = await Hand(ledger, "w2", lease_seconds=3600).start()
    connection = await connect()
    schema, number, held = ledger._schema, 0, list[tuple[Hand, ExecutionClaim]]()
    for _ in range(120):
        if chance.random() < 0.35:
            count = chance.randint(1, 12)
            new: list[NewExecution] = [
                row(str(number + n), priority=chance.choice((0, 0, 0, 1, -1)), delay=chance.choice((0, 0, 0, 3600)))
                for n in range(count)
            ]
            number += count
            await ledger.insert(new)
            await connection.execute(
                f"update {schema}.executions set eligible_at = eligible_at - $1::interval "
                "where status = 'runnable' and id % 3 = $2",
                timedelta(seconds=chance.choice((0, 0, 5, 1800))),
                chance.randrange(3),
            )
        picker, limit = chance.choice((hand, hand, hand, other)), chance.randint(1, 4)
        due = await connection.fetch(
            f"select priority from {schema}.executions where status = 'runnable' and eligible_at <= now() "
            "order by priority"
        )
        claims = await picker.pick(limit)
        assert [claim.priority for claim in claims] == [priority for (priority,) in due[:limit]]
        assert len({claim.row for claim in claims}) == len(claims)
        held += [(picker, claim) for claim in claims]
        if chance.random() < 0.1:
            await ledger.disown(hand.name, [])
            held = [(picker, claim) for picker, claim in held if picker is not hand]
    for picker, claim in held:
        assert (await picker.commit(claim, done())).status is Status.DONE


def taken(front: Front, worker: str = "w", queue: str = "q", limit: int = 2, rows: int = 2) -> Place:
    """A pick of so many, and where the next one of the same begins."""
    queues = [QueueRoom(queue, limit)]
    front.place(worker, queues)
    front.picked(worker, queues, limit, [{"priority": 0, "eligible_at": None, "id": n} for n in range(rows)])  # type: ignore[misc]
    return front.place(worker, queues)


def test_each_worker_and_each_queue_has_a_front_of_its_own() -> None:
    for other in ({"worker": "x"}, {"queue": "r"}, {"rows": 1}, {"rows": 0}):
        front = Front()
        assert [taken(front) == THE_FIRST for _ in range(3)] == [True, True, False]
        assert taken(front, **other) == THE_FIRST, other
        assert taken(front) == THE_FIRST, other


def test_several_queues_have_none() -> None:
    front = Front()
    queues = [QueueRoom("a", 9), QueueRoom("b", 9)]
    for _ in range(4):
        front.picked("w", queues, 4, [{"priority": 0, "eligible_at": None, "id": n} for n in range(4)])  # type: ignore[misc]
        assert front.place("w", queues) == THE_FIRST


def test_after_a_second_the_look_is_from_the_very_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(fronts, "SECONDS", SECONDS)
    monkeypatch.setattr(fronts, "monotonic", lambda: now)
    front = Front()
    taken(front, limit=SHORT, rows=SHORT)
    queues = [QueueRoom("q", 1)]
    assert front.place("w", queues) == (0, None, 0)
    now += SECONDS
    assert front.place("w", queues) == THE_FIRST
    assert front.place("w", queues) == (0, None, 0)
