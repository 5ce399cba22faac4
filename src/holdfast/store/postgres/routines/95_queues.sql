-- The view of queues: every queue with settings or live rows, found by going along the indexes from one name to the
-- next; or `p_limit` of those after a name. Rows are counted up to `p_bound`, so that a look costs the same whatever is
-- waiting.

create or replace function {schema}.next_queue_1(p_after text) returns text
language sql stable as $$
  select min(n.queue) from (
    (select queue from {schema}.executions
      where status = 'runnable' and not paused and partition_key is null and queue > p_after order by queue limit 1)
    union all
    (select queue from {schema}.executions
      where status = 'runnable' and not paused and not key_blocked and partition_key is not null and queue > p_after
      order by queue limit 1)
    union all
    (select queue from {schema}.executions where status = 'executing' and queue > p_after order by queue limit 1)
    union all
    (select queue from {schema}.executions
      where (status in ('awaiting_signal', 'awaiting_children', 'awaiting_promise', 'stranded', 'delegated')
          or (status = 'runnable' and (paused or key_blocked))) and queue > p_after
      order by queue limit 1)
    union all
    (select name from {schema}.queues where name > p_after order by name limit 1)
  ) n
$$;

create or replace function {schema}.queue_stats_1(p_bound int, p_after text, p_limit int) returns table (
  name text, paused boolean, concurrency int, rate double precision, rate_seconds double precision,
  runnable bigint, executing bigint, oldest_eligible_at timestamptz
) language plpgsql stable as $$
#variable_conflict use_column
declare
  v_priority int;
  v_oldest timestamptz;
begin
  name := p_after;
  for v_number in 1 .. coalesce(p_limit, 2147483647) loop
    name := {schema}.next_queue_1(name);
    exit when name is null;
    select q.paused, q.concurrency, q.rate, q.rate_seconds into paused, concurrency, rate, rate_seconds
      from {schema}.queues q where q.name = queue_stats_1.name;
    paused := coalesce(paused, false);
    rate_seconds := coalesce(rate_seconds, 1);
    select (select count(*) from (
        select from {schema}.executions e where e.queue = queue_stats_1.name and e.status = 'runnable'
          and not e.paused and e.partition_key is null limit p_bound + 1) a)
      + (select count(*) from (
        select from {schema}.executions e where e.queue = queue_stats_1.name and e.status = 'runnable'
          and not e.paused and not e.key_blocked and e.partition_key is not null limit p_bound + 1) b)
      + (select count(*) from (
        select from {schema}.executions e where e.queue = queue_stats_1.name and e.status = 'runnable'
          and (e.paused or e.key_blocked) limit p_bound + 1) c)
    into runnable;
    select count(*) into executing from (
      select from {schema}.executions e
      where e.queue = queue_stats_1.name and e.status = 'executing' limit p_bound + 1) d;
    v_priority := -32769;
    oldest_eligible_at := null;
    loop
      select min(n.priority), least(oldest_eligible_at, min(n.eligible_at)) into v_priority, oldest_eligible_at from (
        (select e.priority, e.eligible_at from {schema}.executions e
          where e.queue = queue_stats_1.name and e.priority > v_priority and e.status = 'runnable' and not e.paused
            and e.partition_key is null
          order by e.priority, e.eligible_at limit 1)
        union all
        (select e.priority, e.eligible_at from {schema}.executions e
          where e.queue = queue_stats_1.name and e.priority > v_priority and e.status = 'runnable' and not e.paused
            and not e.key_blocked and e.partition_key is not null
          order by e.priority, e.eligible_at limit 1)
      ) n;
      exit when v_priority is null;
    end loop;
    return next;
  end loop;
end $$;
