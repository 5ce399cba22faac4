"""The plans of the hot routines, pinned (DESIGN section 6; STYLE 4): by index, and flat.

The server's auto_explain shows the plan of every statement inside a routine. What is asserted is how many pages a call
touches and by which index, never how long it takes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from tests.store.postgres.conftest import Connection

from holdfast.core.status import Status
from holdfast.store.effects import (
    AdvanceExecution,
    AppendJournal,
    Commit,
    ConsumeSignals,
    RecordTransition,
    SpawnExecutions,
)
from holdfast.store.flows import FLOW, MESSAGE, Collate, EndJob, OpenJob, Settle
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.columns import execution_columns, insertion_order, signal_columns
from holdfast.store.postgres.flush import build_call
from holdfast.store.postgres.front import THE_FIRST, Place
from holdfast.store.postgres.reading import IDLE
from holdfast.store.postgres.rows import claim_of
from holdfast.store.values import ExecutionClaim, NewSignal
from holdfast.testing.hand import HANDLER, Hand, child_rows, done, go, keep, park, promise_of, row, wait_children
from holdfast.testing.postgres import PostgresServer

MANY = 3_000
BATCH = 50

FILL = """
insert into {schema}.executions (promise, kind, name, version, handler, step, state, input_hash, queue, priority,
  eligible_at, inserted_at, updated_at, status, ended_at, partition_key, key_blocked, awaits, wake_at, locked_by)
select sha256(convert_to($1::text || g, 'utf8')), 'machine', 'Order', 1, $2::bigint, 'start', '{{}}', '', 'default',
  g % 3,
  now() + $3::float8 * interval '1 second', now(), now(), $4::text::{schema}.status,
  case when $4::text in ('done', 'failed') then now() - g * interval '1 second' end, $5::text, $5::text is not null,
  case when $4::text = 'awaiting_signal' then '{{x}}'::text[] end,
  case when $4::text = 'awaiting_signal' then now() + interval '1 day' end,
  case when $4::text = 'executing' then 'somebody else' end
