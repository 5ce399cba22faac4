"""A fork or a retry never begins a call twice that may not be repeated, also where the call has a queue of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Context, Handle, Status, TaskFailed, Uncertain
from holdfast.core.journal.events import InvokeScheduled, InvokeStarted
from tests.models.workflow.kit import HandWorker, Rig
from tests.models.workflow_features.shelf import Shelf


class Shop:
    """A run that fails while its `charge` is in another queue; `charge` waits until it may go, if it `blocks`."""

    def __init__(self, rig: Rig, *, blocks: bool = False, fails: bool = False) -> None:
        self.rig = rig
        self.shelf = Shelf(rig)
        self.goes = asyncio.Event()
        self.begun = asyncio.Event()
        self.fails = fails
        if not blocks:
            self.goes.set()

        @rig.app.task(queue="far", effects="at_most_once")
        async def charge() -> str:
            self.shelf.ran.append("charge")
            self.begun.set()
            await self.goes.wait()
            if self.fails:
                raise ValueError("declined")
            return "paid"

        @rig.app.workflow
        async def checkout(ctx: Context) -> list[str]:
            paying = charge()
            got = [await self.shelf.reserve()]
            try:
                return [*got, await paying]
            except Uncertain:
                return [*got, "uncertain"]
            except TaskFailed:
                return [*got, "failed"]

        self.checkout = checkout

    async def fail(self) -> Handle[list[str]]:
        """The run has failed, and nobody has looked at the queue of its call."""
        handle = await self.checkout.start()
        await (await self.rig.make_worker(queues=["default"])).run_until_idle()
        assert await self.rig.status(handle) is Status.FAILED
        self.shelf.is_empty = False
        return handle

    async def far(self) -> HandWorker:
        return await self.rig.make_worker(queues=["far"])

    async def run(self, handle: Handle[Any]) -> Any:
        for worker in self.rig.workers * 2:
            await worker.run_until_idle()
        return await handle.result(timeout=0)


async def test_a_retry_takes_a_call_out_of_its_queue_and_begins_it_once(rig: Rig) -> None:
    shop = Shop(rig)
    handle = await shop.fail()
    again = await handle.retry()
    await shop.far()
    assert await shop.run(again) == ["r1", "paid"]
    assert shop.shelf.ran.count("charge") == 1


async def test_a_retry_has_what_the_call_brought_meanwhile(rig: Rig) -> None:
    shop = Shop(rig)
    handle = await shop.fail()
    await (await shop.far()).run_until_idle()
    assert await shop.run(await handle.retry()) == ["r1", "paid"]
    assert shop.shelf.ran.count("charge") == 1


async def test_a_retry_is_uncertain_of_a_call_that_is_running(rig: Rig) -> None:
    shop = Shop(rig, blocks=True)
    handle = await shop.fail()
    working = rig.working(await shop.far())
    await shop.begun.wait()
    again = await handle.retry()
    shop.goes.set()
    await working
    assert await shop.run(again) == ["r1", "uncertain"]
    assert shop.shelf.ran.count("charge") == 1


async def test_a_retry_begins_anew_what_failed_by_itself(rig: Rig) -> None:
    shop = Shop(rig, fails=True)
    handle = await shop.fail()
    await (await shop.far()).run_until_idle()
    shop.fails = False
    assert await shop.run(await handle.retry()) == ["r1", "paid"]
    assert shop.shelf.ran.count("charge") == 2


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["goes on", "cancelled"])
async def test_a_fork_begins_only_what_the_first_run_never_will(rig: Rig, is_cancelled: bool) -> None:
    shop = Shop(rig)
    handle = await shop.fail()
    (call,) = [
        e for e in await handle.events() if isinstance(e, InvokeScheduled) and e.function_name.endswith("charge")
    ]
    if is_cancelled:
        await rig.app.handle(call.promise_id).cancel()
    fork = await handle.fork(at=call.sequence)
    await shop.far()
    assert await shop.run(fork) == ["r1", "paid" if is_cancelled else "uncertain"]
    assert shop.shelf.ran.count("charge") == 1  # by the fork, or by the run that it comes from


async def test_a_fork_at_the_start_of_such_a_call_is_uncertain_of_it(rig: Rig) -> None:
    """Its start and its end come into the journal together; a fork can be made between the two."""
    shop = Shop(rig)
    shop.shelf.is_empty = False
    handle = await shop.checkout.start()
    await rig.make_worker(queues=["default"])
    await shop.far()
    assert await shop.run(handle) == ["r1", "paid"]
    started = [event for event in await handle.events() if isinstance(event, InvokeStarted)]
    fork = await handle.fork(at=started[-1].sequence)
    assert await shop.run(fork) == ["r1", "uncertain"]
    assert shop.shelf.ran.count("charge") == 1
