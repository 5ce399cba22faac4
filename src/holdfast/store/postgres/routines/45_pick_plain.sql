-- Lease rows of one queue that has one priority, no limit and no keys: most picks of most ledgers. The rest is in 40_pick.
-- A connection analyses and plans each statement, and each expression, when it first comes to it; so a worker that has
-- just started waits for its first pick much less where there are few. And one that is idle plans them in advance: a pick
-- of no rows goes through all of them, for whichever worker, and finds nothing.
--
-- What was taken leaves entries in the index until the next vacuum, all of them where the next look would begin: a million
-- in a busy minute. So a worker that empties a long queue says where it is, and is looked for from there on; `p_front_*`
-- are the place of the first row that it had last. Rows that are more urgent are found all the same. One that comes to be
-- before that place, as when its start took long to commit, is found by a look from the very first, as one is when there
-- are fewer rows than were asked for, and when the worker gives no place: see `Front` for how often.

create or replace function {schema}.pick_3(
  p_worker text, p_queues text[], p_rooms int[], p_handlers bigint[], p_limit int,
  p_front_priority smallint, p_front_at timestamptz, p_front_id bigint
) returns table (
  {include claim_columns}
) language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
  v_queue text := p_queues[1];
  v_plain int := least(p_rooms[1], p_limit);
  v_urgent int := coalesce(p_front_priority - 1, 32767);  -- the least urgent priority that goes before where it is
  v_priority int;
  v_from_at timestamptz;  -- the first row that there is, or where it is
  v_from_id bigint;
  v_next record;
  v_is_limited boolean;
  v_is_unsettled boolean;
  v_is_plain boolean;
  v_is_lost boolean := false;
  v_ids bigint[] := '{}';
  v_is_trial boolean := p_limit = 0;
begin
  loop
    select exists (
        select from {schema}.queues u
        where u.name = any (p_queues) and (u.paused or u.concurrency is not null or u.rate is not null)),
      exists (select from {schema}.partition_locks where holder is null),
      cardinality(p_queues) = 1 and p_rooms[1] > 0 and not exists (
        select from {schema}.executions e
        where e.queue = v_queue and e.status = 'runnable' and not e.paused and not e.key_blocked
          and e.partition_key is not null),
      f.priority, f.eligible_at, f.id
    into v_is_limited, v_is_unsettled, v_is_plain, v_priority, v_from_at, v_from_id
    from (select) as one left join lateral (
      select e.priority, e.eligible_at, e.id from {schema}.executions e
      where e.queue = v_queue and e.priority <= v_urgent and e.status = 'runnable' and not e.paused
        and e.partition_key is null
      order by e.queue, e.priority, e.eligible_at, e.id limit 1
    ) f on true;
    v_is_plain := v_is_plain and not v_is_limited and not v_is_unsettled;
    if v_priority is null then
      v_priority := p_front_priority;
      v_from_at := p_front_at;
      v_from_id := p_front_id;
    else
      p_front_priority := null;
    end if;
    if v_is_plain and v_priority is not null or v_is_trial then
      v_ids := array({include scan_plain});
    end if;
    exit when p_front_priority is null or not v_is_plain or cardinality(v_ids) >= v_plain;
    p_front_priority := null;
    v_urgent := 32767;
  end loop;
  if v_is_plain and v_priority is not null or v_is_trial then
    if cardinality(v_ids) < v_plain or v_is_trial then
      -- The first row behind those that are due: of this priority, or of another one.
      select e.priority, e.eligible_at into v_next from {schema}.executions e
        where e.queue = v_queue and e.status = 'runnable' and not e.paused and e.partition_key is null
          and (e.priority, e.eligible_at) > (v_priority, v_now) and e.handler = any (p_handlers)
        order by e.priority, e.eligible_at limit 1;
      if v_next.priority = v_priority or v_is_trial then
        v_is_plain := not exists (
          select from {schema}.executions e
          where e.queue = v_queue and e.status = 'runnable' and not e.paused and e.partition_key is null
            and e.priority > v_priority);
        next_due := extract(epoch from v_next.eligible_at - v_now);
      else
        v_is_plain := v_next.priority is null;
      end if;
    end if;
  end if;
  if v_ids = '{}' or not v_is_plain then  -- else it is asked for the lease
    v_is_lost := not exists (select from {schema}.workers w where w.id = p_worker);
  end if;
  if v_is_lost and not v_is_trial then
    next_due := -1;
  elsif not v_is_plain and not v_is_trial then
    return query select * from {schema}.pick_widely_1(
      p_worker, p_queues, p_rooms, p_handlers, p_limit, v_now, v_is_limited, v_is_unsettled);
    return;
  elsif v_ids <> '{}' or v_is_trial then
    {include lock_worker}
    return query
      {include lease_rows};
    -- A workflow commits that it took something in, or that its time has come, before it begins anything, and that commit
    -- takes this one along to the disk: who loses this one with the server has done nothing yet, and is fenced.
    if not exists (
      select from {schema}.executions e
      where e.id = any (v_ids)
        and (e.kind <> 'workflow' or not e.timed_out
          and not exists (select from {schema}.signals s where s.target_id = any (array[e.id])))
    ) then
      set local synchronous_commit = off;
    end if;
  end if;
  return next;
end $$;
