-- Leases and timers: giving back, taking back, taking anew.
--
-- Rows that go back to the queue keep their place (eligible_at) and free their key. Which ones they are is looked up before
-- they are locked in the order of ids: see 60_deliver.

-- Locked rows that leave their holder other than by a commit of its own: what their journals say that they do not.
create or replace function {schema}.catch_up_1(p_ids bigint[]) returns void
language plpgsql as $$
begin
  update {schema}.executions e set
      {include caught_up}
    from {schema}.executions_now n
    where e.id = any (p_ids) and n.id = any (array[e.id]) and n.revision <> e.revision;
end $$;

create or replace function {schema}.reclaim_1(p_worker text, p_ids bigint[], p_epochs bigint[])
returns table (
  {include claim_columns}
) language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
  v_ids bigint[];
begin
  -- Waits for whatever the lost connection's backend still does to these rows.
  select array_agg(l.id) into v_ids from (
    select e.id, e.status, e.locked_by, e.lease_epoch from {schema}.executions e
    where e.id = any (p_ids) order by e.id for update
  ) l join unnest(p_ids, p_epochs) c(id, epoch) on c.id = l.id
  -- At a later epoch: the reply of an earlier reclaim was lost too.
  where l.status = 'executing' and l.locked_by = p_worker and l.lease_epoch >= c.epoch;
  perform {schema}.catch_up_1(v_ids);
  return query
    {include lease_rows};
end $$;

-- Locked rows back to runnable, as they were.
create or replace function {schema}.put_back_1(p_ids bigint[], p_now timestamptz) returns int
language plpgsql as $$
declare
  v_keys text[];
  v_count int;
begin
  perform {schema}.catch_up_1(p_ids);
  with back as (
    update {schema}.executions e set status = 'runnable', locked_by = null, updated_at = p_now
    where e.id = any (p_ids) returning e.partition_key
  )
  select count(*), array_agg(partition_key) filter (where partition_key is not null) into v_count, v_keys from back;
  if v_keys is not null then
    perform {schema}.release_keys_1(v_keys, p_ids);
  end if;
  if v_count > 0 then
    perform {schema}.wake_1('work');
  end if;
  return v_count;
end $$;

create or replace function {schema}.release_1(p_worker text, p_ids bigint[], p_epochs bigint[]) returns int
language plpgsql as $$
declare
  v_held bigint[];
begin
  select array_agg(l.id) into v_held from (
    select e.id, e.status, e.locked_by, e.lease_epoch from {schema}.executions e
    where e.id = any (p_ids) order by e.id for update
  ) l join unnest(p_ids, p_epochs) c(id, epoch) on c.id = l.id
  where l.status = 'executing' and l.locked_by = p_worker and l.lease_epoch = c.epoch;
  return {schema}.put_back_1(v_held, {schema}.clock());
end $$;

create or replace function {schema}.disown_1(p_worker text, p_keep bigint[]) returns int
language plpgsql as $$
begin
  return {schema}.put_back_1(
    array(
      select id from {schema}.executions
      where locked_by = p_worker and id = any (array(
        select id from {schema}.executions where status = 'executing' and locked_by = p_worker and id <> all (p_keep)))
      order by id for update),
    {schema}.clock());
end $$;

create or replace function {schema}.retire_worker_1(p_worker text) returns int
language plpgsql as $$
begin
  -- First the right to lease, then what was leased: a pick that is under way ends before this lock is had.
  perform from {schema}.workers where id = p_worker for update;
  delete from {schema}.workers where id = p_worker;
  return {schema}.disown_1(p_worker, '{}');
end $$;

create or replace function {schema}.reap_1(
  p_limit int, p_max_crashes int,
  out workers text[], out released int, out stranded bytea[], out more boolean
) language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_dead text[];
  v_ids bigint[];
  v_keys text[];
begin
  -- While these are locked, no pick of theirs and no beat gets in between.
  v_dead := array(
    select id from {schema}.workers where expires_at <= v_now order by id for update skip locked
  );
  v_ids := array(
    select id from {schema}.executions
    where locked_by = any (v_dead) and id = any (array(
      select id from {schema}.executions where status = 'executing' and locked_by = any (v_dead)))
    order by id limit p_limit for update skip locked
  );
  -- What `catch_up_1` does is done with it: whoever recovers waits for each statement here.
  with taken as (
    update {schema}.executions e set
      status = case when e.crashes + 1 >= p_max_crashes then 'stranded' else 'runnable' end::{schema}.status,
      attempt = e.attempt + 1, crashes = e.crashes + 1, locked_by = null, updated_at = v_now,
      {include caught_up},
      error = case when e.crashes + 1 < p_max_crashes then e.error else (
        '{"type":"holdfast.core.errors.ExecutionStrandedError","message":' || to_json(format(
          'its worker was lost %s times in a row in step ''%s'' without progress, the last was %s: find what kills '
          'the worker there, then resume the execution', e.crashes + 1, n.step, e.locked_by))
        || ',"kind":"internal"}')::json end
    from {schema}.executions_now n
    where e.id = any (v_ids) and n.id = any (array[e.id])
    returning e.promise, e.status, e.partition_key
  )
  select count(*) filter (where t.status = 'runnable'),
    coalesce(array_agg(t.promise) filter (where t.status = 'stranded'), '{}'),
    array_agg(t.partition_key) filter (where t.partition_key is not null)
  into released, stranded, v_keys
  from taken t;
  if v_keys is not null then
    perform {schema}.release_keys_1(v_keys, v_ids);
  end if;
  -- Never before all it held is back, or that would be orphaned.
  with gone as (
    delete from {schema}.workers w where w.id = any (v_dead) and w.id <> all (array(
      select locked_by from {schema}.executions where status = 'executing' and locked_by = any (v_dead)))
    returning w.id
  )
  select coalesce(array_agg(gone.id order by gone.id), '{}') into workers from gone;
  more := cardinality(workers) < cardinality(v_dead);
  if v_ids <> '{}' then
    perform {schema}.wake_1('work');
  end if;
  if stranded <> '{}' then
    perform {schema}.wake_1('ended');
  else
    set local synchronous_commit = off;  -- forgotten, it is done again: whatever rests on it takes it along to the disk
  end if;
