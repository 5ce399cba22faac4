-- The protocol of flows inside a flush (seed, sections 4 to 13).
--
--   flush_flows_2  commits of messages and jobs that are plain but for their step of the protocol: one call a flush
--   flow_lock_1    the rows that such commits touch, for a flush that goes through flush_2 and then collate_1
--   collate_1      the steps themselves, of the commits whose fence held
--
-- What is the same in all steps of a flush may be left out: a column that is all 0, false or '' is an empty array.
-- Locks come in one order everywhere: executions by id, activities and guids by key, semaphores of jobs by id, then
-- those of their joins. Semaphores and joins may move several times in one flush; a running sum says by whom the
-- threshold was reached, as if each had moved alone. Rows of arrays are joined by `= any (array[...])`: see `advance_1`.

create or replace function {schema}.flow_lock_1(p_id bigint[], p_jobs bigint[], p_ending bigint[]) returns void
language plpgsql as $$
begin
  -- A paused job is locked by all that publish for it: whoever lets it go on waits for them, and frees what they made.
  perform from {schema}.executions where id = any (
    p_id || p_jobs || array(select parent_id from {schema}.executions where id = any (p_ending)) || array(
      select id from {schema}.executions where paused and id = any (array(
        select parent_id from {schema}.executions where id = any (p_id) and kind = 'message')))
  ) order by id for update;
end $$;

create or replace function {schema}.collate_1(
  p_id bigint[], p_fenced int[], p_open_ord int[], p_open_count int[],
  p_ord int[], p_job bigint[], p_activity text[], p_dimension text[], p_guid bytea[], p_wave int[],
  p_add bigint[], p_mark bigint[], p_guid_add bigint[], p_response json[], p_failure json[],
  p_settles boolean[], p_threshold bigint[], p_end_status text[], p_end_result json[], p_end_error json[],
  p_awaits text[], p_acknowledge boolean[],
  p_arrival_ord int[], p_arrival_activity text[], p_arrival_dimension text[], p_arrival_source text[],
  p_arrival_value json[], p_arrival_needed bigint[], p_arrival_child int[], p_onward int[], p_child_ord int[],
  p_promise bytea[], p_kind text[], p_name text[], p_version int[], p_handler bigint[], p_first_step text[],
  p_first_state json[], p_input_hash text[], p_queue text[], p_priority int[], p_partition_key text[],
  p_start_delay double precision[], p_at timestamptz[], p_unique_key bytea[], p_unique_scope text[],
  p_child_digest text[], p_attributes json[], p_paused boolean[], p_idempotency_key text[], p_reports boolean[],
  p_cleans_up boolean[], p_deadline double precision[], p_rank int[],
  out positions int[], out ledgers bigint[], out guid_ledgers bigint[], out ordinals int[], out closed int[],
  out gone int[], out onward int[], out routed int[], out woke boolean, out ended boolean
) language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
  v_fenced int[] := coalesce(p_fenced, '{}');
  v_ledger bigint[] := array_fill(0::bigint, array[greatest(cardinality(p_ord), 1)]);  -- by place in p_ord
  v_guid_ledger bigint[] := v_ledger;
  v_ordinal int[] := array_fill(0, array[greatest(cardinality(p_ord), 1)]);
  v_filled int[] := '{}';   -- children that joins publish now
  v_filled_ord int[] := '{}';
  v_only int[];
  v_published int[];
  v_met int[];  -- children whose promise had a row already
  v_jobs bigint[] := '{}';  -- whose semaphores move
  v_parents bigint[];
  v_paused bigint[];
  v_gone bigint[];
  v_ended bigint[];
  v_signal bigint;
  v_woke boolean;
  v record;
