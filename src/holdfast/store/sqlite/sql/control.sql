-- name: control_find
select id, status, partition_key, parent_id, parent_round, reports, cleans_up, cancel_requested
from executions where promise = ?;

-- What lives in a range of ids: below what has ended, too, for what that started may still run (ruling E10).
-- name: cancel_tree
select id from executions where promise >= ? and promise < ? and ended_at is null;

-- name: cancel_rows
select id, status, partition_key, parent_id, parent_round, reports, cleans_up, cancel_requested
from executions where id in (select value from json_each(?));

-- What nobody holds does not clean up: then it is ended like everything else. But messages of a flow close its
-- obligations (ruling A11).
-- name: cancel_force
update executions set cleans_up = 0
where id in (select value from json_each(?)) and status not in ('executing', 'delegated', 'done', 'failed', 'cancelled')
  and kind <> 'message';

-- name: cancel_end
update executions
set status = 'cancelled', cancel_requested = 1, cancel_reason = coalesce(cancel_reason, ?), ended_at = ?, wake_at = null, awaits = null, key_blocked = 0,
    timed_out = 0, children_ready = 0, updated_at = ?
where id = ?;

-- A cancel is not held up by a pause, whichever came first.
-- name: cancel_ask
update executions set cancel_requested = 1, cancel_reason = coalesce(cancel_reason, ?), paused = 0, updated_at = ?
where id = ?;

-- name: cancel_wake
update executions set status = 'runnable', eligible_at = ?, wake_at = null where id = ?;

-- name: deadlines_due
select id, status, partition_key, parent_id, parent_round, reports, cleans_up, cancel_requested from executions
where deadline_at <= ? and ended_at is null and cancel_requested = 0 order by deadline_at, id limit ?;

-- name: deadlines_next
select deadline_at from executions
where deadline_at > ? and ended_at is null and cancel_requested = 0 order by deadline_at limit 1;

-- A paused row is out of its key's line, and joins it anew when it goes on.
-- name: pause_set
update executions set paused = ? and not cancel_requested, key_blocked = 0, updated_at = ? where id = ?;

-- name: resume_set
update executions set status = 'runnable', attempt = max(attempt - crashes, 0), crashes = 0, eligible_at = ?,
    updated_at = ?
where id = ? and status = 'stranded';

-- name: stranded_page
select id, handler, digest, coalesce(tried, '[]'),
  json_extract(error, '$.kind') = 'nondeterminism'
    or json_extract(error, '$.type') in ('holdfast.core.errors.DecodeError', 'holdfast.core.errors.ConfigurationError'),
  iif(kind = 'message', parent_id, null)
from executions where held = 'stranded' and queue = ? and id > ? and digest is not null order by id limit ?;

-- name: stranded_retry
update executions set status = 'runnable', attempt = max(attempt - crashes, 0), crashes = 0, eligible_at = ?, tried = ?,
    updated_at = ?
where id = ? and status = 'stranded' and digest = ?;

-- name: purge_find
select e.id from executions e
where e.ended_at <= ?1 and (?2 is null or e.queue = ?2) and (?3 is null or e.name = ?3)
  and not exists (
    select 1 from executions p
    where p.id = e.parent_id and p.barrier_round = e.parent_round
      and (p.ended_at is null or p.children_ready or p.timed_out and p.awaits is null)
  )
  -- nor what the run that goes on in its place, or went on and ended since, is found by
  and not exists (
    select 1 from executions n where n.promise = e.successor and (n.ended_at is null or n.ended_at > ?1)
  )
order by e.ended_at limit ?4;

-- name: purge_still
select e.id from executions e
where e.id in (select value from json_each(?1))
  and not exists (
    select 1 from executions n where n.promise = e.successor and (n.ended_at is null or n.ended_at > ?2)
  );

-- name: purge_executions
delete from executions where id in (select value from json_each(?));

-- name: purge_journal
delete from journal where execution_id in (select value from json_each(?));

-- name: purge_transitions
delete from transitions where execution_id in (select value from json_each(?));
