"""A worker by hand: it picks and commits exactly what a test tells it to.

- `row`, `child_rows`: new executions with sensible columns.
- `go`, `keep`, `replay`, `park`, `wait_children`, `done`, `fail`: the outcomes of the seed's section 3 as effects.
- `Hand`: a registered worker with `pick`, `take`, `commit` and `flush`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit, Effect
from holdfast.store.values import (
    ExecutionClaim,
    ExecutionView,
    Flushed,
    Inserted,
    NewExecution,
    Picked,
    QueueRoom,
    Receipt,
)

KIND = "machine"
NAME = "Order"
HANDLER = handler_of(KIND, NAME, 1)
LEASE_SECONDS = 30.0
ERROR = '{"type":"ValueError","message":"no"}'


def promise_of(key: str, name: str = NAME) -> bytes:
    """The promise of the execution that `row(key)` starts."""
    return PromiseId.of(name, key).to_bytes()


def row(key: str, **columns: Any) -> NewExecution:
    """A new execution of one definition; `columns` override."""
    name = columns.get("name", NAME)
    given: dict[str, Any] = {
        "promise": promise_of(key, name),
        "kind": KIND,
        "name": name,
        "version": 1,
        "handler": handler_of(columns.get("kind", KIND), name, columns.get("version", 1)),
        "step": "start",
        "state": "{}",
        "input_hash": "0",
    }
    return NewExecution(**(given | columns))


def child_rows(claim: ExecutionClaim, count: int, **columns: Any) -> tuple[NewExecution, ...]:
    """The next `count` children of the claimed execution."""
    parent = PromiseId.from_bytes(claim.promise)
    numbers = range(claim.next_child, claim.next_child + count)
    return tuple(row("child", **({"promise": parent.child(n).to_bytes()} | columns)) for n in numbers)


# ---------------------------------------------------------------------- outcomes (seed section 3)


def go(step: str = "next", state: str | None = None, *, delay: float = 0.0) -> AdvanceExecution:
    """`:next`, back to the queue."""
    return AdvanceExecution(status=Status.RUNNABLE, step=step, state=state, delay=delay)


def keep(step: str = "next", state: str | None = None) -> AdvanceExecution:
    """`:next` under a kept lease (ruling E11)."""
    return AdvanceExecution(status=Status.EXECUTING, step=step, state=state)


def replay(claim: ExecutionClaim, delay: float = 0.0, error: str | None = None) -> AdvanceExecution:
    """`:replay`: the same step again, `attempt + 1`; nothing else moves (ruling E4)."""
    return AdvanceExecution(status=Status.RUNNABLE, attempt=claim.attempt + 1, delay=delay, progress=False, error=error)


def park(
    *names: str, step: str = "woken", ignore: Sequence[int] = (), wake_after: float | None = None
) -> AdvanceExecution:
    """`:await` a set of names."""
    return AdvanceExecution(
        status=Status.AWAITING_SIGNAL, step=step, awaits=names, ignore=tuple(ignore), wake_after=wake_after
    )


def wait_children(step: str = "joined", wake_after: float | None = None) -> AdvanceExecution:
    """`:schedule_childs`, together with `SpawnExecutions`."""
    return AdvanceExecution(status=Status.AWAITING_CHILDREN, step=step, wake_after=wake_after)


def done(result: str = "null") -> AdvanceExecution:
    return AdvanceExecution(status=Status.DONE, result=result)


def fail(error: str = ERROR) -> AdvanceExecution:
    """`:stop`."""
    return AdvanceExecution(status=Status.FAILED, error=error)


def strand(error: str = ERROR) -> AdvanceExecution:
    return AdvanceExecution(status=Status.STRANDED, error=error)


# ---------------------------------------------------------------------- the worker


class Hand:
    """Worker `name` on `store`. Call `start` before the first pick."""

    def __init__(self, store: Store, name: str = "w1", lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self.name = name
        self.lease_seconds = lease_seconds
        self._flushes = 0

    async def start(self) -> Hand:
        await self.store.register_worker(
            self.name, host="test", pid=1, queues=["default"], lease_seconds=self.lease_seconds
        )
        return self

    async def beat(self) -> bool:
        return await self.store.beat(self.name, self.lease_seconds)

    async def insert(self, *rows: NewExecution) -> list[Inserted]:
        return await self.store.insert(rows)

    async def ask(
        self,
        limit: int = 10,
        *,
        queues: Sequence[str] = ("default",),
        handlers: Sequence[int] = (HANDLER,),
        room: int | None = None,
    ) -> Picked:
        """One `pick`, with room for `limit` rows in each queue unless told otherwise."""
        rooms = [QueueRoom(queue, limit if room is None else room) for queue in queues]
        return await self.store.pick(self.name, rooms, handlers, limit)

    async def pick(
        self, limit: int = 10, *, queues: Sequence[str] = ("default",), handlers: Sequence[int] = (HANDLER,)
    ) -> list[ExecutionClaim]:
        picked = await self.ask(limit, queues=queues, handlers=handlers)
        assert not picked.worker_lost, f"worker {self.name} is not registered"
        return picked.claims

    async def take(self, *rows: NewExecution, queues: Sequence[str] = ("default",)) -> ExecutionClaim:
        """Insert `rows`, then pick the one claim there is to have."""
        if rows:
            await self.store.insert(rows)
        claims = await self.pick(2, queues=queues)
        assert len(claims) == 1, f"expected one claim, got {len(claims)}"
        return claims[0]

    async def flush(self, *commits: Commit) -> Flushed:
        """Each way that the store allows, in turn, for all are one contract."""
        self._flushes += 1
        if len(commits) == 1 and self._flushes % 4 > 1 and (at_us := self._step_now(commits[0])):
            return Flushed([Receipt(True, Status.EXECUTING, at_us=at_us)], at_us=at_us)
        if self._flushes % 2 and self.store.commits_inline:
            flushed = self.store.flush_now(self.name, commits)
        else:
            flushed = await self.store.flush(self.name, commits)
        for commit, receipt in zip(commits, flushed.receipts, strict=True):
            if receipt.applied:
                receipt.at_us = flushed.at_us
                commit.claim.went_on(commit.effects[0], receipt)  # type: ignore[arg-type]  # see `Commit`
        return flushed

    def _step_now(self, commit: Commit) -> int:
        if len(commit.effects) != 2 or not isinstance(segment := commit.effects[1], AppendJournal):
            return 0
        advance: AdvanceExecution = commit.effects[0]  # type: ignore[assignment]  # see `Commit`
        at_us = self.store.step_now(self.name, commit.claim, advance, segment)
        if at_us:
            commit.claim.stepped(segment.count, advance.step)
        return at_us

    async def commit(self, claim: ExecutionClaim, *effects: Effect) -> Receipt:
        """One commit in a flush of its own."""
        return (await self.flush(Commit(claim, effects))).receipts[0]

    async def apply(self, claim: ExecutionClaim, *effects: Effect) -> Receipt:
        """A commit that must hold."""
        receipt = await self.commit(claim, *effects)
        assert receipt.applied, f"the commit on {claim.step} was fenced"
        return receipt

    async def view(self, of: ExecutionClaim | bytes | str) -> ExecutionView:
        """An execution that must exist: by claim, promise, or the key of `row`."""
        if isinstance(of, ExecutionClaim):
            of = of.promise
        elif isinstance(of, str):
            of = promise_of(of)
        view = await self.store.get(of)
        assert view is not None, f"no execution {of.hex()}"
        return view
