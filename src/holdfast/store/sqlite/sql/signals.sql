-- name: signal_target
select id, status, awaits, kind from executions where promise = ?;

-- name: signal_key_seen
select 1 from signal_keys where target_id = ? and dedup_key = ?;

-- name: signal_insert
insert into signals (target_id, name, payload, dedup_key, inserted_at) values (?, ?, ?, ?, ?)
on conflict do nothing;

-- `awaits` stays: the woken step consumes by received id on its outcome (seed section 5). The statuses are compared one by
-- one: a list of them builds a table each time.
-- name: signal_wake
update executions set status = 'runnable', eligible_at = ?, wake_at = null, updated_at = ?
where id = ? and (status = 'awaiting_signal' or status = 'awaiting_children' or status = 'awaiting_promise');

-- Its deadline has fired, but no step has acted on that yet: it gets what it waited for.
-- name: signal_in_time
update executions set timed_out = 0 where id = ? and timed_out = 1;
