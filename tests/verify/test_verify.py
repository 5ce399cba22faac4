"""The audit of a whole ledger: silent on a sound one, and on one damaged in each way the rules name it says which.

One ledger a dialect is filled by real workers once, kept as records, and written anew for every damage.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import msgspec
import pytest

from holdfast import App, Await, Child, Context, Done, Machine, MachineContext, Next, Outcome, ScheduleChildren, step
from holdfast.core.identity import PromiseId
from holdfast.core.journal.format import Segment, encode_segment
from holdfast.core.outcomes import Unique
from holdfast.core.status import Status
from holdfast.engine.settings import WorkerSettings
from holdfast.store import store_from_url
from holdfast.store.base import Store
from holdfast.store.records import TABLES, ExecutionRecord, JournalRecord, Record
from holdfast.verify import rules
from holdfast.verify.auditor import Auditor, audit
from holdfast.verify.rules import ROW_RULES, RULES, Fault
from tests.core.journal.script import ROOT
from tests.core.journal.test_journal_rules import BREAKS

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


def build(store: Store) -> App:
    app = App("audited", store)

    @app.machine(name="Order", history=True)
    class Order(Machine[str]):
        @step(initial=True)
        async def take(self, ctx: MachineContext[str]) -> Outcome:
            match ctx.state:
                case "wait":
                    return Await({"paid"}, self.close, ctx.state)
                case "children":
                    return ScheduleChildren(self.close, [Child(Order, "wait"), Child(Order, "done")], ctx.state)
            return Next(self.close, ctx.state)

        @step
        async def close(self, ctx: MachineContext[str]) -> Outcome:
            return Done(ctx.state)

    @app.task(name="charge")
    async def charge(amount: int) -> int:
        return amount

    @app.workflow(name="pay")
    async def pay(ctx: Context, amount: int) -> int:
        paid: int = await charge(amount)
        await ctx.signal("approval", bool)
        return paid

    app.schedule("0 6 * * *", args={"amount": 1})(pay)
    return app


async def fill(store: Store) -> None:
    """Something of every kind, worked on by a real worker as far as it goes."""
    app = build(store)
    worker = await app.make_worker(WorkerSettings())
    await worker.open()
    for state in ("done", "wait", "children"):
        await app.start_by_name("Order", state, key=state, attributes={"n": 1}, unique=Unique(key=state))
    for key in ("open", "closed"):
        handle = await app.start_by_name("pay", {"amount": 7}, key=key)
    await worker.run_until_idle()
    await handle.signal("approval", True)
    await worker.run_until_idle()
    await worker.stop()
    for key in ("k1", "k2"):
        await app.start_by_name("Order", "done", key=key, partition_key="k", delay=3600)
    await app.handle("Order", key="wait").signal("other", 1)
    await app.close()


@dataclass
class Patient:
    """A ledger to damage: with SQL of its dialect, past its constraints."""

    backend: str
    url: str
    schema: str
    path: Path
    records: list[Record] = field(default_factory=list)
    whole: bytes = b""

    def store(self) -> Store:
        if self.backend == "sqlite":
            return store_from_url(str(self.path))
        from holdfast.store.postgres import PostgresStore

        return PostgresStore(self.url, schema=self.schema)

    async def prepare(self) -> None:
        """Take away what keeps one from damaging it."""
        if self.backend == "sqlite":
            await self.execute(
                "drop trigger executions_leave_scope; drop index executions_unique; drop trigger attributes_update"
            )
            with closing(sqlite3.connect(self.path)) as db:
                db.execute("pragma wal_checkpoint(truncate)")
            self.whole = self.path.read_bytes()
            return
        await self.execute(
            "drop trigger executions_release_unique_key on {s}executions; drop index {s}executions_unique_guard;"
            + "".join(
                f"alter table {{s}}executions drop constraint executions_{name};"
                for name in ("holder", "ended", "blocked")
            )
            # A column that a view shows keeps its type.
            + "do $$ declare shown text := pg_get_viewdef('{s}executions_now'); begin drop view {s}executions_now; "
            "alter table {s}executions alter column state type text; "
            "execute 'create view {s}executions_now as ' || shown; end $$"
        )

    async def restore(self) -> None:
        """As it was."""
        if self.backend == "sqlite":
            self.clear_files()
            self.path.write_bytes(self.whole)
            return
        tables = [*(table.name for table in TABLES.values()), "workers", "partition_locks"]
        await self.execute(";".join(f"delete from {{s}}{table}" for table in tables))
        store = self.store()
        await store.open()
        await store.write_records([msgspec.json.decode(msgspec.json.encode(self.records), type=list[Record])])
        await store.close()

    def clear_files(self) -> None:
        for leftover in self.path.parent.glob(f"{self.path.name}*"):
            leftover.unlink()

    async def execute(self, script: str) -> None:
        text = script.replace("{s}", "" if self.backend == "sqlite" else f"{self.schema}.")
        if self.backend == "sqlite":
            with closing(sqlite3.connect(self.path)) as db, db:
                db.execute("pragma ignore_check_constraints = on")
                db.executescript(text)
            return
        connection = await asyncpg.connect(self.url)
        await connection.execute(text)
        await connection.close()

    async def faults(self) -> list[Fault]:
        store = self.store()
        await store.open()
        found, _ = await audit(store)
        await store.close()
        return found


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that rows which break a rule together are looked at in different ones."""
    for dialect in ("sqlite", "postgres"):
        monkeypatch.setattr(f"holdfast.store.{dialect}.recording.WINDOW", 2)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def patient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    backend: str = request.param
    url = "" if backend == "sqlite" else request.getfixturevalue("postgres_url")
    path = tmp_path_factory.mktemp("patient") / "ledger.db"
    made = Patient(backend, url, f"patient_{secrets.token_hex(4)}", path)

    async def prepare() -> None:
        store = made.store()
        await fill(store)
        again = made.store()
        await again.open()
        await again.read_records(made.records.extend)
        await again.close()
        await made.prepare()

    asyncio.run(prepare())
    yield made
    if backend == "postgres":
        asyncio.run(made.execute(f"drop schema {made.schema} cascade"))


