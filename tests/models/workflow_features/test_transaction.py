"""`@app.transaction`: its writes and the record of it commit together, once; starts in the caller's transaction."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import asyncpg
import pytest

from holdfast import Context, Handle, RetryPolicy, Status
from holdfast.core import crashpoints
from holdfast.core.errors import CallNotAllowedError, ConfigurationError, ExecutionFailedError, InvalidArgumentError
from holdfast.store.base import Store
from holdfast.store.values import QueueRoom, Receipt
from holdfast.testing.faults import Borrowed
from holdfast.testing.stores import PostgresStores, SqliteStores
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.account import Account


@contextmanager
def crash_at(point: str) -> Iterator[None]:
    """The process dies there, once: what was not committed is lost."""

    def hook(reached: str) -> None:
        if reached == point:
            crashpoints.set_hook(None)
            raise RuntimeError(f"killed at {point}")

    crashpoints.set_hook(hook)
    try:
        yield
    finally:
        crashpoints.set_hook(None)


async def test_its_writes_and_its_result_are_one_commit(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    add = account.adding(rig)

    @rig.app.workflow
    async def pay(ctx: Context) -> int:
        first: int = await add(3)
        second: int = await ctx.transaction(add, 4)
        with pytest.raises(InvalidArgumentError, match=r"@app\.transaction"):
            ctx.transaction(no_transaction)
        return first + second

    @rig.app.task
    async def no_transaction() -> None: ...

    handle = await pay.start()
    assert await rig.result(handle) == 7
    assert await account.amounts() == [3, 4]
    assert "InvokeCompleted root.1 Ok(4) attempt=1" in await rig.lines(handle)
    assert (await handle.describe()).step != "sleep"  # no timer was waited for


async def test_a_failed_one_is_rolled_back_and_retried_by_its_policy(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    failures = iter([ValueError("no"), ValueError("no")])

    def fail_twice() -> None:
        for error in failures:
            raise error

    add = account.adding(rig, fail_twice, retry=RetryPolicy(max_attempts=3, initial_delay=1))

    @rig.app.workflow
    async def pay(ctx: Context) -> int:
        return await add(3)  # type: ignore[no-any-return]

    handle = await pay.start()
    for _ in range(3):
        await rig.run()
        await rig.advance(5)
    assert await rig.result(handle) == 3
    assert await account.amounts() == [3]
    lines = await rig.lines(handle)
    assert [line for line in lines if line.startswith("InvokeRetrying")] == [
        "InvokeRetrying root.0 attempt=1",
        "InvokeRetrying root.0 attempt=2",
    ]


async def test_an_error_of_the_database_is_the_calls_own(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    add = account.adding(rig, retry=RetryPolicy(max_attempts=1))

    @rig.app.workflow
    async def pay(ctx: Context) -> str:
        try:
            await add(None)
        except Exception as error:
            return type(error).__name__
        return "?"

    @rig.app.workflow
    async def pay_well(ctx: Context) -> int:
        return await add(1)  # type: ignore[no-any-return]

    assert await rig.result(await pay.start()) == "TaskFailed"
    assert await rig.result(await pay_well.start()) == 1  # the connection is as good as new


@pytest.mark.parametrize("raised", [asyncio.CancelledError, StopIteration, KeyError], ids=lambda cls: str(cls.__name__))
@pytest.mark.parametrize("is_alone", [False, True], ids=["called", "alone"])
async def test_whatever_it_raises_is_its_own_failure(rig: Rig, raised: type[BaseException], is_alone: bool) -> None:
    account = await Account(rig.stores).make()

    def fail() -> None:
        raise raised("no")

    add = account.adding(rig, fail, retry=RetryPolicy(max_attempts=1))

    @rig.app.workflow
    async def pay(ctx: Context) -> int:
        return await add(3)  # type: ignore[no-any-return]

    with pytest.raises(ExecutionFailedError, match=raised.__name__):
        await rig.result(await (add.start(3) if is_alone else pay.start()))
    assert await account.amounts() == []


@pytest.mark.parametrize("point", ["flush.before", "flush.after"])
async def test_a_crash_around_its_commit_neither_loses_nor_repeats_it(rig: Rig, point: str) -> None:
    account = await Account(rig.stores).make()
    armed: list[Any] = []

    def arm() -> None:
        if not armed:
            armed.append(crash_at(point))
            armed[0].__enter__()

    add = account.adding(rig, arm)

    @rig.app.workflow
    async def pay(ctx: Context) -> int:
        return await add(3)  # type: ignore[no-any-return]

    handle = await pay.start()
    await rig.run()
    if await rig.status(handle) is Status.STRANDED:
        await handle.resume()
        rig.forget()
    assert await rig.result(handle) == 3
    assert await account.amounts() == [3]


async def test_the_code_of_a_stale_worker_never_runs(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    ran: list[int] = []
    add = account.adding(rig, lambda: ran.append(1))
    worker = await rig.make_worker()
    await add.start(1)
    picked = await worker.store.pick(worker.id, [QueueRoom("default", 1)], [add.handler], 1)
    (claim,) = picked.claims
    claim.epoch -= 1
    receipt = await rig.stores.store.transact(worker.id, claim, lambda db: ran.append(2), lambda value: [])
    assert not receipt.applied
    assert ran == []


async def test_started_alone_it_is_a_job_that_runs_exactly_once(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    add = account.adding(rig)
    handle = await add.start(9)
    assert await rig.result(handle) == 9
    assert await account.amounts() == [9]
    with pytest.raises(CallNotAllowedError):
        await add(1)


async def test_a_transaction_of_the_wrong_form_fails_with_the_remedy(rig: Rig) -> None:
    async def slow(db: Any) -> None: ...

    def quick(db: Any) -> None: ...

    wrong: Any = slow if isinstance(rig.stores, SqliteStores) else quick
    task: Any = rig.app.transaction(name="wrong")(wrong)
    handle = await task.start()
    with pytest.raises(ExecutionFailedError, match="must be"):
        await rig.result(handle)


async def test_code_cannot_commit_by_itself(rig: Rig) -> None:
    if isinstance(rig.stores, SqliteStores):

        def commit_now(db: sqlite3.Connection) -> None:
            db.commit()

        task: Any = rig.app.transaction(name="c", retry=RetryPolicy(max_attempts=1))(commit_now)
    else:

        async def commit(db: Any) -> None:
            await db.execute("commit")

        task = rig.app.transaction(name="c", retry=RetryPolicy(max_attempts=1))(commit)
    handle = await task.start()
    await rig.run()
    assert await rig.status(handle) in (Status.FAILED, Status.STRANDED)


async def test_a_start_commits_or_not_with_the_callers_transaction(rig: Rig) -> None:
    @rig.app.task
    async def job(number: int) -> int:
        return number

    await rig.worker()
    if isinstance(rig.stores, SqliteStores):
        with closing(sqlite3.connect(rig.stores.path, isolation_level=None)) as db:
            with pytest.raises(ConfigurationError, match="no transaction"):
                await job.options(connection=db).start(1)
            db.execute("begin immediate")
            lost = await job.options(connection=db).start(1)
            db.execute("rollback")
            db.execute("begin immediate")
            kept = await job.options(connection=db).start(2)
            db.execute("commit")
    else:
        assert isinstance(rig.stores, PostgresStores)
        connection = await asyncpg.connect(rig.stores.url)
        with pytest.raises(ConfigurationError, match="no transaction"):
            await job.options(connection=connection).start(1)
        transaction = connection.transaction()
        await transaction.start()
        lost = await job.options(connection=connection).start(1)
        await transaction.rollback()
        async with connection.transaction():
            kept = await job.options(connection=connection).start(2)
        await connection.close()
    assert await rig.result(kept) == 2
    assert await rig.stores.store.get(lost.id.to_bytes()) is None
    with pytest.raises(ConfigurationError, match="connection"):
        await job.options(connection=object()).start(3)


def as_mapping(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


JSON_CODEC: dict[str, Any] = {"schema": "pg_catalog", "encoder": json.dumps, "decoder": json.loads}


async def test_a_start_is_the_same_on_a_connection_that_reads_and_writes_in_its_own_way(rig: Rig) -> None:
    """Rows as mappings on SQLite, a codec for json on PostgreSQL: both are usual."""

    @rig.app.task
    async def job(number: int) -> int:
        return number

    await rig.worker()
    named = job.options(key="one", attributes={"city": "Rome"})
    if isinstance(rig.stores, SqliteStores):
        with closing(sqlite3.connect(rig.stores.path, isolation_level=None)) as db:
            db.row_factory, db.text_factory = as_mapping, bytes
            db.execute("begin immediate")
            handles = [await named.options(connection=db).start(1) for _ in range(2)]
            many = await job.options(connection=db).start_many([2, 3])
            db.execute("commit")
            assert (db.row_factory, db.text_factory) == (as_mapping, bytes)
    else:
        assert isinstance(rig.stores, PostgresStores)
        connection = await asyncpg.connect(rig.stores.url)
        await connection.set_type_codec("json", **JSON_CODEC)
        async with connection.transaction():
            handles = [await named.options(connection=connection).start(1) for _ in range(2)]
            many = await job.options(connection=connection).start_many([2, 3])
        await connection.close()
    assert (await handles[0].describe()).attributes == '{"city":"Rome"}'
    results = [await rig.result(handle) for handle in (*handles, *many) if isinstance(handle, Handle)]
    assert results == [1, 1, 2, 3]


@pytest.mark.parametrize("fails", [False, True])
async def test_code_that_reads_and_writes_in_its_own_way_changes_nothing_of_the_ledger(rig: Rig, fails: bool) -> None:
    made: list[int] = []

    def end() -> dict[str, int]:
        made.append(1)
        if fails and len(made) == 1:
            raise ValueError("not yet")
        return {"made": len(made)}

    if isinstance(rig.stores, SqliteStores):

        def work(db: sqlite3.Connection) -> dict[str, int]:
            db.row_factory = as_mapping
            return end()

        task: Any = rig.app.transaction(name="w", retry=RetryPolicy(initial_delay=0))(work)
    else:

        async def work_there(db: Any) -> dict[str, int]:
            await db.set_type_codec("json", **JSON_CODEC)
            return end()

        task = rig.app.transaction(name="w", retry=RetryPolicy(initial_delay=0))(work_there)

    @rig.app.workflow
    async def twice(ctx: Context) -> list[dict[str, int]]:
        return [await task(), await task()]

    first = 2 if fails else 1
    assert await rig.result(await twice.start()) == [{"made": first}, {"made": first + 1}]


async def test_what_code_sets_on_its_connection_holds_for_no_other(rig: Rig) -> None:
    seen: list[tuple[Any, ...]] = []
    if isinstance(rig.stores, SqliteStores):

        def work(db: sqlite3.Connection) -> None:
            pragmas = ("recursive_triggers", "query_only", "ignore_check_constraints", "locking_mode")
            seen.append((*(db.execute(f"pragma {name}").fetchone()[0] for name in pragmas), db.row_factory))
            for name in pragmas:
                db.execute(f"pragma {name.upper()} = {'exclusive' if name == 'locking_mode' else 'on'}")
            db.row_factory = as_mapping

        task: Any = rig.app.transaction(name="w")(work)
    else:

        async def work_there(db: Any) -> None:
            row = await db.fetchrow(
                "select current_setting('search_path'), current_setting('statement_timeout'), current_user::text"
            )
            seen.append(tuple(row))
            await db.execute("set search_path to pg_temp; set statement_timeout = '1h'; set role pg_read_all_data")

        task = rig.app.transaction(name="w")(work_there)

    @rig.app.workflow
    async def twice(ctx: Context) -> None:
        await task()
        await task()

    await rig.result(await twice.start())
    assert len(seen) == 2
    assert len(set(seen)) == 1


class Between(Borrowed):
    """A store on which something happens right before the second transaction."""

    def __init__(self, store: Store, happens: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(store)
        self._happens = happens
        self._count = 0

    async def transact(self, *arguments: Any, **heeds: Any) -> Receipt:
        self._count += 1
        if self._count == 2:
            await self._happens()
        return await self._store.transact(*arguments, **heeds)


async def _working_with(rig: Rig, happens: Callable[[], Awaitable[Any]], *, cold: bool = False) -> None:
    worker = await rig.make_worker(warm_most=0 if cold else None)
    worker.store = cast(Store, Between(worker.store, happens))
    await worker.run_until_idle()


async def test_a_cancel_between_two_is_heard_before_the_second(rig: Rig) -> None:
    """The first has committed its own end, so nothing else is committed between the two. Clean-up may have its own."""
    account = await Account(rig.stores).make()
    add = account.adding(rig)

    @rig.app.workflow
    async def pay(ctx: Context) -> None:
        await add(1)
        try:
            await add(2)
        finally:
            await add(-1)

    handle = await pay.start()
    await _working_with(rig, handle.cancel)
    assert await rig.status(handle) is Status.CANCELLED
    assert await account.amounts() == [-1, 1]
    lines = await rig.lines(handle)
    assert lines[lines.index("CancelRequested cancelled") + 1 :] == [
        "InvokeScheduled root.2 add",
        "InvokeStarted root.1 attempt=1",
        "InvokeCompleted root.1 Err(cancelled:Cancelled) attempt=1",
        "InvokeStarted root.2 attempt=1",
        "InvokeCompleted root.2 Ok(-1) attempt=1",
        "ExecutionCancelled cancelled",
    ]


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
async def test_a_pause_between_two_is_heard_before_the_second(rig: Rig, cold: bool) -> None:
    """Which has not begun: its only attempt is left to it."""
    account = await Account(rig.stores).make()
    add = account.adding(rig, retry=RetryPolicy(max_attempts=1))

    @rig.app.workflow
    async def pay(ctx: Context) -> int:
        return await add(1) + await add(2)  # type: ignore[no-any-return]

    handle = await pay.start()
    await _working_with(rig, handle.pause, cold=cold)
    assert ((await handle.describe()).paused, await rig.status(handle)) == (True, Status.RUNNABLE)
    assert await account.amounts() == [1]
    await handle.resume()
    assert await rig.result(handle) == 3
    assert await account.amounts() == [1, 2]
    assert [line for line in await rig.lines(handle) if "InvokeStarted" in line] == [
        "InvokeStarted root.0 attempt=1",
        "InvokeStarted root.1 attempt=1",
    ]


async def test_many_at_once_do_not_stand_in_each_others_way(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    add = account.adding(rig)

    @rig.app.workflow
    async def pay(ctx: Context, amount: int) -> int:
        done = await ctx.all(add(amount), add(amount))
        return sum(done)

    handles = [await pay.start(number) for number in range(6)]
    await rig.run()
    assert await asyncio.gather(*(handle.result() for handle in handles)) == [0, 2, 4, 6, 8, 10]
    assert await account.amounts() == sorted([*range(6), *range(6)])
