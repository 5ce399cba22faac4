-- What people ask of executions: cancel, pause, resume, purge, and the view of queues.

-- End what nobody holds, ask the holders of the rest; what cleans up is never ended here, but goes on to hear of it.
-- The rows and their parents are locked already, by whoever calls this.
create or replace function {schema}.request_cancel_1(
  p_ids bigint[], p_reason text, p_now timestamptz, out woke boolean, out ended boolean
) language plpgsql as $$
declare
  v_ended bigint[];
  v_keys text[];
  v_woke boolean;
begin
  -- A dead letter of a job that is cancelled is dropped: its obligation is closed.
  perform {schema}.letter_again_1(m.promise, 'close') from {schema}.executions m
    where m.id = any (p_ids) and m.kind = 'message' and m.status::text = 'stranded';
  with asked as (
    update {schema}.executions e set
      cancel_requested = true, cancel_reason = coalesce(e.cancel_reason, p_reason), updated_at = p_now,
      paused = false,  -- a cancel is not held up by a pause
      status = case when {include cancel_wakes} then 'runnable' else e.status end,
      eligible_at = case when {include cancel_wakes} then p_now else e.eligible_at end,
      wake_at = case when {include cancel_wakes} then null else e.wake_at end
    where e.id = any (p_ids) and (not e.cancel_requested or e.cancel_reason is null)
      and (e.status in ('executing', 'delegated') or e.cleans_up and e.status not in ('done', 'failed', 'cancelled'))
    returning e.status in ('executing', 'runnable') as is_due
  )
  select coalesce(bool_or(is_due), false) into woke from asked;
  with ended as (
    update {schema}.executions e
    set status = 'cancelled', cancel_requested = true, cancel_reason = coalesce(e.cancel_reason, p_reason),
      key_blocked = false, wake_at = null, awaits = null, timed_out = false, children_ready = false, ended_at = p_now,
      updated_at = p_now
    where e.id = any (p_ids) and e.status not in ('executing', 'delegated', 'done', 'failed', 'cancelled')
      and not e.cleans_up
    returning e.id, e.partition_key
  )
  select array_agg(id order by id), array_agg(partition_key) filter (where partition_key is not null)
  into v_ended, v_keys from ended;
  ended := v_ended is not null;
  if ended then
    if v_keys is not null then
      perform {schema}.release_keys_1(v_keys, v_ended);
      perform {schema}.unsettle_keys_1(v_keys);
    end if;
    select b.woke into v_woke from {schema}.release_barriers_1(v_ended, p_now) b;
    woke := woke or v_woke or v_keys is not null;
    select r.woke into v_woke from {schema}.report_ends_1(v_ended, p_now) r;
    woke := woke or v_woke;
  end if;
  if woke or ended then
    perform {schema}.finish_1(p_now, v_ended, null, null, woke, false);
  end if;
end $$;

-- `p_low` and `p_high` are the ranges of ids in which all that lives is meant too: the promises, the runs that they went on
-- from, and what these started. One answer a promise, in order: its status now; null: there is none. Who is executing, or
-- delegated, is only asked.
create or replace function {schema}.cancel_1(p_promises bytea[], p_low bytea[], p_high bytea[], p_reason text)
returns text[] language plpgsql as $$
declare
  v_ids bigint[];
  v_more bigint[];
begin
  v_ids := array(
    select id from {schema}.executions where promise = any (p_promises)
    union all
    select e.id from unnest(p_low, p_high) r(low, high)
      join {schema}.executions e on e.promise >= r.low and e.promise < r.high and e.ended_at is null
  );
  -- Messages of a job are to hear of it (ruling A11), and its dead letters are dropped.
  v_ids := v_ids || array(
    select m.id from {schema}.executions m where m.parent_id = any (v_ids) and m.kind = 'message');
  -- With their parents, whose barriers may open; all in the order of ids.
  perform from {schema}.executions where id = any (v_ids || array(
    select parent_id from {schema}.executions where id = any (v_ids))) order by id for update;
  -- And what they spawned or published while their rows were waited for. It is younger, so that the order of ids holds;
  -- what they spawn from now on is none of this: a workflow cleans up with it.
  loop
    v_more := array(
      (select e.id from unnest(p_low, p_high) r(low, high)
        join {schema}.executions e on e.promise >= r.low and e.promise < r.high and e.ended_at is null
      union all
      select m.id from {schema}.executions m where m.parent_id = any (v_ids) and m.kind = 'message')
      except select unnest(v_ids));
    exit when v_more = '{}';
    perform from {schema}.executions where id = any (v_more) order by id for update;
    v_ids := v_ids || v_more;
  end loop;
  perform {schema}.request_cancel_1(v_ids, p_reason, {schema}.clock());
  return array(
    select e.status::text from unnest(p_promises) with ordinality g(promise, ord)
    left join {schema}.executions e on e.promise = any (array[g.promise]) order by g.ord
  );