async def test_a_ledger_that_workers_wrote_is_sound(patient: Patient) -> None:
    await patient.restore()
    assert [str(fault) for fault in await patient.faults()] == []


HERE = "update {s}executions set "
GHOST = (
    "insert into {s}workers (id, host, pid, queues, started_at, expires_at) "
    "select 'ghost', 'h', 1, {none}, inserted_at, inserted_at from {s}executions limit 1;"
)
# What is done, to the execution of which key (None: to the ledger), and the rule that this breaks.
DAMAGES: list[tuple[rules.Rule, str | None, str]] = [
    (rules.IDENTITY, "k1", HERE + "promise = {cut} where {it}"),
    (rules.IDENTITY, "k1", HERE + "parent_id = (select min(id) from {s}executions) where {it}"),
    (rules.PAYLOAD, "k1", HERE + "state = '{' where {it}"),
    (rules.LEASE, "wait", HERE + "locked_by = 'ghost' where {it};" + GHOST),
    (rules.LEASE, "k1", HERE + "status = 'executing', lease_epoch = 1, started_at = inserted_at where {it}"),
    (rules.HOLDER, "wait", HERE + "status = 'executing', locked_by = 'ghost' where {it}"),
    (rules.STARTED, "done", HERE + "started_at = null where {it}"),
    (rules.STARTED, "k1", HERE + "revision = 3 where {it}"),
    (rules.COUNTERS, "k1", HERE + "attempt = -1 where {it}"),
    (rules.ENDED, "done", HERE + "ended_at = null where {it}"),
    (rules.ENDED, "k1", HERE + "ended_at = inserted_at where {it}"),
    (rules.ENDED_CLEAN, "done", HERE + "wake_at = inserted_at where {it}"),
    (
        rules.ENDED_CLEAN,
        "done",
        "update {s}signals set target_id = (select id from {s}executions where {it})",
    ),
    (
        rules.ENDED_CLEAN,
        "done",
        HERE + "status = 'failed', successor = promise where {it};"
        "update {s}signals set target_id = (select id from {s}executions where {it})",
    ),
    (
        rules.ENDED_CLEAN,
        "done",
        "insert into {s}signal_keys (target_id, dedup_key) select id, 'u:x' from {s}executions where {it}",
    ),
    (rules.PARKED, "wait", HERE + "awaits = null where {it}"),
    (rules.PARKED, "children", HERE + "children_pending = 0 where {it}"),
    (rules.PARKED, "open", HERE + "awaits = null where {it}"),
    (rules.WAKE, "k1", HERE + "wake_at = inserted_at where {it}"),
    (rules.BARRIER, "children", HERE + "children_pending = 5 where {it}"),
    (rules.BARRIER, "open", HERE + "awaits = null, children_pending = 2 where {it}"),
    (rules.BLOCKED, "wait", HERE + "key_blocked = {true} where {it}"),
    (
        rules.BLOCKED,
        "k1",
        HERE
        + "paused = {true} where partition_key = 'k';"
        + HERE
        + "paused = {false}, key_blocked = {true} where {it}",
    ),
    (
        rules.PARTITION,
        "k2",
        HERE
        + "status = 'executing', locked_by = 'ghost', lease_epoch = 1, started_at = inserted_at "
        + "where partition_key = 'k';"
        + "insert into {s}partition_locks (key, holder) select 'k', id from {s}executions where {it};"
        + GHOST,
    ),
    (
        rules.PARTITION,
        None,
        "insert into {s}partition_locks (key, holder) select 'k', id from {s}executions where {it:k1}",
    ),
    (rules.UNIQUE, "children", HERE + "unique_key = (select unique_key from {s}executions where {it:wait}) where {it}"),
    (rules.UNIQUE_RELEASED, "done", HERE + "unique_released = {false} where {it}"),
    (rules.SUCCESSOR, "wait", HERE + "successor = promise where {it}"),
    (rules.SUCCESSOR, "done", HERE + "successor = (select promise from {s}executions where {it:k1}) where {it}"),
    (
        rules.TRANSITIONS,
        "done",
        "update {s}transitions set revision = revision + 1000 "
        "where execution_id = (select id from {s}executions where {it})",
    ),
    (rules.JOURNAL_LENGTH, "open", HERE + "journal_length = journal_length + 1 where {it}"),
    (rules.JOURNAL_LENGTH, "k1", HERE + "journal_length = 3 where {it}"),
    (
        rules.JOURNAL_LENGTH,
        "open",
        "update {s}journal set first = first + 100 where execution_id = (select id from {s}executions where {it})",
    ),
    (rules.ORPHANS, None, "insert into {s}journal (execution_id, first, count, body) values (999999, 0, 1, '{}')"),
    (rules.ORPHANS, None, "insert into {s}signal_keys (target_id, dedup_key) values (999999, 'u:x')"),
    (rules.SCHEDULE, None, "update {s}schedules set spec = '{}'"),
    (rules.HANDLER, "wait", HERE + "handler = 1 where {it}"),
    (rules.OUTCOME, "done", HERE + "result = null where {it}"),
    (rules.OUTCOME, "done", HERE + "status = 'failed' where {it}"),
    (rules.OUTCOME, "closed", HERE + "status = 'failed', error = '{}' where {it}"),
    (
        rules.JOURNAL_FORMAT,
        "open",
        "update {s}journal set body = '{\"v\":1}' where execution_id = (select id from {s}executions where {it})",
    ),
    (
        rules.JOURNAL_FORMAT,
        "closed",
        "update {s}journal set count = count - 1, first = first "
        "where first = 0 and execution_id = (select id from {s}executions where {it})",
    ),
]
# The index of attributes is a table of its own on SQLite alone.
SQLITE_DAMAGES: list[tuple[rules.Rule, str | None, str]] = [
    (rules.ATTRIBUTES, "wait", "delete from attributes where execution_id = (select id from executions where {it})"),
    (rules.ATTRIBUTES, "wait", HERE + "attributes = '{\"n\":2}' where {it}"),
]


