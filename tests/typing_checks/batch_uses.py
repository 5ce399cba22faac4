"""How batches are used, for the type checker: `test_typing` runs it over this. Nothing here is executed.

Every `type: ignore` marks a mistake that the types must catch; one that caught nothing would be an error itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_type

from holdfast import App, Batch, Context, RetryPolicy, Skip, resource
from holdfast.models.batch.definition import BatchResult
from holdfast.models.batch.items import BatchItem
from holdfast.models.batch.run import BatchRun
from holdfast.models.batch.status import BatchStatus
from holdfast.sync import SyncBatchRun

app = App("images", store="images.db")


class Pool: ...


@app.batch(retry=RetryPolicy(max_attempts=3, retry_on=(IOError,)), lease=30, concurrency=64)
async def resize(image: Path) -> str:
    if not image.name:
        raise Skip("nothing")
    return image.name


@app.batch
def measure(text: str) -> int:
    return len(text)


@app.batch(results=True)
async def with_pool(number: int, pool: Pool = resource()) -> float:  # noqa: B008
    return number / 2


assert_type(resize, Batch[Path, str])
assert_type(measure, Batch[str, int])
assert_type(with_pool, Batch[int, float])


async def words() -> AsyncIterator[str]:
    yield "word"


async def use() -> None:
    run = await resize.options(key="nightly").start([Path("a"), Path("b")])
    assert_type(run, BatchRun[str])
    assert_type(await run.status(), BatchStatus)
    assert_type(await run.result(timeout=5), BatchResult)
    async for item in run.committed(7):
        assert_type(item, BatchItem[str])
        assert_type(item.value, str | None)
    assert_type(await run.failed(), list[BatchItem[str]])
    assert_type(await run.retry_failed(), BatchRun[str])
    await resize.start(Path("paths.txt"))
    await measure.start(words())
    await measure.start([1, 2])  # type: ignore[list-item]
    await resize.start(7)  # type: ignore[arg-type]
    assert_type(await app.run(measure, ["a"]), BatchResult)


def use_blocking() -> None:
    run = app.sync.start(resize.options(key="nightly"), [Path("a")])
    assert_type(run, SyncBatchRun[str])
    assert_type(app.sync.start(measure, Path("words.txt")), SyncBatchRun[int])
    assert_type(run.result(), BatchResult)
    for item in run.committed(7):
        assert_type(item, BatchItem[str])
    app.sync.start(measure, [1])  # type: ignore[misc]


@app.workflow
async def nightly(ctx: Context, images: list[Path]) -> int:
    result = await resize(images)
    assert_type(result, BatchResult)
    assert_type(await ctx.invoke(measure, ["a"]), BatchResult)
    await measure([1])  # type: ignore[list-item]
    return result.succeeded
