-- What follows from rows that end, for flushes and cancels alike. Written so that no index but the primary key fits: that
-- of all children, of all that wait or of all that are held would be read from end to end where a plan is of a small ledger;
-- and so that this fits one id after the other only: see `advance_1`.
--
--   release_barriers_1  ended children count down their parents' barriers
--   report_ends_1       ends of children that report go into their parents' inboxes
--   finish_1            inboxes, keys and notifications
--   inboxes_1           which of the rows that live on have something in their inbox

-- The parents are locked already, by whoever calls this.
create or replace function {schema}.release_barriers_1(p_children bigint[], p_now timestamptz, out woke boolean)
language plpgsql as $$
begin
  with released as (
    update {schema}.executions p set
      children_pending = greatest(p.children_pending - d.ended, 0),
      status = case when p.status = 'awaiting_children' and p.children_pending <= d.ended
        then 'runnable' else p.status end,
      children_ready = p.children_ready or (p.status = 'awaiting_children' and p.children_pending <= d.ended),
      eligible_at = case when p.status = 'awaiting_children' and p.children_pending <= d.ended
        then p_now else p.eligible_at end,
      wake_at = case when p.status = 'awaiting_children' and p.children_pending <= d.ended then null else p.wake_at end,
      updated_at = p_now
    from (
      select c.parent_id, c.parent_round, count(*) as ended
      from {schema}.executions c
      where c.id = any (p_children) and c.successor is null
      group by c.parent_id, c.parent_round
    ) d
    -- Only children of the round that is open: those of an earlier one were given up (ruling E7).
    where p.id = any (array[d.parent_id]) and p.barrier_round = d.parent_round and p.children_pending > 0
      and p.status not in ('done', 'failed', 'cancelled')
    returning p.status = 'runnable' and not p.paused as is_due
  )
  select coalesce(bool_or(is_due), false) into woke from released;
end $$;

-- Exactly once a child, in the order given, and only while its parent lives. The parents are locked already, by whoever
-- calls this; `woke`: one of them became runnable, or its holder has something to look at.
create or replace function {schema}.report_ends_1(p_children bigint[], p_now timestamptz, out woke boolean)
language plpgsql as $$
declare
  v_parents bigint[];
begin
  with reported as (
    insert into {schema}.signals as s (target_id, kind, name, payload, dedup_key, inserted_at)
    select p.id, 'child', encode({schema}.origin_1(c.promise), 'hex'),
      ('{"status":"' || c.status || '","result":' || coalesce(c.result::text, 'null') || ',"error":'
        || coalesce(c.error::text, 'null') || ',"state":'
        || case when c.kind = 'task' then c.state::text else 'null' end
        || case when c.status = 'cancelled' and c.cancel_reason is not null
                then ',"reason":' || to_json(c.cancel_reason) else '' end || '}')::json,
      'c:' || encode({schema}.origin_1(c.promise), 'hex'), p_now
    from unnest(p_children) with ordinality x(id, ord)
    join {schema}.executions c on c.id = any (array[x.id])
    join {schema}.executions p on p.id = any (array[coalesce(c.parent_id, 0)])
    where c.reports and c.successor is null and p.ended_at is null
    order by x.ord
    on conflict do nothing
    returning s.target_id
  )
  select array_agg(target_id) into v_parents from reported;
  woke := false;
  if v_parents is null then
    return;
  end if;
  -- Only while the parent waits for ends of children; 0 means that it does not.
  with counted as (
    update {schema}.executions p set
      children_pending = greatest(p.children_pending - d.ended, 0),
      status = case when p.children_pending <= d.ended then 'runnable' else p.status end,
      eligible_at = case when p.children_pending <= d.ended then p_now else p.eligible_at end,
      wake_at = case when p.children_pending <= d.ended then null else p.wake_at end,
      updated_at = p_now
    from (select t.id, count(*) as ended from unnest(v_parents) t(id) group by t.id) d
    where p.id = any (array[d.id]) and p.status::text = 'awaiting_promise' and p.children_pending > 0
    returning p.status = 'runnable' and not p.paused as is_due
  )
  select coalesce(bool_or(is_due), false) into woke from counted;
  woke := woke or exists (
    select from {schema}.executions p where p.id = any (v_parents) and p.locked_by is not null);
end $$;

create or replace function {schema}.finish_1(
  p_now timestamptz, p_ended bigint[], p_freed bigint[], p_freed_keys text[], p_woke boolean, p_stranded boolean
) returns void language plpgsql as $$
begin
  if p_ended is not null then
    -- What nobody read of a run that failed is kept, with the keys that it knows: a retry takes them over. Looked up for
    -- what there is to delete, which mostly is nothing.
    delete from {schema}.signals s where s.target_id = any (p_ended) and (s.kind <> 'signal' or
      (select e.status from {schema}.executions e where e.id = s.target_id and e.kind <> 'flow')
        is distinct from 'failed');
    delete from {schema}.signal_keys k where k.target_id = any (p_ended) and
      (select e.status from {schema}.executions e where e.id = k.target_id and e.kind <> 'flow')
        is distinct from 'failed';
  end if;
  if p_ended is not null or p_stranded then
    perform {schema}.wake_1('ended');
  end if;
  if p_freed is not null then
    perform {schema}.release_keys_1(p_freed_keys, p_freed);
  end if;
  if p_woke or p_freed is not null then
    perform {schema}.wake_1('work');
  end if;
end $$;

-- Which of these rows have signals, by their position in p_id.
create or replace function {schema}.inboxes_1(p_id bigint[], p_live bigint[]) returns int[] language plpgsql as $$
begin
  return array(
    select array_position(p_id, l.id) from unnest(p_live) l(id)
    where (select true from {schema}.signals s where s.target_id = l.id limit 1));
end $$;