end $$;

-- A paused row waits outside its key: it must not be chosen as the head.
create or replace function {schema}.pause_1(p_promise bytea, p_paused boolean) returns boolean
language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_id bigint;
  v_key text;
  v_runnable boolean;
  v_paused boolean;
  v_messages bigint[];
begin
  update {schema}.executions
    set paused = p_paused and not cancel_requested, key_blocked = false, updated_at = v_now
    where promise = p_promise and status not in ('done', 'failed', 'cancelled')
    returning id, partition_key, status = 'runnable', paused into v_id, v_key, v_runnable, v_paused;
  if v_id is null then
    return false;
  end if;
  -- The messages of a job wait with it; what a cancelled one has published since is not asked itself. By id, as a flush
  -- locks them, and until a look finds none: those that were waited for may have published others meanwhile.
  loop
    v_messages := array(
      select m.id from {schema}.executions m
      where m.parent_id = v_id and m.kind = 'message' and m.paused is distinct from (v_paused and not m.cancel_requested));
    exit when v_messages = '{}';
    perform from {schema}.executions where id = any (v_messages) order by id for update;
    update {schema}.executions set paused = v_paused and not cancel_requested, updated_at = v_now
      where id = any (v_messages) and paused is distinct from (v_paused and not cancel_requested);
    v_runnable := true;
  end loop;
  if v_runnable and p_paused and v_key is not null then
    perform {schema}.release_keys_1(array[v_key], array[v_id]);
    perform {schema}.unsettle_keys_1(array[v_key]);
  end if;
  if v_runnable then
    perform {schema}.wake_1('work');
  end if;
  return true;
end $$;

create or replace function {schema}.resume_1(p_promise bytea) returns boolean
language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_flow boolean := {schema}.resume_flow_1(p_promise);
begin
  if v_flow is not null then
    return v_flow;
  end if;
  update {schema}.executions
    set status = 'runnable', attempt = greatest(attempt - crashes, 0), crashes = 0, eligible_at = v_now, updated_at = v_now
    where promise = p_promise and status::text = 'stranded';
  if not found then
    return false;
  end if;
  perform {schema}.wake_1('work');
  return true;
end $$;

-- A page of a queue's stranded runs: those that this code did not strand yet are tried again with it (ruling B17). Not
-- those that lost their workers: their digest says nothing of what was tried.
create or replace function {schema}.retry_stranded_1(
  p_queue text, p_handlers bigint[], p_digests text[], p_limit int, p_after bigint, out retried int, out following bigint
) language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_page bigint[];
  v_ids bigint[];
  v_jobs bigint[];
