-- Insert the children at the positions `v_only` (null: all), and add to the answer those that were not created.
if v_only is distinct from '{}' then
  select array_agg(i.ord) as positions, array_agg(i.promise) as promises, array_agg(i.collided) as collided,
    array_agg(i.key_conflict) as conflicts
  into v_found
  from {schema}.insert_1(
    p_promise, p_kind, p_name, p_version, p_handler, p_first_step, p_first_state, p_input_hash, p_queue, p_priority,
    p_partition_key, p_start_delay, p_at, p_unique_key, p_unique_scope, p_child_digest, p_attributes, p_paused,
    p_idempotency_key, p_reports, p_cleans_up, p_deadline, p_rank,
    array(select p_id[c] from unnest(p_child_ord) c),
    -- Of no round: it reports by itself.
    array(select case when c = any (p_spawn_ord) then v_round[c] + 1 end from unnest(p_child_ord) c),
    v_only
  ) i;
  child_position := child_position || v_found.positions;
  child_promise := child_promise || v_found.promises;
  child_collided := child_collided || v_found.collided;
  child_conflict := child_conflict || v_found.conflicts;
end if;
