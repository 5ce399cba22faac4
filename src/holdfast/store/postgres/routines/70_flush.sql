-- One call a flush: every commit whose fence holds, in one transaction (rulings E1, E2, E3).
--
--   flush_plain_2  commits that only write their own row and journal, and wait for nothing but time
--   flush_ends_2   such commits, and ends of children among them
--   flush_one_2    one such commit alone, which may consume signals and wait for some, without arrays: half the cost
--   flush_kept_2   one that keeps its lease, of a row that is neither paused nor cancelled: the step of a run alone
--   leave_2        steps of runs that leave their rows alone, beside any of the others or for themselves
--   flush_step_2   one such step alone, with nothing in its inbox
--   flush_2        commits with everything
--
-- Separate statements on purpose: one big statement would look at the inbox with the snapshot from before it waited
-- for the lock, and its parts would not see each other's writes. Rows of arrays are joined by `= any (array[id])`: see
-- `advance_1`.

create or replace function {schema}.flush_plain_2(
  p_worker text, p_id bigint[], p_epoch bigint[], p_revision bigint[], p_status text[], p_step text[], p_state json[],
  p_attempt int[], p_replay boolean[], p_result json[], p_error json[], p_delay double precision[],
  p_awaits text[], p_wake_after double precision[], p_wake_at timestamptz[],
  p_digest text[], p_knows boolean[], p_added int[],
  p_journal_ord int[], p_journal_first bigint[], p_journal_count int[], p_journal_body json[],
  out fenced int[], out odd int[], out odd_status text[], out odd_cancel boolean[], out woke boolean,
  out inbox int[], out at timestamptz
) language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v record;
begin
  select * into v from {schema}.advance_1(
    p_worker, v_now, p_id, p_epoch, p_revision, p_status, p_step, p_state, p_attempt, p_replay, p_result, p_error,
    p_delay, p_awaits, p_wake_after, p_wake_at, p_digest, p_knows, p_added, '{}');
  at := v_now;
  fenced := v.fenced;
  odd := v.odd;
  odd_status := v.odd_status;
  odd_cancel := v.odd_cancel;
  if p_journal_ord <> '{}' then
    insert into {schema}.journal (execution_id, first, count, body)
      select p_id[j.ord], j.first, j.count, j.body
      from unnest(p_journal_ord, p_journal_first, p_journal_count, p_journal_body) j(ord, first, count, body)
      where fenced is null or j.ord <> all (fenced);
  end if;
  woke := v.woke or v.freed is not null;
  if woke or v.stranded or v.ended is not null then
    perform {schema}.finish_1(v_now, v.ended, v.freed, v.freed_keys, v.woke, v.stranded);
  end if;
  if v.live is not null then
    inbox := {schema}.inboxes_1(p_id, v.live);
  end if;
end $$;

-- Locks in the order of ids: own rows that come before the last of the parents together with these, the others by the
-- update.
create or replace function {schema}.flush_ends_2(
  p_worker text, p_id bigint[], p_epoch bigint[], p_revision bigint[], p_status text[], p_step text[], p_state json[],
  p_attempt int[], p_replay boolean[], p_result json[], p_error json[], p_delay double precision[],
  p_awaits text[], p_wake_after double precision[], p_wake_at timestamptz[],
  p_digest text[], p_knows boolean[], p_added int[],
  p_journal_ord int[], p_journal_first bigint[], p_journal_count int[], p_journal_body json[],
  p_parents bigint[], p_ending bigint[],
  out fenced int[], out odd int[], out odd_status text[], out odd_cancel boolean[], out woke boolean,
  out inbox int[], out at timestamptz
) language plpgsql as $$
declare
  v_last bigint := (select max(p) from unnest(p_parents) p);
  v_ended bigint[] := p_ending;
  v_woke boolean;
