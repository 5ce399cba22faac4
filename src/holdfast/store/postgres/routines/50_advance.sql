-- Write the own rows of a flush, each only while its fence holds (ruling E1). Joined by id alone.
--
-- Arrays may be shorter than p_id where the rest is null. It answers what differs from what was asked: `fenced` and
-- `odd` are positions in the arrays.
--
-- * A cancel request turns every release into "runnable now", so that a worker sees it and ends the execution. What
--   cleans up parks as it likes once its holder knows of the cancel.
-- * A paused row does not keep its lease, except for what is no progress (a heartbeat, the start of an attempt): it
--   says that a step is on its way, which may end.
-- * Under a kept lease no indexed column changes, so the update stays inside its page (HOT).

create or replace function {schema}.advance_1(
  p_worker text, p_now timestamptz, p_id bigint[], p_epoch bigint[], p_revision bigint[], p_status text[],
  p_step text[], p_state json[], p_attempt int[], p_replay boolean[], p_result json[], p_error json[],
  p_delay double precision[],
  p_awaits text[], p_wake_after double precision[], p_wake_at timestamptz[],
  p_digest text[], p_knows boolean[], p_added int[], p_pending int[],
  out fenced int[], out odd int[], out odd_status text[], out odd_cancel boolean[],
  out live bigint[], out ended bigint[], out freed bigint[], out freed_keys text[], out woke boolean,
  out stranded boolean
) language plpgsql as $$
declare
  v_applied int[];
begin
  with advanced as (
    update {schema}.executions e set
      {include advance_set}
    from unnest(
      p_id, p_epoch, p_revision, p_status, p_step, p_state, p_attempt, p_replay, p_result, p_error, p_delay, p_awaits,
      p_wake_after, p_wake_at, p_digest, p_knows, p_added, p_pending
    ) with ordinality as o(
      id, epoch, revision, status, step, state, attempt, replay, result, error, delay, awaits, wake_after, wake_at,
      digest, knows, added, pending, ord
    )
    -- The fence (ruling E1): a row has a holder if and only if it is executing, by a constraint of the table. Written
    -- so that no index but the primary key fits: the one of held rows would cost what the worker holds, each time. And so
    -- that it fits one id after the other only: by `=`, a plan for a small ledger goes through all of its rows in order.
    where e.id = any (array[o.id]) and coalesce(e.locked_by, '') = p_worker and e.lease_epoch = o.epoch
      and {include revision_now} = o.revision
    returning o.ord::int, e.id, e.status::text, e.status::text <> o.status or e.cancel_requested as is_odd,
      e.cancel_requested, e.partition_key, e.status = 'runnable' and e.eligible_at <= p_now and not e.paused as is_due
  )
  select array_agg(a.ord), array_agg(a.ord) filter (where is_odd), array_agg(a.status) filter (where is_odd),
    array_agg(a.cancel_requested) filter (where is_odd),
    array_agg(a.id) filter (where a.status not in ('done', 'failed', 'cancelled')),
    array_agg(a.id) filter (where a.status in ('done', 'failed', 'cancelled')),
    array_agg(a.id) filter (where a.partition_key is not null and a.status <> 'executing'),
    array_agg(a.partition_key) filter (where a.partition_key is not null and a.status <> 'executing'),
    coalesce(bool_or(is_due), false), coalesce(bool_or(a.status = 'stranded'), false)
  into v_applied, odd, odd_status, odd_cancel, live, ended, freed, freed_keys, woke, stranded
  from advanced a;
  if coalesce(cardinality(v_applied), 0) < cardinality(p_id) then
    fenced := array(
      select o from generate_series(1, cardinality(p_id)) o where v_applied is null or o <> all (v_applied)
    );
  end if;
end $$;
