-- Commits' own rows are written by one of six statements, by what becomes of them. SQLite touches an index only where a
-- statement names one of its columns, so that a kept lease (ruling E11) touches none. The rows of a statement share all
-- parameters; the text in which they differ comes by id in a JSON object (1), or, a long one, for itself (2).

-- The plus signs keep the planner on the ids: the index by holder would be a scan of all that this worker holds.
-- name: flush_fences
select id, lease_epoch, revision, cancel_requested, paused, partition_key, parent_id, parent_round, barrier_round,
  reports, cleans_up, unique_key is not null and not unique_released
from executions_now
where id in (select value from json_each(?)) and +status = 'executing' and +locked_by = ?;

-- name: flush_fence
select id, lease_epoch, revision, cancel_requested, paused, partition_key, parent_id, parent_round, barrier_round,
  reports, cleans_up, unique_key is not null and not unique_released
from executions_now
where id = ? and status = 'executing' and locked_by = ?;

-- A row that parked and was woken in the same commit never left its scope: it keeps its key, unless a child took it.
-- name: flush_keep_key
update or ignore executions set unique_released = 0 where id = ?;

-- name: flush_keep
update executions
set step = coalesce(?3, step), state = coalesce(?2, packed.text, state), error = ?4, attempt = ?5, awaits = ?10,
    digest = coalesce(?6, digest), crashes = 0, timed_out = 0, children_ready = 0, revision = revision + ?9,
    journal_length = journal_length + ?7, updated_at = ?8
from (select cast(key as integer) as row, value as text from json_each(?1)) packed where id = packed.row;

-- `keeping`: how many of these rows, by id with their revision, are held, and neither cancelled nor paused.
-- name: flush_held
select count(*) from json_each(?1) known cross join executions_now e
where e.id = cast(known.key as integer) and +e.status = 'executing' and +e.locked_by = ?2 and e.lease_epoch = ?3
  and e.revision = known.value and e.cancel_requested = 0 and e.paused = 0;

-- The same for one of them, and what is in its inbox.
-- name: flush_held_one
select exists (select 1 from signals where target_id = ?1) from executions_now
where id = ?1 and +status = 'executing' and +locked_by = ?2 and lease_epoch = ?3 and revision = ?4
  and cancel_requested = 0 and paused = 0;

-- The same with nothing in its inbox, and its segment; else nothing, for a segment of no row is ignored. Its revision is
-- what the row says, and its journal what the claim has seen of it. A step of '' is none: binding a null costs as much as
-- all the rest.
-- name: flush_step
insert or ignore into journal (execution_id, first, count, body, step) values (
  (
    select id from executions
    where id = ?1 and +status = 'executing' and +locked_by = ?2 and lease_epoch = ?3 and revision = ?4
      and cancel_requested = 0 and paused = 0 and not exists (select 1 from signals where target_id = ?1)
      and (select j.first + j.count from journal j where j.execution_id = ?1 order by j.first desc limit 1) = ?5
  ), ?5, ?6, ?7, nullif(?8, '')
);

-- One kept lease.
-- name: flush_keep_one
update executions
set step = coalesce(?, step), state = coalesce(?, state), error = null, attempt = ?, awaits = null,
    digest = coalesce(?, digest), crashes = 0, timed_out = 0, children_ready = 0, journal_length = journal_length + ?,
    updated_at = ?, revision = revision + ?
where id = ?;

-- Kept leases of rows that change in nothing else.
-- name: flush_keep_alike
update executions
set step = coalesce(?, step), error = null, attempt = 0, awaits = null,
    crashes = 0, timed_out = 0, children_ready = 0, journal_length = journal_length + ?, revision = revision + ?,
    updated_at = ?
where id in (select value from json_each(?));

-- name: flush_requeue
update executions
set status = 'runnable', eligible_at = ?11, locked_by = null,
    step = coalesce(?3, step), state = coalesce(?2, packed.text, state), error = ?4, attempt = ?5, awaits = ?10,
    digest = coalesce(?6, digest), crashes = 0, timed_out = 0, children_ready = 0, revision = revision + ?9,
    journal_length = journal_length + ?7, updated_at = ?8
from (select cast(key as integer) as row, value as text from json_each(?1)) packed where id = packed.row;

-- name: flush_park
update executions
set status = ?11, wake_at = ?12, children_pending = ?13, locked_by = null,
    step = coalesce(?3, step), state = coalesce(?2, packed.text, state), error = ?4, attempt = ?5, awaits = ?10,
    digest = coalesce(?6, digest), crashes = 0, timed_out = 0, children_ready = 0, revision = revision + ?9,
    journal_length = journal_length + ?7, updated_at = ?8