begin
  woke := false;
  ended := false;
  closed := '{}';
  if p_open_ord <> '{}' then
    -- A job whose cancel overtook this commit is not delegated: it does not begin.
    v_fenced := v_fenced || array(
      select o from unnest(p_open_ord) o join {schema}.executions e on e.id = any (array[p_id[o]])
      where e.status <> 'delegated');
  end if;

  -- The activities' ledgers. Two GUIDs of one instance come in waves, for a statement writes a row once. What an insert
  -- returns is in the order of what it was given: so no join is needed to see whose it is.
  for v_wave in 0 .. case when p_ord = '{}' then -1 else coalesce((select max(w) from unnest(p_wave) w), 0) end loop
    with given as materialized (
      select c.at::int as at, c.job, c.activity, coalesce(c.dimension, '') as dimension,
        coalesce(c.step_add, 0) + coalesce(c.mark, 0) as weight
      from unnest(p_ord, p_job, p_activity, p_dimension, p_add, p_mark, p_wave)
        with ordinality c(ord, job, activity, dimension, step_add, mark, wave, at)
      where coalesce(c.wave, 0) = v_wave and (c.step_add <> 0 or c.mark <> 0) and c.ord <> all (v_fenced)
      order by c.job, c.activity, c.dimension
    ), counted as (
      insert into {schema}.activities as a (job_id, activity, dimension, ledger)
      select job, activity, dimension, weight from given
      -- A step adds or marks, and the three markers are set once (ruling A2).
      on conflict (job_id, activity, dimension) do update set ledger = a.ledger + case
        when excluded.ledger in (100000000, 1000000000, 10000000000) and a.ledger / excluded.ledger % 10 > 0 then 0
        else excluded.ledger end
      returning a.job_id, a.ledger
    )
    select (select array_agg(g.at) from given g) as places, (select array_agg(g.job) from given g) as jobs,
      (select array_agg(c.job_id) from counted c) as found, (select array_agg(c.ledger) from counted c) as ledgers
    into v;
    if v.jobs is distinct from v.found then
      raise exception 'the ledgers of activities came back in another order';
    end if;
    for v_at in 1 .. coalesce(cardinality(v.places), 0) loop
      v_ledger[v.places[v_at]] := v.ledgers[v_at];
    end loop;
  end loop;
  if exists (
    select from unnest(p_ord, p_add, p_mark) c(ord, step_add, mark)
    where coalesce(c.step_add, 0) = 0 and coalesce(c.mark, 0) = 0) then
    for v in
      select c.at::int as at, a.ledger
      from unnest(p_ord, p_job, p_activity, p_dimension, p_add, p_mark)
        with ordinality c(ord, job, activity, dimension, step_add, mark, at)
      join {schema}.activities a
        on a.job_id = any (array[c.job]) and a.activity = c.activity and a.dimension = coalesce(c.dimension, '')
      where coalesce(c.step_add, 0) = 0 and coalesce(c.mark, 0) = 0 and c.ord <> all (v_fenced)
    loop
      v_ledger[v.at] := v.ledger;
    end loop;
  end if;

  -- The GUIDs' ledgers; a new one has its ordinal from the activity's Leg2 entries (ruling A3).
  if p_guid_add <> '{}' then
    with given as materialized (
      select c.at::int as at, c.job, c.guid, c.activity, coalesce(c.dimension, '') as dimension, c.guid_add, c.response,
        case when c.step_add = 1 then (v_ledger[c.at] % 100000000)::int else 0 end as ordinal
      from unnest(p_ord, p_job, p_guid, p_activity, p_dimension, p_add, p_guid_add, p_response)
        with ordinality c(ord, job, guid, activity, dimension, step_add, guid_add, response, at)
      where c.guid_add <> 0 and c.ord <> all (v_fenced)
      order by c.job, c.guid
    ), counted as (
      insert into {schema}.guids as g (job_id, guid, activity, dimension, ordinal, ledger, response)
      select job, guid, activity, dimension, ordinal, guid_add, response from given
      on conflict (job_id, guid) do update
        set ledger = g.ledger + excluded.ledger, response = coalesce(excluded.response, g.response)
      returning g.guid, g.ordinal, g.ledger
    )
    select (select array_agg(g.at) from given g) as places, (select array_agg(g.guid) from given g) as guids,
      (select array_agg(c.guid) from counted c) as found, (select array_agg(c.ordinal) from counted c) as ordinals,
      (select array_agg(c.ledger) from counted c) as ledgers
    into v;
    if v.guids is distinct from v.found then
      raise exception 'the ledgers of GUIDs came back in another order';
    end if;
    for v_at in 1 .. coalesce(cardinality(v.places), 0) loop
      v_ordinal[v.places[v_at]] := v.ordinals[v_at];
      v_guid_ledger[v.places[v_at]] := v.ledgers[v_at];
    end loop;
  end if;

  if cardinality(p_failure) > 0 then
    insert into {schema}.failures (job_id, guid, activity, dimension, error)
    select c.job, c.guid, c.activity, coalesce(c.dimension, ''), c.failure
    from unnest(p_ord, p_job, p_guid, p_activity, p_dimension, p_failure)
      c(ord, job, guid, activity, dimension, failure)
    where c.failure is not null and c.ord <> all (v_fenced)
    on conflict do nothing;
  end if;

  if p_open_ord <> '{}' then  -- ruling A8
    insert into {schema}.semaphores (job_id, activity, dimension, status)
    select p_id[o.ord], '', '', o.count from unnest(p_open_ord, p_open_count) o(ord, count)
    where o.ord <> all (v_fenced);
    -- From now on a cancel asks it, whatever its status, and its messages close it (ruling A11).
    update {schema}.executions set cleans_up = true
    where id = any (array(select p_id[o] from unnest(p_open_ord) o where o <> all (v_fenced)));
  end if;
  if true = any (p_settles) then
    v_jobs := array(
      select distinct c.job from unnest(p_ord, p_job, p_settles) c(ord, job, settles)
      where c.settles and c.ord <> all (v_fenced) order by 1);
    perform from {schema}.semaphores s
    where s.job_id = any (v_jobs) and s.activity = '' and s.dimension = '' order by s.job_id for update;
  end if;

  if p_arrival_ord <> '{}' then
    for v in
      with given as materialized (
        select n.at::int as at, n.ord, c.job, n.activity, n.dimension, n.source, n.value, n.needed, n.child
        from unnest(p_arrival_ord, p_arrival_activity, p_arrival_dimension, p_arrival_source, p_arrival_value,
            p_arrival_needed, p_arrival_child)
          with ordinality n(ord, activity, dimension, source, value, needed, child, at)
        join unnest(p_ord, p_job) c(ord, job) on c.ord = n.ord
        where n.ord <> all (v_fenced)
      ), arrived as (
        insert into {schema}.arrivals as r (job_id, activity, dimension, source, value, counts)
        select job, activity, dimension, source, value, child is not null from given
        order by job, activity, dimension, at
        on conflict do nothing
        returning r.job_id, r.activity, r.dimension, r.source
      ), counting as (
        -- A skipped input that was required counts for nothing: the join never fills (ruling A10).
        select distinct on (g.job, g.activity, g.dimension, g.source) g.*
        from given g join arrived r on r.job_id = g.job and r.activity = g.activity and r.dimension = g.dimension
          and r.source = g.source
        where g.child is not null
        order by g.job, g.activity, g.dimension, g.source, g.at
      ), joins as (
        select job, activity, dimension, max(needed) as needed, count(*) as came, max(at) as last
        from counting group by job, activity, dimension
      ), moved as (
        insert into {schema}.semaphores as s (job_id, activity, dimension, status, needed)
        select job, activity, dimension, needed - came, needed from joins order by job, activity, dimension
        on conflict (job_id, activity, dimension) do update set status = s.status - (
          select j.came from joins j
          where j.job = s.job_id and j.activity = s.activity and j.dimension = s.dimension)
        returning s.job_id, s.activity, s.dimension, s.status
      )
      select g.ord, g.child from moved m
      join joins j on j.job = m.job_id and j.activity = m.activity and j.dimension = m.dimension
      join given g on g.at = j.last
      where m.status = 0
    loop
      v_filled := v_filled || v.child;
      v_filled_ord := v_filled_ord || v.ord;
    end loop;
  end if;

  v_only := array(
    select c.at::int from unnest(p_child_ord) with ordinality c(ord, at)
    where c.ord <> all (v_fenced) and (c.at <> all (array_remove(p_arrival_child, null)) or c.at = any (v_filled)));
  v_published := v_only;
  onward := '{}';
  if cardinality(p_onward) > 0 then
    -- A message is acknowledged and its first child published in one row, under the lease that it has.
    with turned as (
      update {schema}.executions e set
        promise = p_promise[c.child], step = coalesce(p_first_step[c.child], p_first_step[1]),
        state = p_first_state[c.child], attempt = 0, crashes = 0, awaits = null, error = null, timed_out = false,
        children_ready = false, inserted_at = v_now, started_at = v_now
      from unnest(p_ord, p_onward) c(ord, child)
      where c.child is not null and c.ord <> all (v_fenced) and e.id = any (array[p_id[c.ord]])
        and not exists (select from {schema}.executions x where x.promise = any (array[p_promise[c.child]]))
      returning c.ord, c.child
    )
    select coalesce(array_agg(ord), '{}') as ords, coalesce(array_agg(child), '{}') as children into v from turned;
    onward := v.ords;
    v_only := array(select o from unnest(v_only) o where o <> all (v.children));
  end if;
  if v_only <> '{}' then
    v_parents := array(
      select coalesce(c.job, p_id[o.ord]) from unnest(p_child_ord) with ordinality o(ord, at)
      left join unnest(p_ord, p_job) c(ord, job) on c.ord = o.ord order by o.at);
    v_met := array(select i.ord from {schema}.insert_1(
      p_promise, p_kind, p_name, p_version, p_handler, p_first_step, p_first_state, p_input_hash, p_queue, p_priority,
      p_partition_key, p_start_delay, p_at, p_unique_key, p_unique_scope, p_child_digest, p_attributes, p_paused,
      p_idempotency_key, p_reports, p_cleans_up, p_deadline, p_rank, v_parents, '{}', v_only) i);
    if v_met <> '{}' then
      -- A response that came before its Leg1 was published (ruling A5): the row is the Leg1's now, and takes it along.
      update {schema}.executions e set
        step = 'leg1', state = (left(p_first_state[o]::text, -1) || ',"early":' || e.state::text || '}')::json,
        queue = coalesce(p_queue[o], p_queue[1]), attempt = 0, crashes = 0, updated_at = v_now,
        eligible_at = case when e.status = 'runnable' then v_now else e.eligible_at end
      from unnest(v_met) o
      where e.promise = any (array[p_promise[o]]) and e.kind = 'message' and e.step = 'leg2'
        and coalesce(p_first_step[o], p_first_step[1]) = 'leg1';
    end if;
    woke := true;
    -- One that was paused only since the locks were taken, and is held by others, is left for them.
    v_paused := array(
      select e.id from {schema}.executions e where e.paused and e.id = any (v_parents) for update skip locked);
    if v_paused <> '{}' then
      -- Messages of a paused job wait with it.
      update {schema}.executions m set paused = true
      where m.parent_id = any (v_paused) and m.kind = 'message' and m.promise = any (p_promise);
    end if;
  end if;

  -- The seed's setStatusAndCollateGuid (12.2), in one statement: semaphores move, and the GUID whose move reached the
  -- threshold says so on its ledger.
  if v_jobs <> '{}' then
    with moves as (
      select c.at::int as at, c.ord, c.job, c.guid, coalesce(c.threshold, 0) as threshold,
        sum(n.published - 1) over (partition by c.job order by c.at) as moved_by
      from unnest(p_ord, p_job, p_guid, p_settles, p_threshold)
        with ordinality c(ord, job, guid, settles, threshold, at)
      left join (
        select p_child_ord[o] as ord, count(*) as published from unnest(v_published) o group by p_child_ord[o]
      ) p on p.ord = c.ord
      cross join lateral (select coalesce(p.published, 0) as published) n
      where c.settles and c.ord <> all (v_fenced)
    ), totals as (
      select distinct on (job) job, moved_by from moves order by job, at desc
    ), moved as (
      update {schema}.semaphores s set status = s.status + t.moved_by
      from totals t where s.job_id = any (array[t.job]) and s.activity = '' and s.dimension = ''
      returning s.job_id, s.status - t.moved_by as before
    ), hits as (
      select m.at, m.ord, m.job, m.guid from moves m join moved b on b.job_id = m.job
      where b.before + m.moved_by = m.threshold
    ), marked as (
      update {schema}.guids g set ledger = g.ledger + 100000000000
      from hits h where g.job_id = any (array[h.job]) and g.guid = h.guid
      returning h.at, h.ord, g.ledger
    )
    select coalesce(array_agg(ord), '{}') as ords, coalesce(array_agg(at), '{}') as places,
      coalesce(array_agg(ledger), '{}') as after
    into v from marked;
    closed := v.ords;
    for v_at in 1 .. cardinality(v.places) loop
      v_guid_ledger[v.places[v_at]] := v.after[v_at];
    end loop;
  end if;

  if p_end_status <> '{}' then  -- Step 3 (ruling A11)
    with done as (
      update {schema}.executions j set
        status = c.status::{schema}.status, result = c.result, error = c.error, ended_at = v_now, updated_at = v_now,
        revision = j.revision + 1, awaits = null, wake_at = null
      from unnest(p_ord, p_job, p_end_status, p_end_result, p_end_error) c(ord, job, status, result, error)
      where c.status is not null and c.ord <> all (v_fenced) and j.id = any (array[c.job])
        and j.status is not distinct from 'delegated' -- no condition of an index: all open jobs would be read
      returning j.id
    )
    select array_agg(id order by id) into v_ended from done;
    if v_ended is not null then
      ended := true;
      select b.woke into v_woke from {schema}.release_barriers_1(v_ended, v_now) b;
      woke := woke or v_woke;
      select r.woke into v_woke from {schema}.report_ends_1(v_ended, v_now) r;
      woke := woke or v_woke;
      perform {schema}.finish_1(v_now, v_ended, null, null, woke, false);
    end if;
  end if;

  if p_awaits <> '{}' then
    -- A hook that has parked: what it waits for may be in its job's inbox already (ruling E2), or never come.
    for v in
      select c.ord, c.job, p_id[c.ord] as id, c.awaits, j.cancel_requested
      from unnest(p_ord, p_job, p_awaits) c(ord, job, awaits)
      join {schema}.executions j on j.id = any (array[c.job])
      join {schema}.executions m on m.id = any (array[p_id[c.ord]]) and m.status::text = 'awaiting_signal'
      where c.awaits is not null and c.ord <> all (v_fenced) order by c.ord
    loop
      select s.id into v_signal from {schema}.signals s
      where s.target_id between v.job and v.job and s.kind = 'signal' and s.name = v.awaits
      order by s.target_id, s.id limit 1;
      if v_signal is not null then
        perform {schema}.route_signal_1(v_signal, v.id);
      end if;
      if v_signal is not null or v.cancel_requested then
        update {schema}.executions set status = 'runnable', eligible_at = v_now, wake_at = null where id = v.id;
        routed := routed || v.ord;
        woke := true;
      end if;
    end loop;
  end if;

  if true = any (p_acknowledge) then
    select array_agg(p_id[c.ord]), array_agg(c.ord) into v_gone, gone
    from unnest(p_ord, p_acknowledge) c(ord, is_over)
    where c.is_over and c.ord <> all (v_fenced) and c.ord <> all (closed) and c.ord <> all (onward);
  end if;
  if v_gone is not null then
    delete from {schema}.executions where id = any (v_gone) and kind = 'message';
    delete from {schema}.signals where target_id = any (v_gone);
    delete from {schema}.signal_keys where target_id = any (v_gone);
  end if;
  if woke then
    perform {schema}.wake_1('work');
  end if;
  positions := p_ord;
  ledgers := v_ledger;
  guid_ledgers := v_guid_ledger;
  ordinals := v_ordinal;
