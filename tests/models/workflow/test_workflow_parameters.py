"""Every way in which a function may take its input: by position, by keyword alone, before and behind resources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import App, Context, RetryPolicy, resource
from holdfast.core.errors import DefinitionError, ExecutionStrandedError, InvalidArgumentError
from holdfast.engine.upkeep import StrandedSweep
from holdfast.models.workflow.task import Effects
from tests.models.workflow.kit import Rig

if TYPE_CHECKING:
    import asyncpg

ONCE = RetryPolicy(max_attempts=1)


class Pool:
    name = "pool"


def test_a_method_is_refused_where_it_is_declared() -> None:
    """It was taken for a function with one parameter more, and every call of it failed for want of the last."""
    app = App("methods", store="never.db")
    with pytest.raises(DefinitionError, match=r"Shop\.pack is a method, and no process but this one has its 'self'"):

        class Shop:
            @app.task
            async def pack(self, order: int) -> int:
                return order

    with pytest.raises(DefinitionError, match=r"Depot\.ship is a method"):

        class Depot:
            @app.workflow  # type: ignore[arg-type]
            async def ship(self, ctx: Context) -> None: ...

    class Packer:
        @staticmethod
        @app.task
        def pack(order: int) -> int:
            return order

    assert Packer.pack.signature.names == ("order",)


@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_parameters_that_are_given_by_keyword_alone(rig: Rig, queue: str | None) -> None:
    @rig.app.task(queue=queue, retry=ONCE)
    async def add(first: int, *, second: int, third: int = 3) -> list[int]:
        return [first, second, third]

    @rig.app.task(queue=queue, retry=ONCE)
    def subtract(*, first: int, second: int = 1) -> int:
        return first - second

    @rig.app.workflow
    async def child(ctx: Context, /, *, number: int) -> int:
        return number

    @rig.app.workflow
    async def work(ctx: Context, first: int, /, second: int, *, third: int) -> list[Any]:
        return [await add(first, second=second), await subtract(first=third), await child(number=8), third]

    await rig.make_worker(warm_most=0)
    handle = await work.start(1, 2, third=4)
    assert await rig.result(handle) == [[1, 2, 3], 3, 8, 4]
    with pytest.raises(InvalidArgumentError, match="third"):
        await work.start(1, 2)  # type: ignore[call-arg]


@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_a_keyword_without_a_default_may_follow_one_that_has_one(rig: Rig, queue: str | None) -> None:
    @rig.app.task(queue=queue, retry=ONCE)
    async def add(first: int = 1, *, second: int = 2, third: int) -> list[int]:
        return [first, second, third]

    @rig.app.workflow
    async def work(ctx: Context, first: int = 1, *, second: int) -> list[Any]:
        return [await add(third=5), await add(first, third=second), await add(4, second=5, third=6)]

    await rig.make_worker(warm_most=0)
    assert await rig.result(await work.start(second=8)) == [[1, 2, 5], [1, 2, 8], [4, 5, 6]]
    with pytest.raises(InvalidArgumentError, match="second"):
        await work.start(1)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match="position"):
        await work.start(1, 2)  # type: ignore[call-arg]


def test_a_context_by_keyword_alone_is_refused() -> None:
    async def work(*, ctx: Context) -> None: ...

    untyped: Any = App("refused", store="unused.db")
    with pytest.raises(DefinitionError, match="'ctx' by position"):
        untyped.workflow(work)


@pytest.mark.parametrize("place", ["last", "between", "keyword"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_resource_may_stand_anywhere(rig: Rig, place: str, is_async: bool) -> None:
    async def last(first: int, second: int = 2, pool: Pool = resource()) -> list[Any]:  # noqa: B008
        return [first, second, pool.name]

    async def between(first: int, pool: Pool = resource(), second: int = 2) -> list[Any]:  # noqa: B008
        return [first, second, pool.name]

    async def keyword(first: int, *, pool: Pool = resource(), second: int = 2) -> list[Any]:  # noqa: B008
        return [first, second, pool.name]

    def plain_last(first: int, second: int = 2, pool: Pool = resource()) -> list[Any]:  # noqa: B008
        return [first, second, pool.name]

    def plain_between(first: int, pool: Pool = resource(), second: int = 2) -> list[Any]:  # noqa: B008
        return [first, second, pool.name]

    def plain_keyword(first: int, *, pool: Pool = resource(), second: int = 2) -> list[Any]:  # noqa: B008
        return [first, second, pool.name]

    chosen: Any = locals()[place if is_async else f"plain_{place}"]
    task = rig.app.task(retry=ONCE)(chosen)

    @rig.app.lifespan
    async def pools() -> AsyncIterator[Pool]:
        yield Pool()

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        return [await task(1), await task(1, second=5)]

    assert await rig.result(await work.start()) == [[1, 2, "pool"], [1, 5, "pool"]]


@pytest.mark.parametrize("effects", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
async def test_a_call_without_its_resource_strands_before_it_begins(rig: Rig, effects: Effects, beside: bool) -> None:
    """A worker knows what the tasks of its app ask for when it starts, and not what another app's do."""

    @rig.another_app().task(effects=effects, retry=ONCE)
    async def load(pool: Pool = resource()) -> str:  # noqa: B008
        return pool.name

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            return await load() if not beside else (await ctx.all(load(), load()))[1]
        except Exception:
            return "caught"

    handle = await work.start()
    with pytest.raises(ExecutionStrandedError, match="load asks for a Pool, but no lifespan of this app yields one"):
        await rig.result(handle)

    await _mend(rig)
    assert await rig.result(handle) == "pool"


