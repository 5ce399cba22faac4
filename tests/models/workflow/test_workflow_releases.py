"""Two releases of a program on one ledger: what one of them stranded, the other tries by itself (ruling B17)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import App, Context, Done, Machine, MachineContext, Outcome, Status, step
from holdfast.engine.upkeep import StrandedSweep
from tests.models.workflow.kit import Rig


@pytest.mark.parametrize("told", [True, False])
async def test_a_release_that_differs_in_a_helper_alone_is_told_by_its_name(rig: Rig, told: bool) -> None:
    """What a body asks for may be decided where no definition is."""

    def declare(target: App, hours: int) -> Any:
        class Helper:
            def wait(self) -> int:
                return hours

        helper = Helper()

        @target.workflow(name="work")
        async def work(ctx: Context) -> int:
            await ctx.signal(f"after {helper.wait()}")
            return 7

        return work

    old, new = [rig.another_app(release=name if told else None) for name in ("old", "new")]
    work = declare(old, 1)
    declare(new, 2)
    handle = await work.start()
    await (await rig.make_worker(old)).run_until_idle()
    await handle.signal("after 1")
    await (await rig.make_worker(new)).run_until_idle()
    assert await rig.status(handle) is Status.STRANDED
    await StrandedSweep(rig.stores.store, ["default"], [work.handler], old._release()).run_once()
    await (await rig.make_worker(old)).run_until_idle()
    assert await rig.status(handle) is (Status.DONE if told else Status.STRANDED)


@pytest.mark.parametrize("change", ["name", "result", "machine"])
async def test_a_release_that_differs_in_what_a_body_calls_tries_what_was_stranded(rig: Rig, change: str) -> None:
    """A bad deploy that is rolled back: the code of the body was the same all the time."""

    def declare(target: App, *, is_new: bool) -> Any:
        async def book() -> Any:
            return 7

        book.__annotations__["return"] = str if is_new and change == "result" else int
        task = target.task(name="booking" if is_new and change == "name" else "book")(book)

        item = msgspec.defstruct("Item", [("size" if is_new and change == "machine" else "weight", int)])

        @target.machine(name="parcel")
        class Parcel(Machine[item]):  # type: ignore[valid-type]
            @step(initial=True)
            async def only(self, ctx: MachineContext[Any]) -> Outcome:
                return Done()

        @target.workflow(name="work")
        async def work(ctx: Context) -> int:
            booked: int = await task()
            await ctx.invoke(Parcel, item(booked))
            await ctx.signal("go")
            return booked

        return work

    work = declare(rig.app, is_new=False)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    assert declare(new_app, is_new=True).digest == work.digest
    await handle.signal("go")
    await (await rig.make_worker(new_app)).run_until_idle()
    assert await rig.status(handle) is Status.STRANDED
    await StrandedSweep(rig.stores.store, ["default"], [work.handler], rig.app._release()).run_once()
    await rig.run()
    assert await handle.result(timeout=0) == 7
