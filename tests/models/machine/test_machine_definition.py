"""Declaring machines: what is wrong is said when it is declared; versions stand side by side."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import pytest

from holdfast import App, Await, Done, Machine, MachineContext, Outcome, RetryPolicy, Status, step
from holdfast.core.errors import ConfigurationError, DefinitionError, ExecutionStrandedError, InvalidArgumentError
from tests.engine.rig import Rig

T = TypeVar("T")


class Valid(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done(ctx.state)


class NoState(Machine):  # type: ignore[type-arg]
    @step(initial=True)
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done()


class NoInitial(Machine[int]):
    @step
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done()


class TwoInitial(Machine[int]):
    @step(initial=True)
    async def one(self, ctx: MachineContext[int]) -> Outcome:
        return Done()

    @step(initial=True)
    async def two(self, ctx: MachineContext[int]) -> Outcome:
        return Done()


class NoContext(Machine[int]):
    @step(initial=True)
    async def only(self) -> Outcome:
        return Done()


class Anything(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int], **more: int) -> Outcome:
        return Done()


class NoAnnotation(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int], pool) -> Outcome:  # type: ignore[no-untyped-def]
        return Done()


class NoClass(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int], pool: "Nowhere") -> Outcome:  # type: ignore[name-defined]  # noqa: F821, UP037
        return Done()


class HandleIsStep(Machine[int]):
    @step(initial=True)
    async def handle(self, ctx: MachineContext[int]) -> Outcome:
        return Done()


class ShortHandle(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done()

    async def handle(self, error: Exception) -> Outcome:
        return Done()


class Renamed(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done()

    other = only


class Remembers(Machine[int]):
    def __init__(self) -> None:
        self.cache = 1

    @step(initial=True)
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done()


class NoJson(Machine[complex]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[complex]) -> Outcome:
        return Done()


@pytest.fixture
def app() -> App:
    return App("test", store="unused.db")


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (int, "takes a class derived from Machine"),
        (NoState, "NoState does not say what its state is"),
        (NoInitial, "needs exactly one `@step\\(initial=True\\)` and has none"),
        (TwoInitial, "and has 2 \\(one, two\\)"),
        (NoContext, "NoContext.only must take \\(self, ctx\\)"),
        (Anything, "Anything.only must take \\(self, ctx\\)"),
        (NoAnnotation, "parameter 'pool' without a class as its annotation"),
        (NoClass, "annotations of NoClass.only cannot be read: name 'Nowhere' is not defined"),
        (HandleIsStep, "handle turns errors into outcomes and cannot be a step"),
        (ShortHandle, "ShortHandle.handle must take \\(self, error, ctx\\)"),
        (Renamed, "Renamed.other is a function called 'only'"),
        (Remembers, "Remembers.cache cannot be set"),
    ],
)
def test_a_wrong_definition_is_refused_where_it_is_declared(app: App, machine: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        app.machine(machine)


def test_a_state_without_a_json_form_is_refused_where_it_is_declared(app: App) -> None:
    with pytest.raises(ConfigurationError, match="complex"):
        app.machine(NoJson)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"version": 0}, DefinitionError, "version of Valid must be a whole number from 1, not 0"),
        ({"version": True}, DefinitionError, "version of Valid"),
        ({"version": "2"}, DefinitionError, "version of Valid"),
        ({"name": "no spaces"}, InvalidArgumentError, "'no spaces' is no name for a definition"),
        ({"queue": ""}, InvalidArgumentError, "'' is no name of a queue"),
        ({"priority": 40_000}, InvalidArgumentError, "priority 40000 is outside"),
        ({"retry": RetryPolicy(max_elapsed=60)}, DefinitionError, "max_elapsed"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_declared(
    app: App, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        app.machine(**options)(Valid)


def test_one_version_can_be_declared_once(app: App) -> None:
    app.machine(name="Order", version=1)(Valid)
    app.machine(name="Order", version=2)(Valid)
    with pytest.raises(DefinitionError, match="Order version 2 is declared twice"):
        app.machine(name="Order", version=2)(Valid)


async def test_a_class_of_no_app_cannot_be_started() -> None:
    class Stray(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    with pytest.raises(ConfigurationError, match=r"Stray belongs to no app yet; decorate it with @app\.machine"):
        await Stray.start(1)


async def test_a_subclass_of_a_machine_is_a_definition_of_its_own(rig: Rig) -> None:
    """It inherits steps and state; being declared is not inherited."""
    base = rig.app.machine(name="Base")(Valid)

    class Derived(base):  # type: ignore[misc, valid-type]
        @step
        async def more(self, ctx: MachineContext[int]) -> Outcome:
            return Done("more")

    with pytest.raises(ConfigurationError, match="Derived belongs to no app yet"):
        await Derived.start(1)
    handle = await rig.app.machine(Derived).start(5)
    await rig.run()
    assert await handle.result() == 5
    assert (await rig.view(handle)).name == "Derived"


class Generically(Machine[T], Generic[T]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[T]) -> Outcome:
        return Done(ctx.state)


async def test_a_generic_base_takes_its_state_from_the_subclass(rig: Rig) -> None:
    class OfText(Generically[str]):
        pass

    machine = rig.app.machine(OfText)
    handle = await machine.start("text")
    await rig.run()
    assert await handle.result() == "text"
    with pytest.raises(Exception, match="does not fit str"):
        await machine.start(5)  # type: ignore[arg-type]


async def test_an_app_that_declares_nothing_has_nothing_to_work_on(rig: Rig) -> None:
    with pytest.raises(ConfigurationError, match="the app 'test' declares nothing to work on"):
        await rig.make_worker()


# ---------------------------------------------------------------------- versions (seed section 8)


def declare(app: App, version: int, ran: list[int]) -> type[Machine[int]]:
    class Order(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.second, ctx.state)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            ran.append(version)
            return Done([version, ctx.version])

    return app.machine(name="Order", version=version)(Order)


async def test_an_execution_finishes_on_the_version_it_was_started_with(rig: Rig) -> None:
    """Section 8: no migration of in-flight instances."""
    ran: list[int] = []
    first, second = declare(rig.app, 1, ran), declare(rig.app, 2, ran)
    old, new = await first.start(0), await second.start(0)
    await rig.run()
    await old.signal("go")
    await new.signal("go")
    await rig.run()
    assert await old.result() == [1, 1]
    assert await new.result() == [2, 2]


async def test_a_version_that_a_worker_does_not_know_stays_queued(rig: Rig) -> None:
    """Only what a worker has code for is picked; the rest waits for a worker that has it."""
    ran: list[int] = []
    other = Rig(rig.stores)
    try:
        declare(rig.app, 1, ran)
        second = declare(other.app, 2, ran)
        handle = await second.start(0)
        assert await rig.run() == 0
        assert await handle.status() is Status.RUNNABLE
        await other.run()
        assert await handle.status() is Status.AWAITING_SIGNAL
        await handle.signal("go")
        assert await rig.run() == 0
        await other.run()
        assert await handle.result() == [2, 2]
    finally:
        await other.close()


async def test_a_key_outlives_a_new_version(rig: Rig) -> None:
    """Ruling B6: version and code are recorded, not hashed."""
    ran: list[int] = []
    first, second = declare(rig.app, 1, ran), declare(rig.app, 2, ran)
    handle = await first.options(key="k").start(0)
    assert (await second.options(key="k").start(0)).id == handle.id
    assert (await rig.view(handle)).version == 1


async def test_the_digest_of_the_code_that_ran_is_recorded(rig: Rig) -> None:
    @rig.app.machine
    class One(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(1)

    @rig.app.machine
    class Other(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(2)

    handles = [await One.start(0), await One.start(0), await Other.start(0)]
    await rig.run()
    same, again, other = [(await rig.view(handle)).digest for handle in handles]
    assert same == again
    assert same is not None
    assert same != other, "a changed constant is changed code"


# ---------------------------------------------------------------------- after a deploy


async def redeployed(rig: Rig, machine: type[Machine[Any]]) -> Rig:
    """The same ledger with other code under the name Order."""
    other = Rig(rig.stores)
    other.app.machine(name="Order")(machine)
    return other


class Before(Machine[int]):
    @step(initial=True)
    async def first(self, ctx: MachineContext[int]) -> Outcome:
        return Await("go", self.second, ctx.state)

    @step
    async def second(self, ctx: MachineContext[int]) -> Outcome:
        return Done([ctx.state, [signal.payload for signal in ctx.awaited]])


class StepAdded(Before):
    @step
    async def second(self, ctx: MachineContext[int]) -> Outcome:
        return Await("on", self.third, ctx.state)

    @step
    async def third(self, ctx: MachineContext[int]) -> Outcome:
        return Done(ctx.attempt)


class OtherState(Machine[list[str]]):
    @step(initial=True)
    async def first(self, ctx: MachineContext[list[str]]) -> Outcome:
        return Done()

    @step
    async def second(self, ctx: MachineContext[list[str]]) -> Outcome:
        return Done()


class StepGone(Machine[int]):
    @step(initial=True)
    async def first(self, ctx: MachineContext[int]) -> Outcome:
        return Done()


@pytest.mark.parametrize(
    ("deployed", "message"),
    [
        (OtherState, r"stored JSON does not fit list\[str\] at \$"),
        (StepGone, "Order version 1 has no step 'second' \\(any more\\)"),
    ],
)
async def test_what_today_s_code_cannot_read_is_stranded_and_nothing_is_lost(
    rig: Rig, deployed: type[Machine[Any]], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bad input: loud, with a remedy; the worker goes on, and the right code resumes it with the same signals."""
    handle = await rig.app.machine(name="Order")(Before).start(5)
    await rig.run()
    await handle.signal("go", "kept")
    wrong = await redeployed(rig, deployed)
    try:
        await wrong.run()
    finally:
        await wrong.close()
    with pytest.raises(ExecutionStrandedError, match=message) as caught:
        await handle.result()
    assert str(caught.value).count("is stranded") == 1, "and what to do is said once"
    assert f"{handle.label} is stranded: " in caplog.text
    assert await rig.run() == 0
    await handle.resume()
    await rig.run()
    assert await handle.result() == [5, ["kept"]]


async def test_a_step_that_an_old_worker_does_not_know_is_tried_by_a_new_one(rig: Rig) -> None:
    """B17, in a rolling deploy: nobody has to resume it, and the old worker has used up no attempt of the step."""
    handle = await rig.app.machine(name="Order")(Before).start(5)
    await rig.run()
    new = await redeployed(rig, StepAdded)
    try:
        await handle.signal("go")
        await new.run()
        await handle.signal("on")
        await rig.run()
        assert (await rig.view(handle)).status is Status.STRANDED
        for app, status in ((rig.app, Status.STRANDED), (new.app, Status.RUNNABLE)):
            (sweep,) = [loop for loop in (await app.make_worker())._services if loop.name == "stranded"]
            await sweep.run_once()
            assert (await rig.view(handle)).status is status
        await new.run()
        assert await handle.result() == 0
    finally:
        await new.close()
