"""Walks through the sizes of a dimension on one store; every size is measured right after the smallest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import growth_work as work
from benchmarks.environment import store_urls
from benchmarks.growth_load import fill
from benchmarks.growth_plan import Dimension, Measure
from benchmarks.peers.environments import reason
from benchmarks.peers.running import Log

ONE_SECONDS = 300


class Growth:
    """Runs one dimension on one store and writes down every cost as it is found."""

    def __init__(self, log: Log, rounds: int, quick: bool) -> None:
        self._log = log
        self._rounds = rounds
        self._quick = quick
        self.failures: dict[str, str] = {}

    def sizes(self, dimension: Dimension) -> Sequence[int]:
        return dimension.quick_sizes if self._quick else dimension.sizes

    async def run(self, name: str, dimension: Dimension, store: str) -> None:
        walk = self._filled if dimension.filled else self._fresh
        try:
            with store_urls(store) as urls:
                await walk(name, dimension, store, urls)
        except Exception as error:  # a ledger that could not be made or filled: the next dimension goes on
            self.failures[f"{name} on {store}"] = reason(f"{type(error).__name__}: {error}")
            print(self.failures[f"{name} on {store}"], flush=True)

    async def _filled(self, name: str, dimension: Dimension, store: str, urls: Iterator[str]) -> None:
        """A small ledger stays beside the one that is filled further and further."""
        small, large = next(urls), next(urls)
        first, *later = self.sizes(dimension)
        wanted = [(size, number) for size in later for number in range(self._rounds)]
        missing = [size for size, number in wanted if self._lacks(name, dimension, store, size, number)]
        if not missing:
            return
        for url in (small, large):
            await work.one_finished(url)
        await fill(small, first)
        for size in later:
            if size > max(missing):
                break
            await fill(large, size)
            await self._warm(dimension, [(small, first), (large, size)])
            for number in range(self._rounds):
                for key, measure in dimension.measures.items():
                    await self._pair(f"{name}/{store}/{key}/{size}/{number}", measure, (small, first), (large, size))

    async def _warm(self, dimension: Dimension, ledgers: Sequence[tuple[str, int]]) -> None:
        """Everything once, uncounted: the first write to a page after a checkpoint costs PostgreSQL a whole page."""
        for measure in dimension.measures.values():
            for url, size in ledgers:
                with contextlib.suppress(Exception):  # what fails here fails again where it is counted, and is named
                    async with asyncio.timeout(ONE_SECONDS):
                        await measure.cost(url, size)

    async def _fresh(self, name: str, dimension: Dimension, store: str, urls: Iterator[str]) -> None:
        """Every cost on an empty ledger of its own."""
        first, *later = self.sizes(dimension)
        for number in range(self._rounds):
            for key, measure in dimension.measures.items():
                for size in later:
                    place = f"{name}/{store}/{key}/{size}/{number}"
                    if place not in self._log.records:
                        await self._pair(place, measure, (next(urls), first), (next(urls), size))

    def _lacks(self, name: str, dimension: Dimension, store: str, size: int, number: int) -> bool:
        places = (f"{name}/{store}/{key}/{size}/{number}" for key in dimension.measures)
        return any(place not in self._log.records for place in places)

    async def _pair(self, key: str, measure: Measure, base: tuple[str, int], grown: tuple[str, int]) -> None:
        """The cost at the smallest size and at this one, one right after the other."""
        if key in self._log.records:
            return
        print(f"{key} ...", end=" ", flush=True)
        dimension, store, name, size, number = key.split("/")
        record: dict[str, Any] = {"key": key, "dimension": dimension, "store": store, "measure": name}
        record |= {"size": int(size), "round": int(number)}
        try:
            async with asyncio.timeout(ONE_SECONDS):
                record["base"] = await measure.cost(*base)
                record["cost"] = await measure.cost(*grown)
        except Exception as error:  # whatever it is, the other measures go on, and the table names it
            record["failed"] = reason(f"{type(error).__name__}: {error}")
        self._log.add(record)
        found = "" if "failed" in record else f"{record['cost'] / record['base']:.2f} x {record['base'] * 1e3:.3g} ms"
        print(found or record["failed"], flush=True)
