-- The rows of `insert_1`, where they differ in nothing but what each has for itself: most columns are not read from arrays.
insert into {schema}.executions (
  id, promise, kind, name, version, handler, step, state, input_hash, queue, priority, eligible_at, digest,
  idempotency_key, reports, cleans_up, parent_id, parent_round, inserted_at, updated_at, listed
)
select
  v_ids[coalesce(g.rank, g.ord)], g.promise, v_kind, v_name, v_version, v_handler, v_step, g.state, g.input_hash,
  v_queue, v_priority, v_now, v_digest, g.idempotency_key, v_reports, v_cleans_up, g.parent_id, g.parent_round,
  v_now, v_now, not v_is_crowd
from unnest(p_promise, p_state, p_input_hash, p_idempotency_key, p_rank, p_parent_id, p_parent_round) with ordinality
  as g(promise, state, input_hash, idempotency_key, rank, parent_id, parent_round, ord);
if v_is_crowd then
  insert into {schema}.crowds (definition, block)
  select distinct v_kind || '/' || v_name, id >> 8 from unnest(v_ids) id;
end if;
