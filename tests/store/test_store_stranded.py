"""Stranded runs are tried again by other code, once each: two releases do not play ping-pong (ruling B17)."""

from __future__ import annotations

import pytest

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution
from holdfast.store.flows import FLOW, MESSAGE, OpenJob
from holdfast.testing.hand import HANDLER, Hand, child_rows, row
from holdfast.testing.stores import Stores

DIVERGED = '{"type":"holdfast.core.errors.NonDeterminismError","message":"no","kind":"nondeterminism"}'
UNREADABLE = '{"type":"holdfast.core.errors.DecodeError","message":"no","kind":"internal"}'
LACKING = '{"type":"holdfast.core.errors.ConfigurationError","message":"no","kind":"internal"}'
FAULT = '{"type":"RuntimeError","message":"no","kind":"internal"}'


def by(digest: str, error: str = DIVERGED) -> AdvanceExecution:
    return AdvanceExecution(status=Status.STRANDED, error=error, digest=digest, progress=False)


async def retry(store: Store, digest: str) -> int:
    return (await store.retry_stranded("default", {HANDLER: digest}, 10)).retried


@pytest.mark.parametrize("error", [DIVERGED, UNREADABLE, LACKING])
async def test_each_code_tries_a_stranded_run_once(store: Store, hand: Hand, error: str) -> None:
    await hand.apply(await hand.take(row("a")), by("old", error))
    assert await retry(store, "old") == 0, "it has tried"
    assert await retry(store, "new") == 1
    await hand.apply(await hand.take(), by("new", error))
    assert [await retry(store, digest) for digest in ("old", "new")] == [0, 0], "no ping-pong"
    assert await retry(store, "third") == 1
    await hand.apply(await hand.take(), by("third", error))
    assert [await retry(store, digest) for digest in ("old", "new", "third")] == [0, 0, 0]


async def test_an_error_with_nul_does_not_stand_in_the_way_of_the_others(store: Store, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a")), by("old", DIVERGED.replace("{", '{"message":"a\\u0000b",', 1)))
    await hand.apply(await hand.take(row("b")), by("old"))
    assert await retry(store, "new") == 2


async def test_code_that_did_not_get_its_turn_may_try_again(store: Store, hand: Hand) -> None:
    """A worker of the old release picked it once more: the new one has still not tried."""
    await hand.apply(await hand.take(row("a")), by("old"))
    assert await retry(store, "new") == 1
    await hand.apply(await hand.take(), by("old"))
    assert await retry(store, "new") == 1


async def test_a_run_goes_on_as_by_resume(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, by("old"))
    await stores.advance(5)
    assert await retry(stores.store, "new") == 1
    view = await hand.view(claim)
    assert (view.status, view.crashes, view.digest) == (Status.RUNNABLE, 0, "old")
    assert (await hand.take()).promise == claim.promise


async def test_what_other_code_cannot_mend_stays(stores: Stores, hand: Hand) -> None:
    """Not a fault of the engine's, not a run that lost its workers, not another definition or queue."""
    store = stores.store
    await hand.apply(await hand.take(row("fault")), by("old", FAULT))
    await hand.insert(row("poison", digest="old"))
    await hand.pick()
    await stores.advance(60)
    assert len((await store.reap(10, max_crashes=1)).stranded) == 1
    await hand.start()
    await hand.apply(await hand.take(row("other queue", queue="far"), queues=["far"]), by("old"))
    await hand.apply(await hand.take(row("a")), by("old"))
    assert (await store.retry_stranded("default", {HANDLER + 1: "new"}, 10)).retried == 0
    assert await retry(store, "new") == 1
    assert (await hand.view("a")).status is Status.RUNNABLE


async def test_a_job_goes_on_when_the_last_of_its_dead_letters_is_tried(store: Store, hand: Hand) -> None:
    """Ruling A6."""
    job = await hand.take(row("job", kind=FLOW, handler=HANDLER))
    opened = OpenJob(child_rows(job, 2, kind=MESSAGE, handler=HANDLER))
    await hand.apply(job, AdvanceExecution(status=Status.DELEGATED), opened)
    first, second = await hand.pick()
    await hand.apply(first, by("old"))
    await hand.apply(second, by("old", FAULT))
    assert await retry(store, "new") == 1
    assert [(await hand.view(claim)).status for claim in (first, second, job)] == ["runnable", "stranded", "stranded"]
    assert await store.retry_letter(second.promise)
    await hand.apply((await hand.pick())[0], by("new"))
    assert (await hand.view(job)).status is Status.STRANDED
    assert await retry(store, "third") == 1
    assert (await hand.view(job)).status is Status.DELEGATED


async def test_pages_are_bounded_and_lead_on(store: Store, hand: Hand) -> None:
    await hand.insert(*(row(f"e{n}") for n in range(5)))
    for claim in await hand.pick():
        await hand.apply(claim, by("old"))
    following: int | None = 0
    counts = []
    while following is not None:
        page = await store.retry_stranded("default", {HANDLER: "new"}, 2, following)
        following = page.following
        counts.append(page.retried)
    assert counts == [2, 2, 1]
