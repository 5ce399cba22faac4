-- Lease rows (rulings E8, E9) where there is more than one queue or priority, a limit, or a partition key; see 45_pick_plain.
-- Every scan is of one queue and one priority, so that rows that are not due cost nothing.
--
--   limit_rooms_1   what the limits of the queues leave of each room
--   scan_keyed_1    the heads of free keys, and the rows that wait behind held ones
--   pick_widely_1   the whole, for a worker that has its lease; its last row has no id and says the rest

-- Only a queue that has a limit is locked: its pickers take turns, the others never meet.
create or replace function {schema}.limit_rooms_1(
  p_queues text[], inout p_rooms int[], p_now timestamptz, out p_wait double precision
) language plpgsql as $$
declare
  v_queue record;
  v_at int;
  v_tokens double precision;
  v_burst double precision;
begin
  for v_queue in
    select * from {schema}.queues
    where name = any (p_queues) and (paused or concurrency is not null or rate is not null)
    order by name for update
  loop
    v_at := array_position(p_queues, v_queue.name);
    if v_queue.paused then
      p_rooms[v_at] := 0;
    end if;
    if v_queue.concurrency is not null and p_rooms[v_at] > 0 then
      p_rooms[v_at] := least(p_rooms[v_at], greatest(0, v_queue.concurrency - (
        select count(*) from {schema}.executions where status = 'executing' and queue = v_queue.name)));
    end if;
    if v_queue.rate is not null and p_rooms[v_at] > 0 then
      -- Not the pick's own time, from before it waited for the queue: the bucket would fill for that time once more.
      p_now := {schema}.clock();
      v_burst := greatest(v_queue.rate, 1);
      v_tokens := least(v_burst, v_queue.tokens
        + greatest(0, extract(epoch from p_now - v_queue.tokens_at)) * v_queue.rate / v_queue.rate_seconds);
      -- A hair less than a whole token is one: sums of floats would otherwise ask for one more look.
      p_rooms[v_at] := least(p_rooms[v_at], floor(v_tokens + 1e-6));
      if p_rooms[v_at] = 0 then
        p_wait := least(p_wait, (1 - v_tokens) * v_queue.rate_seconds / v_queue.rate);
      end if;
      update {schema}.queues set tokens = v_tokens, tokens_at = p_now where name = v_queue.name;
    end if;
  end loop;
end $$;

-- One priority of rows with a partition key, in order, over these queues. Only the first row of a key is a candidate,
-- and only where it has one of the handlers: a first row of an unknown definition holds its key (ruling E9).
-- `p_seen` are the keys whose first row is known, over all priorities so far. `p_behind`: they wait for a holder.
-- `p_more`: the bound came first; then `p_crowd` are those that wait for a head, and hide what is behind them.
create or replace function {schema}.scan_keyed_1(
  p_queues text[], p_priority int, p_handlers bigint[], p_now timestamptz, p_need int, p_batch int, p_batches int,
  inout p_seen text[], out p_heads bigint[], out p_behind bigint[], out p_crowd bigint[], out p_more boolean
) language plpgsql as $$
declare
  v_at timestamptz := '-infinity';
  v_id bigint := 0;
  v_batch record;
  v_foreign bigint[] := '{}';
begin
  p_heads := '{}';
  p_behind := '{}';
  p_crowd := '{}';
  for v_number in 1 .. p_batches loop
    with batch as materialized (
      select c.* from unnest(p_queues) q(name) cross join lateral (
        select e.id, e.eligible_at, e.partition_key, e.handler from {schema}.executions e
        where e.queue = q.name and e.priority = p_priority and e.status = 'runnable' and not e.paused
          and not e.key_blocked and e.partition_key is not null
          and e.eligible_at <= p_now and (e.eligible_at, e.id) > (v_at, v_id)
        order by e.eligible_at, e.id limit p_batch
      ) c
      order by c.eligible_at, c.id limit p_batch
    ), ranked as (
      select b.*, l.key is not null and l.holder is distinct from b.id as is_held,
        b.partition_key in (select unnest(p_seen)) as is_seen,
        row_number() over (partition by b.partition_key order by b.eligible_at, b.id) = 1 as is_first
      from batch b left join {schema}.partition_locks l on l.key = b.partition_key
    ), judged as (
      select *, not is_held and not is_seen and is_first as is_head, handler = any (p_handlers) as is_known from ranked
    )
    select count(*) as found, max(eligible_at) as last_at,
      (array_agg(id order by eligible_at desc, id desc))[1] as last_id,
      coalesce(array_agg(id order by eligible_at, id) filter (where is_head and is_known), '{}') as heads,
      coalesce(array_agg(id) filter (where is_head and not is_known), '{}') as foreign,
      coalesce(array_agg(id) filter (where is_held), '{}') as behind,
      coalesce(array_agg(id) filter (where not is_held and not is_head), '{}') as crowd,
      coalesce(array_agg(partition_key) filter (where is_head), '{}') as keys
    into v_batch from judged;
    p_heads := p_heads || v_batch.heads;
    p_behind := p_behind || v_batch.behind;
    p_crowd := p_crowd || v_batch.crowd;
    p_seen := p_seen || v_batch.keys;
    v_foreign := v_foreign || v_batch.foreign;
    v_at := v_batch.last_at;
    v_id := v_batch.last_id;
    p_more := v_batch.found = p_batch;
    exit when not p_more or cardinality(p_heads) >= p_need;
  end loop;
  p_more := p_more and cardinality(p_heads) < p_need;
  if p_more then
    -- Crowds behind rows that this worker does not know would be walked through by every pick: let those rows hold
    -- their keys, so that the crowds can be blocked like any other.
    insert into {schema}.partition_locks (key, holder)
      select e.partition_key, e.id from {schema}.executions e
      where e.id = any (v_foreign) and e.status = 'runnable' and not e.paused order by e.partition_key
      on conflict do nothing;
  end if;
