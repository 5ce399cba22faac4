"""The auditor names what does not agree; each kind of damage is found."""

from __future__ import annotations

import sqlite3

import asyncpg
import pytest

from holdfast import App, Status
from holdfast.engine.settings import WorkerSettings
from holdfast.models.flow.audit import audit_flows
from holdfast.testing.faults import on_store
from holdfast.testing.stores import Stores
from tests.engine.rig import Rig
from tests.models.flow.graphs import six_graphs
from tests.models.flow.test_flow_letters import declare, sql

DAMAGE = {
    "section 9.1": "update semaphores set status = 2 where activity = ''",
    "ruling A2": "update activities set ledger = 1110000000001 where activity = 'first'",
    "section 7.1": "update activities set ledger = ledger + 1 where activity = 'first'",
    "ruling A3": "update guids set ordinal = 7 where activity = 'first'",
    "section 10": "update guids set ledger = 1000000001 where activity = 'first'",
    "ruling A8": "delete from semaphores where activity = ''",
    "ruling A11": "update executions set status = 'done', ended_at = inserted_at where kind = 'flow'",
    "ruling A6": "update executions set status = 'stranded' where kind = 'flow'",
    "section 11": "update guids set response = null where activity = 'first'",
    "section 4.3": "delete from activities where activity = 'second'",
    "Rule G": "update executions set status = 'done', ended_at = inserted_at where kind = 'flow'",
}


@pytest.mark.parametrize("rule", DAMAGE)
async def test_damage_is_named_by_the_rule_that_it_breaks(rig: Rig, rule: str) -> None:
    handle = await declare(rig).start(1)
    await rig.run()
    assert await audit_flows(await rig.store()) == []
    await sql(rig.stores, DAMAGE[rule])
    violations = await audit_flows(await rig.store())
    named = "section 8" if rule == "ruling A2" else rule
    assert any(f"{handle.id.label('letters')}: " in line and named in line for line in violations), violations


async def test_a_job_is_sound_before_it_begins_and_after_it_ends(rig: Rig) -> None:
    flow = declare(rig)
    waiting = await flow.options(delay=60).start(1)
    gone = await flow.options(delay=60).start(2)
    await gone.cancel()
    ended = await flow.start(3)
    await ended.signal("go", 1)
    await rig.run()
    assert [await handle.status() for handle in (waiting, gone, ended)] == [
        Status.RUNNABLE,
        Status.CANCELLED,
        Status.DONE,
    ]
    assert await audit_flows(await rig.store()) == []


REFUSED = {
    "the ledger of an activity went back": "update activities set ledger = ledger - 1 where activity = 'first'",
    "the record of a GUID went back": "update guids set ledger = ledger - 1 where activity = 'first'",
    "a second one closed the job": "update guids set ledger = ledger + 100000000000 where activity = 'first'",
    "left 0": "update semaphores set status = 1 where activity = ''",
    "check": "update activities set ledger = ledger + 9000000000 where activity = 'first'",
}


@pytest.mark.parametrize("reason", REFUSED)
async def test_every_write_of_every_test_is_guarded(rig: Rig, reason: str) -> None:
    """Rule A, sections 9.1 and 9.3, at each commit and not only at rest; digits are checked by the schema itself."""
    handle = await declare(rig).start(1)
    await handle.signal("go", 1)
    await rig.run()
    assert await handle.status() is Status.DONE
    with pytest.raises((sqlite3.IntegrityError, asyncpg.PostgresError), match=f"(?i){reason}"):
        await sql(rig.stores, REFUSED[reason], guarded=True)


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("delete from arrivals where source = 'left'", "bottom: ruling A10: the join needs 2 and has"),
        (
            "delete from arrivals where activity = 'skipped' and source = 'taken'",
            "skipped: ruling A10: the join needs 2 and has a semaphore of 1, but 0 arrivals count",
        ),
        (
            "update semaphores set status = 2 where activity = 'skipped'",
            "skipped: ruling A10: the join needs 2 and has a semaphore of 2, but 1 arrivals count",
        ),
        ("update semaphores set needed = 3 where activity = 'skipped'", "skipped: ruling A10: the join needs 3"),
        ("delete from semaphores where activity = 'bottom'", "bottom: ruling A10: something arrived"),
        ("delete from guids where activity = 'bottom'", "bottom: section 7.1"),
        ("update guids set ledger = ledger - 1000000000 where activity = 'left'", "left: Rule G: 'children spawned'"),
        ("delete from failures", "worse: ruling A8: no edge took its error"),
        ("update guids set response = '[]' where activity = 'top'", "Expected `object`"),
    ],
)
async def test_damage_to_joins_and_answers_is_named(stores: Stores, statement: str, rule: str) -> None:
    app = App("audit", store="unused.db")
    six = six_graphs(app)
    async with on_store(app, stores.store):
        for name in ("diamond", "error", "join"):
            await six.flows[name].start(0)
        worker = await app.make_worker(WorkerSettings())
        await worker.open()
        await worker.run_until_idle()
        await worker.stop()
    assert await audit_flows(stores.store) == []
    await sql(stores, statement)
    violations = await audit_flows(stores.store)
    assert any(rule in line for line in violations), violations