end $$;

-- A signal goes from the inbox of a job to that of a hook; the job remembers its dedup key (ruling E12).
create or replace function {schema}.route_signal_1(p_signal bigint, p_message bigint) returns void
language plpgsql as $$
begin
  insert into {schema}.signal_keys (target_id, dedup_key)
    select target_id, dedup_key from {schema}.signals where id = p_signal and dedup_key like 'u:%' on conflict do nothing;
  update {schema}.signals set target_id = p_message, dedup_key = 'a:' || p_signal where id = p_signal;
end $$;

create or replace function {schema}.flush_flows_2(
  p_worker text, p_own_id bigint[], p_epoch bigint[], p_revision bigint[], p_status text[], p_step text[],
  p_state json[], p_attempt int[], p_replay boolean[], p_result json[], p_error json[], p_delay double precision[],
  p_own_awaits text[], p_wake_after double precision[], p_wake_at timestamptz[],
  p_digest text[], p_knows boolean[], p_added int[],
  p_journal_ord int[], p_journal_first bigint[], p_journal_count int[], p_journal_body json[],
  p_jobs bigint[], p_ending bigint[],
  p_open_ord int[], p_open_count int[],
  p_ord int[], p_job bigint[], p_activity text[], p_dimension text[], p_guid bytea[], p_wave int[],
  p_add bigint[], p_mark bigint[], p_guid_add bigint[], p_response json[], p_failure json[],
  p_settles boolean[], p_threshold bigint[], p_end_status text[], p_end_result json[], p_end_error json[],
  p_awaits text[], p_acknowledge boolean[],
  p_arrival_ord int[], p_arrival_activity text[], p_arrival_dimension text[], p_arrival_source text[],
  p_arrival_value json[], p_arrival_needed bigint[], p_arrival_child int[], p_onward int[], p_child_ord int[],
  p_promise bytea[], p_kind text[], p_name text[], p_version int[], p_handler bigint[], p_first_step text[],
  p_first_state json[], p_input_hash text[], p_queue text[], p_priority int[], p_partition_key text[],
  p_start_delay double precision[], p_at timestamptz[], p_unique_key bytea[], p_unique_scope text[],
  p_child_digest text[], p_attributes json[], p_paused boolean[], p_idempotency_key text[], p_reports boolean[],
  p_cleans_up boolean[], p_deadline double precision[], p_rank int[],
  out fenced int[], out odd int[], out odd_status text[], out odd_cancel boolean[], out woke boolean,
  out inbox int[], out at timestamptz,
  out positions int[], out ledgers bigint[], out guid_ledgers bigint[], out ordinals int[], out closed int[],
  out gone int[], out onward int[], out routed int[], out ended boolean
) language plpgsql as $$
declare
  v record;
  w record;
