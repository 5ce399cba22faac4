-- The rows of `insert_alike_1`.
insert into {schema}.executions (
  id, promise, kind, name, version, handler, step, state, input_hash, queue, priority, eligible_at, digest,
  idempotency_key, cleans_up, inserted_at, updated_at
)
select v_ids[g.rank], g.promise, p_kind, p_name, p_version, p_handler, p_step, g.state, g.input_hash, p_queue,
  p_priority, v_now, p_digest, g.key, p_cleans_up, v_now, v_now
from unnest(p_promise, p_state, p_input_hash, p_key, p_rank) as g(promise, state, input_hash, key, rank)
