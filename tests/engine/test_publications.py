"""Waiting for what executions publish: heard of, or polled for, by one loop for all who wait in a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Status
from holdfast.core.errors import ConfigurationError
from holdfast.engine.publications import Publication, Publications
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import Topic
from holdfast.testing.hand import Hand, done, keep, promise_of, row
from holdfast.testing.stores import Stores
from tests.engine.rig import Faulty


@pytest.fixture
async def publications(faulty: Faulty) -> AsyncIterator[Publications]:
    made = Publications(faulty.as_store())
    yield made
    await made.stop()


@pytest.fixture
def hints_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a hint it would take an hour."""
    monkeypatch.setattr("holdfast.engine.waiting.FIRST_POLL_SECONDS", 3600.0)
    monkeypatch.setattr("holdfast.engine.waiting.LATE_LOOK_SECONDS", 3600.0)


def shows(text: str) -> AdvanceExecution:
    return AdvanceExecution(status=Status.EXECUTING, published=text)


async def waiting(publications: Publications, faulty: Faulty, *names: str) -> list[asyncio.Task[Publication]]:
    """Waiters for values of the execution `a`, once a pass for them has found nothing."""
    looked = asyncio.Event()

    async def look(*_: object) -> None:
        looked.set()

    faulty.on_call["shown"] = look
    tasks = [asyncio.create_task(publications.wait(promise_of("a"), name)) for name in names]
    await looked.wait()
    while publications._read_at < 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return tasks


@pytest.mark.usefixtures("hints_alone")
@pytest.mark.parametrize("is_other", [False, True], ids=["this process", "another"])
async def test_a_commit_that_publishes_is_heard_of(
    stores: Stores, faulty: Faulty, publications: Publications, is_other: bool
) -> None:
    hand = await Hand(await stores.another() if is_other else stores.store).start()
    claim = await hand.take(row("a"))
    (task,) = await waiting(publications, faulty, "stage")
    await hand.apply(claim, shows('{"stage":"paid"}'))
    assert await task == Publication('"paid"')


@pytest.mark.usefixtures("hints_alone")
async def test_an_end_is_heard_of_a_moment_later(stores: Stores, faulty: Faulty, publications: Publications) -> None:
    """Ends are many, so they share a pass."""
    hand = await Hand(await stores.another()).start()
    claim = await hand.take(row("a"))
    (task,) = await waiting(publications, faulty, "stage")
    await hand.apply(claim, done())
    assert await task == Publication(None, Status.DONE)


async def test_many_waiters_share_one_read(stores: Stores, faulty: Faulty, publications: Publications) -> None:
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), shows('{"x":1,"y":2}'))
    found = await asyncio.gather(*(publications.wait(promise_of("a"), name) for name in "xy" * 30))
    assert found == [Publication("1"), Publication("2")] * 30
    assert faulty.calls["shown"] == 1
    assert await publications.run_once() is None, "nobody is left to wait for"


async def test_what_shows_other_values_is_waited_for_ever_more_rarely(
    stores: Stores, publications: Publications, faulty: Faulty
) -> None:
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), shows('{"x":1}'))
    tasks = await waiting(publications, faulty, "y")
    tasks.append(asyncio.create_task(publications.wait(promise_of("a"), "x", "1")))
    await asyncio.sleep(0)
    task, publications._task = publications._task, None
    assert task is not None
    task.cancel()
    publications._poll_seconds = 0.05
    assert [await publications.run_once() for _ in range(6)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    for one in tasks:
        one.cancel()


async def test_nobody_who_waits_is_woken_by_a_commit_that_publishes_nothing(
    stores: Stores, faulty: Faulty, publications: Publications
) -> None:
    hand = await Hand(stores.store).start()
    claim = await hand.take(row("a"))
    heard: list[Topic] = []
    ear = await stores.store.open_ear(heard.append)
    await hand.apply(claim, keep())
    await hand.apply(claim, AdvanceExecution(status=Status.EXECUTING, beats="1", attributes='{"a":1}'))
    assert Topic.PUBLISHED not in heard
    await hand.apply(claim, shows("{}"))
    assert Topic.PUBLISHED in heard
    await ear.close()


async def test_who_waits_is_told_that_the_store_refuses_to_be_asked(
    stores: Stores, faulty: Faulty, publications: Publications
) -> None:
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), shows('{"x":1}'))
    faulty.fail("shown", ConfigurationError("permission denied"))
    with pytest.raises(ConfigurationError, match="permission denied"):
        await publications.wait(promise_of("a"), "x")
    assert await publications.wait(promise_of("a"), "x") == Publication("1")


async def test_a_store_that_is_away_for_a_while_costs_a_pause(
    stores: Stores, faulty: Faulty, publications: Publications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    hand = await Hand(stores.store).start()
    await hand.apply(await hand.take(row("a")), shows('{"x":1}'))
    faulty.fail("shown")
    assert await publications.wait(promise_of("a"), "x") == Publication("1")
    assert faulty.pending() == 0