begin
  perform from {schema}.executions
    where id = any (p_parents || array(select o from unnest(p_id) o where o < v_last)) order by id for update;
  select f.fenced, f.odd, f.odd_status, f.odd_cancel, f.woke, f.inbox, f.at
    into fenced, odd, odd_status, odd_cancel, woke, inbox, at
    from {schema}.flush_plain_2(
      p_worker, p_id, p_epoch, p_revision, p_status, p_step, p_state, p_attempt, p_replay, p_result, p_error, p_delay,
      p_awaits, p_wake_after, p_wake_at, p_digest, p_knows, p_added, p_journal_ord, p_journal_first, p_journal_count,
      p_journal_body) f;
  if fenced is not null then
    v_ended := array(
      select g.id from unnest(p_ending) with ordinality g(id, ord)
      where g.id <> all (array(select p_id[f] from unnest(fenced) f)) order by g.ord);
  end if;
  select b.woke into v_woke from {schema}.release_barriers_1(v_ended, at) b;
  woke := woke or v_woke;
  select r.woke into v_woke from {schema}.report_ends_1(v_ended, at) r;
  woke := woke or v_woke;
  if woke then
    perform {schema}.wake_1('work');
  end if;
  if p_parents && p_id then
    -- A parent of this very flush has more in its inbox now.
    inbox := {schema}.inboxes_1(p_id, p_id);
  end if;
end $$;

-- Called for the row 0 it goes through every statement and writes nothing: so a connection plans them ahead.
create or replace function {schema}.flush_one_2(
  p_worker text, p_id bigint, p_epoch bigint, p_revision bigint, p_status text, p_step text, p_state json,
  p_attempt int, p_replay boolean, p_result json, p_error json, p_delay double precision, p_digest text, p_knows boolean,
  p_added int, p_journal_first bigint, p_journal_count int, p_journal_body json, p_consumed bigint[],
  p_awaits text[], p_wake_after double precision, p_wake_at timestamptz, p_ignored bigint[],
  out status text, out cancel_requested boolean, out has_inbox boolean, out woke boolean, out at timestamptz
) language plpgsql as $$
#variable_conflict use_column
declare
  p_now timestamptz := {schema}.clock();
  v_key text;
  v_parks boolean := p_status in ('awaiting_signal', 'awaiting_promise');
  v_is_trial boolean := p_id = 0;
begin
  at := p_now;
  if v_parks and p_awaits <> '{}' then
    perform from {schema}.executions e
      where e.id = p_id and e.locked_by = p_worker and e.lease_epoch = p_epoch for update;
    -- Only now, after the lock: see flush_2.
    if exists (
      select from {schema}.signals s
      where s.target_id = p_id and s.kind = 'signal' and s.name = any (p_awaits) and s.id <> all (p_ignored)
    ) then
      p_status := 'runnable';
    end if;
  end if;
  update {schema}.executions e set
    {include advance_set}
  from (
    select p_status as status, p_step as step, p_state as state, p_attempt as attempt, p_replay as replay,
      p_result as result, p_error as error, p_delay as delay, p_awaits as awaits, p_wake_after as wake_after,
      p_wake_at as wake_at, p_digest as digest, p_knows as knows, p_added as added,
      p_revision as revision, case when v_parks then 0 end as pending
  ) o
  where e.id = p_id and e.locked_by = p_worker and e.lease_epoch = p_epoch
    and {include revision_now} = p_revision
  returning e.status::text, e.cancel_requested, e.partition_key,
    e.status = 'runnable' and e.eligible_at <= p_now and not e.paused
  into status, cancel_requested, v_key, woke;
  if status is null and not v_is_trial then
    return;
  end if;
  if p_journal_body is not null then
    insert into {schema}.journal (execution_id, first, count, body)
      select p_id, p_journal_first, p_journal_count, p_journal_body where not v_is_trial;
  end if;
  if p_consumed is not null then
    with consumed as (
      delete from {schema}.signals s where s.id = any (p_consumed) and s.target_id = p_id returning s.dedup_key
    )
    insert into {schema}.signal_keys (target_id, dedup_key)
      select p_id, dedup_key from consumed where dedup_key like 'u:%' on conflict do nothing;
  end if;
  if status <> 'executing' then
    if v_key is not null then
      perform {schema}.release_keys_1(array[v_key], array[p_id]);
      woke := true;
    end if;
    if status in ('done', 'failed', 'cancelled', 'stranded') then
      perform {schema}.wake_1('ended');
    end if;
    if woke then
      perform {schema}.wake_1('work');
    end if;
  end if;
  if status in ('done', 'failed', 'cancelled') or v_is_trial then
    -- As in `finish_1`.
    delete from {schema}.signals s where s.target_id = p_id and (status <> 'failed' or s.kind <> 'signal');
    delete from {schema}.signal_keys k where k.target_id = p_id and status <> 'failed';
    has_inbox := false;
  end if;
  if has_inbox is null or v_is_trial then
    has_inbox := exists (select from {schema}.signals s where s.target_id = p_id);
  end if;
