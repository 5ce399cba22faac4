-- Insert all that do not collide; the rows answered are those that were not created.
--
-- The rows come sorted by unique key, then promise, so that two calls that meet wait for each other and never deadlock;
-- `p_rank` says in which order they were meant, and ids follow that. `p_only` are the positions to insert; null: all.
-- Arrays may be shorter than p_promise: what is missing is the default, or, where there is none, as the first has it.

-- Whether what was started before had another input. What SQL started (97_start.sql) has a hash of its own kind: then
-- the inputs themselves are compared, where they are still there.
create or replace function {schema}.is_other_input_1(
  p_old_kind text, p_old_hash text, p_old_state json, p_kind text, p_hash text, p_state json
) returns boolean language plpgsql as $$
declare
  v_state jsonb;
begin
  if p_old_hash = p_hash or p_old_hash not like 'sql:%' then
    return p_old_hash <> p_hash;
  end if;
  v_state := replace(p_state::text, E'\\u0000', E'\\ufffd');  -- jsonb has no NUL, so what SQL started has none either
  return p_old_kind <> p_kind or case p_kind
    when 'workflow' then p_old_state::jsonb <> v_state
    when 'task' then p_old_state::jsonb -> 'input' is distinct from v_state -> 'input'
    else false end;
end $$;

