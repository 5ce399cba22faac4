-- Lease the rows `v_ids`, which an earlier statement locked. Who delivers locks first (ruling E2): so this sees every
-- signal that did not find its target executing. In no order, and nothing is joined: most picks are of one row, and setting
-- up a sort or a join of rows this wide takes longer than to lease it. An inbox is a range, in the order of its index: by
-- `=` the primary key has that order as well, and a plan for few signals goes along it.
update {schema}.executions e
set status = 'executing', locked_by = p_worker, lease_epoch = e.lease_epoch + 1, key_blocked = false,
    started_at = coalesce(e.started_at, v_now), updated_at = v_now
where e.id = any (v_ids)
returning e.id, e.promise, e.lease_epoch, e.kind, e.name, e.version, e.handler, e.queue, e.priority, e.attempt,
  e.partition_key, e.revision, e.step, e.state, e.crashes, e.digest, e.awaits, e.timed_out, e.children_ready,
  e.barrier_round, e.next_child, e.cancel_requested, e.parent_id,
  array(
    select array[s.id::text, s.name, s.payload::text, s.kind] from {schema}.signals s
    where s.target_id between e.id and e.id order by s.target_id, s.id
  ),
  e.cancel_reason, e.journal_length, e.idempotency_key, e.beats, e.published, e.attributes, e.eligible_at, v_now,
  null::double precision