end $$;

-- Of this and `flush_step_2`: no time in the answer means that it was not written, and nothing is said about why.
create or replace function {schema}.flush_kept_2(
  p_worker text, p_id bigint, p_epoch bigint, p_revision bigint, p_step text, p_state json, p_digest text,
  p_added int, p_journal_first bigint, p_journal_count int, p_journal_body json, out has_inbox boolean, out at timestamptz
) language plpgsql as $$
begin
  at := {schema}.clock();
  -- What `advance_set` comes to for such a row.
  update {schema}.executions e set
    step = coalesce(p_step, e.step), state = coalesce(p_state, e.state), digest = coalesce(p_digest, e.digest),
    result = null, error = null, attempt = 0, crashes = 0, awaits = null, timed_out = false, children_ready = false,
    wake_at = null, revision = p_revision + 1, journal_length = e.journal_length + p_added,
    updated_at = at
  where e.id = p_id and e.locked_by = p_worker and e.lease_epoch = p_epoch and not e.paused
    and not e.cancel_requested and {include revision_now} = p_revision;
  if not found then
    at := null;
    return;
  end if;
  if p_journal_body is not null then
    insert into {schema}.journal (execution_id, first, count, body)
      values (p_id, p_journal_first, p_journal_count, p_journal_body);
  end if;
  has_inbox := exists (select from {schema}.signals s where s.target_id = p_id);
end $$;

-- Steps that leave their rows alone (store/behind.py): the fence, and a segment each. Beside other commits it comes last
-- (`p_after` is for nothing else), when these have the locks that they wait for, and waits for none itself: what others
-- have in hand is refused, like what is no longer held, or paused, or cancelled.
create or replace function {schema}.leave_2(
  p_after timestamptz, p_worker text, p_id bigint[], p_epoch bigint[], p_revision bigint[],
  p_first bigint[], p_count int[], p_body json[], p_step text[],
  out refused bigint[], out left_inbox int[]
) language plpgsql as $$
declare
  v_left bigint[];
begin
  with written as (
    insert into {schema}.journal (execution_id, first, count, body, step, revision)
      select e.id, o.first, o.count, o.body, o.step, o.revision + 1
      from unnest(p_id, p_epoch, p_revision, p_first, p_count, p_body, p_step)
        o(id, epoch, revision, first, count, body, step)
      cross join lateral (
        select e.id from {schema}.executions e
        where e.id = o.id and e.locked_by = p_worker and e.lease_epoch = o.epoch and not e.paused
          and not e.cancel_requested and {include revision_now} = o.revision
        for no key update skip locked
      ) e
    returning execution_id
  )
  select array_agg(execution_id) into v_left from written;
  if coalesce(cardinality(v_left), 0) < cardinality(p_id) then
    refused := array(select i from unnest(p_id) i where v_left is null or i <> all (v_left));
  end if;
  if v_left is not null then
    left_inbox := {schema}.inboxes_1(p_id, v_left);
  end if;
end $$;