@pytest.mark.parametrize("beside", [False, True], ids=["before", "beside"])
async def test_what_was_done_before_a_call_without_its_resource_is_not_done_again(rig: Rig, beside: bool) -> None:
    paid, begun, let_end = [], asyncio.Event(), asyncio.Event()

    @rig.app.task(effects="at_most_once")
    async def pay() -> str:
        paid.append(1)
        if beside:
            begun.set()
            await let_end.wait()
        return "paid"

    @rig.another_app().task
    async def load(pool: Pool = resource()) -> str:  # noqa: B008
        return pool.name

    @rig.app.task
    async def see() -> None:
        await begun.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> list[str]:
        if not beside:
            return [await pay(), await load()]
        async with ctx.join_set() as calls:
            promises = [calls.submit(pay())]
            await see()
            let_end.set()
            promises.append(calls.submit(load()))
            return await ctx.all(*promises)

    handle = await work.start()
    with pytest.raises(ExecutionStrandedError, match="load asks for a Pool"):
        await rig.result(handle)

    await _mend(rig)
    assert await rig.result(handle) == ["paid", "pool"]
    assert paid == [1]


def test_what_is_no_function_of_one_answer_is_refused() -> None:
    class Adder:
        def __call__(self, number: int) -> int:
            return number

    def many() -> Iterator[int]:
        yield 1

    async def many_async() -> AsyncIterator[int]:
        yield 1

    untyped: Any = App("refused", store="unused.db")
    for bad in (Adder(), many, many_async):
        with pytest.raises(DefinitionError, match="takes a function"):
            untyped.task(name="bad")(bad)


def with_pool(number: int, pool: Pool = resource()) -> int:  # noqa: B008
    return number


def test_a_process_has_no_resources_of_its_worker() -> None:
    with pytest.raises(DefinitionError, match="in another process, where"):
        App("refused", store="unused.db").task(executor="process")(with_pool)


def test_what_stands_before_the_input_is_annotated_for_type_checkers_alone() -> None:
    """asyncpg's connection is a generic class to type checkers, and none when it runs."""
    app = App("checked", store="unused.db")

    @app.transaction
    async def book(connection: asyncpg.Connection[Any], number: int) -> str:
        return str(number)

    @app.flow("booking").activity(transaction=True)
    async def enter(connection: asyncpg.Connection[Any], number: int) -> str:
        return str(number)

    assert book.signature.annotations == {"number": int}
    with pytest.raises(DefinitionError, match=r"annotations of bad cannot be read.*import the names"):

        @app.task(name="bad")
        async def bad(connection: asyncpg.Connection[Any]) -> None: ...


async def _mend(rig: Rig) -> None:
    """Another worker of the app yields what was missing, and the run goes on there."""

    @rig.app.lifespan
    async def pools() -> AsyncIterator[Pool]:
        yield Pool()

    await rig.stop(rig.workers[0])
    await StrandedSweep(rig.stores.store, ["default"], rig.app._functions.workflows, rig.app._release()).run_once()
