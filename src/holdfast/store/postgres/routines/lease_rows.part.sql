-- Lease the rows `v_ids`, which an earlier statement locked. Who delivers locks first (ruling E2): so this sees every
-- signal that did not find its target executing.
with leased as (
  update {schema}.executions e
  set status = 'executing', locked_by = p_worker, lease_epoch = e.lease_epoch + 1, key_blocked = false,
      started_at = coalesce(e.started_at, v_now), updated_at = v_now
  where e.id = any (v_ids)
  returning e.id, e.promise, e.lease_epoch, e.kind, e.name, e.version, e.handler, e.queue, e.priority, e.attempt,
    e.partition_key, e.revision, e.step, e.state, e.crashes, e.digest, e.awaits, e.timed_out, e.children_ready,
    e.barrier_round, e.next_child, e.cancel_requested, e.parent_id, e.eligible_at, e.cancel_reason,
    e.journal_length, e.idempotency_key, e.beats, e.published, e.attributes
)
select l.id, l.promise, l.lease_epoch, l.kind, l.name, l.version, l.handler, l.queue, l.priority, l.attempt,
  l.partition_key, l.revision, l.step, l.state, l.crashes, l.digest, l.awaits, l.timed_out, l.children_ready,
  l.barrier_round, l.next_child, l.cancel_requested, l.parent_id, s.ids, s.names, s.payloads, s.kinds,
  l.cancel_reason, l.journal_length, l.idempotency_key, l.beats, l.published, l.attributes, v_now,
  null::double precision
from leased l left join (
  select g.target_id, array_agg(g.id order by g.id) as ids, array_agg(g.name order by g.id) as names,
    array_agg(g.payload order by g.id) as payloads, array_agg(g.kind order by g.id) as kinds
  from {schema}.signals g where g.target_id = any (v_ids) group by g.target_id
) s on s.target_id = l.id
order by l.priority, l.eligible_at, l.id