-- The same of one alone, which may wait. What is delivered meanwhile is for its next commit, like what comes after it.
-- `p_told` is the revision that the row itself says, and `p_behind` the first event that it does not tell of: what its
-- holder knows of it is held against the row as it is.
create or replace function {schema}.flush_step_2(
  p_worker text, p_id bigint, p_epoch bigint, p_revision bigint, p_told bigint, p_behind bigint, p_first bigint,
  p_count int, p_body json, p_step text, out at timestamptz
) language plpgsql as $$
begin
  insert into {schema}.journal (execution_id, first, count, body, step, revision)
    select e.id, p_first, p_count, p_body, p_step, p_revision + 1 from {schema}.executions e
    where e.id = p_id and e.locked_by = p_worker and e.lease_epoch = p_epoch and not e.paused
      and not e.cancel_requested and e.revision = p_told
      and coalesce((
        select j.revision from {schema}.journal j where j.execution_id = p_id and j.first >= p_behind
        order by j.first desc limit 1), p_told) = p_revision
      and not exists (select from {schema}.signals s where s.target_id = p_id)
    for no key update
  returning {schema}.clock() into at;
end $$;

create or replace function {schema}.flush_2(
  p_worker text, p_id bigint[], p_epoch bigint[], p_revision bigint[], p_status text[], p_step text[], p_state json[],
  p_attempt int[], p_replay boolean[], p_result json[], p_error json[], p_delay double precision[],
  p_awaits text[], p_wake_after double precision[], p_wake_at timestamptz[],
  p_digest text[], p_knows boolean[], p_added int[],
  p_journal_ord int[], p_journal_first bigint[], p_journal_count int[], p_journal_body json[],
  p_wait_children int[],
  p_column_ord int[], p_column_beats json[], p_column_published json[], p_column_attributes json[],
  p_parents bigint[], p_ending bigint[],
  p_ignore_ord int[], p_ignore_id bigint[],
  p_consume_ord int[], p_consume_id bigint[],
  p_spawn_ord int[], p_spawn_quorum int[], p_child_ord int[],
  p_promise bytea[], p_kind text[], p_name text[], p_version int[], p_handler bigint[], p_first_step text[],
  p_first_state json[], p_input_hash text[], p_queue text[], p_priority int[], p_partition_key text[],
  p_start_delay double precision[], p_at timestamptz[], p_unique_key bytea[], p_unique_scope text[],
  p_child_digest text[], p_attributes json[], p_paused boolean[], p_idempotency_key text[], p_reports boolean[],
  p_cleans_up boolean[], p_deadline double precision[], p_rank int[],
  p_signal_ord int[], p_signal_target bytea[], p_signal_name text[], p_signal_payload json[], p_signal_dedup text[],
  p_line_ord int[], p_line_step text[], p_line_outcome text[], p_line_next_step text[], p_line_attempt int[],
  p_line_error json[],
  p_continue_ord int[], p_continue_to bytea[],
  out fenced int[], out odd int[], out odd_status text[], out odd_cancel boolean[], out woke boolean,
  out inbox int[],
  out child_position int[], out child_promise bytea[], out child_collided boolean[], out child_conflict boolean[],
  out unspawned int[], out at timestamptz
) language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_live int[];          -- positions of the commits whose fence holds
  v_barred int[];        -- of these, the ones that may not spawn: their cancel was requested
  v_round int[];
  v_released boolean[];
  v_runnable int[] := '{}';  -- positions that go on at once instead of parking
  v_ready bigint[] := '{}';  -- ids whose barrier is open at once
  v_only int[];
  v_found record;
  v_freed bigint[];
  v_freed_keys text[];
  v_waits int[] := '{}';     -- children that a parking row has still to wait for; null: as its new barrier says
  v_asked text[];
  v record;
  v_woke boolean;