begin
  if p_jobs <> '{}' or p_child_ord <> '{}' and exists (
    select from {schema}.executions j where j.id = any (p_job) and j.paused) then
    perform {schema}.flow_lock_1(p_own_id, p_jobs, p_ending);
  end if;
  select * into v from {schema}.flush_plain_2(
    p_worker, p_own_id, p_epoch, p_revision, p_status, p_step, p_state, p_attempt, p_replay, p_result, p_error, p_delay,
    p_own_awaits, p_wake_after, p_wake_at, p_digest, p_knows, p_added, p_journal_ord, p_journal_first, p_journal_count,
    p_journal_body);
  select * into w from {schema}.collate_1(
    p_own_id, v.fenced, p_open_ord, p_open_count, p_ord, p_job, p_activity, p_dimension, p_guid, p_wave, p_add, p_mark,
    p_guid_add, p_response, p_failure, p_settles, p_threshold, p_end_status, p_end_result, p_end_error, p_awaits,
    p_acknowledge, p_arrival_ord, p_arrival_activity, p_arrival_dimension, p_arrival_source, p_arrival_value,
    p_arrival_needed, p_arrival_child, p_onward, p_child_ord, p_promise, p_kind, p_name, p_version, p_handler,
    p_first_step, p_first_state, p_input_hash, p_queue, p_priority, p_partition_key, p_start_delay, p_at, p_unique_key,
    p_unique_scope, p_child_digest, p_attributes, p_paused, p_idempotency_key, p_reports, p_cleans_up, p_deadline,
    p_rank);
  fenced := v.fenced;
  odd := v.odd;
  odd_status := v.odd_status;
  odd_cancel := v.odd_cancel;
  woke := v.woke or w.woke;
  inbox := v.inbox;
  at := v.at;
  positions := w.positions;
  ledgers := w.ledgers;
  guid_ledgers := w.guid_ledgers;
  ordinals := w.ordinals;
  closed := w.closed;
  gone := w.gone;
  onward := w.onward;
  routed := w.routed;
  ended := w.ended;
