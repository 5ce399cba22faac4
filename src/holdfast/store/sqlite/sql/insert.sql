-- name: insert_execution
insert into executions (
  promise, kind, name, version, handler, step, state, queue, priority, partition_key, eligible_at, paused,
  parent_id, parent_round, unique_key, unique_scope, unique_released, input_hash, digest, attributes,
  inserted_at, updated_at
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- name: insert_last_id
select seq from sqlite_sequence where name = 'executions';

-- name: insert_found
select id, input_hash from executions where promise = ?;

-- name: insert_occupant
select promise from executions where unique_guard = ?;
