"""`app.sync`: batches from programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, RetryPolicy, Status
from holdfast.core.errors import ExecutionCancelledError


async def work(app: App) -> None:
    worker = await app.make_worker()
    await worker.open()
    await worker.run_until_idle()
    await worker.stop()


def test_a_batch_is_started_followed_and_tried_again_without_asyncio(tmp_path: Path) -> None:
    app = App("test", str(tmp_path / "ledger.db"))
    broken = True

    @app.batch(name="double", results=True, retry=RetryPolicy(max_attempts=1))
    def double(number: int) -> int:
        if broken and number == 3:
            raise ValueError("no")
        return 2 * number

    sync = app.sync
    run = sync.start(double.options(key="k"), range(6))
    sync.run(work(app))
    assert run.result(timeout=10).failed == 1
    assert [item.value for item in run.committed(2)] == [4, None, 8, 10]
    first = next(run.committed())
    assert (first.seq, first.value) == (0, 0)
    assert [(item.seq, item.error) for item in run.failed()] == [(3, "ValueError: no")]
    broken = False
    again = run.retry_failed()
    sync.run(work(app))
    assert [item.value for item in again.committed()] == [6]
    assert sync.batch_run("double", key="k").status().status is Status.DONE
    asyncio.run(app.close())


def test_an_endless_source_is_fed_and_closed_without_asyncio(tmp_path: Path) -> None:
    app = App("test", str(tmp_path / "ledger.db"))

    @app.batch(name="count", window=20, chunk=5)
    async def count(number: int) -> None: ...

    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    sync = app.sync
    run = sync.start(count, endless())
    assert run.status().taken == 20
    run.pause()
    run.resume()
    assert run.close_intake() == 20
    run.fed()
    sync.run(work(app))
    assert run.result().succeeded == 20
    other = sync.start(count, [1, 2])
    other.cancel()
    sync.run(work(app))
    with pytest.raises(ExecutionCancelledError):
        other.result()
    asyncio.run(app.close())