from (select cast(key as integer) as row, value as text from json_each(?1)) packed where id = packed.row;

-- What a step that failed was woken by is kept: a retry of a machine begins with it (as a replay, ruling E4).
-- name: flush_end
update executions
set status = ?11, result = coalesce(?2, packed.text), ended_at = ?8, locked_by = null,
    step = coalesce(?3, step), state = coalesce(?10, state), error = ?4, attempt = ?5,
    awaits = iif(?11 = 'failed', awaits, null), timed_out = ?11 = 'failed' and timed_out,
    digest = coalesce(?6, digest), crashes = 0, children_ready = ?11 = 'failed' and children_ready,
    revision = revision + ?9,
    journal_length = journal_length + ?7, updated_at = ?8
from (select cast(key as integer) as row, value as text from json_each(?1)) packed where id = packed.row;

-- A replay keeps what its redo must see again (ruling E4).
-- name: flush_replay_keep
update executions
set step = coalesce(?3, step), state = coalesce(?2, packed.text, state), error = coalesce(?4, error), attempt = ?5,
    digest = coalesce(?6, digest), revision = revision + ?9, journal_length = journal_length + ?7, updated_at = ?8
from (select cast(key as integer) as row, value as text from json_each(?1)) packed where id = packed.row;

-- name: flush_replay
update executions
set status = ?10, eligible_at = ?11, wake_at = ?12, locked_by = null,
    step = coalesce(?3, step), state = coalesce(?2, packed.text, state), error = coalesce(?4, error), attempt = ?5,
    digest = coalesce(?6, digest), revision = revision + ?9, journal_length = journal_length + ?7, updated_at = ?8
from (select cast(key as integer) as row, value as text from json_each(?1)) packed where id = packed.row;

-- name: flush_columns
update executions
set beats = coalesce(?, beats), published = coalesce(?, published), attributes = coalesce(?, attributes)
where id = ?;

-- name: flush_journal
insert into journal (execution_id, first, count, body) values (?, ?, ?, ?);

-- name: flush_journal_step
insert into journal (execution_id, first, count, body, step) values (?, ?, ?, ?, ?);

-- name: flush_remember_keys
insert or ignore into signal_keys (target_id, dedup_key)
select target_id, dedup_key from signals where id = ? and target_id = ? and dedup_key is not null;

-- name: flush_consume
delete from signals where id = ? and target_id = ?;

-- name: flush_spawned
update executions set barrier_round = barrier_round + 1, next_child = next_child + ?, children_pending = ? where id = ?;

-- name: flush_none_spawned
update executions
set barrier_round = barrier_round + 1, next_child = next_child + ?, children_pending = 0, status = 'runnable',
    children_ready = 1, eligible_at = ?, wake_at = null, locked_by = null
where id = ?;

-- name: flush_record
insert or replace into transitions (execution_id, revision, at, step, outcome, next_step, attempt, error)
values (?, ?, ?, ?, ?, ?, ?, ?);

-- Only children of the round that is open (ruling E7), and only while the parent waits for them.
-- name: barrier_count_down
update executions set children_pending = max(children_pending - ?, 0), updated_at = ?
where id = ? and status = 'awaiting_children' and barrier_round = ?;

-- name: barrier_release
update executions
set status = 'runnable', children_ready = 1, eligible_at = ?, wake_at = null, updated_at = ?
where id = ? and status = 'awaiting_children' and children_pending = 0;

-- A row that parks on the barrier it already has: those of its children that still live are counted anew.
-- name: barrier_recount
update executions
set children_pending = (
  select count(*) from executions c
  where c.parent_id = executions.id and c.parent_round = executions.barrier_round
    and c.status not in ('done', 'failed', 'cancelled')
)
where id = ? and status = 'awaiting_children';

-- Ends of children that report, in the order listed, as their parents read them (values.ChildEnd). A finished parent reads
-- no more. A successor reports under the id that was called: its own without the last three numbers (core.identity).
-- name: report_ends
insert into signals (target_id, kind, name, payload, inserted_at)
select p.id, 'child',
  lower(hex(
    case when length(c.promise) >= 44 and substr(c.promise, -12, 4) = x'ffffffff'
         then substr(c.promise, 1, length(c.promise) - 12) else c.promise end
  )),
  '{"status":"' || c.status || '","result":' || coalesce(c.result, 'null') || ',"error":' || coalesce(c.error, 'null')
    || ',"state":' || case when c.kind = 'task' then c.state else 'null' end
    || case when c.status = 'cancelled' then ',"reason":' || json_quote(c.cancel_reason) else '' end || '}',
  ?
from json_each(?) listed cross join executions c on c.id = listed.value cross join executions p on p.id = c.parent_id
where p.ended_at is null;

