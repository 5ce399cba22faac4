"""Worker processes of `program` on one ledger, and what must be true of the ledger when all is done."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast import Handle
from holdfast.core.status import Status
from holdfast.models.options import StartOptions
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, NewSignal
from holdfast.testing.audit import all_views, audit
from holdfast.testing.processes import Process, until
from tests.simulation.program import TRANSITIONS, Chain, Parcel, Tree, Waiter

ROOT: Final = Path(__file__).parents[2]
LEASE_SECONDS: Final = 1.5


class Fleet:
    """Any number of workers; what is left of them dies with the block."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.workers: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        if kind is not None:
            print("\n".join(worker.output() for worker in self.workers))

    def start(self, *, gate: Path | None = None, url: str | None = None) -> Process:
        more = [] if gate is None else [str(gate)]
        worker = Process(
            *("-m", "tests.simulation.program", str(LEASE_SECONDS), *more),
            folder=ROOT,
            log=self._folder / f"worker-{len(self.workers)}.log",
            environment={"HOLDFAST_DATABASE": url or self._url},
        )
        self.workers.append(worker)
        return worker

    @property
    def running(self) -> list[Process]:
        return [worker for worker in self.workers if worker.is_running]

    def kill_one(self, chance: random.Random) -> None:
        """SIGKILL to any, and another in its place."""
        chance.choice(self.running).kill()
        self.start()

    async def leave(self, store: Store) -> None:
        """SIGTERM to all, once the last has begun and the dead have been reaped: each must drain and sign off."""

        async def none_but_them() -> bool:
            return {worker.pid for worker in self.running} == {worker.pid for worker in await store.workers()}

        await until(none_but_them, "all workers to register, and the dead to be reaped")
        for worker in self.running:
            assert await worker.terminate() == 0, worker.output()


async def start_all(*, chains: int, trees: int, waiters: int) -> list[Any]:
    """So many of each; the waiters are returned, for they want a signal."""
    by_number: StartOptions = {"key": lambda parcel: str(parcel.number)}
    await Chain.options(**by_number).start_many([Parcel(n) for n in range(chains)])
    await Tree.options(**by_number).start_many([Parcel(n) for n in range(trees)])
    return list(await Waiter.options(**by_number).start_many([Parcel(n) for n in range(waiters)]))


async def signal_all(store: Store, handles: Sequence[Handle[Any]]) -> None:
    """Each signal twice, as a sender does that does not know whether the first was heard."""
    for number, handle in enumerate(handles):
        signal = NewSignal(handle.id.to_bytes(), "go", str(number), f"go-{number}")
        for _ in range(2):
            await until(lambda signal=signal: _sent(store, signal), "a signal to be taken")  # type: ignore[misc]


async def _sent(store: Store, signal: NewSignal) -> bool:
    await store.deliver([signal])
    return True


async def done_count(store: Store) -> int:
    return (await store.count(ExecutionFilter(statuses=(Status.DONE,)))).get(Status.DONE, 0)


async def until_done(store: Store, count: int) -> None:
    async def enough() -> bool:
        return await done_count(store) >= count

    await until(enough, f"{count} executions to be done")


async def check_exact(store: Store, total: int) -> None:
    """All done, each transition recorded exactly once and in order, every result right, every rule kept."""
    views = await all_views(store)
    assert len(views) == total
    for view in views:
        assert view.status is Status.DONE, view
        lines = await store.history(view.promise)
        assert [(line.step, line.outcome) for line in lines] == TRANSITIONS[view.name], view
        assert [line.revision for line in lines] == list(range(1, view.revision + 1)), view
        number = json.loads(view.state)["number"]
        assert json.loads(view.result or "null") == EXPECTED[view.name](number), view
    assert await audit(store) == []


EXPECTED: Final[dict[str, Callable[[int], object]]] = {
    "Chain": lambda number: ["one", "two", "three"],
    "Leaf": lambda number: number,
    "Tree": lambda number: [0, 1, 2],
    "Waiter": lambda number: [f"[{number}]"],
}