end $$;

-- What people do to dead letters: back to work, or closed. A job without any other goes on (ruling A6).
create or replace function {schema}.letter_again_1(p_message bytea, p_step text) returns boolean
language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_id bigint;
  v_job bigint;
begin
  -- Only what is stranded already: see `68_ends` for how that is asked. Who strands a message has its row, then the job's.
  select id, parent_id into v_id, v_job from {schema}.executions
    where promise = p_message and kind = 'message' and status::text = 'stranded';
  if v_job is null then
    return false;
  end if;
  perform from {schema}.executions where id in (v_id, v_job) order by id for update;
  update {schema}.executions
    set status = 'runnable', step = coalesce(p_step, step), attempt = greatest(attempt - crashes, 0), crashes = 0,
      eligible_at = v_now, updated_at = v_now
    where id = v_id and status = 'stranded';
  if not found then
    return false;
  end if;
  update {schema}.executions set status = 'delegated', error = null, updated_at = v_now
    where id = v_job and status = 'stranded' and not exists (
      select from {schema}.executions m where m.parent_id = v_job and m.kind = 'message' and m.status = 'stranded');
  perform {schema}.wake_1('work');
  return true;
end $$;

-- A stranded job goes on with all its dead letters, or one of these alone. Null: it is neither.
create or replace function {schema}.resume_flow_1(p_promise bytea) returns boolean
language plpgsql as $$
declare
  v_job bigint;
begin
  if {schema}.letter_again_1(p_promise, null) then
    return true;
  end if;
  select e.id into v_job from {schema}.executions e join {schema}.semaphores s
    on s.job_id = any (array[e.id]) and s.activity = '' and s.dimension = ''
    where e.promise = p_promise and e.kind = 'flow';
  if v_job is null then
    return null;
  end if;
  return coalesce((
    select bool_or({schema}.letter_again_1(m.promise, null)) from {schema}.executions m
    where m.parent_id = v_job and m.kind = 'message' and m.status = 'stranded'), false);
end $$;