begin
  -- Every row that will be touched, in the order of ids.
  with locked as materialized (
    select e.id, e.locked_by, e.lease_epoch, {include revision_now} as revision,
      e.cancel_requested and not e.cleans_up as is_barred, e.barrier_round, e.unique_released
    from {schema}.executions e
    where e.id = any (
      p_id || p_parents || array(select id from {schema}.executions where promise = any (
        p_signal_target || array(select {schema}.origin_1(c) from unnest(p_continue_to) c))))
    order by e.id for update
  ), own as (
    select o.ord::int, o.status as asked, l.*
    from unnest(p_id, p_epoch, p_revision, p_status) with ordinality as o(id, epoch, revision, status, ord)
    left join locked l on l.id = o.id and l.locked_by = p_worker and l.lease_epoch = o.epoch
      and l.revision = o.revision
  )
  select array_agg(ord) filter (where id is not null), array_agg(ord) filter (where id is null),
    coalesce(array_agg(ord) filter (
      where is_barred and asked not in ('executing', 'done', 'failed', 'cancelled')), '{}'),
    array_agg(barrier_round order by ord), array_agg(unique_released order by ord)
  into v_live, fenced, v_barred, v_round, v_released
  from own;
  woke := false;
  at := v_now;
  if v_live is null and p_id <> '{0}' then  -- else it is planned ahead: see flush_one_2
    return;
  end if;

  if p_consume_ord <> '{}' then
    with consumed as (
      delete from {schema}.signals s using unnest(p_consume_ord, p_consume_id) c(ord, id)
      where c.ord = any (v_live) and s.id = any (array[c.id]) and s.target_id = any (array[p_id[c.ord]])
      returning s.target_id, s.dedup_key
    )
    insert into {schema}.signal_keys (target_id, dedup_key)
      select target_id, dedup_key from consumed where dedup_key like 'u:%' on conflict do nothing;
  end if;

  unspawned := array(select distinct o from unnest(p_spawn_ord || p_child_ord) o where o = any (v_barred));
  if p_continue_ord <> '{}' then
    -- Before the old row ends: then its unique key would be free for others.
    v_only := array(
      select n.position::int from unnest(p_child_ord, p_promise) with ordinality n(ord, promise, position)
      where n.ord = any (v_live) and n.promise = any (p_continue_to));
    {include insert_children}
    perform {schema}.continue_1(p_id[c.ord], c.promise) from unnest(p_continue_ord, p_continue_to) c(ord, promise)
      where c.ord = any (v_live);
  end if;

  -- Only now, after the lock: a signal that came before it is in the inbox, one that comes after finds the row parked.
  -- A barrier that its children have already emptied is open as well, and so is a wait for children that have ended.
  if p_status && '{awaiting_signal,awaiting_children,awaiting_promise}' then
    v_waits := array(
      select case
        when o.status = 'awaiting_promise' and o.wait > 0 then greatest(o.wait - (
          select count(*)::int from {schema}.signals s where s.target_id = o.id and s.kind = 'child'), 0)
        when o.status = 'awaiting_children' and o.ord <> all (p_spawn_ord) then (
          select count(*)::int from {schema}.executions c
          where c.parent_id = o.id and c.parent_round = v_round[o.ord] and c.ended_at is null)
        when o.status in ('awaiting_promise', 'awaiting_signal') and o.replay is not true then 0 end
      from unnest(p_id, p_status, p_wait_children, p_replay) with ordinality as o(id, status, wait, replay, ord)
      order by o.ord
    );
  end if;
  select v_runnable || coalesce(array_agg(o.ord::int), '{}'),
    v_ready || coalesce(array_agg(o.id) filter (where o.status = 'awaiting_children'), '{}')
  into v_runnable, v_ready
  from unnest(p_id, p_status, p_awaits) with ordinality as o(id, status, awaits, ord)
  where o.ord = any (v_live) and o.ord <> all (v_runnable) and (
    (o.status in ('awaiting_signal', 'awaiting_promise') and exists (
      select from {schema}.signals s
      where s.target_id = o.id and s.kind = 'signal' and s.name = any (o.awaits::text[])
        and not exists (select from unnest(p_ignore_ord, p_ignore_id) i(ord, id) where i.ord = o.ord and i.id = s.id)))
    or (o.status = 'awaiting_promise' and p_wait_children[o.ord] > 0 and v_waits[o.ord] = 0)
    or (o.status = 'awaiting_children' and o.ord <> all (p_spawn_ord) and v_waits[o.ord] = 0));
  v_asked := p_status;
  for v_at in 1 .. cardinality(v_runnable) loop
    p_status[v_runnable[v_at]] := 'runnable';
  end loop;

  -- An advance that lost its fence finds no row: its epoch or its revision is not the row's.
  select * into v from {schema}.advance_1(
    p_worker, v_now, p_id, p_epoch, p_revision, p_status, p_step, p_state, p_attempt, p_replay, p_result, p_error,
    p_delay, p_awaits, p_wake_after, p_wake_at, p_digest, p_knows, p_added, v_waits);
  woke := woke or v.woke or v.freed is not null;
  select array_agg(r.ord), array_agg(r.status), array_agg(r.cancel) into odd, odd_status, odd_cancel
  from (
    select x.ord, x.status, x.cancel from unnest(v.odd, v.odd_status, v.odd_cancel) x(ord, status, cancel)
    union all
    select o, 'runnable', false from unnest(v_runnable) o where o <> all (coalesce(v.odd, '{}'))
  ) r;
  if v_ready <> '{}' then
    update {schema}.executions set children_ready = true
    where id = any (v_ready) and status not in ('done', 'failed', 'cancelled');
  end if;

  -- After the own rows, so that a unique key that one of them gave up is free for a child.
  if p_child_ord <> '{}' then
    v_only := case when fenced is not null or v_barred <> '{}' or p_continue_to <> '{}' then array(
      select n.position::int from unnest(p_child_ord, p_promise) with ordinality n(ord, promise, position)
      where n.ord = any (v_live) and n.ord <> all (v_barred) and n.promise <> all (p_continue_to)) end;
    {include insert_children}
    woke := woke or child_position is null or cardinality(child_position) < cardinality(p_promise);
  end if;
  if p_spawn_ord <> '{}' then
    with spawned as (
      select s.ord, coalesce(c.tried, 0) as tried,
        least(coalesce(c.created, 0), coalesce(s.quorum, c.created, 0)) as pending
      from unnest(p_spawn_ord, p_spawn_quorum) s(ord, quorum) left join (
        select n.ord, count(*)::int as tried,
          count(*) filter (where child_position is null or n.position::int <> all (child_position))::int as created
        from unnest(p_child_ord) with ordinality n(ord, position) group by n.ord
      ) c on c.ord = s.ord
      where s.ord = any (v_live) and s.ord <> all (v_barred)
    ), opened as (
      -- Nobody to wait for: it goes on at once, whatever it asked for, unless it has ended.
      update {schema}.executions e
      set barrier_round = e.barrier_round + 1, next_child = e.next_child + s.tried, children_pending = s.pending,
        status = case when s.pending = 0 and e.ended_at is null then 'runnable' else e.status end,
        locked_by = case when s.pending > 0 then e.locked_by end,
        eligible_at = case when s.pending = 0 and e.ended_at is null then v_now else e.eligible_at end,
        wake_at = case when s.pending > 0 then e.wake_at end,
        children_ready = e.children_ready or (s.pending = 0 and e.ended_at is null),
        -- It never left its scope, then; but a child of another commit may have its key by now.
        unique_released = case when s.pending > 0 or e.unique_key is null or e.ended_at is not null then e.unique_released
          else v_released[s.ord] or exists (
            select from {schema}.executions x where x.unique_key = e.unique_key and x.id <> e.id
              and not x.unique_released and x.status = any (x.unique_scope)) end
      from spawned s where e.id = any (array[p_id[s.ord]])
      returning s.ord, e.id, e.partition_key, e.cancel_requested, e.status = 'runnable' and s.pending = 0 as goes_on
    )
    -- Of two entries for one position in `odd`, the later one holds.
    select odd || array_agg(o.ord), odd_status || array_agg('runnable'::text),
      odd_cancel || array_agg(o.cancel_requested), woke or count(*) > 0,
      array_agg(o.id) filter (where o.partition_key is not null),
      array_agg(o.partition_key) filter (where o.partition_key is not null)
    into odd, odd_status, odd_cancel, woke, v_freed, v_freed_keys
    from opened o where o.goes_on;
  end if;

  if p_journal_ord <> '{}' then
    insert into {schema}.journal (execution_id, first, count, body)
      select p_id[j.ord], j.first, j.count, j.body
      from unnest(p_journal_ord, p_journal_first, p_journal_count, p_journal_body) j(ord, first, count, body)
      where j.ord = any (v_live);
  end if;
  if p_column_ord <> '{}' then
    update {schema}.executions e set
      beats = coalesce(c.beats, e.beats), published = coalesce(c.published, e.published),
      attributes = coalesce(c.attributes, e.attributes)
    from unnest(p_column_ord, p_column_beats, p_column_published, p_column_attributes)
      c(ord, beats, published, attributes)
    where c.ord = any (v_live) and e.id = any (array[p_id[c.ord]]);
    if exists (select from unnest(p_column_published) p where p is not null) then
      perform {schema}.wake_1('published');
    end if;
  end if;
  if p_line_ord <> '{}' then
    insert into {schema}.transitions (execution_id, revision, at, step, outcome, next_step, attempt, error)
      select e.id, e.revision, v_now, n.step, n.outcome, n.next_step, n.attempt, n.error
      from unnest(p_line_ord, p_line_step, p_line_outcome, p_line_next_step, p_line_attempt, p_line_error)
        n(ord, step, outcome, next_step, attempt, error)
      join {schema}.executions e on e.id = any (array[p_id[n.ord]])
      where n.ord = any (v_live)
      on conflict do nothing;
  end if;
  if p_signal_ord <> '{}' then
    select d.woke into v_woke from (
      select array_agg(s.target order by n) as targets, array_agg(s.name order by n) as names,
        array_agg(s.payload order by n) as payloads, array_agg(s.dedup order by n) as dedups
      from unnest(p_signal_ord, p_signal_target, p_signal_name, p_signal_payload, p_signal_dedup)
        with ordinality s(ord, target, name, payload, dedup, n)
      where s.ord = any (v_live)
    ) a cross join lateral {schema}.deliver_1(a.targets, a.names, a.payloads, a.dedups) d
    where a.targets is not null;
    woke := woke or coalesce(v_woke, false);
  end if;
  if v.ended is not null and p_parents <> '{}' then
    select b.woke into v_woke from {schema}.release_barriers_1(v.ended, v_now) b;
    woke := woke or v_woke;
    select r.woke into v_woke from {schema}.report_ends_1(array(
      select g.id from unnest(p_ending) with ordinality g(id, ord) where g.id = any (v.ended) order by g.ord), v_now) r;
    woke := woke or v_woke;
  end if;
  if (p_signal_ord <> '{}' or v.ended is not null and p_parents <> '{}') and exists (
    select from unnest(v_asked) a where a in ('awaiting_signal', 'awaiting_children', 'awaiting_promise')
  ) then
    -- A row may have parked and been woken by another commit of the same flush.
    select odd || array_agg(o.ord::int), odd_status || array_agg('runnable'::text),
      odd_cancel || array_agg(e.cancel_requested)
    into odd, odd_status, odd_cancel
    from unnest(p_id, p_status) with ordinality o(id, status, ord)
    join {schema}.executions e on e.id = any (array[o.id]) and e.status = 'runnable'
    where o.ord = any (v_live) and o.status in ('awaiting_signal', 'awaiting_children', 'awaiting_promise');
  end if;
  if p_continue_ord <> '{}' then
    perform {schema}.carry_inbox_1(p_id[c.ord], c.promise) from unnest(p_continue_ord, p_continue_to) c(ord, promise)
      where c.ord = any (v_live);
  end if;
  perform {schema}.finish_1(
    v_now, v.ended, v.freed || v_freed, v.freed_keys || v_freed_keys, woke, v.stranded);
  if v.live is not null then
    inbox := {schema}.inboxes_1(p_id, v.live);
  end if;
end $$;
