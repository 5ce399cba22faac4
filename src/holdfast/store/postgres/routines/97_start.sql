-- Start by name, in whatever transaction calls it: for psycopg, SQLAlchemy, Django, triggers.
--
--   select {schema}.start('checkout', '{"order": 17}', 'order-17');
--
-- A definition is known once a worker with its code has started. The answer is the id. The same key finds the execution
-- that was started before; with another input it is an error. People call it: so it carries no version in its name.

create or replace function {schema}.start(
  p_name text, p_input json default '{}', p_key text default null, p_queue text default null
) returns text language plpgsql as $$
declare
  v {schema}.definitions;
  v_old {schema}.executions;
  v_name bytea := convert_to(p_name, 'UTF8');
  v_promise bytea;
  v_state json;
begin
  select * into v from {schema}.definitions where name = p_name order by version desc limit 1;
  if not found then
    raise exception 'no worker of this ledger has known a definition "%"', p_name
      using errcode = 'undefined_object', hint = 'start a worker with its code once, or check the name';
  end if;
  v_state := case when v.kind = 'task' then ('{"input":' || p_input::text || '}')::json else p_input end;
  -- As core.identity has it: the lengths and texts of name and key, or a length that no key has and chance.
  v_promise := sha256(int8send(octet_length(v_name)) || v_name || case
    when p_key is null then '\xffffffffffffffff'::bytea || uuid_send(gen_random_uuid())
    else int8send(octet_length(convert_to(p_key, 'UTF8'))) || convert_to(p_key, 'UTF8') end);
  perform {schema}.insert_1(
    array[v_promise], array[v.kind], array[v.name], array[v.version], array[v.handler], array[v.step],
    array[v_state], array['sql:' || md5(p_input::jsonb::text)], array[coalesce(p_queue, v.queue)],
    array[v.priority::int], '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', array[p_key], '{}',
    array[v.kind = 'workflow'], '{}', '{}', '{}', '{}');
  select * into v_old from {schema}.executions where promise = v_promise;
  -- What a machine was started with is gone once it has moved; of functions it stays.
  if v.kind = 'workflow' and v_old.state::jsonb <> v_state::jsonb
    or v.kind = 'task' and (v_old.state::jsonb -> 'input') <> p_input::jsonb
  then
    raise exception '% was started before with the key "%" and another input', p_name, p_key
      using errcode = 'unique_violation', hint = 'one key means one execution: use a key that names this input';
  end if;
  return encode(v_promise, 'hex');
end $$;
