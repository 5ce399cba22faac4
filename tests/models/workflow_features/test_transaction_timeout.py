"""`@app.transaction(timeout=...)`: nothing is committed after the deadline, and the next writer is not kept waiting."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Handle, RetryPolicy, TaskTimedOut
from holdfast.core.errors import ExecutionFailedError
from holdfast.testing.stores import SqliteStores
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.account import Account

COUNT = "with recursive n (i) as (select 1 union all select i + 1 from n where i < {most}) select count(*) from n"
ENDLESS = COUNT.format(most=10**12)


def endless(account: Account, rig: Rig, *, writes: bool, swallow: bool = False, **settings: Any) -> Any:
    """A transaction of which a statement never ends; `swallow`: it makes light of that, and writes on."""
    insert = f"insert into {account.table} (amount) "
    statement = insert + ENDLESS if writes else ENDLESS

    def run_now(db: sqlite3.Connection) -> None:
        db.execute(insert + "values (1)")
        try:
            db.execute(statement).fetchall()
        except sqlite3.OperationalError:
            if not swallow:
                raise
        for again in (db.execute, db.cursor().execute):
            with contextlib.suppress(sqlite3.OperationalError):
                again(insert + "values (1)")

    async def run(db: Any) -> None:
        await db.execute(insert + "values (1)")
        try:
            await db.execute(statement)
        except asyncio.CancelledError:
            if not swallow:
                raise
        with contextlib.suppress(asyncpg.PostgresError):
            await db.execute(insert + "values (1)")

    chosen: Any = run_now if isinstance(rig.stores, SqliteStores) else run
    return rig.app.transaction(name="endless", timeout=0.1, **settings)(chosen)


async def kind_of_error(handle: Handle[Any]) -> str:
    kind: str = json.loads((await handle.describe()).error or "{}").get("kind", "user")
    return kind


@pytest.mark.parametrize("is_alone", [False, True], ids=["called", "alone"])
@pytest.mark.parametrize("swallow", [False, True], ids=["", "swallowed"])
@pytest.mark.parametrize("writes", [False, True], ids=["reads", "writes"])
async def test_a_statement_that_takes_too_long_is_cut_off_and_rolled_back(
    rig: Rig, writes: bool, swallow: bool, is_alone: bool
) -> None:
    account = await Account(rig.stores).make()
    task = endless(account, rig, writes=writes, swallow=swallow, retry=RetryPolicy(max_attempts=1))
    add = account.adding(rig)

    @rig.app.workflow
    async def pay(ctx: Context) -> str:
        try:
            await task()
        except TaskTimedOut as error:
            await add(9)
            return str(error)
        return "?"

    if is_alone:
        handle = await task.start()
        with pytest.raises(ExecutionFailedError, match="took longer"):
            await rig.result(handle)
        assert await kind_of_error(handle) == "timeout"
        assert await rig.result(await add.start(9)) == 9  # the writer is free again, and its connection is well
    else:
        assert "endless took longer than 0.1 s" in await rig.result(await pay.start())
    assert await account.amounts() == [9]


def paying(rig: Rig, call: Callable[[], Awaitable[Any]]) -> Any:
    """A workflow that tells whether its one call timed out."""

    @rig.app.workflow
    async def pay(ctx: Context) -> str:
        try:
            await call()
        except TaskTimedOut:
            return "too long"
        return "in time"

    return pay


async def test_an_attempt_that_timed_out_is_retried_by_its_policy(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    task = endless(account, rig, writes=True, retry=RetryPolicy(max_attempts=2, initial_delay=1))

    pay = paying(rig, task)
    handle = await pay.start()
    await rig.run()
    await rig.advance(5)
    assert await rig.result(handle) == "too long"
    assert [line for line in await rig.lines(handle) if "Retrying" in line] == ["InvokeRetrying root.0 attempt=1"]
    assert await account.amounts() == []


async def test_code_that_blocks_past_its_deadline_commits_nothing(rig: Rig) -> None:
    """It cannot be cut off: what it wrote is rolled back when it returns."""
    account = await Account(rig.stores).make()
    add = account.adding(rig, lambda: time.sleep(0.1), timeout=0.05, retry=RetryPolicy(max_attempts=1))

    pay = paying(rig, lambda: add(3))
    assert await rig.result(await pay.start()) == "too long"
    assert await account.amounts() == []


async def test_an_error_in_time_is_no_timeout(rig: Rig) -> None:
    account = await Account(rig.stores).make()

    def fail() -> None:
        raise TimeoutError("of its own")

    add = account.adding(rig, fail, timeout=30, retry=RetryPolicy(max_attempts=1))
    handle = await add.start(3)
    with pytest.raises(ExecutionFailedError, match="of its own"):
        await rig.result(handle)
    assert await kind_of_error(handle) == "user"


async def test_one_in_time_commits(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    add = account.adding(rig, timeout=30)
    assert await rig.result(await add.start(3)) == 3
    assert await account.amounts() == [3]


async def test_a_timeout_stays_one_when_clean_up_fails_too(rig: Rig) -> None:
    account = await Account(rig.stores).make()
    insert = f"insert into {account.table} (amount) "

    def run_now(db: sqlite3.Connection) -> None:
        try:
            db.execute(insert + ENDLESS)
        finally:
            db.execute(insert + "values (2)")

    async def run(db: Any) -> None:
        try:
            await db.execute(insert + ENDLESS)
        finally:
            await db.execute(insert + "values (2)")

    is_sqlite = isinstance(rig.stores, SqliteStores)
    declare = rig.app.transaction(name="long", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    task = declare(run_now if is_sqlite else run)

    pay = paying(rig, task)
    assert await rig.result(await pay.start()) == "too long"
    assert await account.amounts() == []
