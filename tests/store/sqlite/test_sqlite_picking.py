"""What a pick asks of the file: a worker that was idle is cold, and pays for every statement."""

from __future__ import annotations

from itertools import groupby

import pytest

from holdfast.store.sqlite import SqliteStore
from holdfast.store.values import NewSignal
from holdfast.testing.hand import Hand, park, promise_of, row
from holdfast.testing.stores import Stores


@pytest.fixture
def statements(stores: Stores) -> list[str]:
    """What the writer has run since."""
    assert isinstance(stores.store, SqliteStore)
    found: list[str] = []
    stores.store._opened().db.set_trace_callback(found.append)
    return found


def verbs(statements: list[str]) -> list[str]:
    """Of the statements; one that fires triggers is reported for each of them again."""
    return [statement.split()[0] for statement, _ in groupby(statements)]


async def test_a_pick_of_one_row_is_a_handful_of_statements(hand: Hand, statements: list[str]) -> None:
    """Who may pick and how much, what is due of the first priority and what comes after, the lease, the claim."""
    await hand.apply(await hand.take(row("a")), park("ping"))
    await hand.store.deliver([NewSignal(promise_of("a"), "ping", "1")])
    statements.clear()
    (claim,) = (await hand.ask()).claims
    assert [signal.payload for signal in claim.inbox] == ["1"]
    assert verbs(statements) == ["pragma", "begin", "select", "with", "update", *["select"] * 2, "commit"]


async def test_a_pick_asks_once_of_every_priority(hand: Hand, statements: list[str]) -> None:
    await hand.insert(*(row(f"{n}", priority=n) for n in range(5)), row("later", priority=7, delay=10))
    statements.clear()
    picked = await hand.ask()
    assert len(picked.claims) == 5
    assert picked.next_due_seconds == pytest.approx(10)
    assert verbs(statements) == ["pragma", "begin", "select", *["with"] * 6, "update", *["select"] * 2, "commit"]


async def test_a_pick_that_is_full_asks_no_further(hand: Hand, statements: list[str]) -> None:
    await hand.insert(*(row(f"{n}", priority=n) for n in range(5)))
    statements.clear()
    assert len(await hand.pick(2)) == 2
    assert verbs(statements) == ["pragma", "begin", "select", *["with"] * 2, "update", *["select"] * 2, "commit"]