begin
  v_page := array(
    select id from {schema}.executions where queue = p_queue and status = 'stranded' and id > p_after
    order by id limit p_limit
  );
  following := case when cardinality(v_page) >= p_limit then v_page[p_limit] end;
  v_ids := array(
    select e.id from {schema}.executions e
    -- Text has no NUL, and one in any of the errors would be an error of this call.
    cross join lateral (select replace(e.error::text, E'\\u0000', E'\\ufffd')::json) told(error)
    where e.id = any (v_page) and e.status = 'stranded'
      and (told.error ->> 'kind' = 'nondeterminism'
        or told.error ->> 'type' in ('holdfast.core.errors.DecodeError', 'holdfast.core.errors.ConfigurationError'))
      and exists (
        select from unnest(p_handlers, p_digests) c(handler, digest)
        where c.handler = e.handler and c.digest <> e.digest and c.digest <> all (coalesce(e.tried, '{}')))
    order by e.id for update of e skip locked
  );
  if cardinality(v_ids) > 0 then
    -- The job of a dead letter goes on with it. One that another has locked is passed over: its turn comes again.
    v_jobs := array(
      select id from {schema}.executions
      where id = any (array(select parent_id from {schema}.executions where id = any (v_ids) and kind = 'message'))
      order by id for update skip locked
    );
    v_ids := array(
      select id from {schema}.executions where id = any (v_ids) and (kind <> 'message' or parent_id = any (v_jobs))
    );
    update {schema}.executions
      set status = 'runnable', attempt = greatest(attempt - crashes, 0), crashes = 0, eligible_at = v_now,
        tried = array_append(array_remove(tried, digest), digest), updated_at = v_now
      where id = any (v_ids);
    update {schema}.executions j set status = 'delegated', error = null, updated_at = v_now
      where j.id = any (v_jobs) and j.status = 'stranded' and j.id <> all (array(  -- ruling A6
        select parent_id from {schema}.executions
        where parent_id = any (v_jobs) and kind = 'message' and status = 'stranded'));
    perform {schema}.wake_1('work');
  end if;
  retried := cardinality(v_ids);
end $$;

-- Oldest first. A child of a live parent's open round stays: the parent has still to read it (ruling E7). So does one that
-- a parent had before it when it failed: a retry of that reads it.
create or replace function {schema}.purge_1(p_age double precision, p_queue text, p_name text, p_limit int) returns int
language plpgsql as $$
declare
  v_before timestamptz := {schema}.clock() - p_age * interval '1 second';
  v_ids bigint[];
  v_definitions text[];
  v_blocks bigint[];
begin
  v_ids := array(
    select e.id from {schema}.executions e
    where e.ended_at is not null and e.ended_at <= v_before
      and (p_queue is null or e.queue = p_queue) and (p_name is null or e.name = p_name)
      and not exists (
        select from {schema}.executions p
        where p.id = any (array[e.parent_id]) and p.barrier_round = e.parent_round
          and (p.ended_at is null or p.children_ready or p.timed_out and p.awaits is null))
      -- nor what the run that goes on in its place, or went on and ended since, is found by
      and not exists (
        select from {schema}.executions n
        where n.promise = any (array[e.successor]) and (n.ended_at is null or n.ended_at > v_before))
    order by e.ended_at, e.id limit p_limit for update skip locked
  );
  -- As a later statement: the first one has found no run in the place of one that was retried just before it had the lock.
  v_ids := array(
    select e.id from {schema}.executions e
    where e.id = any (v_ids)
      and not exists (
        select from {schema}.executions n
        where n.promise = any (array[e.successor]) and (n.ended_at is null or n.ended_at > v_before))
  );
  delete from {schema}.signals where target_id = any (v_ids);
  delete from {schema}.signal_keys where target_id = any (v_ids);
  delete from {schema}.transitions where execution_id = any (v_ids);
  delete from {schema}.journal where execution_id = any (v_ids);
  delete from {schema}.activities where job_id = any (v_ids);
  delete from {schema}.guids where job_id = any (v_ids);
  delete from {schema}.semaphores where job_id = any (v_ids);
  delete from {schema}.arrivals where job_id = any (v_ids);
  delete from {schema}.failures where job_id = any (v_ids);
  with gone as (
    delete from {schema}.executions where id = any (v_ids) returning kind, name, id, listed
  )
  select array_agg(g.definition), array_agg(g.block) into v_definitions, v_blocks
  from (select distinct kind || '/' || name, id >> 8 from gone where not listed) g(definition, block);
  -- As later statements, that do not see them, nor what another purge has deleted of the same blocks: who comes second waits
  -- for the first, or else both would find the rest there still and leave entries of nothing, which nobody would delete.
  perform from {schema}.crowds c join unnest(v_definitions, v_blocks) g(definition, block)
    on c.definition = g.definition and c.block = g.block
    order by c.definition, c.block, c.ctid for update of c;
  delete from {schema}.crowds c using unnest(v_definitions, v_blocks) g(definition, block)
  where c.definition = g.definition and c.block = g.block and not exists (
    select from {schema}.executions e
    where e.id between g.block << 8 and (g.block << 8) + 255 and not e.listed and e.kind || '/' || e.name = g.definition);
  return cardinality(v_ids);
end $$;
