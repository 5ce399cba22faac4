-- Every statement here walks executions_pick alone; a test pins the plans (ruling E8).

-- name: pick_next_priority
select priority from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority > ?
order by priority limit 1;

-- A row with a key counts even if no code here can run it: it is the head of its key (ruling E9).
-- name: pick_due
select priority, eligible_at, id, handler, partition_key, queue from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority = ? and eligible_at <= ?
  and (handler in (select value from json_each(?)) or partition_key is not null)
order by eligible_at, id;

-- name: pick_next_due
select eligible_at from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority = ? and eligible_at > ?
order by eligible_at limit 1;

-- name: pick_lease
update executions
set status = 'executing', locked_by = ?, lease_epoch = lease_epoch + 1, started_at = coalesce(started_at, ?),
    updated_at = ?
where id in (select value from json_each(?))
returning id, lease_epoch, kind, name, version, handler, queue, priority, attempt, partition_key, promise, revision,
  step, state, crashes, digest, awaits, timed_out, children_ready, barrier_round, next_child, cancel_requested,
  parent_id, cancel_reason, journal_length, idempotency_key, beats, published, attributes;

-- name: pick_inboxes
select target_id, id, name, payload, kind from signals
where target_id in (select value from json_each(?)) order by id;

-- name: pick_worker
select 1 from workers where id = ?;

-- name: waiting_due
select 1 from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority = ? and eligible_at <= ?
  and handler in (select value from json_each(?))
limit 1;
