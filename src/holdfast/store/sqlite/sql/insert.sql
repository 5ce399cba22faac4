-- name: insert_execution
insert into executions (
  promise, input_hash, state, idempotency_key, kind, name, version, handler, step, queue, priority, partition_key,
  eligible_at, paused, parent_id, parent_round, unique_key, unique_scope, unique_released, digest, attributes,
  inserted_at, updated_at, reports, cleans_up, deadline_at
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- Rows that share all but promise (one behind the other in 1, of length 2), hash, state and key (by row in 3).
-- name: insert_alike
insert into executions (
  promise, input_hash, state, idempotency_key, kind, name, version, handler, step, queue, priority, partition_key,
  eligible_at, paused, parent_id, parent_round, unique_key, unique_scope, unique_released, digest, attributes,
  inserted_at, updated_at, reports, cleans_up, deadline_at
)
select substr(?1, key * ?2 + 1, ?2), value ->> 0, value ->> 1, value ->> 2, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
  ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
  ?21, ?22, ?23, ?24, ?25
from json_each(?3) where true
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