# What is started in bulk is found by blocks of ids on PostgreSQL alone.
POSTGRES_DAMAGES: list[tuple[rules.Rule, str | None, str]] = [
    (rules.LISTED, "wait", "update {s}executions set listed = false where {it}"),
]


def spelled(patient: Patient, text: str, key: str | None) -> str:
    is_sqlite = patient.backend == "sqlite"
    words = {
        "{true}": "1" if is_sqlite else "true",
        "{false}": "0" if is_sqlite else "false",
        "{none}": "'[]'" if is_sqlite else "'{}'",
        "{cut}": "substr(promise, 1, 31)" if is_sqlite else "substring(promise from 1 for 31)",
        "{it}": f"idempotency_key = '{key}'",
        "{it:k1}": "idempotency_key = 'k1'",
        "{it:wait}": "idempotency_key = 'wait'",
    }
    for word, meant in words.items():
        text = text.replace(word, meant)
    return text


async def test_each_damage_is_found_and_named(patient: Patient) -> None:
    named = {record.idempotency_key: record.id for record in patient.records if isinstance(record, ExecutionRecord)}
    for rule, key, script in DAMAGES + (SQLITE_DAMAGES if patient.backend == "sqlite" else POSTGRES_DAMAGES):
        await patient.restore()
        await patient.execute(spelled(patient, script, key))
        found = await patient.faults()
        assert {fault.rule for fault in found} >= {rule.name}, (script, found)
        told = [fault for fault in found if fault.rule == rule.name]
        if rule is rules.IDENTITY and "promise" in script:
            assert told[0].id == named["k1"][:62]
        else:
            assert [fault.id for fault in told if fault.id == (None if key is None else named[key])], (script, told)
        assert all(fault.found and fault.expected for fault in told)


