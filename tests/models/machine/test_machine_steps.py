"""Steps: async or plain, with timeouts, resources by type, and no memory but their state."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import msgspec
import pydantic
import pytest

from holdfast import Done, Machine, MachineContext, Next, Outcome, RetryPolicy, step
from holdfast.core.errors import ConfigurationError, ExecutionFailedError
from tests.engine.rig import Rig

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT", default="none")


async def test_a_plain_step_runs_in_a_thread(rig: Rig) -> None:
    """Several block at once without holding up the event loop."""
    together = threading.Barrier(3, timeout=30)

    @rig.app.machine
    class Blocks(Machine[int]):
        @step(initial=True)
        def first(self, ctx: MachineContext[int]) -> Outcome:
            together.wait()
            return Next(self.second, ctx.state + 1)

        @step
        def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done([ctx.state, threading.current_thread() is not threading.main_thread()])

    handles = [await Blocks.start(n) for n in range(3)]
    await rig.run()
    assert [await handle.result() for handle in handles] == [[1, True], [2, True], [3, True]]


async def test_plain_and_async_steps_mix(rig: Rig) -> None:
    @rig.app.machine
    class Mixed(Machine[int]):
        @step(initial=True)
        def first(self, ctx: MachineContext[int]) -> Outcome:
            return Next(self.second, ctx.state + 1)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            return Next(self.third, ctx.state + 1)

        @step
        def third(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    handle = await Mixed.start(0)
    await rig.run()
    assert await handle.result() == 2


async def test_an_error_in_a_thread_goes_to_handle(rig: Rig) -> None:
    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        def first(self, ctx: MachineContext[int]) -> Outcome:
            raise ValueError("in a thread")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done(str(error))

    handle = await Fails.start(0)
    await rig.run()
    assert await handle.result() == "in a thread"


async def test_a_plain_step_sees_the_context_variables_of_its_worker(rig: Rig) -> None:
    """And what it sets stays its own."""

    @rig.app.machine
    class Reads(Machine[list[str]]):
        @step(initial=True)
        def first(self, ctx: MachineContext[list[str]]) -> Outcome:
            seen = TENANT.get()
            TENANT.set("changed in the thread")
            return Next(self.second, [seen])

        @step
        def second(self, ctx: MachineContext[list[str]]) -> Outcome:
            return Done([*ctx.state, TENANT.get()])

    handle = await Reads.start([])
    token = TENANT.set("acme")
    try:
        await rig.run()
    finally:
        TENANT.reset(token)
    assert await handle.result() == ["acme", "acme"]


@pytest.mark.parametrize("suspends", [False, True])
async def test_what_an_async_step_sets_in_its_context_ends_with_it(rig: Rig, suspends: bool) -> None:
    """Under a kept lease as after a fresh pick: only `ctx.state` goes from step to step."""

    @rig.app.machine
    class Sets(Machine[list[str]]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[list[str]]) -> Outcome:
            seen = TENANT.get()
            TENANT.set("set by first")
            if suspends:
                await asyncio.sleep(0)
            return Next(self.second, [seen, TENANT.get()])

        @step
        async def second(self, ctx: MachineContext[list[str]]) -> Outcome:
            before = TENANT.get()
            token = TENANT.set("set by second")
            try:
                await asyncio.create_task(asyncio.sleep(0))
                raise LookupError(before)
            finally:
                TENANT.reset(token)  # in the context it was set in

        async def handle(self, error: Exception, ctx: MachineContext[list[str]]) -> Outcome:
            return Done([*ctx.state, str(error), TENANT.get()])

    handle = await Sets.start([])
    token = TENANT.set("acme")
    try:
        await rig.run()
    finally:
        TENANT.reset(token)
    assert await handle.result() == ["acme", "set by first", "acme", "acme"]


async def test_a_step_that_takes_too_long_gets_a_timeout_error(rig: Rig) -> None:
    @rig.app.machine
    class Slow(Machine[int]):
        @step(initial=True, timeout=0.001)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            await asyncio.Event().wait()
            return Done()

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done(type(error).__name__)

    handle = await Slow.start(0)
    await rig.run()
    assert await handle.result() == "TimeoutError"


async def test_waiting_for_a_free_thread_is_no_part_of_the_time_of_a_plain_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise steps behind slow ones would fail without having run."""
    loop, shift = asyncio.get_running_loop(), [0.0]
    real_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: real_time() + sum(shift))

    @rig.app.machine
    class Queued(Machine[int]):
        @step(initial=True)
        def first(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.state == 0:
                held.set()
                release.wait(30)
            return Next(self.second, ctx.state)

        @step(timeout=30)
        def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done("ran")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done(type(error).__name__)

    @rig.app.machine
    class Releases(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            while not held.is_set() or worker.threads._calls.empty():  # type: ignore[attr-defined]  # noqa: ASYNC110
                await asyncio.sleep(0)
            shift.append(60.0)  # longer than the timeout of the step that waits
            for _ in range(5):
                await asyncio.sleep(0)
            release.set()
            return Done()

    held, release = threading.Event(), threading.Event()
    waits = await Queued.options(priority=1).start(1)
    await Queued.options(priority=2).start(0)
    await Releases.options(priority=3).start(0)
    worker = await rig.make_worker(threads=1)
    await worker.run_until_idle()
    assert await waits.result() == "ran"


async def test_a_plain_step_that_takes_too_long_is_given_up(rig: Rig) -> None:
    """Its thread cannot be stopped, but nobody waits for it any more."""
    release = threading.Event()

    @rig.app.machine
    class Slow(Machine[int]):
        @step(initial=True, timeout=0.001)
        def first(self, ctx: MachineContext[int]) -> Outcome:
            release.wait(30)
            return Done("too late")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done(type(error).__name__)

    handle = await Slow.start(0)
    await rig.run()
    release.set()
    assert await handle.result() == "TimeoutError"


async def test_a_step_within_its_timeout_is_left_alone(rig: Rig) -> None:
    @rig.app.machine
    class Quick(Machine[int]):
        @step(initial=True, timeout=3600)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Done("in time")

    handle = await Quick.start(0)
    await rig.run()
    assert await handle.result() == "in time"


async def test_attributes_on_self_are_refused(rig: Rig) -> None:
    """All that lasts is in `ctx.state`; another process may run the next step."""

    @rig.app.machine(retry=RetryPolicy(max_attempts=1))
    class Remembers(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            self.count = 1
            return Done()

    handle = await Remembers.start(0)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match=r"Remembers.count cannot be set: .* Put it into the state"):
        await handle.result()


async def test_the_state_given_to_the_next_step_is_a_copy(rig: Rig) -> None:
    """What reaches a step has gone through the codec, under a kept lease as after a pick."""
    leaked: list[list[int]] = []

    @rig.app.machine
    class Keeps(Machine[list[int]]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[list[int]]) -> Outcome:
            leaked.append(ctx.state)
            return Next(self.second, ctx.state)

        @step
        async def second(self, ctx: MachineContext[list[int]]) -> Outcome:
            leaked[0].append(666)
            return Done(ctx.state)

    handle = await Keeps.start([1])
    await rig.run()
    assert await handle.result() == [1]


# ---------------------------------------------------------------------- states of every kind


@dataclass(frozen=True)
class AsDataclass:
    number: int
    tags: tuple[str, ...] = ()


class AsStruct(msgspec.Struct, frozen=True):
    number: int
    tags: tuple[str, ...] = ()


class AsModel(pydantic.BaseModel):
    number: int
    tags: tuple[str, ...] = ()


@pytest.mark.parametrize("kind", [AsDataclass, AsStruct, AsModel])
async def test_a_state_may_be_a_dataclass_a_struct_or_a_model(
    rig: Rig, kind: type[AsDataclass] | type[AsStruct] | type[AsModel]
) -> None:
    seen = []

    class Typed(Machine[kind]):  # type: ignore[valid-type]
        @step(initial=True)
        async def first(self, ctx: MachineContext[AsDataclass]) -> Outcome:
            seen.append(ctx.state)
            return Next(self.second, kind(number=ctx.state.number + 1, tags=("x",)))

        @step
        async def second(self, ctx: MachineContext[AsDataclass]) -> Outcome:
            seen.append(ctx.state)
            return Done(ctx.state)

    handle = await rig.app.machine(name="Typed")(Typed).start(kind(number=1))
    await rig.run()
    assert seen == [kind(number=1), kind(number=2, tags=("x",))]
    assert await handle.result(kind) == kind(number=2, tags=("x",))


# ---------------------------------------------------------------------- resources


class Pool:
    """What a lifespan yields."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_open = True


class Mailer:
    """Another."""


async def test_resources_are_opened_once_a_worker_and_given_by_type(rig: Rig) -> None:
    pools: list[Pool] = []

    @rig.app.lifespan
    async def open_pool() -> AsyncIterator[Pool]:
        pools.append(Pool(f"pool {len(pools)}"))
        yield pools[-1]
        pools[-1].is_open = False

    @rig.app.lifespan
    def open_mailer() -> Iterator[Mailer]:
        yield Mailer()

    @rig.app.machine
    class Uses(Machine[list[str]]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[list[str]], pool: Pool) -> Outcome:
            assert pool.is_open
            return Next(self.second, [pool.name])

        @step
        def second(self, ctx: MachineContext[list[str]], mailer: Mailer, pool: Pool) -> Outcome:
            assert isinstance(mailer, Mailer)
            raise ValueError(pool.name)

        async def handle(self, error: Exception, ctx: MachineContext[list[str]], pool: Pool) -> Outcome:
            return Done([*ctx.state, str(error), pool.name])

    handle = await Uses.start([])
    await rig.run()
    assert await handle.result() == ["pool 0"] * 3
    other = await rig.make_worker()
    assert [pool.name for pool in pools] == ["pool 0", "pool 1"]
    await rig.stop(other)
    assert [pool.is_open for pool in pools] == [True, False]


async def test_a_missing_resource_is_found_when_the_worker_starts(rig: Rig) -> None:
    @rig.app.machine
    class Uses(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int], pool: Pool) -> Outcome:
            return Done()

    with pytest.raises(ConfigurationError, match=r"Uses.first asks for a Pool, but no lifespan of this app yields one"):
        await rig.make_worker()


async def test_a_missing_resource_of_handle_is_found_as_well(rig: Rig) -> None:
    @rig.app.machine
    class Uses(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

        async def handle(self, error: Exception, ctx: MachineContext[int], pool: Pool) -> Outcome:
            return Done()

    with pytest.raises(ConfigurationError, match=r"Uses.handle asks for a Pool"):
        await rig.make_worker()
