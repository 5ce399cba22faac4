"""Sinks: where committed items go, in order. A plain one at least once a run, a transactional one exactly once.

A run of items is known by the seq of its first one. A plain sink is called before the commit that moves the lane: after
a crash in between it gets the same items again, or more of them, from the same first seq on. A transactional sink
writes through the store's own connection, in that commit itself.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.engine.runner import Engine
from holdfast.models.batch.definition import Batch
from holdfast.models.batch.items import BatchItem, items_of
from holdfast.models.workflow.transaction import WrongStoreError

SINK_ITEMS: Final = 1_000  # of a run that is longer the rest comes with the next call


async def read_run(engine: Engine, batch: Batch[Any, Any], promise: bytes, start: int, stop: int) -> list[Any]:
    """The items of [start, stop), with their values."""
    items: list[BatchItem[Any]] = []
    at = start
    while at < stop:
        for chunk in await engine.store.batch_chunks(promise, at, 4, "whole"):
            items += items_of(chunk, at, stop, batch.result.annotation)
            at = min(stop, chunk.stop)
    return items


async def call_sink(engine: Engine, sink: Callable[..., Any], items: Sequence[BatchItem[Any]]) -> None:
    """A plain sink: on the loop, or in a thread if it is a `def`."""
    if inspect.iscoroutinefunction(sink):
        await sink(items)
    else:
        await asyncio.get_running_loop().run_in_executor(engine.threads, sink, items)


def sink_work(engine: Engine, batch: Batch[Any, Any], items: Sequence[BatchItem[Any]]) -> Callable[[Any], Any]:
    """A transactional sink, as code to run with the connection."""
    sink = batch.sink
    assert sink is not None, "a transactional batch has a sink"
    is_async = not engine.store.commits_in_thread
    if is_async != inspect.iscoroutinefunction(sink):
        wanted = "an `async def` (it gets an asyncpg connection)" if is_async else "a `def` (sqlite3, in a thread)"
        raise WrongStoreError(f"the transactional sink of {batch.name} must be {wanted} to run on {engine.store.url}")
    return lambda connection: sink(connection, items)
