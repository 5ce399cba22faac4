"""Dead letters: what the protocol cannot process strands its job until somebody retries or drops it (ruling A6)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import asyncpg
import pytest

from holdfast import App, Flow, FlowJob, Handle, RetryPolicy, Status
from holdfast.core.errors import (
    ExecutionFailedError,
    ExecutionStrandedError,
    InvalidArgumentError,
    NotFoundError,
)
from holdfast.models.flow.audit import audit_flows
from holdfast.models.flow.reading import read_job
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores
from tests.engine.rig import Rig

ran: list[str] = []


def declare(rig: Rig) -> Flow:
    flow = rig.app.flow("letters")
    ran.clear()

    @flow.activity
    async def first(n: int) -> int:
        return n

    @flow.hook(after=first, signal="go")
    async def second(n: int, by: int) -> int:
        ran.append("second")
        return n + by

    @flow.on_complete
    async def complete(job: FlowJob) -> None:
        ran.append(job.status.value)

    return flow


async def sql(stores: Stores, statement: str, *, guarded: bool = False) -> None:
    """Damage, as no code of ours would do it; past the guards of tests, which would refuse it."""
    if isinstance(stores, SqliteStores):
        with closing(sqlite3.connect(stores.path)) as connection, connection:
            for table in () if guarded else ("activities", "guids", "semaphores"):
                connection.execute(f"drop trigger if exists testing_guard_{table}")
            connection.execute(statement)
    else:
        assert isinstance(stores, PostgresStores)
        settings = {"search_path": stores.schema} | ({} if guarded else {"session_replication_role": "replica"})
        other = await asyncpg.connect(stores.url, server_settings=settings)
        try:
            await other.execute(statement)
        finally:
            await other.close()


async def stranded_at_ceiling(rig: Rig) -> Handle[Any]:
    """A hook whose activity has as many Leg2 entries as its ledger can count."""
    handle = await declare(rig).start(1)
    await rig.run()
    await sql(rig.stores, "update activities set ledger = 1100099999999 where activity = 'second'")
    await handle.signal("go", 1)
    await rig.run()
    assert await handle.status() is Status.STRANDED
    return handle


async def test_a_full_counter_is_a_dead_letter_that_can_only_be_dropped(rig: Rig) -> None:
    handle = await stranded_at_ceiling(rig)
    with pytest.raises(ExecutionStrandedError, match="ceiling of 99999999"):
        await handle.result()
    letters = rig.app.dead_letters
    (letter,) = (await letters.list()).items
    assert (letter.flow, letter.activity, letter.job, letter.can_retry) == ("letters", "second", handle.id, False)
    with pytest.raises(InvalidArgumentError, match="only be dropped"):
        await letters.retry(letter.id)
    state = await read_job(await rig.store(), handle.id.to_bytes())
    assert state is not None
    assert state.semaphore == 1  # its obligation stays open
    assert state.activities[-1].leg2_entries == 99_999_999  # and nothing was incremented (Rule F)
    await letters.drop(str(letter.id))
    assert await handle.status() is Status.DELEGATED
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="ceiling"):
        await handle.result()
    assert ran == ["second", "failed"]
    assert (await letters.list()).items == []
    with pytest.raises(NotFoundError):
        await letters.drop(letter.id)


async def test_a_message_that_kills_its_workers_is_a_dead_letter(rig: Rig) -> None:
    """Poison: after `max_crashes` it is stranded with its job; a retry reuses its GUID."""
    handle = await declare(rig).start(1)
    await handle.signal("go", 5)
    await rig.once()
    for number in range(2):
        worker = await rig.make_worker(max_crashes=2)
        await (await rig.store()).pick(worker.id, [_room()], list(worker._runners), 5)
        rig._workers.remove(worker)
        await worker.abandon()
        await rig.advance(31)
        reaper = await rig.make_worker(max_crashes=2)
        await reaper.reap_once()
        await rig.stop(reaper)
        assert await handle.status() is (Status.STRANDED if number else Status.DELEGATED)
    assert await audit_flows(await rig.store()) == []
    (letter,) = (await rig.app.dead_letters.list(flow="letters")).items
    assert letter.can_retry
    await rig.app.dead_letters.retry(letter.id)
    assert await handle.status() is Status.DELEGATED
    await rig.run()
    assert await handle.result() == 6


async def test_resuming_a_stranded_job_retries_its_letters(rig: Rig) -> None:
    handle = await declare(rig).start(1)
    await rig.once()
    await sql(rig.stores, "update executions set state = '{}' where kind = 'message'")
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match="cannot be read"):
        await handle.result()
    (letter,) = (await rig.app.dead_letters.list()).items
    assert letter.activity == "?"
    state = '{"activity":"first","queue":"default","inputs":[{"n":1}],"is_entry":true}'
    await sql(rig.stores, f"update executions set state = '{state}' where kind = 'message'")
    await handle.resume()
    await handle.signal("go", 1)
    await rig.run()
    assert await handle.result() == 2


async def test_cancelling_a_stranded_job_drops_its_letters(rig: Rig) -> None:
    handle = await stranded_at_ceiling(rig)
    await handle.cancel()
    await rig.run()
    assert await handle.status() is Status.CANCELLED
    assert ran == ["second", "cancelled"]


async def test_an_activity_that_the_code_no_longer_has_is_a_dead_letter(rig: Rig) -> None:
    flow = declare(rig)
    handle = await flow.start(1)
    await rig.once()
    kept = dict(flow.graph.nodes)
    del flow.graph.nodes["first"]
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match="has no activity 'first'"):
        await handle.result()
    flow.graph.nodes.update(kept)
    await handle.resume()
    await handle.signal("go", 1)
    await rig.run()
    assert await handle.result() == 2


async def test_letters_of_code_that_does_not_fit_are_tried_by_another_release(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker of the old release took what only the new one knows. Ruling A6: the job waits for all its letters."""

    def release(app: App, *names: str) -> Flow:
        flow = app.flow("release")
        for name in names:

            @flow.activity(name=name)
            async def same(n: int) -> int:
                return n

        return flow

    async def sweep(app: App) -> None:
        (loop,) = [service for service in (await app.make_worker())._services if service.name == "stranded"]
        await loop.run_once()

    handle = await release(rig.app, "first", "second", "third").start(1)
    await rig.once()  # the job has begun
    async with App("old", store=rig.stores.unopened()) as old:
        release(old, "first")
        old_worker = await old.make_worker()
        await old_worker.open()
        await old_worker.run_until_idle()
        await old_worker.stop(0)
        await sweep(old)
    with pytest.raises(ExecutionStrandedError, match="has no activity"):
        await handle.result()
    assert {letter.activity for letter in (await rig.app.dead_letters.list()).items} == {"second", "third"}
    await sweep(rig.app)
    assert "2 stranded runs of queue default are tried again with this code" in caplog.text
    assert await handle.status() is Status.DELEGATED
    await rig.run()
    assert await handle.result() == {"first": 1, "second": 1, "third": 1}
    assert await audit_flows(rig.stores.store) == []


async def test_user_code_whose_retries_are_exhausted_is_no_dead_letter(rig: Rig) -> None:
    flow = rig.app.flow("exhausted")

    @flow.activity(retry=RetryPolicy(max_attempts=2, initial_delay=0, max_delay=0))
    async def bad(n: int) -> int:
        raise ValueError("always")

    handle = await flow.start(1)
    await rig.run()
    assert await handle.status() is Status.FAILED
    assert (await rig.app.dead_letters.list()).items == []


def _room() -> Any:
    from holdfast.store.values import QueueRoom

    return QueueRoom("default", 5)


async def test_a_cancel_answers_with_what_became_of_the_job(rig: Rig) -> None:
    """Its letters are dropped with it, so that it is no longer stranded."""
    handle = await stranded_at_ceiling(rig)
    assert await handle.cancel() is Status.DELEGATED
    await rig.run()
    assert await handle.status() is Status.CANCELLED
