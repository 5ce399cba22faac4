"""Migrations: many processes at once, old and new releases side by side, and a schema file that tells the truth."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.store.postgres.conftest import Connect, Connection

from holdfast.core.errors import ConfigurationError, SchemaTooNewError
from holdfast.core.status import Status
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.migrate import PACKAGE, RESERVED, ROUTINES, migrate, routines, routines_digest
from holdfast.store.sql import load_text, migrations
from holdfast.store.values import ExecutionFilter
from holdfast.testing.hand import Hand, row, strand
from holdfast.testing.postgres import PostgresServer

COLUMNS = """
select table_name || '.' || column_name || ' ' || udt_name || ' ' || is_nullable || ' '
  || coalesce(column_default, '') || ' ' || is_generated || ' ' || coalesce(generation_expression, '')
from information_schema.columns where table_schema = $1
"""
INDEXES = "select indexdef from pg_indexes where schemaname = $1"
CONSTRAINTS = """
select conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
from pg_constraint where connamespace = $1::regnamespace
"""
TRIGGERS = """
select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
where c.relnamespace = $1::regnamespace and not t.tgisinternal
"""
FUNCTIONS = "select pg_get_functiondef(oid) from pg_proc where pronamespace = $1::regnamespace"
TYPES = """
select t.typname || ' ' || string_agg(e.enumlabel, ',' order by e.enumsortorder)
from pg_type t join pg_enum e on e.enumtypid = t.oid where t.typnamespace = $1::regnamespace group by t.typname
"""
VIEWS = "select viewname || ' ' || definition from pg_views where schemaname = $1"
STORAGE = "select relname || ' ' || reloptions::text from pg_class where relnamespace = $1::regnamespace"
PROC = "pg_proc where oid = $1::text::regproc"
CATALOGS = (COLUMNS, INDEXES, CONSTRAINTS, TRIGGERS, FUNCTIONS, TYPES, VIEWS, STORAGE)


async def catalog(connection: Connection, schema: str) -> list[str]:
    """Everything the server knows of a schema, without its name."""
    found: list[str] = []
    for query in CATALOGS:
        rows = await connection.fetch(query, schema)
        found += sorted(str(row[0]).replace(schema, "S") for row in rows if row[0] is not None)
    return found


async def test_the_schema_file_is_the_sum_of_the_migrations(connect: Connect, schema: str) -> None:
    connection = await connect()
    await connection.execute(f"create schema {schema}")
    await connection.execute(load_text(PACKAGE, "schema.sql", schema=schema))
    by_file = await catalog(connection, schema)
    await connection.execute(f"drop schema {schema} cascade; create schema {schema}")
    for step in migrations(PACKAGE, schema=schema):
        await connection.execute(step.text)
    assert await catalog(connection, schema) == by_file
    assert any(line.startswith("executions.promise bytea NO") for line in by_file)


async def test_ten_processes_may_open_a_new_ledger_at_once(postgres_url: str, schema: str, connect: Connect) -> None:
    stores = [PostgresStore(postgres_url, schema=schema, connections=2) for _ in range(10)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await asyncio.gather(*(store.workers() for store in stores)) == [[]] * 10
    for store in stores:
        await store.close()
    rows = await (await connect()).fetch(f"select version, routines, routines_digest from {schema}.schema_version")
    assert [tuple(row) for row in rows] == [(migrations(PACKAGE)[-1].version, ROUTINES, routines_digest())]


async def test_making_a_new_ledger_leaves_no_error_in_the_servers_log(schema: str, connect: Connect) -> None:
    connection = await connect()
    asked: list[str] = []
    failed: list[str] = []

    def note(query: asyncpg.connection.LoggedQuery) -> None:
        (asked if query.exception is None else failed).append(query.query)

    with connection.query_logger(note):
        await migrate(connection, schema)
        await migrate(connection, schema)
    assert failed == []
    assert any("to_regclass" in query for query in asked)


async def test_opening_twice_changes_nothing(ledger: PostgresStore, schema: str, connect: Connect) -> None:
    connection = await connect()
    before = await catalog(connection, schema)
    await ledger.open()
    assert await catalog(connection, schema) == before


async def test_a_ledger_of_a_newer_release_is_refused(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect
) -> None:
    await (await connect()).execute(f"update {schema}.schema_version set version = 9999")
    late = PostgresStore(postgres_url, schema=schema)
    for refused in (late, late.sibling()):
        with pytest.raises(SchemaTooNewError, match="9999"):
            await refused.open()
        await refused.close()


async def test_a_newer_release_does_not_keep_the_heart_of_a_worker_from_beating(
    ledger: PostgresStore, schema: str, connect: Connect
) -> None:
    """It opens its own store at its first beat; the new release may have come just before."""
    sibling = ledger.sibling()
    await (await connect()).execute(f"update {schema}.schema_version set version = 9999")
    await sibling.open()
    assert not await sibling.beat("nobody", 1)
    await sibling.close()


async def test_routines_of_a_newer_release_stay(ledger: PostgresStore, schema: str, connect: Connect) -> None:
    """Two releases work side by side while one replaces the other."""
    connection = await connect()
    mark = f"comment on function {schema}.release_keys_1 is 'of the newer release'"
    await connection.execute(f"update {schema}.schema_version set routines = 9999, routines_digest = 'newer'; {mark}")
    before = await connection.fetchval(f"select xmin::text from {PROC}", f"{schema}.release_keys_1")
    await ledger.open()
    assert await connection.fetchval(f"select xmin::text from {PROC}", f"{schema}.release_keys_1") == before
    version = await connection.fetchrow(f"select routines, routines_digest from {schema}.schema_version")
    assert version is not None
    assert tuple(version) == (9999, "newer")


async def test_routines_of_an_older_release_are_replaced(ledger: PostgresStore, schema: str, connect: Connect) -> None:
    connection = await connect()
    await connection.execute(f"update {schema}.schema_version set routines = 0, routines_digest = 'older'")
    before = await connection.fetchval(f"select xmin::text from {PROC}", f"{schema}.release_keys_1")
    await ledger.open()
    assert await connection.fetchval(f"select xmin::text from {PROC}", f"{schema}.release_keys_1") != before
    assert await connection.fetchval(f"select routines_digest from {schema}.schema_version") == routines_digest()


async def test_a_process_of_the_older_release_goes_on_beside_the_new_one(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect
) -> None:
    """A rolling deploy: the older release's routines keep their names, their text and their callers."""
    old = await connect()
    await old.execute(
        f"create function {schema}.resume_0(p_promise bytea) returns boolean language sql as $$ "
        f"update {schema}.executions set status = 'runnable' where promise = p_promise and status = 'stranded' "
        "returning true $$; "
        f"drop function {schema}.resume_1; "
        f"update {schema}.schema_version set routines = 0, routines_digest = 'older'"
    )
    calling = await old.prepare(f"select {schema}.resume_0($1)")
    hand = await Hand(ledger).start()
    claims = [await hand.take(row(key)) for key in ("a", "b")]
    for claim in claims:
        await hand.apply(claim, strand())
    newer = PostgresStore(postgres_url, schema=schema)
    await newer.open()
    assert await calling.fetchval(claims[0].promise)
    assert await newer.resume(claims[1].promise)
    assert {(await hand.view(claim)).status for claim in claims} == {Status.RUNNABLE}
    await newer.close()


