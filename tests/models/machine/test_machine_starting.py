"""Starting: keys, queues, priority, delay, partition keys and uniqueness (seed sections 6 and 7; E9, E14, B6)."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Await, Collision, Done, Handle, Machine, MachineContext, Next, Outcome, Status, Unique, step
from holdfast.core.errors import (
    AmbiguousIdError,
    InvalidArgumentError,
    KeyConflictError,
    NotFoundError,
    UniqueConflictError,
)
from holdfast.core.status import LIVE
from holdfast.testing.clock import EPOCH
from tests.engine.rig import Rig, handles


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def machine(rig: Rig, ran: list[str]) -> type[Machine[str]]:
    """Notes its state and ends; a state that begins with "wait" parks first."""

    @rig.app.machine
    class Job(Machine[str]):
        @step(initial=True)
        async def work(self, ctx: MachineContext[str]) -> Outcome:
            ran.append(ctx.state)
            return Await("go", self.end, ctx.state) if ctx.state.startswith("wait") else Done(ctx.state)

        @step
        async def end(self, ctx: MachineContext[str]) -> Outcome:
            return Done(ctx.state)

    return Job


# ---------------------------------------------------------------------- identity


async def test_the_same_key_finds_the_same_execution(rig: Rig, machine: type[Machine[str]], ran: list[str]) -> None:
    """DESIGN section 4: starting twice with one key is starting once."""
    first = await machine.options(key="order-17").start("a")
    second = await machine.options(key="order-17").start("a")
    await rig.run()
    third = await machine.options(key="order-17").start("a")
    assert first.id == second.id == third.id
    assert await third.result() == "a"
    assert ran == ["a"]


async def test_the_same_key_with_another_input_is_a_conflict(machine: type[Machine[str]]) -> None:
    """Ruling B6."""
    handle = await machine.options(key="order-17").start("a")
    with pytest.raises(KeyConflictError, match=rf"{handle.label} was started before with the same key and another"):
        await machine.options(key="order-17").start("b")


async def test_without_a_key_every_start_is_another_execution(machine: type[Machine[str]]) -> None:
    assert (await machine.start("a")).id != (await machine.start("a")).id


async def test_a_handle_is_found_by_key_id_and_prefix(rig: Rig, machine: type[Machine[str]]) -> None:
    started = await machine.options(key="order-17").start("a")
    assert rig.app.handle("Job", key="order-17").id == started.id
    for text in (str(started.id), str(started.id)[:12], started.label, f"Job/{str(started.id)[:9]}"):
        found = rig.app.handle(text)
        assert await found.resolve() == started.id
        assert found.label == started.label
    assert (await rig.app.handle(started.id).describe()).name == "Job"


async def test_a_prefix_of_two_is_ambiguous(rig: Rig, machine: type[Machine[str]]) -> None:
    """As with commits in git; the message shows what to type."""
    keys: dict[str, str] = {}
    number = 0
    while True:  # two keys whose ids begin alike; a few hundred tries on average
        key = f"k{number}"
        prefix = str(rig.app.handle("Job", key=key).id)[:4]
        if prefix in keys:
            break
        keys[prefix] = key
        number += 1
    await machine.options(key=key).start("a")
    await machine.options(key=keys[prefix]).start("a")
    with pytest.raises(AmbiguousIdError, match=rf"{prefix} fits 2 executions: Job/{prefix}"):
        await rig.app.handle(prefix).describe()


async def test_a_handle_of_nothing_says_so(rig: Rig) -> None:
    with pytest.raises(NotFoundError, match="no execution has the id deadbeef"):
        await rig.app.handle("deadbeef").describe()
    with pytest.raises(NotFoundError, match=r"there is no execution Job/\w+; it .* deleted .* or never started"):
        await rig.app.handle("Job", key="never").result()


# ---------------------------------------------------------------------- when and where


async def test_a_worker_serves_its_queues_only(rig: Rig, machine: type[Machine[str]], ran: list[str]) -> None:
    """Section 6, queue."""
    await machine.options(queue="ship").start("ship")
    await machine.start("default")
    await rig.run()
    assert ran == ["default"]
    shipper = await rig.make_worker(queues=["ship"])
    await shipper.run_until_idle()
    assert ran == ["default", "ship"]


async def test_a_machine_has_a_queue_and_priority_of_its_own(rig: Rig) -> None:
    @rig.app.machine(queue="ship", priority=7)
    class Job(Machine[int]):
        @step(initial=True)
        async def work(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    view = await (await Job.start(0)).describe()
    assert (view.queue, view.priority) == ("ship", 7)
    view = await (await Job.options(queue="other", priority=0).start(0)).describe()
    assert (view.queue, view.priority) == ("other", 0)


async def test_lower_priorities_run_first_then_the_earlier(
    rig: Rig, machine: type[Machine[str]], ran: list[str]
) -> None:
    """Section 6: ordered by priority, then `eligible_at`."""
    for priority, state in ((5, "late"), (0, "a"), (-5, "urgent"), (0, "b")):
        await machine.options(priority=priority).start(state)
    await rig.run()
    assert ran == ["urgent", "a", "b", "late"]


@pytest.mark.parametrize(
    "options", [{"delay": 60}, {"delay": timedelta(minutes=1)}, {"at": EPOCH + timedelta(minutes=1)}]
)
async def test_a_delayed_start_waits(
    rig: Rig, machine: type[Machine[str]], ran: list[str], options: dict[str, Any]
) -> None:
    handle = await machine.options(**options).start("later")
    assert (await rig.view(handle)).eligible_at == EPOCH + timedelta(minutes=1)
    await rig.advance(59)
    assert await rig.run() == 0
    await rig.advance(1)
    await rig.run()
    assert ran == ["later"]


async def test_a_start_in_the_past_is_now(rig: Rig, machine: type[Machine[str]], ran: list[str]) -> None:
    await machine.options(at=datetime(2000, 1, 1, tzinfo=UTC)).start("old")
    await rig.run()
    assert ran == ["old"]


async def test_attributes_are_kept_with_the_execution(rig: Rig, machine: type[Machine[str]]) -> None:
    handle = await machine.options(attributes={"customer": "anna", "vip": True, "total": 12.5}).start("a")
    attributes = (await rig.view(handle)).attributes
    assert attributes is not None
    assert json.loads(attributes) == {"customer": "anna", "total": 12.5, "vip": True}


# ---------------------------------------------------------------------- partition keys


async def test_one_of_a_partition_key_runs_at_a_time_and_in_order(rig: Rig) -> None:
    """Section 6 and ruling E9: parallelism across keys, strict order within a key."""
    events: list[str] = []
    both, release = asyncio.Event(), asyncio.Event()

    @rig.app.machine
    class Job(Machine[str]):
        @step(initial=True)
        async def work(self, ctx: MachineContext[str]) -> Outcome:
            events.append(f"+{ctx.state}")
            if len(events) == 2:
                both.set()
            await release.wait()
            return Next(self.end, ctx.state)

        @step
        async def end(self, ctx: MachineContext[str]) -> Outcome:
            events.append(f"-{ctx.state}")
            return Done()

    for state in ("a1", "a2", "b1", "a3", "b2"):
        await Job.options(partition_key=state[0]).start(state)
    worker = await rig.worker()
    working = asyncio.create_task(worker.run_until_idle())
    await both.wait()
    assert events == ["+a1", "+b1"]
    release.set()
    await working
    for key in "ab":
        of_key = [event for event in events if event[1] == key]
        expected = [f"{sign}{key}{n}" for n in range(1, 1 + len(of_key) // 2) for sign in "+-"]
        assert of_key == expected


async def test_parking_gives_the_partition_key_away(rig: Rig, machine: type[Machine[str]], ran: list[str]) -> None:
    """DESIGN section 6: a key is kept until its row parks or ends."""
    handle = await machine.options(partition_key="k").start("wait")
    await machine.options(partition_key="k").start("second")
    await rig.run()
    assert ran == ["wait", "second"]
    await handle.signal("go")
    await rig.run()
    assert await handle.result() == "wait"


# ---------------------------------------------------------------------- uniqueness


async def test_a_unique_key_refuses_a_second_start(rig: Rig, machine: type[Machine[str]]) -> None:
    """Section 7."""
    unique = machine.options(unique=Unique(key=lambda state: state[0]))
    first = await unique.start("a1")
    with pytest.raises(UniqueConflictError, match=rf"Job was not started: {first.label} occupies its unique key"):
        await unique.start("a2")
    assert (await unique.start("b1")).id != first.id
    await rig.run()
    second = await unique.start("a2")
    assert await second.status() is Status.RUNNABLE, "the end of the first frees the key"

    @rig.app.task
    async def other(names: list[str]) -> None:
        return None

    by_name = other.options(unique=Unique(key=lambda names: names[-1]))
    with pytest.raises(UniqueConflictError, match=rf"other was not started: {second.label} occupies its unique key"):
        await by_name.start(["x", "a"])
    assert await (await by_name.start(["a", "x"])).status() is Status.RUNNABLE


async def test_a_unique_key_of_a_batch_is_a_function_of_its_source(rig: Rig) -> None:
    @rig.app.batch
    async def rows(number: int) -> None:
        return None

    unique = rows.options(unique=Unique(key=lambda source: f"from {source[0]}"))
    await unique.start([1, 2])
    await unique.start([2, 3])
    with pytest.raises(UniqueConflictError):
        await unique.start([1, 3])


async def test_without_a_unique_key_nothing_is_deduplicated(machine: type[Machine[str]]) -> None:
    """Section 7: opt-in per job."""
    await machine.options(unique=Unique(key="k")).start("a")
    assert await (await machine.start("a")).status() is Status.RUNNABLE


async def test_the_scope_says_in_which_statuses_a_key_is_occupied(rig: Rig, machine: type[Machine[str]]) -> None:
    """Section 7: per-job scope; leaving it frees the key, and for good (ruling E14)."""
    unique = machine.options(unique=Unique(key="k", scope={Status.RUNNABLE, Status.EXECUTING}))
    first = await unique.start("wait 1")
    await rig.run()
    assert await first.status() is Status.AWAITING_SIGNAL
    second = await unique.start("wait 2")
    await first.signal("go")
    assert await first.status() is Status.RUNNABLE, "back in its scope, without the key that another has taken"
    await rig.run()
    assert await first.result() == "wait 1"
    assert await second.status() is Status.AWAITING_SIGNAL


async def test_a_scope_may_include_the_end(rig: Rig, machine: type[Machine[str]]) -> None:
    unique = machine.options(unique=Unique(key="once", scope=LIVE | {Status.DONE}))
    first = await unique.start("a")
    await rig.run()
    with pytest.raises(UniqueConflictError, match=first.label):
        await unique.start("b")


async def test_keys_are_stored_verbatim_as_text_or_bytes(rig: Rig, machine: type[Machine[str]]) -> None:
    handle = await machine.options(unique=Unique(key=b"\x00\xff")).start("a")
    assert (await rig.view(handle)).unique_key == b"\x00\xff"
    handle = await machine.options(unique=Unique(key="Grüße")).start("a")
    assert (await rig.view(handle)).unique_key == "Grüße".encode()


# ---------------------------------------------------------------------- many


async def test_start_many_starts_all_in_one_commit(rig: Rig, machine: type[Machine[str]], ran: list[str]) -> None:
    started = handles(await machine.start_many(str(n) for n in range(250)))
    assert len({handle.id for handle in started}) == 250
    await rig.run()
    assert [await handle.result() for handle in started[:3]] == ["0", "1", "2"]
    assert sorted(ran, key=int) == [str(n) for n in range(250)]


async def test_start_many_of_nothing_is_nothing(machine: type[Machine[str]]) -> None:
    assert await machine.start_many([]) == []


async def test_start_many_says_per_input_what_became_of_it(machine: type[Machine[str]]) -> None:
    """A handle, or the id it collided with: in the table, and earlier in the same call (section 10)."""
    unique = machine.options(unique=Unique(key=lambda state: state[0]))
    occupant = await unique.start("a0")
    started = await unique.start_many(["a1", "b1", "b2", "c1"])
    assert started[0] == Collision(occupant.id, "unique")
    assert isinstance(started[1], Handle)
    assert started[2] == Collision(started[1].id, "unique")
    assert isinstance(started[3], Handle)


async def test_start_many_takes_a_key_for_each_input(machine: type[Machine[str]]) -> None:
    keyed = machine.options(key=lambda state: state[0])
    (first,) = handles(await keyed.start_many(["a1"]))
    again, conflict, other = await keyed.start_many(["a1", "a2", "b1"])
    assert isinstance(again, Handle)
    assert again.id == first.id
    assert conflict == Collision(first.id, "input")
    assert isinstance(other, Handle)
    nameless: Any = {"a": "1"}.get
    with pytest.raises(InvalidArgumentError, match="the key of Job is a function that gave None for 'b'"):
        await machine.options(key=nameless).start_many(["a", "b"])