-- Only while the parent waits for ends of children; 0 means that it does not.
-- name: report_count_down
update executions set children_pending = max(children_pending - ?, 0), updated_at = ?
where id = ? and status = 'awaiting_promise' and children_pending > 0;

-- A row that parks on the ends of children: those in its inbox have come already.
-- name: report_recount
update executions
set children_pending = max(
  ? - (select count(*) from signals s where s.target_id = executions.id and s.kind = 'child'), 0
)
where id = ? and status = 'awaiting_promise';

-- name: report_release
update executions set status = 'runnable', eligible_at = ?, wake_at = null, updated_at = ?
where id = ? and status = 'awaiting_promise' and children_pending = 0;

-- name: report_holder
select 1 from executions where id = ? and status = 'executing';

-- A run goes on as another (ContinueExecution). Its unique key is taken from it before it ends: ending releases keys.
-- name: continue_unique
select unique_key, unique_scope, unique_released from executions where id = ?;

-- name: continue_release
update executions set unique_key = null where id = ?;

-- name: continue_place
update executions
set parent_id = o.parent_id, parent_round = o.parent_round, reports = o.reports, deadline_at = o.deadline_at,
    cancel_requested = o.cancel_requested, cancel_reason = o.cancel_reason, paused = o.paused, published = o.published,
    unique_key = ?, unique_scope = ?, unique_released = ?
from executions o
where executions.promise = ? and o.id = ?;

-- name: continue_successor
update executions set successor = ?1 where id = ?2 or promise = ?3;

-- name: fork_journal
insert into journal (execution_id, first, count, body) select id, 0, ?1, ?2 from executions where promise = ?3;

-- name: fork_length
update executions set journal_length = ?1 where promise = ?2;

-- As what it has gone on.
-- name: fork_source
select successor from executions where promise = ?;

-- name: fork_successor
update executions set successor = ?1 where promise in (?2, ?3);

-- It shows what the run showed, has what tasks had told of their progress, and is to end when that was to: a deadline that
-- has passed is none, or it could not be retried.
-- name: fork_place
update executions
set published = o.published, beats = o.beats, deadline_at = iif(o.deadline_at > ?3, o.deadline_at, null)
from executions o
where executions.promise = ?1 and o.promise = ?2;

-- A machine begins at the step that failed, and that sees what it saw.
-- name: fork_step
update executions
set awaits = o.awaits, timed_out = o.timed_out, children_ready = o.children_ready, barrier_round = o.barrier_round
from executions o
where executions.promise = ?1 and o.promise = ?2 and o.kind = 'machine';

-- The children too: they are the new row's now, and of its round.
-- name: fork_children
update executions set parent_id = (select id from executions where promise = ?1)
where (parent_id, parent_round) = (
  select o.id, o.barrier_round from executions o
  where o.promise = ?2 and o.kind = 'machine' and (o.children_ready or o.timed_out and o.awaits is null)
);

-- The new row has an inbox of its own only from now on: the order of what was sent stays.
-- name: fork_signals
update signals set target_id = (select id from executions where promise = ?1)
where target_id = (select id from executions where promise = ?2);

-- name: fork_keys
update signal_keys set target_id = (select id from executions where promise = ?1)
where target_id = (select id from executions where promise = ?2);

-- Inserted anew, so that they come after the signals that this commit delivers: those were there earlier.
-- name: continue_signals
insert into signals (target_id, kind, name, payload, dedup_key, inserted_at)
select n.id, s.kind, s.name, s.payload, s.dedup_key, s.inserted_at
from signals s, executions n
where s.target_id = ?2 and s.kind = 'signal' and n.promise = ?1
order by s.id;

-- name: continue_keys
insert into signal_keys (target_id, dedup_key)
select n.id, k.dedup_key from signal_keys k, executions n where k.target_id = ?2 and n.promise = ?1;

-- name: inbox_targets
select distinct target_id from signals where target_id in (select value from json_each(?));

-- name: inbox_matches
select 1 from signals
where target_id = ? and kind = 'signal' and name in (select value from json_each(?))
  and id not in (select value from json_each(?))
limit 1;

-- name: inbox_clear
delete from signals where target_id in (select value from json_each(?));

-- name: inbox_clear_keys
delete from signal_keys where target_id in (select value from json_each(?));

-- name: inbox_clear_ends
delete from signals where target_id in (select value from json_each(?)) and kind = 'child';

-- name: inbox_has
select 1 from signals where target_id = ? limit 1;

-- Whether there is anything in any inbox, and any key that is remembered.
-- name: inbox_any
select exists (select 1 from signals), exists (select 1 from signal_keys);
