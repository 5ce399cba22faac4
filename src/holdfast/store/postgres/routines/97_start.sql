-- Start by name, in whatever transaction calls it: for psycopg, SQLAlchemy, Django, triggers.
--
--   select {schema}.start('checkout', '{"order": 17}', 'order-17');
--
-- A definition is known once a worker with its code has started. The answer is the id. The same key finds the execution
-- that was started before; with another input it is an error. What the library refuses is refused here
-- too, as far as the ledger knows it. People call it: so it carries no version in its name.

create or replace function {schema}.start(
  p_name text, p_input json default '{}', p_key text default null, p_queue text default null
) returns text language plpgsql as $$
declare
  v {schema}.definitions;
  v_old {schema}.executions;
  v_name bytea := convert_to(p_name, 'UTF8');
  v_promise bytea;
  v_state json;
  v_unknown text;
  v_hash text := 'sql:' || md5(p_input::jsonb::text);
begin
  select * into v from {schema}.definitions where name = p_name order by version desc limit 1;
  if not found then
    raise exception 'no worker of this ledger has known a definition "%"', p_name
      using errcode = 'undefined_object', hint = 'start a worker with its code once, or check the name';
  end if;
  if p_input is null or v.kind <> 'machine' and json_typeof(p_input) <> 'object' then
    raise exception '% is started with an object of its arguments, not with %', p_name,
        coalesce(left(p_input::text, 100), 'null')
      using errcode = 'invalid_parameter_value', hint = 'its parameters are: ' || array_to_string(v.parameters, ', ');
  end if;
  if v.kind <> 'machine' then
    select string_agg(k, ', ') into v_unknown from json_object_keys(p_input) k where k <> all (v.parameters);
  end if;
  if v_unknown is not null then
    raise exception '% has no parameter %', p_name, v_unknown
      using errcode = 'invalid_parameter_value', hint = 'its parameters are: ' || array_to_string(v.parameters, ', ');
  end if;
  if v.kind = 'batch' and json_typeof(p_input -> 'items') is distinct from 'array' then
    raise exception '% is a batch: start it with {"items": [...]}', p_name using errcode = 'invalid_parameter_value';
  end if;
  if p_key = '' or char_length(p_key) > 512 then
    raise exception 'a key has 1 to 512 characters, not %', char_length(p_key)
      using errcode = 'invalid_parameter_value', hint = 'leave it out to get a fresh one, or use a hash of it';
  end if;
  if p_queue = '' or char_length(p_queue) > 100 then
    raise exception 'the name of a queue has 1 to 100 characters, not %', char_length(p_queue)
      using errcode = 'invalid_parameter_value', hint = 'leave it out for the queue of the definition';
  end if;
  v_state := case when v.kind = 'task' then ('{"input":' || p_input::text || '}')::json else p_input end;
  -- As core.identity has it: the lengths and texts of name and key, or a length that no key has and chance.
  v_promise := sha256(int8send(octet_length(v_name)) || v_name || case
    when p_key is null then E'\\xffffffffffffffff'::bytea || uuid_send(gen_random_uuid())
    else int8send(octet_length(convert_to(p_key, 'UTF8'))) || convert_to(p_key, 'UTF8') end);
  perform {schema}.insert_1(
    array[v_promise], array[v.kind], array[v.name], array[v.version], array[v.handler], array[v.step],
    array[v_state], array[v_hash], array[coalesce(p_queue, v.queue)],
    array[v.priority::int], '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', array[p_key], '{}',
    array[v.kind in ('workflow', 'batch', 'flow')], '{}', '{}', '{}', '{}');
  select * into v_old from {schema}.executions where promise = v_promise;
  -- What a machine was started with is gone once it has moved, but for the hash; of functions it stays.
  if v_old.input_hash like 'sql:%' and v_old.input_hash <> v_hash
    or v.kind = 'workflow' and v_old.state::jsonb <> v_state::jsonb
    or v.kind = 'task' and (v_old.state::jsonb -> 'input') <> p_input::jsonb
  then
    raise exception '% was started before with the key "%" and another input', p_name, p_key
      using errcode = 'unique_violation', hint = 'one key means one execution: use a key that names this input';
  end if;
  return encode(v_promise, 'hex');
end $$;
