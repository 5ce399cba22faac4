-- Insert all that do not collide; the rows answered are those that were not created.
--
-- The rows come sorted by unique key, then promise, so that two calls that meet wait for each other and never deadlock;
-- `p_rank` says in which order they were meant, and ids follow that. `p_only` are the positions to insert; null: all.
-- Arrays may be shorter than p_promise: what is missing is the default.

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
begin
  -- A rival that left between our conflict and our look for it frees the key again: look once more, not for ever.
  for v_round in 1 .. 20 loop
    with created as (
      insert into {schema}.executions as e (
        id, promise, kind, name, version, handler, step, state, input_hash, queue, priority, partition_key,
        eligible_at, deadline_at, unique_key, unique_scope, unique_released, digest, attributes, paused,
        idempotency_key, reports, cleans_up, parent_id, parent_round, inserted_at, updated_at
      )
      select
        v_ids[coalesce(g.rank, g.ord)], g.promise, g.kind, g.name, g.version, g.handler, g.step, g.state, g.input_hash,
        g.queue, g.priority, g.partition_key, greatest(v_now + coalesce(g.delay, 0) * interval '1 second', g.at),
        greatest(v_now + coalesce(g.delay, 0) * interval '1 second', g.at) + g.deadline * interval '1 second',
        g.unique_key, string_to_array(g.unique_scope, ',')::{schema}.status[],
        -- A scope that the first status is not in would be entered later, and abort whoever moves the row (E14).
        g.unique_key is not null and 'runnable' <> all (string_to_array(g.unique_scope, ',')),
        g.digest, g.attributes, coalesce(g.paused, false), g.idempotency_key, coalesce(g.reports, false),
        coalesce(g.cleans_up, false), g.parent_id, g.parent_round, v_now, v_now
      from unnest(
        p_promise, p_kind, p_name, p_version, p_handler, p_step, p_state, p_input_hash, p_queue, p_priority,
        p_partition_key, p_delay, p_at, p_unique_key, p_unique_scope, p_digest, p_attributes, p_paused,
        p_idempotency_key, p_reports, p_cleans_up, p_deadline, p_rank, p_parent_id, p_parent_round
      ) with ordinality as g(
        promise, kind, name, version, handler, step, state, input_hash, queue, priority,
        partition_key, delay, at, unique_key, unique_scope, digest, attributes, paused,
        idempotency_key, reports, cleans_up, deadline, rank, parent_id, parent_round, ord
      )
      where v_left is null or g.ord::int = any (v_left)
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
            same.kind, same.input_hash, same.state, g.kind, g.input_hash, g.state)
      from unnest(p_promise, p_unique_key, p_kind, p_input_hash, p_state) with ordinality
        as g(promise, unique_key, kind, input_hash, state, ord)
      left join {schema}.executions same on same.promise = g.promise
      left join {schema}.executions rival
        on rival.unique_key = g.unique_key and not rival.unique_released and rival.status = any (rival.unique_scope)
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

-- Rows that differ in promise, input and key alone, and ask for nothing special: what they share comes once.
create or replace function {schema}.insert_alike_1(
  p_promise bytea[], p_state json[], p_input_hash text[], p_key text[], p_rank int[],
  p_kind text, p_name text, p_version int, p_handler bigint, p_step text, p_queue text, p_priority int, p_digest text,
  p_cleans_up boolean
) returns table (ord int, promise bytea, collided boolean, key_conflict boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := {schema}.clock();
  v_size int[] := array[cardinality(p_promise)];
  v_ids bigint[] := array(select nextval('{schema}.executions_id_seq') from generate_series(1, v_size[1]));
begin
  if v_size[1] = 1 then
    {include insert_alike} on conflict do nothing;
    if found then
      perform {schema}.wake_1('work');
      return;
    end if;
  elsif not exists (select from {schema}.executions e where e.promise = p_promise[1]) then
    -- Not `on conflict`, which looks into every unique index before it writes, and confirms each row: a quarter of an
    -- insert. Where something is in the way, all of this is undone and done again with care; so it is not begun for a
    -- list that was started before.
    begin
      {include insert_alike};
      perform {schema}.wake_1('work');
      return;
    exception when unique_violation then
      null;
    end;
  end if;
  return query select i.ord, i.promise, i.collided, i.key_conflict from {schema}.insert_1(
    p_promise, array_fill(p_kind, v_size), array_fill(p_name, v_size), array_fill(p_version, v_size),
    array_fill(p_handler, v_size), array_fill(p_step, v_size), p_state, p_input_hash, array_fill(p_queue, v_size),
    array_fill(p_priority, v_size), '{}', '{}', '{}', '{}', '{}', array_fill(p_digest, v_size), '{}', '{}', p_key,
    '{}', array_fill(p_cleans_up, v_size), '{}', p_rank, '{}', '{}') i;
end $$;
