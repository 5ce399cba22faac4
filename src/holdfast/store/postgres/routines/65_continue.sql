-- A run goes on as another (ContinueExecution): the new row takes the old one's place.
--
--   origin_1       the first of the runs that an id stands for: without the last three numbers of a successor
--   continue_1     before the old row ends, which would release its unique key for good (ruling E14)
--   carry_inbox_1  after this commit's own signals are delivered: what was in the inbox is younger than those; with it
--                  goes what the run shows of itself, as this commit has left it

create or replace function {schema}.origin_1(p_promise bytea) returns bytea language sql immutable as $$
  select case when octet_length(p_promise) >= 44
      and substring(p_promise from octet_length(p_promise) - 11 for 4) = E'\\xffffffff'::bytea
    then substring(p_promise for octet_length(p_promise) - 12) else p_promise end
$$;

create or replace function {schema}.continue_1(p_id bigint, p_promise bytea) returns void language plpgsql as $$
declare
  v {schema}.executions;
begin
  select * into v from {schema}.executions where id = p_id;
  update {schema}.executions set successor = p_promise, unique_key = null where id = p_id;
  update {schema}.executions set successor = p_promise
    where promise = {schema}.origin_1(v.promise) and id <> p_id;
  update {schema}.executions
    set parent_id = v.parent_id, parent_round = v.parent_round, reports = v.reports, deadline_at = v.deadline_at,
      cancel_requested = v.cancel_requested, cancel_reason = v.cancel_reason, paused = v.paused,
      unique_key = v.unique_key, unique_scope = v.unique_scope, unique_released = v.unique_released
    where promise = p_promise;
end $$;

-- The dedup keys hold for the life of the run, which goes on (ruling E12).
create or replace function {schema}.carry_inbox_1(p_id bigint, p_promise bytea) returns void language plpgsql as $$
declare
  v_new bigint := (select id from {schema}.executions where promise = p_promise);
begin
  insert into {schema}.signals (target_id, kind, name, payload, dedup_key, inserted_at)
    select v_new, s.kind, s.name, s.payload, s.dedup_key, s.inserted_at from {schema}.signals s
    where s.target_id between p_id and p_id and s.kind = 'signal' order by s.target_id, s.id;
  insert into {schema}.signal_keys (target_id, dedup_key)
    select v_new, k.dedup_key from {schema}.signal_keys k where k.target_id = p_id;
  update {schema}.executions n set published = o.published
    from {schema}.executions o where n.id = v_new and o.id = p_id and o.published is not null;
end $$;
