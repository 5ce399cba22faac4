-- Lease rows of one queue that has one priority, no limit and no keys: most picks of most ledgers. The rest is in 40_pick.
-- A connection analyses and plans each statement, and each expression, when it first comes to it; so a worker that has
-- just started waits for its first pick much less where there are few. And one that is idle plans them in advance: a pick
-- of no rows goes through all of them, for whichever worker, and finds nothing.

create or replace function {schema}.pick_1(
  p_worker text, p_queues text[], p_rooms int[], p_handlers bigint[], p_limit int
) returns table (
  {include claim_columns}
) language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
  v_queue text := p_queues[1];
  v_plain int := least(p_rooms[1], p_limit);
  v_priority int;
  v_last int;
  v_is_registered boolean;
  v_is_limited boolean;
  v_is_unsettled boolean;
  v_is_plain boolean;
  v_ids bigint[] := '{}';
  v_is_trial boolean := p_limit = 0;
begin
  select exists (select from {schema}.workers w where w.id = p_worker),
    exists (
      select from {schema}.queues u
      where u.name = any (p_queues) and (u.paused or u.concurrency is not null or u.rate is not null)),
    exists (select from {schema}.partition_locks where holder is null),
    (select e.priority from {schema}.executions e
      where e.queue = v_queue and e.status = 'runnable' and not e.paused and e.partition_key is null
      order by e.queue, e.priority limit 1),
    (select e.priority from {schema}.executions e
      where e.queue = v_queue and e.status = 'runnable' and not e.paused and e.partition_key is null
      order by e.queue desc, e.priority desc limit 1),
    cardinality(p_queues) = 1 and p_rooms[1] > 0 and not exists (
      select from {schema}.executions e
      where e.queue = v_queue and e.status = 'runnable' and not e.paused and not e.key_blocked
        and e.partition_key is not null)
  into v_is_registered, v_is_limited, v_is_unsettled, v_priority, v_last, v_is_plain;
  if not v_is_registered and not v_is_trial then
    next_due := -1;
    return next;
    return;
  end if;
  if not v_is_trial and (v_is_limited or v_is_unsettled or not v_is_plain or v_last > v_priority) then
    return query select * from {schema}.pick_widely_1(
      p_worker, p_queues, p_rooms, p_handlers, p_limit, v_now, v_is_limited, v_is_unsettled);
    return;
  end if;
  if v_priority is not null or v_is_trial then
    v_ids := array({include scan_plain});
    if v_ids <> '{}' or v_is_trial then
      {include lock_worker}
      return query
        {include lease_rows};
      -- A workflow commits that it took something in before it begins anything, and that commit takes this one along to
      -- the disk: who loses this one with the server has done nothing yet, and is fenced.
      if not exists (
        select from {schema}.executions e
        where e.id = any (v_ids)
          and (e.kind <> 'workflow' or not exists (select from {schema}.signals s where s.target_id = e.id))
      ) then
        set local synchronous_commit = off;
      end if;
    end if;
    if cardinality(v_ids) < v_plain or v_is_trial then
      next_due := extract(epoch from (
        select e.eligible_at from {schema}.executions e
        where e.queue = v_queue and e.priority = v_priority and e.status = 'runnable' and not e.paused
          and e.partition_key is null and e.eligible_at > v_now and e.handler = any (p_handlers)
        order by e.eligible_at limit 1) - v_now);
    end if;
  end if;
  return next;
end $$;
