-- Signals: the target's row is locked first, its inbox written then, and only then is it woken (rulings E2, E5, E12).
--
--   deliver_1      many; one answer a signal, in order: delivered, duplicate, ended, unknown
--   deliver_one_1  one alone, without arrays: a third of the cost
--
-- Rows of arrays are joined by `= any (array[...])`: see `advance_1`. And what is to be locked is looked up before, so that
-- its ids are given: for the order of ids alone a plan for a small ledger goes through all of its rows as well.

create or replace function {schema}.deliver_1(
  p_target bytea[], p_name text[], p_payload json[], p_dedup text[], out answers text[], out woke boolean
) language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_locked bigint[];
  v_delivered int[];
  v_hook bigint;
  v record;
begin
  v_locked := array(
    select id from {schema}.executions
    where id = any (array(select id from {schema}.executions where promise = any (p_target))) order by id for update
  );
  -- From here on a new snapshot: what others committed before we had the locks is seen.
  with given as materialized (
    select g.ord::int as ord, g.name, g.payload, g.dedup, e.id as target_id, e.status
    from unnest(p_target, p_name, p_payload, p_dedup) with ordinality as g(target, name, payload, dedup, ord)
    join {schema}.executions e on e.promise = any (array[g.target]) and e.id = any (v_locked)
  ), inserted as (
    insert into {schema}.signals as s (target_id, name, payload, dedup_key, inserted_at)
    select target_id, name, payload, dedup, v_now from given
    where status not in ('done', 'failed', 'cancelled') and (
      select true from {schema}.signal_keys k where k.target_id = given.target_id and k.dedup_key = given.dedup) is null
    order by ord
    on conflict do nothing
    returning s.target_id, s.dedup_key, s.name
  ), marked as (
    -- The first of equals in one call is the one that went in.
    select given.*, i.target_id is not null
      and row_number() over (partition by given.target_id, given.dedup order by given.ord) = 1 as is_in
    from given left join inserted i on i.target_id = given.target_id and i.dedup_key = given.dedup
  )
  select array_agg(coalesce(case
      when m.target_id is null then 'unknown'
      when m.status in ('done', 'failed', 'cancelled') then 'ended'
      when m.is_in then 'delivered'
      else 'duplicate' end) order by g.ord),
    array_agg(g.ord::int) filter (where m.is_in)
  into answers, v_delivered
  from unnest(p_target) with ordinality as g(target, ord) left join marked m on m.ord = g.ord;

  -- Where the deadline has fired but no step has acted on that yet, it gets what it waited for: not timed out.
  with woken as (
    update {schema}.executions e
    set status = case when e.status = 'executing' then e.status else 'runnable' end,
      eligible_at = case when e.timed_out then e.eligible_at else v_now end,
      timed_out = false, wake_at = null, updated_at = v_now
    where e.id = any (v_locked)
      and (e.status in ('awaiting_signal', 'awaiting_promise') or e.timed_out and e.status in ('runnable', 'executing'))
      and exists (
        select from unnest(p_target, p_name) with ordinality as g(target, name, ord)
        where g.ord = any (v_delivered) and g.target = any (array[e.promise]) and g.name = any (e.awaits)
      )
    returning e.status = 'runnable' and not e.paused as is_due
  )
  select coalesce(bool_or(is_due), false) into woke from woken;
  -- A signal of a job goes to the hook that waits for its name, to the one that has waited longest. One after the other,
  -- each in a statement of its own: what was given to one hook, or has woken since, does not count for the next signal.
  -- By when they were published: a row that its parent's child took over is older than what it stands for now.
  for v in
    select s.id, s.name, j.id as job from unnest(p_target, p_dedup) with ordinality as g(target, dedup, ord)
    join {schema}.executions j on j.promise = any (array[g.target]) and j.kind = 'flow'
    join {schema}.signals s on s.target_id = any (array[j.id]) and s.dedup_key = g.dedup
    where g.ord = any (v_delivered) order by g.ord
  loop
    update {schema}.executions set status = 'runnable', eligible_at = v_now, wake_at = null, updated_at = v_now
      where id = (
        select m.id from {schema}.executions m
        where m.parent_id = v.job and m.kind = 'message' and m.status::text = 'awaiting_signal'  -- see 68_ends
          and v.name = any (m.awaits)
        order by m.inserted_at, m.id limit 1 for update)
      returning id into v_hook;
    if v_hook is not null then
      perform {schema}.route_signal_1(v.id, v_hook);
      woke := true;
    end if;
  end loop;
  -- A hint for whoever holds a target, or for a picker that passed over it while it was locked here; no index but that
  -- of promises fits.
  woke := woke or exists (
    select from unnest(p_target) with ordinality as g(target, ord)
    join {schema}.executions e on e.promise = any (array[g.target])
      and (e.locked_by is not null or e.status = 'runnable' and not e.paused)
    where g.ord = any (v_delivered));
  if woke then
    perform {schema}.wake_1('work');
  end if;
end $$;

create or replace function {schema}.deliver_one_1(
  p_target bytea, p_name text, p_payload json, p_dedup text, out answer text, out woke boolean
) language plpgsql as $$
declare
  v_now timestamptz := {schema}.clock();
  v_id bigint;
  v_status {schema}.status;
  v_kind text;
  v_paused boolean;
  v_wakes boolean;
begin
  woke := false;
  -- As it is once the lock is had, whoever had it before.
  select e.id, e.status, e.kind, e.paused, p_name = any (e.awaits) and (
      e.status in ('awaiting_signal', 'awaiting_promise') or e.timed_out and e.status in ('runnable', 'executing'))
    into v_id, v_status, v_kind, v_paused, v_wakes
    from {schema}.executions e where e.promise = p_target for update;
  if v_id is null then
    answer := 'unknown';
    return;
  elsif v_status in ('done', 'failed', 'cancelled') then
    answer := 'ended';
    return;
  elsif v_kind = 'flow' then
    select d.answers[1], d.woke into answer, woke
      from {schema}.deliver_1(array[p_target], array[p_name], array[p_payload], array[p_dedup]) d;
    return;
  end if;
  answer := 'duplicate';
  if p_dedup like 'u:%' and exists (
    select from {schema}.signal_keys k where k.target_id = v_id and k.dedup_key = p_dedup
  ) then
    return;
  end if;
  insert into {schema}.signals (target_id, name, payload, dedup_key, inserted_at)
    values (v_id, p_name, p_payload, p_dedup, v_now) on conflict do nothing;
  if not found then
    return;
  end if;
  answer := 'delivered';
  if v_wakes then
    update {schema}.executions e
      set status = case when e.status = 'executing' then e.status else 'runnable' end,
        eligible_at = case when e.timed_out then e.eligible_at else v_now end,
        timed_out = false, wake_at = null, updated_at = v_now
      where e.id = v_id;
    woke := v_status <> 'executing' and not v_paused;
  end if;
  -- Or a hint for whoever holds it, or for a picker that passed over it while it was locked here.
  woke := woke or v_status = 'executing' or v_status = 'runnable' and not v_paused;
  if woke then
    perform {schema}.wake_1('work');
  end if;
end $$;
