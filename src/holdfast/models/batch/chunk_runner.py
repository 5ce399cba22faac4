"""The runner of chunks: one pool of lanes a batch, shared by all chunks of it that this worker holds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from holdfast.engine.lifespan import Resources
from holdfast.engine.runner import Engine
from holdfast.models.batch.chunk_run import ChunkRun
from holdfast.models.batch.definition import CHUNK_KIND, BatchRegistry
from holdfast.models.batch.pool import Pool
from holdfast.store.values import ExecutionClaim


class ChunkRunner:
    """Implements `engine.runner.Runner` for the chunks of every batch of one app."""

    kind = CHUNK_KIND

    def __init__(self, registry: BatchRegistry) -> None:
        self._registry = registry
        self._pools: dict[int, Pool] = {}
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def handlers(self) -> Collection[int]:
        return self._registry.by_chunk_handler.keys()

    def check(self, resources: Resources) -> None:
        for batch in self._registry.by_chunk_handler.values():
            resources.given(batch.resources, by=batch.name)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    async def run(self, claim: ExecutionClaim, engine: Engine) -> None:
        batch = self._registry.by_chunk_handler[claim.handler]
        pool = self._pools.get(claim.handler)
        if pool is None:
            pool = self._pools[claim.handler] = Pool(batch)
        await ChunkRun(batch, pool, claim, engine, self._background).go()
