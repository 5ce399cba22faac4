-- The rows of `insert_1` at the positions `v_left`.
insert into {schema}.executions as e (
  id, promise, kind, name, version, handler, step, state, input_hash, queue, priority, partition_key,
  eligible_at, deadline_at, unique_key, unique_scope, unique_released, digest, attributes, paused,
  idempotency_key, reports, cleans_up, parent_id, parent_round, inserted_at, updated_at
)
select
  v_ids[coalesce(g.rank, g.ord)], g.promise, coalesce(g.kind, p_kind[1]), coalesce(g.name, p_name[1]),
  coalesce(g.version, p_version[1]), coalesce(g.handler, p_handler[1]), coalesce(g.step, p_step[1]), g.state,
  g.input_hash, coalesce(g.queue, p_queue[1]), coalesce(g.priority, p_priority[1]), g.partition_key,
  greatest(v_now + coalesce(g.delay, 0) * interval '1 second', g.at),
  greatest(v_now + coalesce(g.delay, 0) * interval '1 second', g.at) + g.deadline * interval '1 second',
  g.unique_key, string_to_array(g.unique_scope, ',')::{schema}.status[],
  -- A scope that the first status is not in would be entered later, and abort whoever moves the row (E14).
  g.unique_key is not null and 'runnable' <> all (string_to_array(g.unique_scope, ',')),
  nullif(coalesce(g.digest, p_digest[1]), ''), g.attributes, coalesce(g.paused, false), g.idempotency_key,
  coalesce(g.reports, p_reports[1], false), coalesce(g.cleans_up, p_cleans_up[1], false), g.parent_id, g.parent_round,
  v_now, v_now
from unnest(
  p_promise, p_kind, p_name, p_version, p_handler, p_step, p_state, p_input_hash, p_queue, p_priority,
  p_partition_key, p_delay, p_at, p_unique_key, p_unique_scope, p_digest, p_attributes, p_paused,
  p_idempotency_key, p_reports, p_cleans_up, p_deadline, p_rank, p_parent_id, p_parent_round
) with ordinality as g(
  promise, kind, name, version, handler, step, state, input_hash, queue, priority,
  partition_key, delay, at, unique_key, unique_scope, digest, attributes, paused,
  idempotency_key, reports, cleans_up, deadline, rank, parent_id, parent_round, ord
)
where v_left is null or g.ord::int = any (v_left)
