"""What workers and starters do all day: insert, pick, flush, deliver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING

from holdfast.core.clock import to_us
from holdfast.core.crashpoints import reach
from holdfast.core.errors import StoreError, StoreUnavailableError
from holdfast.core.identity import origin_bytes
from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import child_was_retried, replaced_is_gone, was_retried
from holdfast.store.behind import segment_beside
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit
from holdfast.store.flows import MESSAGE
from holdfast.store.postgres.batch_effects import apply_batch_effects, has_batch_effects
from holdfast.store.postgres.collating import Collation
from holdfast.store.postgres.columns import (
    execution_columns,
    insertion_order,
    is_plain,
    plain_arguments,
    signal_columns,
)
from holdfast.store.postgres.flush import Call, advance_of, build_call, kept_arguments, read_answer
from holdfast.store.postgres.front import THE_FIRST
from holdfast.store.postgres.leaving import Leaving
from holdfast.store.postgres.ledger import Ledger
from holdfast.store.postgres.rows import claims_of
from holdfast.store.values import (
    Delivery,
    ExecutionClaim,
    Flushed,
    ForkedChild,
    Inserted,
    JournalCopy,
    NewExecution,
    NewSignal,
    Picked,
    QueueRoom,
    Receipt,
    Topic,
)

if TYPE_CHECKING:
    from holdfast.store.postgres.connections import Connection

INSERT_CHUNK = 5_000


def _has_ended(call: Call, flushed: Flushed) -> bool:
    """Whether something that may be waited for has ended or is stranded; a message that was acknowledged is not."""
    if call.collation is not None and call.collation.ended:
        return True
    return any(
        receipt.status is Status.STRANDED or (receipt.status in TERMINAL and commit.claim.kind != MESSAGE)
        for commit, receipt in zip(call.commits, flushed.receipts, strict=True)
    )


class Work(Ledger):
    _ahead_us = time_ns() // 1000 - monotonic_ns() // 1000  # the store's time before this process's, at the last flush

    async def insert(self, rows: Sequence[NewExecution]) -> list[Inserted]:
        if not rows:
            return []
        reach("insert.before")
        async with self._connections.any("insert executions") as connection:
            if len(rows) <= INSERT_CHUNK:
                answers = await self._insert_chunk(connection, rows)
            else:
                answers = []
                async with connection.transaction():
                    for start in range(0, len(rows), INSERT_CHUNK):
                        answers += await self._insert_chunk(connection, rows[start : start + INSERT_CHUNK])
        reach("insert.after")
        self._tell(Topic.WORK)
        return answers

    async def fork(
        self,
        row: NewExecution,
        past: JournalCopy | None,
        *,
        replaces: bytes | None = None,
        children: Sequence[ForkedChild] = (),
    ) -> Inserted:
        reach("insert.before")
        found: dict[bytes, bytes | None] = {}
        async with self._connections.any("fork an execution") as connection, connection.transaction():
            if replaces is not None:
                sources = [replaces, *(child.source for child in children)]
                held = await connection.fetch(self._sql["fork_replaced"], [*sources, *map(origin_bytes, sources)])
                found = {one["promise"]: one["successor"] for one in held}
                if replaces not in found:
                    raise replaced_is_gone(replaces)
            inserted = await self._fork(connection, row, past, replaces)
            if inserted.created and replaces is not None:
                if (successor := found[replaces]) is not None:
                    raise was_retried(replaces, successor)
                await connection.execute(self._sql["fork_successor"], row.promise, replaces, origin_bytes(replaces))
            for child in children if inserted.created else ():
                if found.get(child.source) is not None:
                    raise child_was_retried(child.source)
                await self._fork(connection, child.row, child.past, child.source)
                await connection.execute(self._sql["fork_parent"], child.row.promise, child.parent)
                own = (child.row.promise, child.source, origin_bytes(child.source))
                await connection.execute(self._sql["fork_successor"], *own)
        reach("insert.after")
        self._tell(Topic.WORK, Topic.ENDED)
        return inserted

    async def _fork(
        self, connection: Connection, row: NewExecution, past: JournalCopy | None, source: bytes | None
    ) -> Inserted:
        """With all that it takes over of the run that failed, if it is a retry of one."""
        (inserted,) = await self._insert_chunk(connection, [row])
        if inserted.created and past is not None:
            await connection.execute(self._sql["fork_journal"], row.promise, past.count, past.body)
        if inserted.created and source is not None:
            for carried in ("fork_place", "fork_step", "fork_children", "fork_signals", "fork_keys"):  # ruling E12
                await connection.execute(self._sql[carried], row.promise, source)
        return inserted

    async def _insert_chunk(
        self, connection: Connection, rows: Sequence[NewExecution], whose: str = ""
    ) -> list[Inserted]:
        answers = [Inserted(row.promise, True) for row in rows]
        order = insertion_order(rows)
        if len(rows) == 1 and is_plain(rows[0]):
            found_rows = await connection.fetch(self._sql["insert_one" + whose], *plain_arguments(rows[0]))
        else:
            found_rows = await connection.fetch(self._sql["insert" + whose], *execution_columns(rows, order))
        for found in found_rows:
            answers[order[found["ord"] - 1]] = Inserted(
                found["promise"], False, found["collided"], found["key_conflict"]
            )
        return answers

    async def pick(self, worker: str, queues: Sequence[QueueRoom], handlers: Sequence[int], limit: int) -> Picked:
        reach("pick.before")
        async with self._connections.any("pick") as connection:
            rows = await connection.fetch(
                self._sql["pick"],
                worker,
                [queue.name for queue in queues],
                [queue.room for queue in queues],
                handlers,
                limit,
                *self._front.place(worker, queues),
            )
        reach("pick.after")
        rest = rows.pop()
        self._front.picked(worker, queues, limit, rows)
        next_due: float | None = rest["next_due"]
        if next_due == -1:
            return Picked([], worker_lost=True)
        return Picked(claims_of(rows), next_due)

    async def flush(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        if not commits:
            return Flushed([])
        now_us = monotonic_ns() // 1000 + self._ahead_us
        if len(commits) == 1:
            flushed = await self._flush_alone(worker, commits[0], now_us)
        else:
            flushed = await self._flush_together(worker, commits, now_us)
        self._ahead_us = flushed.at_us - monotonic_ns() // 1000
        return flushed

    async def _flush_alone(self, worker: str, commit: Commit, now_us: int) -> Flushed:
        segment = segment_beside(commit.claim, commit.effects, now_us)
        if segment is None:
            arguments, untold = kept_arguments(worker, commit), 0
            block = "flush_kept"
        else:
            claim, untold = commit.claim, segment.count
            fence = (
                worker,
                claim.row,
                claim.epoch,
                claim.revision,
                claim.told_revision,
                segment.first - claim.untold_events,
            )
            arguments = (*fence, segment.first, segment.count, segment.body, advance_of(commit).step)
            block = "flush_step"
        if arguments is not None:
            reach("flush.before")
            async with self._connections.flush() as connection:
                answer = await connection.fetchrow(self._sql[block], *arguments)
            assert answer is not None, f"{block} answers one row"
            has_inbox, at = answer
            if at is not None:
                reach("flush.after")
                receipt = Receipt(True, Status.EXECUTING, has_inbox=has_inbox, untold=untold)
                return Flushed([receipt], at_us=to_us(at))
        return await self._flush_rows(worker, [commit])

    async def _flush_together(self, worker: str, commits: Sequence[Commit], now_us: int) -> Flushed:
        leaving = Leaving(commits, now_us)
        if not leaving.steps or has_batch_effects(leaving.rest):
            return await self._flush_rows(worker, commits)
        call = build_call(leaving.rest) if leaving.rest else None
        if call is not None and call.is_apart:
            return await self._flush_rows(worker, commits)
        reach("flush.before")
        async with self._connections.flush() as connection:
            if call is None:
                answer = await connection.fetchrow(self._sql["leave"], worker, *leaving.arguments())
            else:
                statement = self._sql[call.block + "_beside"]
                answer = await connection.fetchrow(statement, worker, *call.arguments, *leaving.arguments())
        reach("flush.after")
        assert answer is not None, "leave answers one row"
        if call is None:
            flushed = Flushed([], at_us=to_us(answer["at"]))
        else:
            flushed = read_answer(call, answer)
            self._tell_of(call, flushed)
        woke = flushed.woke
        steps, refused = leaving.read(answer)
        if len(refused) == len(commits):  # nothing is written: an error is what it says
            return await self._flush_rows(worker, commits)
        if refused:
            written = await self._flush_refused(worker, [leaving.steps[at] for at in refused])
            woke = woke or written.woke
            for at, receipt in zip(refused, written.receipts, strict=True):
                steps[at] = receipt
        return Flushed(leaving.in_order(steps, flushed.receipts), woke, flushed.at_us)

    async def _flush_refused(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        """Lost, paused, cancelled, or in the hands of another for a moment: that is sorted out by writing the rows."""
        try:
            return await self._flush_rows(worker, commits)
        except StoreUnavailableError:
            raise
        except Exception as error:
            # The others of its flush are committed: who took it for one that was not would write them again.
            raise StoreUnavailableError(
                f"a flush was written but for {len(commits)} of its commits: {error}"
            ) from error

    async def _flush_rows(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        """Every commit writes its row."""
        call = build_call(commits)
        reach("flush.before")
        async with self._connections.flush() as connection:
            if has_batch_effects(commits):
                async with connection.transaction():
                    flushed = await self._flush_call(connection, worker, call)
                    await apply_batch_effects(connection, self._sql, commits, flushed.receipts)
            else:
                flushed = await self._flush_call(connection, worker, call)
        reach("flush.after")
        self._tell_of(call, flushed)
        return flushed

    def _tell_of(self, call: Call, flushed: Flushed) -> None:
        if flushed.woke:
            self._tell(Topic.WORK)
        if _has_ended(call, flushed):
            self._tell(Topic.ENDED)
        if call.publishes:
            self._tell(Topic.PUBLISHED)

    async def warm(self) -> None:
        # Each connection compiles and plans a routine at its first call. These look for rows that there cannot be.
        if self._address.pooled:  # the next call may get another session
            return
        if not self._connections.has_flushed:  # else commits are under way, and would wait for this
            await self._warm_flush()
            await asyncio.gather(*(self._warm_flushes() for _ in range(self._connections.flushes)))
        if self._connections.has_idle:  # else something is at work already, and one more would be in its way
            await self._warm_picking()

    async def _warm_flush(self) -> None:
        async with self._connections.only_flush() as connection:
            # One request, of which the reply may have to wait for a long replay.
            await connection.execute(self._sql["warm_flush"])

    async def _warm_flushes(self) -> None:
        """What many runs commit together; as often at once as there are connections for it."""
        async with self._connections.flush() as connection:
            await connection.execute(self._sql["warm_flushes"])

    async def _warm_picking(self) -> None:
        async with self._connections.any("pick") as connection:
            await connection.fetch(self._sql["pick"], "", [""], [1], [], 0, *THE_FIRST)
            await connection.fetch(self._sql["journal_of"], b"")
            await connection.fetch(self._sql["insert_one"], b"", "", "null", *("",) * 3, 0, 0, *("",) * 2, 0, "", False)

    async def _flush_call(self, connection: Connection, worker: str, call: Call) -> Flushed:
        if call.is_apart and call.collation is not None:
            async with connection.transaction():
                return await self._flush_apart(connection, worker, call, call.collation)
        answer = await connection.fetchrow(self._sql[call.block], worker, *call.arguments)
        assert answer is not None, f"{call.block} answers one row"
        return read_answer(call, answer)

    async def _flush_apart(self, connection: Connection, worker: str, call: Call, collation: Collation) -> Flushed:
        """Steps of flows beside commits that are not plain: two calls in one transaction, all rows locked first."""
        await connection.execute(self._sql["flow_lock"], collation.ids, *collation.locks())
        answer = await connection.fetchrow(self._sql["flush"], worker, *call.arguments)
        assert answer is not None, "flush answers one row"
        flushed = read_answer(call, answer)
        collated = await connection.fetchrow(
            self._sql["collate"], collation.ids, answer["fenced"] or (), *collation.arguments()
        )
        assert collated is not None, "collate answers one row"
        collation.read(collated, call.order, flushed.receipts)
        return Flushed(flushed.receipts, flushed.woke or collated["woke"], flushed.at_us)

    def flush_now(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        raise StoreError(
            f"{self.url} cannot commit on the calling thread, {len(commits)} commits of worker {worker} were not "
            "written: await flush() where commits_inline is false"
        )

    def step_now(self, worker: str, claim: ExecutionClaim, advance: AdvanceExecution, segment: AppendJournal) -> int:
        return 0  # a server is waited for beside the loop

    async def reclaim(self, worker: str, claims: Sequence[ExecutionClaim]) -> list[ExecutionClaim | None]:
        reach("lease.before")
        async with self._connections.any("reclaim") as connection:
            rows = await connection.fetch(
                self._sql["reclaim"], worker, [claim.row for claim in claims], [claim.epoch for claim in claims]
            )
        reach("lease.after")
        found = {claim.row: claim for claim in claims_of(rows)}
        return [found.get(claim.row) for claim in claims]

    async def disown(self, worker: str, keep: Sequence[int]) -> int:
        reach("release.before")
        async with self._connections.any("disown claims") as connection:
            released: int = await connection.fetchval(self._sql["disown"], worker, keep)
        reach("release.after")
        if released:
            self._tell(Topic.WORK)
        return released

    async def release(self, worker: str, claims: Sequence[ExecutionClaim]) -> int:
        reach("release.before")
        async with self._connections.any("release claims") as connection:
            released: int = await connection.fetchval(
                self._sql["release"], worker, [claim.row for claim in claims], [claim.epoch for claim in claims]
            )
        reach("release.after")
        if released:
            self._tell(Topic.WORK)
        return released

    async def stirred(self, worker: str, rows: Sequence[int]) -> list[int]:
        async with self._connections.any("look at held executions") as connection:
            return [row[0] for row in await connection.fetch(self._sql["stirred"], worker, rows)]

    async def waiting_priority(self, queues: Sequence[str], handlers: Sequence[int]) -> int | None:
        async with self._connections.any("look for waiting work") as connection:
            priority: int | None = await connection.fetchval(self._sql["waiting_priority"], queues, handlers)
            return priority

    async def deliver(self, signals: Sequence[NewSignal]) -> list[Delivery]:
        if not signals:
            return []
        reach("deliver.before")
        async with self._connections.any("deliver signals") as connection:
            columns = signal_columns(signals)
            if len(signals) == 1:
                answer = await connection.fetchrow(self._sql["deliver_one"], *(column[0] for column in columns))
            else:
                answer = await connection.fetchrow(self._sql["deliver"], *columns)
        reach("deliver.after")
        assert answer is not None, "deliver answers one row"
        words, woke = answer
        if woke:
            self._tell(Topic.WORK)
        return [Delivery(word) for word in ([words] if len(signals) == 1 else words)]
