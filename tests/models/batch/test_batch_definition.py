"""What can be declared, and what workflows make of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import App, Batch, Context, PromiseId, RetryPolicy, TaskCancelled, resource
from holdfast.core.errors import CallNotAllowedError, ConfigurationError, DefinitionError
from holdfast.models.batch.definition import BatchResult
from tests.engine.rig import Rig
from tests.models.batch.kit import NO_RETRY, committed


class Pool:
    factor = 3


PLAIN = App("plain", store="unused.db")
POOL: Pool = resource()


async def one(number: int) -> int:
    return number


async def two(number: int, other: int) -> int:
    return number + other


async def none() -> int:
    return 0


@pytest.mark.parametrize(
    ("function", "settings", "complaint"),
    [
        (two, {}, "must take one parameter"),
        (none, {}, "must take one parameter"),
        (int, {}, "takes a function"),
        (one, {"concurrency": 0}, "concurrency of"),
        (one, {"chunk": True}, "chunk of"),
        (one, {"window": -1}, "window of"),
        (one, {"timeout": 0}, "above 0 s"),
        (one, {"lease": 0}, "above 0 s"),
        (one, {"retry": RetryPolicy(max_elapsed=5)}, "max_elapsed"),
        (one, {"retry": RetryPolicy(max_attempts=70_000)}, "16 bits"),
        (one, {"sink": 7}, "the sink of"),
        (one, {"version": 0}, "version of"),
    ],
)
def test_a_wrong_definition_is_refused_where_it_is_written(
    function: Any, settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        App("wrong", store="unused.db").batch(**settings)(function)


def test_a_name_is_declared_once_a_version() -> None:
    app = App("twice", store="unused.db")
    app.batch(one)
    app.batch(version=2)(one)
    with pytest.raises(DefinitionError, match="declared twice"):
        app.batch(one)
    assert app.find_batch("one").version == 2
    with pytest.raises(ConfigurationError, match="there is no batch 'other' here; known are: one"):
        app.find_batch("other")


def test_calling_a_batch_outside_of_a_workflow_is_explained() -> None:
    batch: Batch[int, int] = PLAIN.batch(name="called")(one)
    with pytest.raises(CallNotAllowedError, match=r"start it with `await called.start\(items\)`"):
        batch([1])


async def test_items_are_given_resources_by_type(rig: Rig) -> None:
    @rig.app.lifespan
    async def pool() -> AsyncIterator[Pool]:
        yield Pool()

    @rig.app.batch(results=True)
    async def scale(number: int, pool: Pool = POOL) -> int:
        return number * pool.factor

    run = await scale.start([1, 2])
    await rig.run()
    assert [item.value for item in await committed(run)] == [3, 6]


async def test_a_workflow_awaits_a_batch_like_a_task(rig: Rig) -> None:
    @rig.app.batch(retry=NO_RETRY)
    async def check(number: int) -> None:
        if number == 2:
            raise ValueError

    @rig.app.workflow
    async def nightly(ctx: Context, count: int) -> BatchResult:
        first = await check(list(range(count)))
        second = await ctx.invoke(check, [2])
        return BatchResult(
            total=first.total + second.total,
            succeeded=first.succeeded,
            skipped=0,
            failed=first.failed + second.failed,
            cancelled=0,
            retries=0,
        )

    handle = await nightly.start(5)
    await rig.run()
    result = await handle.result()
    assert (result.total, result.succeeded, result.failed) == (6, 4, 2)


async def test_a_cancelled_workflow_takes_its_batch_along(rig: Rig) -> None:
    @rig.app.batch
    async def work(number: int) -> None: ...

    @rig.app.workflow
    async def nightly(ctx: Context) -> str:
        try:
            await work([1, 2, 3])
        except TaskCancelled:
            return "cancelled"
        return "done"

    handle = await nightly.start()
    await rig.once()  # the workflow
    await rig.once()  # the intake of its batch
    await handle.cancel(cascade=True)
    await rig.run()
    (child,) = await (await rig.store()).children(handle.id.to_bytes())
    assert child.status == "cancelled"
    status = await rig.app.batch_run(PromiseId.from_bytes(child.promise)).status()
    assert status.cancelled == status.committed == 3
