"""Items that misbehave end as failures of their own: no chunk hangs, no worker dies, no other item suffers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import Skip
from tests.engine.rig import Rig
from tests.models.batch.kit import NO_RETRY, committed, outcomes


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("reason", ["\ud800", Odd(), None, "x" * 10_000, "\x00"])
async def test_a_skip_with_any_reason_is_a_skip(rig: Rig, reason: object) -> None:
    @rig.app.batch(chunk=8)
    async def work(number: int) -> None:
        if number == 3:
            raise Skip(reason)  # type: ignore[arg-type]

    run = await work.start(range(6))
    await asyncio.wait_for(rig.run(), 10)
    assert await outcomes(run) == ["success"] * 3 + ["skip"] + ["success"] * 2


class Unusual(BaseException):
    """Not an Exception: as test frameworks and greenlets raise them."""


async def test_what_is_no_exception_fails_its_item_alone(rig: Rig) -> None:
    @rig.app.batch(chunk=8)
    async def work(number: int) -> None:
        if number == 3:
            raise Unusual("odd")

    run = await work.start(range(6))
    await asyncio.wait_for(rig.run(), 10)
    items = await committed(run)
    assert [item.outcome for item in items] == ["success"] * 3 + ["fail"] + ["success"] * 2
    assert (items[3].fail_class, items[3].attempts) == ("permanent", 1)


async def test_a_group_of_exceptions_names_its_members(rig: Rig) -> None:
    @rig.app.batch(retry=NO_RETRY)
    async def work(number: int) -> None:
        raise ExceptionGroup("both", [ValueError("left"), KeyError("right")])

    run = await work.start(range(1))
    await asyncio.wait_for(rig.run(), 10)
    (item,) = await committed(run)
    assert item.error == "ExceptionGroup: both (2 sub-exceptions): ValueError: left; KeyError: 'right'"


async def test_stop_iteration_in_a_thread_fails_its_item(rig: Rig) -> None:
    """`next()` of an empty iterator is a common slip; a future cannot carry it."""

    @rig.app.batch(chunk=8, retry=NO_RETRY)
    def work(number: int) -> int:
        return next(iter([number] if number != 3 else []))

    run = await work.start(range(6))
    await asyncio.wait_for(rig.run(), 10)
    assert await outcomes(run) == ["success"] * 3 + ["fail"] + ["success"] * 2


async def test_a_hung_plain_function_is_cut_off_and_the_rest_goes_on(rig: Rig) -> None:
    """D9, in threads: more hung items than there are lanes."""
    gate = threading.Event()

    @rig.app.batch(chunk=8, retry=NO_RETRY, timeout=0.1, concurrency=2)
    def work(number: int) -> None:
        if number < 5:
            gate.wait(30)

    run = await work.start(range(12))
    try:
        await asyncio.wait_for(rig.run(), 10)
    finally:
        gate.set()
    assert await outcomes(run) == ["fail"] * 5 + ["success"] * 7


async def test_waiting_for_a_thread_is_not_the_items_time(rig: Rig) -> None:
    """`timeout` bounds an item from its own begin, though there are fewer threads than lanes."""

    @rig.app.batch(chunk=20, retry=NO_RETRY, timeout=0.8, concurrency=20)
    def work(number: int) -> None:
        threading.Event().wait(0.08)

    await rig.make_worker(threads=1)
    run = await work.start(range(20))  # the last of them waits for twice its timeout
    await asyncio.wait_for(rig.run(), 30)
    assert set(await outcomes(run)) == {"success"}


async def test_more_hung_functions_than_threads_do_not_stop_the_rest(rig: Rig) -> None:
    """D9: no thread can be stopped, so the ones that code hangs in are left behind."""
    gate = threading.Event()

    @rig.app.batch(chunk=50, retry=NO_RETRY, timeout=0.1, concurrency=8)
    def work(number: int) -> None:
        if number < 20:
            gate.wait(30)

    run = await work.start(range(60))
    try:
        await asyncio.wait_for(rig.run(), 30)
    finally:
        gate.set()
    assert await outcomes(run) == ["fail"] * 20 + ["success"] * 40


async def test_sys_exit_fails_its_item_and_not_the_worker(rig: Rig) -> None:
    @rig.app.batch(chunk=8)
    def work(number: int) -> None:
        if number == 3:
            raise SystemExit(2)

    run = await work.start(range(6))
    await asyncio.wait_for(rig.run(), 10)
    assert await outcomes(run) == ["success"] * 3 + ["fail"] + ["success"] * 2
