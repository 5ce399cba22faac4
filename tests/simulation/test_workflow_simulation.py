"""Random lives of workflows: several workers, crashes, evictions, lost leases, repeated signals, jumps of the clock.

One number decides everything a run does, so a seed that fails can be run again and fails the same way:
`SEED=17 pytest tests/simulation/test_workflow_simulation.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from holdfast import Handle, PromiseId, Status, Workflow
from holdfast.core import crashpoints
from holdfast.core.journal import decode_segment, validate_segments
from holdfast.core.journal.events import (
    Event,
    ExecutionCompleted,
    InvokeCompleted,
    InvokeScheduled,
    Ok,
    SignalDelivered,
)
from holdfast.core.journal.local_ids import whole
from holdfast.models.workflow import members
from holdfast.store.base import Store
from holdfast.store.values import Delivery, ExecutionView
from holdfast.testing.audit import all_views, audit
from holdfast.testing.crash import CrashPoints, _dying_quietly
from holdfast.testing.faults import Borrowed
from holdfast.testing.stores import Stores
from tests.models.workflow.generated import NAMES, QUEUES, Program, declare, draw_program
from tests.models.workflow.kit import HandWorker, Rig

SEEDS = {"sqlite": 2000, "postgres": 200}
SHARES = 4  # of the seeds, so that several processes of a test run have some
STEPS = 25
ROUNDS = 80
POINTS = ("flush.before", "flush.after", "pick.after", "timers.after")


@dataclass
class Life:
    """One seed: what happens, and what must hold of what is left."""

    rig: Rig
    generated: Workflow[[Program], list[Any]]
    ran: Counter[str]
    seed: int
    rng: random.Random
    deaths: int = 0
    sent: dict[bytes, list[tuple[str, int]]] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)

    async def live(self, steps: int) -> None:
        handles: list[Handle[Any]] = []
        for number in range(1 + self.rng.randrange(3)):
            program = draw_program(self.rng.randrange)
            handles.append(await self.generated.options(key=f"{self.seed}-{number}").start(program))
        for _ in range(2):
            await self.hire()
        for _ in range(steps):
            await self.step(handles)
        self.tell("the end")
        for _ in range(ROUNDS):
            await self.rig.workers[0].reap_once()
            for worker in list(self.rig.workers):
                await worker.run_until_idle()
            if not await self.unfinished():
                return
            for view in await self.unfinished():
                for name in NAMES:
                    await self.signal(view, name, f"end-{self.rig.stores.clock.now_us()}-{name}")
            await self.rig.advance(5)
        raise AssertionError(f"never ended: {[(v.name, v.status, v.step) for v in await self.unfinished()]}")

    async def step(self, handles: list[Handle[Any]]) -> None:
        rng, rig = self.rng, self.rig
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                await self.turn(rng.choice(rig.workers))
            case 4 | 5:
                await self.turn(rng.choice(rig.workers), dies_at=(rng.choice(POINTS), 1 + rng.randrange(3)))
            case 6:
                self.tell("evict")
                rig.forget()
            case 7 | 8:
                unfinished = await self.unfinished()
                if unfinished:
                    view = rng.choice(unfinished)
                    key = f"key-{rng.randrange(6)}"
                    self.tell(f"signal {key}")
                    for _ in range(1 + rng.randrange(2)):
                        await self.signal(view, NAMES[len(key) % 2], key)
            case 9:
                seconds = rng.choice([0.5, 1, 2, 10])
                self.tell(f"advance {seconds}")
                await rig.advance(seconds)
            case 10:
                # The clock jumps: every lease runs out, though the workers live; they go on under other names.
                self.tell("jump")
                await rig.stores.advance(100)
                await rig.workers[0].reap_once()
                for worker in rig.workers:
                    await self.rename(worker)
            case _:
                if rng.randrange(4) == 0:
                    self.tell("cancel")
                    await rng.choice(handles).cancel()

    async def turn(self, worker: HandWorker, dies_at: tuple[str, int] | None = None) -> None:
        """One pick of one worker; with `dies_at` its process is killed there, should it get that far."""
        self.tell(f"turn {self.rig.workers.index(worker)} {dies_at or ''}")
        if dies_at is None:
            await worker.run_once()
            await self.settle(worker)
            return
        died = asyncio.Event()
        loop = asyncio.get_running_loop()
        points = CrashPoints([dies_at], lambda: loop.call_soon_threadsafe(died.set))
        with points.installed(), _dying_quietly():
            working = asyncio.ensure_future(worker.run_once())
            dying = asyncio.ensure_future(died.wait())
            either: set[asyncio.Future[Any]] = {working, dying}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            if points.is_dead:
                self.deaths += 1
                self.rig.workers.remove(worker)
                await worker.abandon()
            working.cancel()
            await asyncio.gather(working, dying, return_exceptions=True)
        if points.is_dead:
            self.tell("died")
            await self.hire()
            if self.rng.randrange(2):
                await self.rig.advance(31)
            await self.rig.workers[0].reap_once()

    async def rename(self, worker: HandWorker) -> None:
        """Let it find out that its lease is lost, and wait for its new name."""
        name, changed = worker.id, asyncio.Event()
        told, worker._identity._on_changed = worker._identity._on_changed, changed.set
        if not await worker.beat_once() and worker.id == name:
            await changed.wait()
        worker._identity._on_changed = told
        told()

    async def settle(self, worker: HandWorker) -> None:
        await worker._identity.settle()

    async def hire(self) -> None:
        warm_most = self.rng.choice([None, 0, 1])
        await self.rig.make_worker(warm_most=warm_most, concurrency=1, queues=QUEUES)

    async def signal(self, view: ExecutionView, name: str, key: str) -> None:
        payload = len(self.sent.setdefault(view.promise, []))
        handle = self.rig.app.handle(PromiseId.from_bytes(view.promise))
        if await handle.signal(name, payload, dedup_key=key) is Delivery.DELIVERED:
            self.sent[view.promise].append((name, payload))

    async def unfinished(self) -> list[ExecutionView]:
        views = await all_views(self.rig.stores.store)
        stranded = [view.error for view in views if view.status is Status.STRANDED]
        assert not stranded, stranded
        return [view for view in views if view.kind == "workflow" and not view.status.is_terminal]

    def tell(self, what: str) -> None:
        self.story.append(what)

    # ------------------------------------------------------------------ what must hold

    async def check(self) -> dict[str, list[str]]:
        store = self.rig.stores.store
        journals: dict[str, list[str]] = {}
        rows = {str(PromiseId.from_bytes(view.promise)): view for view in await all_views(store)}
        for text, view in rows.items():
            segments = [decode_segment(segment) for segment in await store.journal(view.promise)]
            violations = validate_segments(text, segments)
            assert not violations, "; ".join(map(str, violations))
            events = [whole(text, event) for segment in segments for event in segment.events]
            self.check_results(events, rows, view)
            self.check_signals(events, view)
            journals[text] = await self.rig.lines(PromiseId.parse(text))
        assert not await audit(store)
        return journals

    def check_results(self, events: list[Event], rows: dict[str, ExecutionView], view: ExecutionView) -> None:
        """The row has what the journal says; a remote call's result is its child's; nothing ran again once done."""
        for event in events:
            if isinstance(event, ExecutionCompleted):
                assert json.loads(bytes(event.result)) == json.loads(view.result or "null")
            if isinstance(event, InvokeScheduled) and event.function_name == "once":
                assert self.ran[event.promise_id] <= 1
            if isinstance(event, InvokeCompleted):
                assert self.ran[event.promise_id] <= event.attempt + self.deaths
                child = rows.get(event.promise_id)
                if child is not None and isinstance(event.result, Ok):
                    assert child.status is Status.DONE
                    assert json.loads(bytes(event.result.value)) == json.loads(child.result or "null")

    def check_signals(self, events: list[Event], view: ExecutionView) -> None:
        """Each delivery is in the journal once, in order; those that came after the last commit are not."""
        delivered = [(e.signal_name, json.loads(bytes(e.payload))) for e in events if isinstance(e, SignalDelivered)]
        sent = self.sent.get(view.promise, [])
        assert delivered == sent[: len(delivered)]


class Lives:
    """One after the other on one ledger, which is emptied in between; what they run is declared once for them all."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.rig = Rig(stores, store=cast(Store, Borrowed(stores.store)))
        self.ran: Counter[str] = Counter()
        self.generated = declare(self.rig.app, self.ran, backend=stores.backend)

    async def play(self, seed: int) -> dict[str, list[str]]:
        await self.stores.reset()
        self.ran.clear()
        life = Life(self.rig, self.generated, self.ran, seed, random.Random(seed))
        try:
            with pytest.MonkeyPatch.context() as patched:
                if seed % 2:  # every wait for a join set names the set, as those of wide ones do
                    patched.setattr(members, "NAMED_MOST", 0)
                await life.live(STEPS)
            return await life.check()
        except BaseException as error:
            error.add_note(f"seed {seed}: " + ", ".join(life.story))
            raise
        finally:
            crashpoints.set_hook(None)
            while self.rig.workers:
                await self.rig.workers.pop().stop(0)

    async def __aenter__(self) -> Lives:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.rig.close()


@pytest.mark.parametrize("share", range(SHARES))
async def test_no_life_of_a_workflow_breaks_it(stores: Stores, share: int) -> None:
    given = os.environ.get("SEED")
    count = SEEDS[stores.backend] // SHARES
    async with Lives(stores) as lives:
        for seed in [int(given)] if given else range(share * count, (share + 1) * count):
            await lives.play(seed)


async def test_a_seed_decides_everything(stores: Stores) -> None:
    async with Lives(stores) as lives:
        for seed in range(10):
            assert await lives.play(seed) == await lives.play(seed)