end $$;

create or replace function {schema}.pick_widely_1(
  p_worker text, p_queues text[], p_rooms int[], p_handlers bigint[], p_limit int, p_now timestamptz,
  p_is_limited boolean, p_is_unsettled boolean
) returns table (
  {include claim_columns}
) language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := p_now;
  v_priority int;
  v_first int;                  -- the priorities between which something is runnable
  v_last int;
  v_need int := p_limit;
  v_ids bigint[] := '{}';       -- locked, to be leased
  v_keyed bigint[] := '{}';     -- locked, to be leased if their key is free
  v_behind bigint[] := '{}';
  v_found bigint[];
  v_seen text[] := '{}';
  v_heads bigint[];
  v_scan record;
  v_has_keyed boolean;
  v_queue text;
  v_plain int;
  v_from_at timestamptz := '-infinity';
  v_from_id bigint := 0;
  v_at int;
  v_wait double precision;
  v_due double precision;
  v_next timestamptz;
begin
  if p_is_limited then
    select l.p_rooms, l.p_wait into p_rooms, v_wait from {schema}.limit_rooms_1(p_queues, p_rooms, v_now) l;
  end if;
  if 0 >= any (p_rooms) then
    select array_agg(q.name), array_agg(q.room) into p_queues, p_rooms
    from unnest(p_queues, p_rooms) q(name, room) where q.room > 0;
  end if;
  if p_queues is null then
    v_need := 0;
    v_due := v_wait;
  elsif p_is_unsettled then
    perform {schema}.settle_keys_1(1000);
  end if;

  if v_need > 0 then
    select min(n.priority), max(n.priority), bool_or(n.is_keyed) into v_first, v_last, v_has_keyed
    from unnest(p_queues) q(name) cross join lateral (
      (select e.priority, false as is_keyed from {schema}.executions e
        where e.queue = q.name and e.status = 'runnable' and not e.paused and e.partition_key is null
        order by e.queue, e.priority limit 1)
      union all
      (select e.priority, false from {schema}.executions e
        where e.queue = q.name and e.status = 'runnable' and not e.paused and e.partition_key is null
        order by e.queue desc, e.priority desc limit 1)
      union all
      (select e.priority, true from {schema}.executions e
        where e.queue = q.name and e.status = 'runnable' and not e.paused and not e.key_blocked
          and e.partition_key is not null
        order by e.queue, e.priority limit 1)
      union all
      (select e.priority, true from {schema}.executions e
        where e.queue = q.name and e.status = 'runnable' and not e.paused and not e.key_blocked
          and e.partition_key is not null
        order by e.queue desc, e.priority desc limit 1)
    ) n;
  end if;

  while v_need > 0 and v_first is not null loop
    if v_priority is null then
      v_priority := v_first;
    else
      exit when v_priority >= v_last;  -- most ledgers have one priority: no look for a second
      select n.priority, bool_or(n.is_keyed) into v_priority, v_has_keyed
      from unnest(p_queues, p_rooms) q(name, room) cross join lateral (
        (select e.priority, false as is_keyed from {schema}.executions e
          where e.queue = q.name and e.priority > v_priority and e.status = 'runnable' and not e.paused
            and e.partition_key is null
          order by e.queue, e.priority limit 1)
        union all
        (select e.priority, true from {schema}.executions e
          where e.queue = q.name and e.priority > v_priority and e.status = 'runnable' and not e.paused
            and not e.key_blocked and e.partition_key is not null
          order by e.queue, e.priority limit 1)
      ) n
      where q.room > 0
      group by n.priority order by n.priority limit 1;
      exit when v_priority is null;
    end if;

    v_heads := '{}';
    if v_has_keyed then
      select * into v_scan
      from {schema}.scan_keyed_1(p_queues, v_priority, p_handlers, v_now, v_need, 500, 2, v_seen);
      v_seen := v_scan.p_seen;
      v_heads := v_scan.p_heads;
      v_behind := v_behind || v_scan.p_behind;
      if v_scan.p_more then
        v_behind := v_behind || v_scan.p_crowd;
        v_wait := 0;
      end if;
    end if;

    if cardinality(p_queues) = 1 and v_heads = '{}' then
      v_queue := p_queues[1];
      v_plain := least(p_rooms[1], v_need);
      v_found := array({include scan_plain});
      v_ids := v_ids || v_found;
      v_need := v_need - cardinality(v_found);
      p_rooms[1] := p_rooms[1] - cardinality(v_found);
    else
      -- How many each queue contributes at this priority, the rows of all queues merged by time.
      for v_queue, v_plain, v_heads in
        select m.name, count(*) filter (where not m.is_keyed), array_agg(m.id) filter (where m.is_keyed)
        from (
          select c.* from unnest(p_queues, p_rooms) q(name, room) cross join lateral (
            select q.name, u.id, u.eligible_at, u.is_keyed from (
              (select e.id, e.eligible_at, false as is_keyed from {schema}.executions e
                where e.queue = q.name and e.priority = v_priority and e.status = 'runnable' and not e.paused
                  and e.partition_key is null and e.eligible_at <= v_now and e.handler = any (p_handlers)
                order by e.eligible_at, e.id limit least(q.room, v_need))
              union all
              select e.id, e.eligible_at, true from {schema}.executions e
              where e.id = any (v_heads) and e.queue = q.name
            ) u
            order by u.eligible_at, u.id limit least(q.room, v_need)
          ) c
          order by c.eligible_at, c.id limit v_need
        ) m
        group by m.name
      loop
        v_found := array({include scan_plain});
        v_heads := array(
          select e.id from {schema}.executions e
          where e.id = any (v_heads) and e.status = 'runnable' and not e.paused and not e.key_blocked
          order by e.id for update skip locked
        );
        v_ids := v_ids || v_found;
        v_keyed := v_keyed || v_heads;
        v_at := array_position(p_queues, v_queue);
        p_rooms[v_at] := p_rooms[v_at] - cardinality(v_found) - cardinality(v_heads);
        v_need := v_need - cardinality(v_found) - cardinality(v_heads);
      end loop;
    end if;

    if v_need > 0 and cardinality(p_queues) = 1 and not v_has_keyed then
      if p_rooms[1] > 0 then
        v_next := (
          select e.eligible_at from {schema}.executions e
          where e.queue = v_queue and e.priority = v_priority and e.status = 'runnable' and not e.paused
            and e.partition_key is null and e.eligible_at > v_now and e.handler = any (p_handlers)
          order by e.eligible_at limit 1);
        v_due := least(v_due, extract(epoch from v_next - v_now));
      end if;
    elsif v_need > 0 then
      select least(v_due, extract(epoch from min(n.eligible_at) - v_now)) into v_due
      from unnest(p_queues, p_rooms) q(name, room) cross join lateral (
        (select e.eligible_at from {schema}.executions e
          where e.queue = q.name and e.priority = v_priority and e.status = 'runnable' and not e.paused
            and e.partition_key is null and e.eligible_at > v_now and e.handler = any (p_handlers)
          order by e.eligible_at limit 1)
        union all
        (select e.eligible_at from {schema}.executions e
          where e.queue = q.name and e.priority = v_priority and e.status = 'runnable' and not e.paused
            and not e.key_blocked and e.partition_key is not null and e.eligible_at > v_now
          order by e.eligible_at limit 1)
      ) n
      where q.room > 0;
    end if;
  end loop;

  if v_ids <> '{}' or v_keyed <> '{}' then
    {include lock_worker}
  end if;
  if v_keyed <> '{}' then
    -- In key order, so that two pickers wait for each other and never deadlock; one of them gets the key.
    with taken as (
      insert into {schema}.partition_locks (key, holder)
      select distinct on (e.partition_key) e.partition_key, e.id
      from {schema}.executions e where e.id = any (v_keyed) order by e.partition_key, e.priority, e.eligible_at, e.id
      -- Its own already: see scan_keyed_1.
      on conflict (key) do update set holder = excluded.holder where partition_locks.holder = excluded.holder
      returning holder
    )
    select v_ids || array_agg(holder) into v_ids from taken;
  end if;
  if v_behind <> '{}' then
    perform {schema}.block_rows_1(v_behind);
  end if;
  if v_ids <> '{}' then
    return query
      {include lease_rows};
  end if;
  if p_is_limited and v_ids <> '{}' then
    update {schema}.queues u set tokens = u.tokens - n.taken
    from (select e.queue, count(*) as taken from {schema}.executions e where e.id = any (v_ids) group by e.queue) n
    where u.name = n.queue and u.rate is not null;
  end if;
  id := null; next_due := case when v_need > 0 or p_queues is null then least(v_due, v_wait) end;
  return next;
end $$;