create or replace function {schema}.insert_1(
  p_promise bytea[], p_kind text[], p_name text[], p_version int[], p_handler bigint[], p_step text[],
  p_state json[], p_input_hash text[], p_queue text[], p_priority int[], p_partition_key text[],
  p_delay double precision[], p_at timestamptz[], p_unique_key bytea[], p_unique_scope text[], p_digest text[],
  p_attributes json[], p_paused boolean[], p_idempotency_key text[], p_reports boolean[], p_cleans_up boolean[],
  p_deadline double precision[], p_rank int[], p_parent_id bigint[], p_parent_round int[], p_only int[] default null
) returns table (ord int, promise bytea, collided boolean, key_conflict boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
  v_left int[] := p_only;  -- positions not yet accounted for; null: all
  v_ids bigint[] := array(
    select nextval('{schema}.executions_id_seq') from generate_series(1, cardinality(p_promise)));
  v_created bigint[];
  v_due boolean;
  v_woke boolean := false;
  -- What rows that are alike share, so that it is not looked up in an array for each of them.
  v_kind text := p_kind[1];
  v_name text := p_name[1];
  v_version int := p_version[1];
  v_handler bigint := p_handler[1];
  v_step text := p_step[1];
  v_queue text := p_queue[1];
  v_priority int := p_priority[1];
  v_digest text := nullif(p_digest[1], '');
  v_reports boolean := coalesce(p_reports[1], false);
  v_cleans_up boolean := coalesce(p_cleans_up[1], false);
  v_is_crowd boolean := cardinality(p_promise) >= 64 and p_kind[1] not in ('message', 'chunk');
begin
  if cardinality(p_promise) > 1
    and not exists (select from {schema}.executions e where e.promise = p_promise[1])
  then
    -- Not `on conflict`, which looks into every unique index before it writes, and confirms each row: a quarter of an
    -- insert. Where something is in the way, all of this is undone and done again with care; so it is not begun for a
    -- list that was started before.
    begin
      if p_only is null and greatest(
        cardinality(p_kind), cardinality(p_name), cardinality(p_version), cardinality(p_handler), cardinality(p_step),
        cardinality(p_queue), cardinality(p_priority), cardinality(p_digest), cardinality(p_reports),
        cardinality(p_cleans_up)
      ) <= 1 and greatest(
        cardinality(p_partition_key), cardinality(p_delay), cardinality(p_at), cardinality(p_unique_key),
        cardinality(p_attributes), cardinality(p_paused), cardinality(p_deadline)
      ) = 0 then
        {include insert_alike}
        v_woke := true;
      else
        with created as (
          {include insert_rows}
          returning e.eligible_at <= v_now and not e.paused as is_due
        )
        select bool_or(created.is_due) into v_woke from created;
      end if;
      if v_woke then
        perform {schema}.wake_1('work');
      end if;
      return;
    exception when unique_violation then
      v_woke := false;
    end;
  end if;
  -- A rival that left between our conflict and our look for it frees the key again: look once more, not for ever.
  for v_round in 1 .. 20 loop
    with created as (
      {include insert_rows}
      on conflict do nothing
      returning id, eligible_at <= v_now and not paused as is_due
    )
    select array_agg(created.id), bool_or(created.is_due) into v_created, v_due from created;
    v_woke := v_woke or coalesce(v_due, false);
    exit when cardinality(v_created) = coalesce(cardinality(v_left), cardinality(p_promise));
    v_left := array(
      select o::int from generate_series(1, cardinality(p_promise)) o
      where (v_left is null or o = any (v_left))
        and (v_created is null or v_ids[coalesce(p_rank[o], o)] <> all (v_created))
    );
    exit when v_left = '{}';
    -- A later statement than the insert, so that it sees the rows that were in its way.
    for ord, promise, collided, key_conflict in
      select g.ord::int, coalesce(same.promise, rival.promise), same.promise is null,
        same.promise is not null
          and {schema}.is_other_input_1(
            same.kind, same.input_hash, same.state, coalesce(g.kind, p_kind[1]), g.input_hash, g.state)
      from unnest(p_promise, p_unique_key, p_kind, p_input_hash, p_state) with ordinality
        as g(promise, unique_key, kind, input_hash, state, ord)
      left join {schema}.executions same on same.promise = any (array[g.promise])
      left join lateral (
        select r.id, r.promise from {schema}.executions r
        where r.unique_key = g.unique_key and not r.unique_released and r.status = any (r.unique_scope) limit 1
      ) rival on true
      where g.ord::int = any (v_left) and (same.id is not null or rival.id is not null)
    loop
      v_left := array_remove(v_left, ord);
      return next;
    end loop;
    exit when v_left = '{}';
    if v_round = 20 then
      raise exception 'the unique keys of % rows changed hands too often', cardinality(v_left)
        using errcode = 'serialization_failure';
    end if;
  end loop;
  if v_woke then
    perform {schema}.wake_1('work');
  end if;
end $$;

-- One row that asks for nothing special: the commonest start, without arrays. An empty promise is nobody's: a trial.
create or replace function {schema}.insert_one_1(
  p_promise bytea, p_input_hash text, p_state json, p_key text, p_kind text, p_name text, p_version int, p_handler bigint,
  p_step text, p_queue text, p_priority int, p_digest text, p_cleans_up boolean
) returns table (ord int, promise bytea, collided boolean, key_conflict boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
begin
  insert into {schema}.executions (
    promise, kind, name, version, handler, step, state, input_hash, queue, priority, eligible_at, digest,
    idempotency_key, cleans_up, inserted_at, updated_at
  ) select
    p_promise, p_kind, p_name, p_version, p_handler, p_step, p_state, p_input_hash, p_queue, p_priority, v_now, p_digest,
    p_key, p_cleans_up, v_now, v_now
  where p_promise <> ''
  on conflict do nothing;
  if found then
    perform {schema}.wake_1('work');
    return;
  elsif p_promise = '' then
    return;
  end if;
  return query select i.ord, i.promise, i.collided, i.key_conflict from {schema}.insert_1(
    array[p_promise], array[p_kind], array[p_name], array[p_version], array[p_handler], array[p_step], array[p_state],
    array[p_input_hash], array[p_queue], array[p_priority], '{}', '{}', '{}', '{}', '{}', array[p_digest], '{}', '{}',
    array[p_key], '{}', array[p_cleans_up], '{}', '{}', '{}', '{}') i;
end $$;