from generate_series(1, $6::int) g
"""


# Never, while the ledger was small and the plans were made, or when it is large: by the last they are made anew.
STATISTICS = pytest.mark.parametrize("analysed", ["never", "early", "late"])


def wait_for(calls: int) -> AdvanceExecution:
    return AdvanceExecution(status=Status.AWAITING_PROMISE, wait_children=calls)


class Watched:
    """A connection that collects the plans of whatever runs on it."""

    def __init__(self, store: PostgresStore, connection: Connection) -> None:
        self.store = store
        self.connection = connection
        self.plans: list[dict[str, Any]] = []
        connection.add_log_listener(self._collect)

    def _collect(self, _: object, message: Any) -> None:
        if "plan:" in message.message:
            self.plans.append(json.loads(message.message.split("plan:", 1)[1]))

    async def call(self, block: str, *arguments: object) -> list[asyncpg.Record]:
        self.plans.clear()
        return await self.connection.fetch(self.store._sql[block], *arguments)

    async def analyse(self) -> None:
        await self.connection.execute("vacuum analyze")

    async def pick(self, limit: int = BATCH, place: Place = THE_FIRST) -> list[ExecutionClaim]:
        rows = await self.call("pick", "w1", ["default"], [limit], [HANDLER], limit, *place)
        return [claim_of(found) for found in rows if found["id"] is not None]

    async def flush(self, claims: list[ExecutionClaim], advance: AdvanceExecution) -> None:
        await self.commit([Commit(claim, (advance,)) for claim in claims])

    async def commit(self, commits: list[Commit]) -> None:
        call = build_call(commits)
        await self.call(call.block, "w1", *call.arguments)
        for commit in commits:
            commit.claim.revision += 1

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Every node that ran, of every plan of the last call; an index's bitmap counts as the scan it serves."""
        stack = [plan["Plan"] for plan in self.plans]
        assert stack, "no plan was seen"
        while stack:
            node = stack.pop()
            children = node.get("Plans", [])
            if node["Node Type"] == "Bitmap Heap Scan":
                (bitmap,) = [child for child in children if child["Node Type"].startswith("Bitmap")]
                node["Index Name"] = bitmap.get("Index Name", bitmap["Node Type"])
            stack += children
            if node["Actual Loops"]:
                yield node

    def indexes(self, relation: str = "executions") -> set[str]:
        """The indexes by which the relation was read; a scan of the whole would be in here as such."""
        return {
            node.get("Index Name", node["Node Type"])
            for node in self.nodes()
            if node.get("Relation Name") == relation and "Scan" in node["Node Type"]
        }

    def pages(self) -> int:
        """Pages touched by the outermost statement, and so by all inside it."""
        return max(int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]) for plan in self.plans)

    def widest(self, relation: str = "executions") -> float:
        """The most rows that one scan of the relation looked at, those it passed over included."""
        looked_at = (
            float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
            for node in self.nodes()
            if node.get("Relation Name") == relation and "Scan" in node["Node Type"]
        )
        return max(looked_at, default=0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own: auto_explain comes with it, and nobody else's statements are in the counts."""
    with PostgresServer(settings={"autovacuum": "off"}) as started:
        yield started


@pytest_asyncio.fixture
async def watched(server: PostgresServer, schema: str) -> AsyncIterator[Watched]:
    store = PostgresStore(server.url(), schema=schema)
    await store.open()
    await Hand(store, "w1", lease_seconds=3600).start()
    connection = await asyncpg.connect(server.url())
    await connection.execute(
        "load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; "
        "set auto_explain.log_analyze = on; set auto_explain.log_buffers = on; set auto_explain.log_timing = off; "
        "set auto_explain.log_format = json; set auto_explain.log_level = notice; "
        "set auto_explain.log_parameter_max_length = 0"
    )
    yield Watched(store, connection)
    await connection.close()
    await store.close()
    cleaner = await asyncpg.connect(server.url())
    await cleaner.execute(f"drop schema {schema} cascade")
    await cleaner.close()


async def fill(
    watched: Watched, label: str, status: str, *, count: int = MANY, seconds: float = 0.0, key: str | None = None
) -> None:
    schema = watched.store._schema
    await watched.connection.execute(FILL.format(schema=schema), label, HANDLER, seconds, status, key, count)


async def crowd(watched: Watched, analysed: bool) -> None:
    """Everything that a hot call must not notice."""
    await fill(watched, "done", "done")
    await fill(watched, "failed", "failed")
    await fill(watched, "later", "runnable", seconds=86_400)
    await fill(watched, "parked", "awaiting_signal")
    await fill(watched, "theirs", "executing")
    schema = watched.store._schema
    await watched.connection.execute(f"insert into {schema}.partition_locks values ('hot', 1)")
    await fill(watched, "blocked", "runnable", key="hot")
    await watched.connection.execute(
        f"insert into {schema}.signals (target_id, name, payload, dedup_key, inserted_at) "
        f"  select id, 'y', '1', 'u:1', now() from {schema}.executions where awaits is not null on conflict do nothing;"
        f"insert into {schema}.signal_keys select target_id, dedup_key from {schema}.signals"
    )
    if analysed:
        await watched.connection.execute("vacuum analyze")


@STATISTICS
async def test_a_pick_is_flat_and_by_its_index(watched: Watched, analysed: str) -> None:
    """Ruling E8: the cost does not grow with ended, parked, far-future or key-blocked rows, nor with others' claims."""
    await watched.store.insert([row(f"first{n}", kind="workflow", handler=HANDLER) for n in range(BATCH)])
    await watched.store.deliver([NewSignal(promise_of("first0"), "go", "1") for _ in range(2 * BATCH)])
    if analysed == "early":
        await watched.analyse()
    assert len(await watched.pick()) == BATCH
    pages_alone = watched.pages()
    await crowd(watched, analysed == "late")
    await watched.store.insert([row(f"second{n}", kind="workflow", handler=HANDLER) for n in range(BATCH)])
    assert len(await watched.pick()) == BATCH
    assert watched.indexes() == {"executions_pick", "executions_pick_keyed", "executions_pkey"}
    assert watched.widest() <= 2 * BATCH
    assert watched.indexes("signals") == {"signals_inbox"}
    assert watched.widest("signals") <= BATCH
    assert watched.pages() < 3 * pages_alone
    assert await watched.pick() == []
    assert watched.pages() < pages_alone


@STATISTICS
async def test_a_pick_from_where_its_worker_is_reads_nothing_that_was_taken(watched: Watched, analysed: str) -> None:
    """Ruling E8, before any vacuum: what was taken is still in the index, in front of what is left."""
    await watched.store.insert([row(f"first{n}") for n in range(MANY)])
    if analysed == "early":
        await watched.analyse()
    (first,) = await watched.pick(1)
    pages_alone = watched.pages()
    await watched.pick(MANY - 100)
    if analysed == "late":
        await watched.connection.execute("analyze")
    (next_one,) = await watched.pick(1)
    pages_from_the_first = watched.pages()
    schema = watched.store._schema
    at = await watched.connection.fetchval(f"select eligible_at from {schema}.executions where id = $1", next_one.row)
    (one_more,) = await watched.pick(1, (next_one.priority, at, next_one.row))
    assert watched.indexes() == {"executions_pick", "executions_pick_keyed", "executions_pkey"}
    assert watched.pages() < pages_alone + 5
    assert pages_from_the_first > watched.pages() + 10, "else there was nothing to pass by"
    assert first.row < next_one.row < one_more.row


@STATISTICS
async def test_a_key_goes_to_its_next_row_without_a_look_at_others(watched: Watched, analysed: str) -> None:
    for label in ("first", "second"):
        await watched.store.insert([row(f"{label}{n}", partition_key=label) for n in range(2)])
        if label == "first" and analysed == "early":
            await watched.analyse()
        (head,) = await watched.pick()
        assert await watched.pick() == [], "the other one is blocked"
        await watched.flush([head], done())
        assert len(await watched.pick()) == 1
        if label == "first":
            await crowd(watched, analysed == "late")
    looks = [node["Index Cond"] for node in watched.nodes() if node.get("Index Name") == "executions_blocked"]
    assert looks
    assert all("partition_key = " in condition for condition in looks)


@STATISTICS
@pytest.mark.parametrize("advance", [keep("next", '{"n": 1}'), done(), park("x")], ids=["keep", "done", "park"])
@pytest.mark.parametrize("count", [1, BATCH])
async def test_a_flush_joins_by_id_alone(
    watched: Watched, advance: AdvanceExecution, count: int, analysed: str
) -> None:
    """Whatever else the worker holds, and whatever the tables held when the plan was made."""
    await watched.store.insert([row(f"{n}") for n in range(4 * count)])
    claims = await watched.pick(4 * count)
    if analysed == "early":
        await watched.analyse()
    await watched.flush(claims[:count], advance)
    pages_alone = watched.pages()
    await crowd(watched, analysed == "late")
    await watched.flush(claims[count : 2 * count], advance)
    assert watched.indexes() - {"executions_promise"} == {"executions_pkey"}  # by promise: targets of signals
    assert watched.widest() <= count
    assert watched.widest("signals") == 0
    assert watched.indexes("signals") <= {"signals_inbox", "signals_dedup"}
    assert watched.pages() < 3 * pages_alone


@STATISTICS
@pytest.mark.parametrize("riding", ["children", "published", "line", "consumed"])
async def test_what_rides_on_a_commit_is_by_id(watched: Watched, riding: str, analysed: str) -> None:
    def commit_of(claim: ExecutionClaim) -> Commit:
        if riding == "children":
            return Commit(claim, (wait_children(), SpawnExecutions(child_rows(claim, 1, queue="theirs"))))
        if riding == "published":
            return Commit(claim, (AdvanceExecution(status=Status.EXECUTING, published="{}"),))
        if riding == "consumed":
            return Commit(claim, (go(), ConsumeSignals((claim.inbox[0].id,))))
        return Commit(claim, (keep(), RecordTransition("a", "next", "b", 0)))

    await watched.store.insert([row(f"{n}") for n in range(2 * BATCH)])
    await watched.store.deliver([NewSignal(promise_of(f"{n}"), "go", "1", "1") for n in range(2 * BATCH)])
    claims = await watched.pick(2 * BATCH)
    if analysed == "early":
        await watched.analyse()
    await watched.commit([commit_of(claim) for claim in claims[:BATCH]])
    await crowd(watched, analysed == "late")
    await watched.commit([commit_of(claim) for claim in claims[BATCH:]])
    assert watched.indexes() - {"executions_promise"} == {"executions_pkey"}
    assert watched.widest() <= BATCH
    assert watched.widest("signals") <= BATCH


async def test_a_kept_lease_stays_in_its_page(watched: Watched) -> None:
    """DESIGN section 6: no indexed column changes under a kept lease, so every such update is a HOT one."""
    await watched.store.insert([row(f"{n}") for n in range(BATCH)])
    claims = await watched.pick()
    query = "select pg_stat_get_xact_tuples_hot_updated($1::text::regclass)"
    table = f"{watched.store._schema}.executions"
    # The first ones spread over fresh pages; then old versions make room for new ones.
    for step in ("second", "third"):
        await watched.flush(claims, keep(step))
    async with watched.connection.transaction():
        before = await watched.connection.fetchval(query, table)
        await watched.flush(claims, keep("fourth"))
        assert await watched.connection.fetchval(query, table) - before >= 0.9 * BATCH


@STATISTICS
async def test_inserting_and_delivering_are_by_index(watched: Watched, analysed: str) -> None:
    await watched.store.insert([row(f"old{n}") for n in range(BATCH)])
    await watched.pick()
    if analysed == "early":
        await watched.analyse()
    await start_and_signal(watched, "first")
    await crowd(watched, analysed=False)
    schema = watched.store._schema
    await watched.connection.execute(
        f"update {schema}.executions set unique_key = promise, unique_scope = '{{done}}' where status = 'done'"
    )
    if analysed == "late":
        await watched.analyse()
    await start_and_signal(watched, "second")


async def start_and_signal(watched: Watched, label: str) -> None:
    rows = [
        row(f"{label}{n}", unique_key=f"{label}{n // 2}".encode(), unique_scope=("runnable",)) for n in range(BATCH)
    ]
    refused = await watched.call("insert", *execution_columns(rows, insertion_order(rows)))
    assert len(refused) == BATCH // 2
    assert watched.indexes() <= {"executions_promise", "executions_unique_guard"}
    assert watched.widest() <= BATCH
    signals = signal_columns([NewSignal(promise_of(f"{label}{n}"), "go", "1", f"{n}") for n in range(BATCH)])
    for _ in range(2):  # the same ones again are duplicates
        await watched.call("deliver", *signals)
        assert watched.indexes() <= {"executions_promise", "executions_pkey"}
        assert max(watched.widest(relation) for relation in ("executions", "signals", "signal_keys")) <= BATCH
        await watched.call("deliver_one", *(column[0] for column in signals))
        assert watched.indexes() <= {"executions_promise", "executions_pkey"}
        assert max(watched.widest(relation) for relation in ("executions", "signals", "signal_keys")) == 1


async def test_hot_calls_use_no_bitmaps(watched: Watched) -> None:
    """A bitmap marks no entry of an index as dead, and would read every signal that was ever consumed."""

    def has_bitmaps() -> bool:
        ours = [node for node in watched.nodes() if node.get("Relation Name") in ("executions", "signals")]
        assert ours
        return any(node["Node Type"] == "Bitmap Heap Scan" for node in ours)

    await watched.store.insert([row("a"), row("b")])
    claims = await watched.pick()
    assert not has_bitmaps()
    await watched.flush(claims, park("go"))
    assert not has_bitmaps()
    signals = signal_columns([NewSignal(promise_of("a"), "go", "1"), NewSignal(promise_of("b"), "go", "1")])
    await watched.call("deliver_one", *(column[0] for column in signals))
    assert not has_bitmaps()
    await watched.call("deliver", *signals)
    assert not has_bitmaps()
    claims = await watched.pick()
    assert [len(claim.inbox) for claim in claims] == [1, 1]
    assert not has_bitmaps()
    for keeps in (keep(), go()):
        await watched.commit([Commit(claim, (keeps, ConsumeSignals((claim.inbox[0].id,)))) for claim in claims])
        assert not has_bitmaps()


@STATISTICS
async def test_timers_and_the_reaper_are_by_index(watched: Watched, analysed: str) -> None:
    await fill(watched, "parked-before", "awaiting_signal", count=BATCH)
    await fill(watched, "theirs-before", "executing", count=BATCH)
    await fill(watched, "later-before", "runnable", count=BATCH, seconds=86_400)
    if analysed == "early":
        await watched.analyse()
    await look_around(watched, "first")
    await crowd(watched, analysed == "late")
    await look_around(watched, "second")


async def look_around(watched: Watched, label: str) -> None:
    """What workers do by themselves; of a dead one, take back what it held."""
    await watched.store.insert([row(f"{label}{n}") for n in range(2)])
    claims = await watched.pick()
    await watched.call("disown", "w1", [])
    assert (len(claims), watched.widest()) == (2, 2)
    claims = await watched.pick()
    await watched.connection.execute(f"update {watched.store._schema}.workers set expires_at = now()")
    (reaped,) = await watched.call("reap", 100, 10)
    assert reaped["released"] == 2
    assert watched.widest() <= 2
    cancelled = await watched.call("cancel", [claim.promise for claim in claims], [], [], "over")
    assert [status for (status,) in cancelled] == ["cancelled"] * 2
    assert watched.widest() <= 2
    await Hand(watched.store, "w1", lease_seconds=3600).start()
    await watched.call("fire_timers", 100, "deadline exceeded")
    assert watched.widest() <= 1
    ((waiting,),) = await watched.call("waiting_priority", ["default"], [HANDLER])
    assert waiting is None
    assert watched.widest() <= 3, "the first of each priority"
    ((purged,),) = await watched.call("purge", 0.0, None, None, 2)
    assert purged == 2
    assert watched.widest() <= BATCH


async def test_looking_at_an_execution_is_planned_once(watched: Watched) -> None:
    """Whoever polls one would else plan the view of executions each time, which takes longer than to read it."""
    await watched.store.insert([row("a")])
    for _ in range(10):
        (found,) = await watched.call("view_by_promise", promise_of("a"))
        assert found["promise"] == promise_of("a")
    query = "select generic_plans from pg_prepared_statements where statement like '%executions_now where promise = $1'"
    assert await watched.connection.fetchval(query) == 5, "after five that the server plans to compare"


async def test_looking_at_queues_reads_no_whole_table(watched: Watched) -> None:
    """A dashboard asks every few seconds."""
    await crowd(watched, analysed=True)
    bound = 100
    (stats,) = await watched.call("queue_stats", bound, "", 10)
    assert (stats["name"], stats["runnable"], stats["executing"]) == ("default", 2 * (bound + 1), bound + 1)
    assert "Seq Scan" not in watched.indexes()
    assert watched.widest() <= bound + 1


async def test_rare_statuses_are_found_by_their_index(watched: Watched) -> None:
    await fill(watched, "failed", "failed", count=40)
    await fill(watched, "parked", "awaiting_signal", count=40)
    await fill(watched, "done", "done")
    await watched.connection.execute("vacuum analyze")
    for status, index in ((Status.FAILED, "executions_regretted"), (Status.AWAITING_SIGNAL, "executions_idle")):
        watched.plans.clear()
        block = "browse_idle" if status in IDLE else "browse_status"
        query = watched.store._sql[block].replace("{status}", f"'{status}'")
        found = await watched.connection.fetch(query, 2**62, None, None, None, None, 20)
        assert len(found) == 20
        assert index in watched.indexes()
        assert watched.widest() <= 40


async def test_a_page_far_down_of_what_lives_passes_over_nothing_that_ended(watched: Watched) -> None:
    """What ended is old, what lives is young; a page that begins among the old ones has nothing to show."""
    await fill(watched, "done", "done")
    middle = MANY // 2
    for label, status in (("next", "runnable"), ("parked", "awaiting_signal"), ("theirs", "executing")):
        await fill(watched, label, status, count=40)
    await fill(watched, "blocked", "runnable", count=40, key="hot")
    await watched.connection.execute("vacuum analyze")
    sql = watched.store._sql
    queries = [
        *(sql["browse_idle"].replace("{status}", f"'{status}'") for status in ("runnable", "awaiting_signal")),
        *(sql["browse_few"].replace("{few}", sql[few]) for few in ("few_pickable", "few_executing")),
    ]
    for before, count in ((middle, 0), (2**62, 40)):
        for query in queries:
            watched.plans.clear()
            found = await watched.connection.fetch(query, before, None, None, None, None, 60)
            assert len(found) == count
            assert "Seq Scan" not in watched.indexes()
            assert watched.widest() <= 40
    watched.plans.clear()
    assert await watched.connection.fetch(sql["pickable_past"], 39)
    assert not await watched.connection.fetch(sql["pickable_past"], 40)
    assert watched.indexes() == {"executions_pick", "executions_pick_keyed"}


async def test_a_rare_definition_is_found_by_its_index(watched: Watched) -> None:
    """Issue 8: a list by kind or name costs the same however many others there are, and whatever was analysed."""
    await watched.store.insert([row(f"rare{n}", kind="flow", name="rare") for n in range(40)])
    await watched.store.insert([row(f"crowd{n}", name="crowd") for n in range(300)])
    await fill(watched, "done", "done")
    for _ in range(2):
        watched.plans.clear()
        sql = watched.store._sql
        named = await watched.connection.fetch(sql["newest_named"], 2**62, None, "rare")
        assert [line["kind"] for line in named] == ["flow"]
        for kind, name in (("flow", "rare"), ("machine", "crowd")):
            found = await watched.connection.fetch(sql["browse_named"], 2**62, 0, None, None, 20, kind, name)
            assert len(found) == 20
        assert watched.indexes() == {"executions_named", "executions_pkey"}
        assert watched.indexes("crowds") <= {"crowds_of", "Seq Scan"}  # of three rows
        assert watched.widest() <= 300  # of a block
        await watched.connection.execute("vacuum analyze")


def steps(claims: list[ExecutionClaim], first: int) -> list[Commit]:
    """The shape of a workflow's step: an advance and a segment."""
    return [Commit(claim, (keep(), AppendJournal(first, 3, '{"events":[]}'))) for claim in claims]


@pytest.mark.parametrize("count", [1, BATCH])
async def test_a_step_of_a_journal_costs_the_same_however_long_it_is(watched: Watched, count: int) -> None:
    """Issue 3: the cost of a step does not grow with the length of the history."""
    await watched.store.insert([row(f"{n}") for n in range(count)])
    claims = await watched.pick(count)
    schema = watched.store._schema
    await watched.commit(steps(claims, 0))
    pages_alone = watched.pages()
    await watched.connection.execute(
        f"insert into {schema}.journal select e.id, 3 * g, 3, '[]' "
        f"from {schema}.executions e cross join generate_series(1, {MANY * 10 // count}) g"
    )
    await watched.connection.execute(f"vacuum analyze {schema}.journal")
    await watched.commit(steps(claims, 1_000_000))
    assert watched.indexes() == {"executions_pkey"}
    assert watched.pages() < 3 * pages_alone


@STATISTICS
@pytest.mark.parametrize("count", [1, BATCH])
async def test_steps_that_leave_their_rows_alone_are_by_id_and_so_is_who_takes_these(
    watched: Watched, count: int, analysed: str
) -> None:
    """Whatever is held by others, and whatever the tables held when the plans were made."""
    await watched.store.insert([row(f"{n}") for n in range(2 * count)])
    claims = await watched.pick(2 * count)
    await watched.commit(steps(claims, 0))
    if analysed == "early":
        await watched.analyse()
    await leave_and_take(watched, claims[:count])
    await crowd(watched, analysed == "late")
    await fill_journals(watched, 4, analysed == "late", where="input_hash = ''")
    await leave_and_take(watched, claims[count:])


async def fill_journals(watched: Watched, segments: int, analysed: bool, *, where: str = "true") -> None:
    """So many of three events to each execution of which that is true."""
    schema = watched.store._schema
    await watched.connection.execute(
        f"insert into {schema}.journal (execution_id, first, count, body) select id, 3 * g, 3, '[]' "
        f"from {schema}.executions cross join generate_series(0, {segments - 1}) g where {where}"
    )
    if analysed:
        await watched.connection.execute(f"vacuum analyze {schema}.journal")


async def leave_and_take(watched: Watched, claims: list[ExecutionClaim]) -> None:
    ids, epochs = [claim.row for claim in claims], [claim.epoch for claim in claims]
    for number in (1, 2):
        segment = (number, 3 * number, 3, '{"events":[]}', "on")
        if len(claims) == 1:
            revision, first, *rest = segment
            await watched.call("flush_step", "w1", ids[0], epochs[0], revision, 1, 3, first, *rest)
        else:
            await watched.call("leave", "w1", ids, epochs, *([value] * len(claims) for value in segment))
        assert watched.indexes() == {"executions_pkey"}
        assert watched.widest() == len(claims)
        assert watched.widest("journal") <= len(claims)
    (again, *_) = await watched.call("reclaim", "w1", ids, epochs)
    assert again["revision"] == 3
    assert watched.widest() <= 2 * len(claims), "what this worker holds"
    assert watched.widest("journal") <= 2 * len(claims)
    await watched.call("release", "w1", ids, [epoch + 1 for epoch in epochs])
    assert watched.widest() <= 2 * len(claims), "what this worker holds"
    assert watched.indexes("journal") == {"journal_pkey"}


@pytest.mark.parametrize("analysed", [False, True], ids=["no-statistics", "analysed"])
async def test_a_journal_is_one_indexed_read(watched: Watched, analysed: bool) -> None:
    await watched.store.insert([row(f"{n}") for n in range(BATCH)])
    await watched.pick(BATCH)
    await fill_journals(watched, 200, analysed)
    assert len(await watched.call("journal_of", promise_of("7"))) == 200
    assert watched.indexes("journal") == {"journal_pkey"}
    assert "Sort" not in {node["Node Type"] for node in watched.nodes()}, "the first segments wait for the last"
    assert watched.widest("journal") == 200
    assert len(watched.plans) == 1


@STATISTICS
@pytest.mark.parametrize("barrier", [False, True], ids=["reported", "barrier"])
@pytest.mark.parametrize("advance", [wait_for(1), done()], ids=["parent", "call"])
async def test_waiting_for_calls_and_their_ends_are_by_id(
    watched: Watched, advance: AdvanceExecution, barrier: bool, analysed: str
) -> None:
    await watched.store.insert([row(f"{n}") for n in range(BATCH)])
    parents = await watched.pick(BATCH)
    spawns = [
        SpawnExecutions(child_rows(parent, 1, queue="default", reports=not barrier), barrier=barrier)
        for parent in parents
    ]
    waits = wait_children() if barrier else wait_for(1)
    advances = [waits if advance.status is Status.DONE else keep()] * BATCH
    await watched.commit([Commit(*whole) for whole in zip(parents, zip(advances, spawns, strict=True), strict=True)])
    children = await watched.pick(BATCH)
    claims = children if advance.status is Status.DONE else parents
    half = BATCH // 2
    if analysed == "early":
        await watched.analyse()
    await watched.flush(claims[:half], advance)
    await crowd(watched, analysed == "late")
    await watched.flush(claims[half:], advance)
    assert watched.indexes() - {"executions_promise"} == {"executions_pkey"}
    assert watched.widest() <= 2 * BATCH, "the rows and their parents"
    assert watched.indexes("signals") <= {"signals_inbox", "signals_dedup"}


@STATISTICS
async def test_news_for_a_holder_is_by_id(watched: Watched, analysed: str) -> None:
    await watched.store.insert([row(f"{n}") for n in range(BATCH)])
    claims = await watched.pick(BATCH)
    if analysed == "early":
        await watched.analyse()
    held = [claim.row for claim in claims]
    for _ in range(8):  # then a statement of its own would be planned no more
        await watched.call("stirred", "w1", held)
    await crowd(watched, analysed == "late")
    assert await watched.call("stirred", "w1", held) == []
    assert watched.indexes() == {"executions_pkey"}
    assert watched.widest("signals") == 0


async def test_deadlines_are_found_by_their_index(watched: Watched) -> None:
    await crowd(watched, analysed=False)
    await watched.connection.execute(
        f"update {watched.store._schema}.executions set deadline_at = now() + interval '1 day'"
    )
    await watched.connection.execute("vacuum analyze")
    await watched.store.insert([row(f"{n}", deadline=0) for n in range(BATCH)])
    ((fired, *_),) = await watched.call("fire_timers", 1_000, "deadline exceeded")
    assert fired == BATCH
    assert "executions_deadline" in watched.indexes()
    assert "Seq Scan" not in watched.indexes()
    assert watched.widest() <= BATCH


async def test_stranded_runs_are_found_by_their_index(watched: Watched) -> None:
    """Ruling B17: a page a call, whatever else the ledger holds."""
    await crowd(watched, True)
    await fill(watched, "stranded", "stranded", count=BATCH)
    (page,) = await watched.call("retry_stranded", "default", [HANDLER], ["new"], 10, 0)
    assert (page["retried"], page["following"] is None) == (0, False)
    assert watched.indexes() == {"executions_stranded"}
    assert watched.widest() <= BATCH


@STATISTICS
@pytest.mark.parametrize("step", ["settled", "onward", "hooked", "ended"])
async def test_steps_of_flows_are_by_id_however_many_jobs_are_open(watched: Watched, step: str, analysed: str) -> None:
    await watched.store.insert([row(f"{n}", kind=FLOW, handler=HANDLER) for n in range(2 * BATCH)])
    jobs = await watched.pick(2 * BATCH)
    if analysed == "early":
        await watched.analyse()
    await step_through(watched, jobs[:BATCH], step)
    await crowd(watched, analysed=False)
    await fill(watched, "open", "delegated")
    schema = watched.store._schema
    await watched.connection.execute(
        f"insert into {schema}.activities (job_id, activity, dimension, ledger) "
        f"  select id, 'a', '', 0 from {schema}.executions where input_hash = '' and status = 'delegated';"
        f"insert into {schema}.guids (job_id, guid, activity, dimension, ordinal, ledger) "
        f"  select job_id, '0', 'a', '', 1, 0 from {schema}.activities on conflict do nothing;"
        f"insert into {schema}.semaphores (job_id, activity, dimension, status) "
        f"  select job_id, '', '', 1 from {schema}.activities on conflict do nothing"
    )
    if analysed == "late":
        await watched.analyse()
    await step_through(watched, jobs[BATCH:], step)


async def step_through(watched: Watched, jobs: list[ExecutionClaim], step: str) -> None:
    """Open the jobs, and take one step of each."""

    def assert_by_id() -> None:
        assert watched.indexes() - {"executions_promise", "executions_children"} == {"executions_pkey"}
        assert watched.widest() <= 2 * BATCH, "the messages and their jobs"
        relations = ("activities", "guids", "semaphores", "signals", "signal_keys")
        assert max(watched.widest(relation) for relation in relations) <= BATCH

    delegated = AdvanceExecution(status=Status.DELEGATED)
    messages = [child_rows(job, 1, kind=MESSAGE, handler=HANDLER) for job in jobs]
    await watched.commit([Commit(job, (delegated, OpenJob(own))) for job, own in zip(jobs, messages, strict=True)])
    assert_by_id()
    rows = {job.row for job in jobs}
    commits = []
    for claim in await watched.pick(2 * BATCH):
        if claim.parent_row not in rows:
            continue  # a hook of the jobs before, which has its signal
        (child,) = child_rows(claim, 1, kind=MESSAGE, handler=HANDLER, queue="elsewhere")
        collate = {
            "settled": Collate(activity="a", dimension="", guid=b"0", add=1, guid_add=1, settle=Settle((child,))),
            "onward": Collate(
                activity="a", dimension="", guid=b"0", settle=Settle((child,), onward=True), acknowledge=True
            ),
            "hooked": Collate(activity="a", dimension="", guid=b"0", awaits="go"),
            "ended": Collate(
                activity="a", dimension="", guid=b"0", guid_add=1, end=EndJob(Status.DONE), acknowledge=True
            ),
        }[step]
        commits.append(Commit(claim, (park("go") if step == "hooked" else keep(), collate)))
    await watched.commit(commits)
    assert_by_id()
    if step == "hooked":
        signals = signal_columns([NewSignal(job.promise, "go", "1", "1") for job in jobs])
        ((answers, _),) = await watched.call("deliver", *signals)
        assert answers == ["delivered"] * BATCH
        assert_by_id()


async def test_a_look_at_messages_and_at_ends_of_jobs_is_by_key(watched: Watched) -> None:
    """Also if it was planned when there was next to nothing to read."""
    some = list(range(1, BATCH + 1))
    look = (some, some, ["a"] * BATCH, [""] * BATCH, [b"0"] * BATCH)
    schema = watched.store._schema
    for count in (1, MANY):
        await watched.connection.execute(
            f"truncate {schema}.activities, {schema}.guids, {schema}.semaphores;"
            f"insert into {schema}.activities (job_id, activity, dimension, ledger) "
            f"  select g, 'a', '', 0 from generate_series(1, {count}) g;"
            f"insert into {schema}.guids (job_id, guid, activity, dimension, ordinal, ledger, response) "
            f"  select g, '0', 'a', '', 1, 10000000001, '{{}}' from generate_series(1, {count}) g;"
            f"insert into {schema}.semaphores (job_id, activity, dimension, status) "
            f"  select g, '', '', 1 from generate_series(1, {count}) g"
        )
        await fill(watched, f"job{count}", "delegated", count=count)
        for _ in range(8):
            await watched.call("flow_look", *look)
            looked = {relation: watched.widest(relation) for relation in ("executions", "activities", "guids")}
            await watched.call("flow_closing", some, ["a"])
    assert max(looked.values()) <= BATCH
    assert watched.widest("guids") <= BATCH