def test_every_routine_carries_its_version() -> None:
    """DESIGN section 6: function names carry a version, for rolling deploys."""
    names = [
        line.split("(")[0].rsplit(".", 1)[1]
        for text in routines("S")
        for line in text.splitlines()
        if line.startswith("create or replace function")
    ]
    assert len(names) > 10
    # What people call has no version.
    assert [name for name in names if name != "start" and not name.rsplit("_", 1)[-1].isdigit()] == []


@pytest.mark.parametrize(
    "name",
    ["", "Upper", "with space", 'quo"te', "x" * 64, "1st", "a-b", "order", "user", "pg_ledger", "information_schema"],
)
def test_a_schema_that_needs_quotes_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        PostgresStore("postgresql://localhost/db", schema=name)


async def test_the_words_that_name_no_schema_are_those_of_the_server(connect: Connect) -> None:
    """A newer server may have more, of which a name without quotes is refused by itself."""
    words = await (await connect()).fetch("select word from pg_get_keywords() where catcode in ('R', 'T')")
    assert {row["word"] for row in words} - RESERVED == set()


async def test_a_user_who_may_not_create_the_schema_is_told(postgres_server: PostgresServer, schema: str) -> None:
    connection = await asyncpg.connect(postgres_server.url())
    role = f"role_{schema}"
    await connection.execute(f"create role {role} login")
    store = PostgresStore(postgres_server.url().replace("//postgres@", f"//{role}@"), schema=schema)
    with pytest.raises(ConfigurationError, match=r"permission denied.*holdfast migrate"):
        await store.open()
    await store.close()
    await connection.execute(f"drop role {role}")
    await connection.close()


