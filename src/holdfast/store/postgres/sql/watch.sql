-- Watching a ledger: bounded counts, what ended lately, the feed of ends and starts, and who has read how far.

-- name: tally
-- Each status up to a bound, along the index that holds it; of what has ended only the newest are looked at.
select 'runnable' as status, (select count(*) from (
    select from {schema}.executions
    where status = 'runnable' and not paused and partition_key is null limit $1) a)
  + (select count(*) from (
    select from {schema}.executions
    where status = 'runnable' and not paused and not key_blocked and partition_key is not null limit $1) b)
  + (select count(*) from (
    select from {schema}.executions where status = 'runnable' and (paused or key_blocked) limit $1) c) as count
union all
select 'executing', count(*) from (select from {schema}.executions where status = 'executing' limit $1) d
union all
select 'failed', count(*) from (select from {schema}.executions where status = 'failed' limit $1) e
union all
select 'stranded', count(*) from (select from {schema}.executions where status = 'stranded' limit $1) f
union all
select status::text, count(*) from (
  select status from {schema}.executions
  where status in ('awaiting_signal', 'awaiting_children', 'awaiting_promise', 'stranded', 'delegated')
    or (status = 'runnable' and (paused or key_blocked))
  limit 5 * $1) g
where status not in ('stranded', 'runnable') group by status

-- name: tally_ended
select status::text, count(*) from (
  select status from {schema}.executions where ended_at is not null order by ended_at desc limit $1) e
group by status

-- name: sample_range
select coalesce(min(id), 1) as first, coalesce(max(id), 0) as last from {schema}.executions

-- name: sample
select status::text, queue, count(*) from {schema}.executions where id = any ($1::bigint[]) group by status, queue

-- name: pace
-- The newest ends, bounded, by bucket and status.
select floor(extract(epoch from ended_at) / $1::float8)::bigint as bucket, status::text, count(*), min(ended_at) as first
from (
  select ended_at, status from {schema}.executions
  where ended_at > {schema}.clock() - $2::float8 * interval '1 second' order by ended_at desc limit $3) e
group by bucket, status order by bucket

-- name: watch_horizon
-- How far the feed can be read: nothing that is still being committed has an earlier time. A transaction that has
-- written holds it back for at most a minute, one that has not for at most five seconds, and one whose age another
-- role hides from us as long.
select {schema}.clock() - coalesce(max(case
    when query = '<insufficient privilege>' then interval '5 seconds'
    when backend_xid is not null then least(clock_timestamp() - xact_start, interval '1 minute')
    else least(clock_timestamp() - xact_start, interval '5 seconds') end), interval '0') as horizon
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
  and ((xact_start is not null and backend_type = 'client backend') or query = '<insufficient privilege>')

-- name: feed_ended
select ended_at as at, id, promise, status::text from {schema}.executions
where ended_at is not null and (ended_at, id) > ($1::timestamptz, $2::bigint) and ended_at <= $3::timestamptz
  and status = any ($5::text[]::{schema}.status[])
order by ended_at, id limit $4

-- name: feed_failed
select ended_at as at, id, promise, status::text from {schema}.executions
where status = 'failed' and (ended_at, id) > ($1::timestamptz, $2::bigint) and ended_at <= $3::timestamptz
order by ended_at, id limit $4

-- name: failures
select ended_at, id, promise from {schema}.executions
where status = 'failed' and (ended_at, id) < (coalesce($1::timestamptz, 'infinity'), $2::bigint)
order by ended_at desc, id desc limit $3

-- name: feed_stranded
select updated_at as at, id, promise, status::text from {schema}.executions
where status = 'stranded' and (updated_at, id) > ($1::timestamptz, $2::bigint) and updated_at <= $3::timestamptz
order by updated_at, id limit $4

-- name: feed_seen
-- A snapshot says what is completed, and not what number the next transaction gets, which is what `age` counts from.
select coalesce(max(id), 0) as row, clock_timestamp() as at, (
  select done + ((age('3'::xid) + 3 - done) % 4294967296 + 4294967296) % 4294967296
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as done) s) as xid
from {schema}.executions

-- name: feed_undecided
-- Whether a row below one that was seen may still come: whoever draws a number has a lock on the sequence until its
-- transaction is over. When it began may be hidden from us (another role's, prepared, not tracked): then it is waited for
-- if it had written when the row was seen, and for five seconds if it was about to. A number that this server has not
-- come to yet was another's.
select exists (
  select from pg_locks l left join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'relation' and l.relation = '{schema}.executions_id_seq'::regclass and l.granted
    and l.database = (select oid from pg_database where datname = current_database()) and l.mode <> 'AccessShareLock'
    and case when a.state <> 'disabled' then a.xact_start <= $1::timestamptz
      else $1::timestamptz > clock_timestamp() - interval '5 seconds' or $2::bigint between
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint + 1
        and pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000 end)

-- name: feed_started
select id, promise, inserted_at as at from {schema}.executions
where id > $1 and id <= $2 and kind not in ('message', 'chunk')
order by id limit $3

-- name: journal_since
select body from {schema}.journal
where execution_id = (select id from {schema}.executions where promise = $1)
  and first >= coalesce((select max(first) from {schema}.journal
    where execution_id = (select id from {schema}.executions where promise = $1) and first <= $2), 0)
order by first

-- name: history_since
select revision, at, step, outcome, next_step, attempt, error from {schema}.transitions
where execution_id = (select id from {schema}.executions where promise = $1) and revision > $2
order by revision

-- name: place_take
insert into {schema}.places as p (name, position, owner, leased_until)
values ($1, $2, $3, {schema}.clock() + $4::float8 * interval '1 second')
on conflict (name) do update set owner = excluded.owner, leased_until = excluded.leased_until
where p.owner = excluded.owner or p.leased_until <= {schema}.clock()
returning position

-- name: place_move
update {schema}.places set position = $2, leased_until = {schema}.clock() + $4::float8 * interval '1 second'
where name = $1 and owner = $3 returning true

-- name: place_leave
update {schema}.places set leased_until = {schema}.clock() where name = $1 and owner = $2
