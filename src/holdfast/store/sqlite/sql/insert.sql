-- name: insert_execution
insert into executions (
  promise, kind, name, version, handler, step, state, queue, priority, partition_key, eligible_at, paused,
  parent_id, parent_round, unique_key, unique_scope, unique_released, input_hash, digest, attributes,
  inserted_at, updated_at, idempotency_key, reports, cleans_up, deadline_at
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- A row of which nothing special is asked: half the parameters, two thirds of the time.
-- name: insert_plain
insert into executions (
  promise, kind, name, version, handler, step, state, queue, priority, input_hash, digest, eligible_at,
  inserted_at, updated_at, idempotency_key, cleans_up
) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13, ?14, ?15)
on conflict do nothing;

-- name: insert_last_id
select seq from sqlite_sequence where name = 'executions';

-- name: insert_found
select id, input_hash from executions where promise = ?;

-- name: insert_occupant
select promise from executions where unique_guard = ?;