end $$;

create or replace function {schema}.fire_timers_1(
  p_limit int, p_reason text, out fired int, out next_due double precision, out woke boolean, out ended boolean
) language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_ids bigint[];
  v_locked bigint[];
  v_woke boolean;
  v_left interval;
  v_messages bigint[];  -- of jobs: they are to hear of the cancel
begin
  v_ids := array(
    select id from {schema}.executions where wake_at is not null and wake_at <= v_now
    order by wake_at limit p_limit for update skip locked
  );
  fired := cardinality(v_ids);
  woke := fired > 0;
  ended := false;
  if woke then
    update {schema}.executions
      set status = 'runnable', timed_out = true, eligible_at = v_now, wake_at = null, updated_at = v_now
      where id = any (v_ids);
    perform {schema}.wake_1('work');
  end if;
  -- Deadlines of whole executions. An end reaches its parent, so a row whose parent is busy waits for the next pass:
  -- waiting here, with rows in hand, could be a deadlock.
  v_ids := array(
    select id from {schema}.executions
    where deadline_at is not null and ended_at is null and not cancel_requested and deadline_at <= v_now
    order by deadline_at limit p_limit - fired
  );
  v_messages := array(select m.id from {schema}.executions m where m.parent_id = any (v_ids) and m.kind = 'message');
  if v_ids <> '{}' then
    v_locked := array(
      select id from {schema}.executions
      where id = any (v_ids || v_messages || array(select parent_id from {schema}.executions where id = any (v_ids)))
      order by id for update skip locked
    );
    v_ids := array(
      select e.id from {schema}.executions e
      where e.id = any (v_ids) and e.id = any (v_locked) and e.ended_at is null and not e.cancel_requested
        and (e.parent_id is null or e.parent_id = any (v_locked)
             or not exists (select from {schema}.executions p where p.id = any (array[e.parent_id])))
        -- nor a job one of whose paused messages is busy, or came just now: it would not be let go
        and not (e.kind = 'flow' and exists (
          select from {schema}.executions m
          where m.parent_id = any (array[e.id]) and m.kind = 'message' and m.paused and m.id <> all (v_locked)))
    );
    fired := fired + cardinality(v_ids);
    v_ids := v_ids || array(select m.id from {schema}.executions m
      where m.id = any (v_messages) and m.id = any (v_locked) and m.parent_id = any (v_ids));
    select c.woke, c.ended into v_woke, ended from {schema}.request_cancel_1(v_ids, p_reason, v_now) c;
    woke := woke or v_woke;
  elsif woke then
    set local synchronous_commit = off;  -- forgotten, it is fired again
  end if;
  select least(
    (select wake_at from {schema}.executions where wake_at is not null order by wake_at limit 1),
    (select deadline_at from {schema}.executions
      where deadline_at is not null and ended_at is null and not cancel_requested order by deadline_at limit 1)
  ) - v_now into v_left;
  if v_left is not null then
    next_due := greatest(extract(epoch from v_left), 0);
  end if;
end $$;

-- Which of the rows that a worker holds have something to look at. A routine, for the sake of its plan.
create or replace function {schema}.stirred_1(p_worker text, p_ids bigint[]) returns bigint[]
language plpgsql as $$
begin
  return array(
    select e.id from {schema}.executions e
    where e.id = any (p_ids) and coalesce(e.locked_by, '') = p_worker
      and (e.cancel_requested or exists (select from {schema}.signals s where s.target_id = any (array[e.id])))
    order by e.id);
end $$;

-- The first priority that has a row this worker could take now.
create or replace function {schema}.waiting_priority_1(p_queues text[], p_handlers bigint[]) returns int
language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_priority int := -32769;
begin
  loop
    select min(n.priority) into v_priority
    from unnest(p_queues) q(name) cross join lateral (
      (select e.priority from {schema}.executions e
        where e.queue = q.name and e.priority > v_priority and e.status = 'runnable' and not e.paused
          and e.partition_key is null
        order by e.queue, e.priority limit 1)
      union all
      (select e.priority from {schema}.executions e
        where e.queue = q.name and e.priority > v_priority and e.status = 'runnable' and not e.paused
          and not e.key_blocked and e.partition_key is not null
        order by e.queue, e.priority limit 1)
    ) n;
    exit when v_priority is null or exists (
      select from unnest(p_queues) q(name) cross join lateral (
        (select from {schema}.executions e
          where e.queue = q.name and e.priority = v_priority and e.status = 'runnable' and not e.paused
            and e.partition_key is null and e.eligible_at <= v_now and e.handler = any (p_handlers)
          limit 1)
        union all
        (select from {schema}.executions e
          where e.queue = q.name and e.priority = v_priority and e.status = 'runnable' and not e.paused
            and not e.key_blocked and e.partition_key is not null and e.eligible_at <= v_now
            and e.handler = any (p_handlers)
            and not exists (select from {schema}.partition_locks l where l.key = e.partition_key)
          limit 1)
      ) x);
  end loop;
  return v_priority;
end $$;
