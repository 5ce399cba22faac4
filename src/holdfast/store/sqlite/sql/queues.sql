-- name: queue_settings_of
select name, paused, concurrency, rate, rate_seconds from queues where name = ?;

-- name: queue_executing
select count(*) from executions where status = 'executing' and queue = ?;

-- name: queue_spend
update queues set tokens = ?, tokens_at = ? where name = ?;

-- name: queue_configure
insert into queues (name, paused, concurrency, rate, rate_seconds, tokens, tokens_at) values (?, ?, ?, ?, ?, ?, ?)
on conflict (name) do update
set paused = excluded.paused, concurrency = excluded.concurrency, rate = excluded.rate,
    rate_seconds = excluded.rate_seconds,
    tokens = case when queues.rate is excluded.rate and queues.rate_seconds = excluded.rate_seconds
                  then queues.tokens else excluded.tokens end,
    tokens_at = case when queues.rate is excluded.rate and queues.rate_seconds = excluded.rate_seconds
                     then queues.tokens_at else excluded.tokens_at end;

-- name: queue_settings
select name, paused, concurrency, rate, rate_seconds from queues order by name;

-- name: queue_next_pickable
select queue from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue > ?
order by queue limit 1;

-- name: queue_next_held
select queue from executions where held = ? and queue > ? order by queue limit 1;

-- name: queue_executing_counts
select queue, count(*) from executions where status = 'executing' group by queue;

-- name: queue_pickable_count
select count(*) from (
  select 1 from executions
  where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? limit ?
);

-- name: queue_held_count
select count(*) from (select 1 from executions where held = 'runnable' and queue = ? limit ?);

-- name: queue_oldest
select eligible_at from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority = ?
order by eligible_at limit 1;