async def test_a_schema_that_holds_something_else_is_refused(postgres_url: str, schema: str, connect: Connect) -> None:
    connection = await connect()
    await connection.execute(f"create schema {schema}; create table {schema}.queues (id int)")
    store = PostgresStore(postgres_url, schema=schema)
    with pytest.raises(ConfigurationError, match=r"queues.*schema of its own"):
        await store.open()
    assert await connection.fetchval("select count(*) from pg_class where relnamespace = $1::regnamespace", schema) == 1


async def test_what_was_started_before_there_were_crowds_is_found_by_its_name(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect
) -> None:
    """Migration 6 takes all that is there as listed."""
    connection = await connect()
    await ledger.insert([row(f"early{n}") for n in range(3)])
    await connection.execute(f"drop index {schema}.executions_named; drop table {schema}.crowds")
    await connection.execute(f"alter table {schema}.executions drop column listed")
    await connection.execute(
        f"create index executions_named on {schema}.executions ((kind || '/' || name), id) where name <> ''"
    )
    await connection.execute(f"update {schema}.schema_version set version = 5, routines_digest = 'earlier'")
    newer = PostgresStore(postgres_url, schema=schema)
    await newer.open()
    await newer.insert([row(f"late{n}") for n in range(100)])
    page = await newer.browse(ExecutionFilter(name=row("late0").name), 200)
    found = [view.promise for view in page.items]
    assert found == [
        row(key).promise for key in reversed([*(f"early{n}" for n in range(3)), *(f"late{n}" for n in range(100))])
    ]
    assert await connection.fetchval(f"select count(*) from {schema}.executions where listed") == 3
    await newer.close()


async def test_a_ledger_whose_routines_answered_otherwise_is_brought_up_to_date(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect
) -> None:
    """`flush_kept_1` as it was before receipts said whether there is something in the inbox.

    An answer that changes takes a new name, or nobody who has a ledger can open it any more, or go on working on it.
    """
    connection = await connect()
    arguments = (
        "p_worker text, p_id bigint, p_epoch bigint, p_revision bigint, p_step text, p_state json, p_digest text, "
        "p_added int, p_journal_first bigint, p_journal_count int, p_journal_body json"
    )
    await connection.execute(f"drop function if exists {schema}.flush_kept_1")
    await connection.execute(
        f"create function {schema}.flush_kept_1({arguments}, out inbox int, out at timestamptz) language sql as "
        "'select 0, now()'"
    )
    await connection.execute(f"update {schema}.schema_version set routines_digest = 'earlier'")
    newer = PostgresStore(postgres_url, schema=schema)
    await newer.open()
    await newer.close()
    called = f"select inbox from {schema}.flush_kept_1('', 0, 0, 0, null, null, null, 0, null, null, null)"
    assert await connection.fetchval(called) == 0
