-- Watching a ledger: bounded counts, what ended lately, the feed of ends and starts, and who has read how far.

-- name: tally_held
select count(*) from (select 1 from executions where held = ? limit ?);

-- name: tally_pickable
select count(*) from (
  select 1 from executions where status = 'runnable' and paused = 0 and key_blocked = 0 limit ?
);

-- name: tally_executing
select count(*) from (select 1 from executions where status = 'executing' limit ?);

-- name: tally_failed
select count(*) from (select 1 from executions where status = 'failed' limit ?);

-- name: tally_ended
select status, count(*) from (
  select status from executions where ended_at is not null order by ended_at desc limit ?
) group by status;

-- name: sample_range
-- Two reads of one end each; both in one would read everything.
select coalesce((select min(id) from executions), 1), coalesce((select max(id) from executions), 0);

-- name: sample
select status, queue, count(*) from executions where id in (select value from json_each(?)) group by status, queue;

-- name: pace
-- The newest ends, bounded, by bucket and status.
select (ended_at / ?1) * ?1 as bucket, status, count(*), min(ended_at) from (
  select ended_at, status from executions where ended_at > ?2 order by ended_at desc limit ?3
) group by bucket, status order by bucket;

-- name: feed_ended
-- A write has its time and its commit in one order here: there is one writer, and it looks at the clock inside.
select ended_at, id, promise, status from executions
where ended_at >= ?1 and (ended_at > ?1 or id > ?2) and status in (select value from json_each(?3))
order by ended_at, id limit ?4;

-- name: feed_failed
select ended_at, id, promise, status from executions
where status = 'failed' and ended_at >= ?1 and (ended_at > ?1 or id > ?2)
order by ended_at, id limit ?3;

-- name: failures
select ended_at, id, promise from executions
where status = 'failed' and ended_at <= ?1 and (ended_at < ?1 or id < ?2)
order by ended_at desc, id desc limit ?3;

-- name: feed_stranded
select updated_at, id, promise, status from executions
where held = 'stranded' and updated_at >= ?1 and (updated_at > ?1 or id > ?2)
order by updated_at, id limit ?3;

-- name: feed_seen
select coalesce(max(id), 0) from executions;

-- name: feed_started
-- There is one writer, so that rows come into sight in the order of their numbers.
select id, promise, inserted_at from executions
where id > ? and kind not in ('message', 'chunk') order by id limit ?;

-- name: journal_since
select body from journal
where execution_id = (select id from executions where promise = ?1)
  and first >= coalesce((select max(first) from journal
    where execution_id = (select id from executions where promise = ?1) and first <= ?2), 0)
order by first;

-- name: history_since
select revision, at, step, outcome, next_step, attempt, error from transitions
where execution_id = (select id from executions where promise = ?) and revision > ?
order by revision;

-- name: place_take
insert into places (name, position, owner, leased_until) values (?1, ?2, ?3, ?4)
on conflict (name) do update set owner = excluded.owner, leased_until = excluded.leased_until
where owner is excluded.owner or leased_until <= ?5
returning position;

-- name: place_move
update places set position = ?2, leased_until = ?4 where name = ?1 and owner = ?3;

-- name: place_leave
update places set leased_until = 0 where name = ?1 and owner = ?2;