def test_every_rule_has_a_damage() -> None:
    assert {rule.name for rule, _, _ in DAMAGES + SQLITE_DAMAGES + POSTGRES_DAMAGES} == {
        rule.name for rule in ROW_RULES
    }


def _broken_journal(number: int, text: str, count: int) -> tuple[ExecutionRecord, JournalRecord]:
    promise = str(PromiseId.of("broken", str(number)))
    row = ExecutionRecord(
        id=promise,
        kind="workflow",
        name="broken",
        version=1,
        status=Status.RUNNABLE,
        step="",
        state="{}",
        input_hash="",
        queue="default",
        inserted_at=MOMENT,
        updated_at=MOMENT,
        eligible_at=MOMENT,
        journal_length=count,
        lease_epoch=1,
        revision=1,
        started_at=MOMENT,
    )
    body = text.replace(f'"{ROOT}.', f'"{promise}.').replace(f'"{ROOT}"', f'"{promise}"')
    return row, JournalRecord(id=promise, first=0, count=count, body=body)


async def test_a_row_is_kept_no_longer_than_it_is_needed(patient: Patient) -> None:
    """A ledger of millions does not fit into memory; two rows of this one at a time do."""
    await patient.restore()
    store, auditor, taken = patient.store(), Auditor(), Counter[str]()
    kept: list[int] = []

    def take(records: Sequence[Record]) -> None:
        auditor.take(records)
        kept.append(len(auditor._rows))
        taken.update(type(record).__name__ for record in records)

    await store.open()
    assert auditor.finish(await store.survey(take, auditor.let_go)) == []
    await store.close()
    assert max(kept) == 2
    assert taken == Counter(type(record).__name__ for record in patient.records)
    assert len(auditor._pending) < taken["ExecutionRecord"] / 2


def test_every_rule_of_journals_is_found_in_a_stored_one() -> None:
    """The wiring from stored segments to rules; what each rule refuses is tested with the rules."""
    broken: list[tuple[str, str]] = []
    records: list[Record] = []
    for rule, scripts in BREAKS.items():
        for script in scripts:
            text = encode_segment(Segment(events=script.events)).decode()
            made = _broken_journal(len(broken), text, len(script.events))
            broken.append((f"journal {rule}", made[0].id))
            records += made
    records.sort(key=lambda record: isinstance(record, JournalRecord))
    auditor = Auditor()
    auditor.take(records)
    found = {(fault.rule, fault.id) for fault in auditor.finish()}
    readable = {(rule, promise) for rule, promise in broken if "aware_time" not in rule}
    assert readable <= found
    # A time without a zone is no event at all.
    assert {("journal-format", promise) for rule, promise in broken if "aware_time" in rule} <= found
    assert {rule.name for rule in RULES if rule.name.startswith("journal ")} >= {rule for rule, _ in broken}


def test_a_fault_reads_as_a_sentence() -> None:
    fault = Fault(rule="lease", id="ab", label="Order/ab", found="it is runnable and held by w", expected="never so")
    assert str(fault) == "Order/ab: it is runnable and held by w; never so (lease)"
