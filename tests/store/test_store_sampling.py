"""About how many there are of what is too much to count: a sample of rows, the same on every store."""

from __future__ import annotations

import pytest

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.sampling import HITS_LEAST, SAMPLE_SIZE, Hits, Sample, rows_to_look_at
from holdfast.store.watching import Tally
from holdfast.testing.hand import Hand, done, row
from holdfast.views import ledger_shapes, reading

RUNNABLE, DONE = Status.RUNNABLE, Status.DONE


def test_few_rows_are_all_looked_at() -> None:
    assert rows_to_look_at(5, 8) == [5, 6, 7, 8]
    assert rows_to_look_at(1, 0) == []
    assert rows_to_look_at(1, SAMPLE_SIZE) == list(range(1, SAMPLE_SIZE + 1))


@pytest.mark.parametrize("span", [SAMPLE_SIZE + 1, 10_001, 1_000_000, 5_000_000_000])
def test_one_of_every_span_is_looked_at(span: int) -> None:
    first = 17
    rows = rows_to_look_at(first, first + span - 1)
    assert len(set(rows)) == SAMPLE_SIZE
    assert rows == sorted(rows)
    for number, found in enumerate(rows):
        assert number * span // SAMPLE_SIZE <= found - first < (number + 1) * span // SAMPLE_SIZE


@pytest.mark.parametrize("period", [2, 3, 7, 10, 250, 1_000])
def test_what_comes_again_and_again_is_met_as_often_as_it_is_there(period: int) -> None:
    """A parent and its children are started in the same order over and over."""
    rows = rows_to_look_at(1, 1_000_000)
    share = sum(found % period == 0 for found in rows) / len(rows)
    assert share == pytest.approx(1 / period, abs=0.01)


def test_an_estimate_has_two_digits_and_is_no_less_than_what_was_counted() -> None:
    hits = [Hits(DONE, "default", 1_234), Hits(DONE, "mail", 40), Hits(RUNNABLE, "default", HITS_LEAST - 1)]
    sample = Sample(5_000_000, SAMPLE_SIZE, hits)
    assert sample.about(10_000, DONE) == 1_600_000
    assert sample.about(10_000, DONE, "mail") == 50_000
    assert sample.about(70_000, DONE, "mail") == 70_000
    assert sample.about(10_000, RUNNABLE) is None
    assert sample.about(10_000, DONE, "nobody's") is None


async def test_a_sample_of_a_small_ledger_is_all_of_it(hand: Hand, store: Store) -> None:
    assert (await store.sample()).hits == []
    await hand.apply(await hand.take(row("a")), done())
    await hand.insert(row("b"), row("c", queue="mail"), row("d", queue="mail", paused=True))
    sample = await store.sample()
    assert (sample.span, sample.looked_at) == (4, 4)
    assert sample.about(0, RUNNABLE) == 3
    assert sample.about(0, RUNNABLE, "mail") == 2
    assert sample.about(0, DONE, "default") == 1


async def test_a_sample_of_a_ledger_with_gaps_says_about_how_many_there_are(hand: Hand, store: Store) -> None:
    """Deleted rows leave numbers behind, and estimates are of rows."""
    count = 3 * SAMPLE_SIZE
    for begin in range(0, count, 1_000):
        rows = [row(f"k{number}", queue="mail" if number % 4 else "post") for number in range(begin, begin + 1_000)]
        await store.insert(rows)
        await store.insert(rows)  # numbers are drawn on PostgreSQL, and nothing is inserted
    overview = await reading.overview(store)
    (found,) = [line for line in overview.statuses if line.status is RUNNABLE]
    assert (found.count, found.capped) == (10_000, True)
    assert found.estimate == pytest.approx(count, rel=0.05)
    queues = {queue.name: queue for queue in overview.queues}
    assert (queues["post"].capped, queues["post"].estimate) == (False, None)
    assert [line.estimate for line in overview.statuses if line.status is not RUNNABLE] == [None] * 9
    assert await reading.queues(store) == overview.queues


def test_nothing_is_estimated_that_was_counted() -> None:
    sample = Sample(3, 3, [Hits(RUNNABLE, "default", 3)])
    for capped, given, wanted in ((False, sample, None), (True, None, None), (True, sample, 3)):
        tally = Tally(RUNNABLE, 2, capped)
        assert ledger_shapes.status_count(tally, given).estimate == wanted
