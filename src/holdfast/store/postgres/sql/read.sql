-- What a view of an execution shows, for {view} below. No enum types: the driver would have to ask for them first.
-- name: view
id, promise, kind, name, version, step, status::text, state, result, error, queue, priority, partition_key, attempt,
  crashes, revision, lease_epoch, locked_by, awaits, children_pending, barrier_round, parent_id, cancel_requested,
  paused, unique_key, digest, attributes, eligible_at, wake_at, inserted_at, started_at, ended_at, updated_at, idempotency_key,
  cancel_reason, deadline_at, journal_length, reports, published, beats, successor

-- name: view_by_promise
-- One is one row, whichever it is, so the server plans it once. How many an array has it would guess, and plan anew.
select {view} from {schema}.executions_now where promise = $1

-- name: view_by_promises
select {view} from {schema}.executions_now where promise = any ($1::bytea[])

-- name: endings
select a.promise, e.status::text, e.result, e.error, e.successor, e.cancel_reason
from unnest($1::bytea[]) a(promise) left join {schema}.executions e on e.promise = a.promise
where e.id is null or e.ended_at is not null or e.status = 'stranded' or e.successor is not null

-- name: shown
select a.promise, e.status::text, e.published, e.successor
from unnest($1::bytea[]) a(promise) left join {schema}.executions e on e.promise = a.promise
where e.id is null or e.published is not null or e.ended_at is not null or e.status = 'stranded'
  or e.successor is not null

-- name: view_by_prefix
select {view} from {schema}.executions_now
where promise >= $1 and promise < $2 and octet_length(promise) = 32 + octet_length($3::bytea)
  and substring(promise from 33) = $3 and ($4::text is null or name = $4)
order by promise limit $5

-- name: browse
-- Down to a floor, so that what is looked through can be bounded.
select {view} from {schema}.executions_now
where id < $1 and id > $2 and kind not in ('message', 'chunk') and ($3::text is null or queue = $3)
  and ($4::text[] is null or status = any ($4::text[]::{schema}.status[]))
order by id desc limit $5

-- name: browse_named
-- The same of one definition. As a range of rows and not by `=`: then no other index has this order, and the planner
-- cannot go by the ids alone past all the others. What was started in bulk is found apart.
select {view} from {schema}.executions_now where id = any (array(
  select id from (
    (select id from {schema}.executions
      where listed and (kind || '/' || name, id) < ($6::text || '/' || $7::text, $1)
        and (kind || '/' || name, id) > ($6::text || '/' || $7::text, $2)
        and ($3::text is null or queue = $3) and ($4::text[] is null or status = any ($4::text[]::{schema}.status[]))
      order by kind || '/' || name desc, id desc limit $5)
    union all
    select {schema}.crowd_1($6, $7, $1, $2, $3, $4::text[]::{schema}.status[], $5)
  ) found(id)
  order by id desc limit $5
))
order by id desc

-- name: browse_children
select {view} from {schema}.executions_now
where parent_id = (select id from {schema}.executions where promise = $5)
  and id < $1 and ($2::text is null and kind <> 'message' or kind = $2) and ($3::text is null or name = $3)
  and ($4::text is null or queue = $4) and ($7::text[] is null or status = any ($7::text[]::{schema}.status[]))
order by id desc limit $6

-- name: cursor_before
-- Rows are numbered as they are inserted, so halving finds a time without an index: below `low` all are older, from
-- `high` on none is. In microseconds: a moment of another zone may be none that asyncpg can send.
with recursive halving (low, high) as (
  select 0::bigint, coalesce(max(id), 0) + 1 from {schema}.executions
  union all
  select
    coalesce((select case when inserted_at < 'epoch'::timestamptz + $1::bigint * interval '1 microsecond' then id + 1 end from {schema}.executions
              where id >= (low + high) / 2 order by id limit 1), low),
    coalesce((select case when inserted_at < 'epoch'::timestamptz + $1::bigint * interval '1 microsecond' then high end from {schema}.executions
              where id >= (low + high) / 2 order by id limit 1), (low + high) / 2)
  from halving where low < high
)
select low from halving where low >= high

-- name: browse_floor
-- The first row that is out of sight when so many are looked at.
select id from {schema}.executions where id < $1 order by id desc limit 1 offset $2

-- name: browse_named_floor
select id from (
  (select id from {schema}.executions
    where listed and (kind || '/' || name, id) < ($3::text || '/' || $4::text, $1)
      and kind || '/' || name >= $3::text || '/' || $4::text
    order by kind || '/' || name desc, id desc limit $2 + 1)
  union all
  select {schema}.crowd_1($3, $4, $1, 0, null, null, $2 + 1)
) found(id)
order by id desc limit 1 offset $2

-- name: newest_named
-- The definitions that were asked for, each with its newest row: a few steps each, however many rows they have.
with recursive listed(definition) as (
  (select e.kind || '/' || e.name as definition from {schema}.executions e where e.listed order by definition limit 1)
  union all
  select (
    select e.kind || '/' || e.name as definition from {schema}.executions e
    where e.listed and e.kind || '/' || e.name > l.definition order by definition limit 1
  )
  from listed l where l.definition is not null
),
crowded(definition) as (
  (select c.definition from {schema}.crowds c order by c.definition limit 1)
  union all
  select (
    select c.definition from {schema}.crowds c where c.definition > l.definition order by c.definition limit 1
  )
  from crowded l where l.definition is not null
),
parted as materialized (
  select definition, split_part(definition, '/', 1) as kind, split_part(definition, '/', 2) as name
  from (select definition from listed union select definition from crowded) named(definition) where definition is not null
)
select p.kind, p.name, newest.id from parted p cross join lateral (
  select max(found.id) as id from (
    (select e.id from {schema}.executions e
      where e.listed and (e.kind || '/' || e.name, e.id) < (p.definition, $1::bigint)
        and e.kind || '/' || e.name >= p.definition
      order by e.kind || '/' || e.name desc, e.id desc limit 1)
    union all
    select {schema}.crowd_1(p.kind, p.name, $1::bigint, 0, null, null, 1)
  ) found(id)
) newest
where ($2::text is null and p.kind not in ('message', 'chunk') or p.kind = $2) and ($3::text is null or p.name = $3)
  and newest.id is not null
order by newest.id desc

-- name: browse_attributes
select {view} from {schema}.executions_now
where attributes is not null and attributes::jsonb @> $7::jsonb
  and id < $1 and ($2::text is null and kind not in ('message', 'chunk') or kind = $2) and ($3::text is null or name = $3)
  and ($4::text is null or queue = $4)
  and ($5::bytea is null or parent_id = (select id from {schema}.executions where promise = $5))
  and ($8::text[] is null or status = any ($8::text[]::{schema}.status[]))
order by id desc limit $6

-- name: count_attributes
select status::text, count(*) from {schema}.executions
where attributes is not null and attributes::jsonb @> $6::jsonb
  and ($1::text is null and kind <> 'message' or kind = $1) and ($2::text is null or name = $2) and ($3::text is null or queue = $3)
  and ($4::bytea is null or parent_id = (select id from {schema}.executions where promise = $4))
  and ($5::text[] is null or status = any ($5::text[]::{schema}.status[]))
group by status

-- name: browse_status
-- One of done, failed, cancelled: as a literal, so that a partial index fits.
select {view} from {schema}.executions_now
where status = {status}
  and id < $1 and ($2::text is null and kind not in ('message', 'chunk') or kind = $2) and ($3::text is null or name = $3)
  and ($4::text is null or queue = $4)
  and ($5::bytea is null or parent_id = (select id from {schema}.executions where promise = $5))
order by id desc limit $6

-- name: browse_idle
-- The same for what is parked, stranded, delegated, or runnable and held back: queue by queue, as its index
-- has them. As a range of rows, for which no other index has the order.
with recursive queues(name) as (
  (select e.queue from {schema}.executions e
    where e.status in ('awaiting_signal', 'awaiting_children', 'awaiting_promise', 'stranded', 'delegated')
      or (e.status = 'runnable' and (e.paused or e.key_blocked))
    order by e.queue limit 1)
  union all
  select (select e.queue from {schema}.executions e
    where (e.status in ('awaiting_signal', 'awaiting_children', 'awaiting_promise', 'stranded', 'delegated')
        or (e.status = 'runnable' and (e.paused or e.key_blocked))) and e.queue > q.name
    order by e.queue limit 1)
  from queues q where q.name is not null
)
select e.* from queues q cross join lateral (
  select {view} from {schema}.executions_now x
  where x.status = {status} and ({status}::{schema}.status <> 'runnable' or x.paused or x.key_blocked)
    and (x.queue, x.status, x.id) < (q.name, {status}, $1) and (x.queue, x.status, x.id) > (q.name, {status}, 0)
    and ($2::text is null and x.kind not in ('message', 'chunk') or x.kind = $2) and ($3::text is null or x.name = $3)
    and ($5::bytea is null or x.parent_id = (select id from {schema}.executions where promise = $5))
  order by x.queue desc, x.id desc limit $6
) e
where q.name is not null and ($4::text is null or q.name = $4)
order by e.id desc limit $6

-- name: browse_few
-- Of what an index finds in another order: all of it, then the newest of that. Materialized, or else the planner may go
-- by the ids, past all the rows that are not there; with a limit for each, or else it may join all rows to a few.
with few as materialized ({few})
select e.* from (select id from few where id < $1 order by id desc) f cross join lateral (
  select {view} from {schema}.executions_now x
  where x.id = f.id and ($2::text is null and x.kind not in ('message', 'chunk') or x.kind = $2)
    and ($3::text is null or x.name = $3) and ($4::text is null or x.queue = $4)
    and ($5::bytea is null or x.parent_id = (select id from {schema}.executions where promise = $5))
  limit 1
) e
order by f.id desc limit $6

-- name: few_executing
select id from {schema}.executions where status = 'executing'

-- name: few_pickable
select id from {schema}.executions where status = 'runnable' and not paused and partition_key is null
union all
select id from {schema}.executions
where status = 'runnable' and not paused and not key_blocked and partition_key is not null

-- name: pickable_past
-- Whether more than so many are up for picking. In the order of the indexes, so that it is they that are read.
select 1 from (
  (select 1 from {schema}.executions where status = 'runnable' and not paused and partition_key is null
    order by queue, priority, eligible_at, id limit $1 + 1)
  union all
  (select 1 from {schema}.executions
    where status = 'runnable' and not paused and not key_blocked and partition_key is not null
    order by queue, priority, eligible_at, id limit $1 + 1)
) r limit 1 offset $1

-- name: browse_pickable
-- Where many are: by the ids, down to a floor.
select {view} from {schema}.executions_now
where status = 'runnable' and not paused and not key_blocked and id < $1 and id > $7
  and ($2::text is null and kind not in ('message', 'chunk') or kind = $2) and ($3::text is null or name = $3)
  and ($4::text is null or queue = $4)
  and ($5::bytea is null or parent_id = (select id from {schema}.executions where promise = $5))
order by id desc limit $6

-- name: count_by_status
select status::text, count(*) from {schema}.executions
where ($1::text is null and kind <> 'message' or kind = $1) and ($2::text is null or name = $2) and ($3::text is null or queue = $3)
  and ($4::bytea is null or parent_id = (select id from {schema}.executions where promise = $4))
  and ($5::text[] is null or status = any ($5::text[]::{schema}.status[]))
group by status

-- name: view_children
select {view} from {schema}.executions_now
where parent_id = (select id from {schema}.executions where promise = $1)
  and ($2::int is null or parent_round = $2)
order by promise

-- name: inbox_of
select id, name, payload, kind from {schema}.signals
where target_id = (select id from {schema}.executions where promise = $1)
order by id

-- A limit that nobody reaches, and that the planner cannot see: so it reads in the order of the index, and the first
-- segments are on their way while the last are looked for, instead of gathering and sorting all of them.
-- name: journal_of
select body from {schema}.journal
where execution_id = (select id from {schema}.executions where promise = $1)
order by first limit (select 2147483647)

-- name: history_of
select revision, at, step, outcome, next_step, attempt, error from {schema}.transitions
where execution_id = (select id from {schema}.executions where promise = $1)
order by revision

-- name: worker_list
select w.id, w.host, w.pid, w.queues, w.started_at, w.expires_at, w.expires_at <= {schema}.clock() as is_expired,
  coalesce(h.executing, 0) as executing
from {schema}.workers w left join (
  select locked_by, count(*) as executing from {schema}.executions where status = 'executing' group by locked_by
) h on h.locked_by = w.id
order by w.started_at, w.id

-- name: queue_configure
insert into {schema}.queues (name, paused, concurrency, rate, rate_seconds, tokens, tokens_at)
select $1, $2, $3, $4, $5, coalesce(greatest($4::float8, 1), 0), {schema}.clock()
on conflict (name) do update set paused = excluded.paused, concurrency = excluded.concurrency, rate = excluded.rate,
  rate_seconds = excluded.rate_seconds,
  -- A new rate starts with a full bucket; an unchanged one keeps its tokens.
  tokens = case when (queues.rate, queues.rate_seconds) is distinct from (excluded.rate, excluded.rate_seconds)
    then excluded.tokens else queues.tokens end,
  tokens_at = case when (queues.rate, queues.rate_seconds) is distinct from (excluded.rate, excluded.rate_seconds)
    then excluded.tokens_at else queues.tokens_at end

-- name: queue_change
-- One statement: a conflict waits for whoever changes the row and goes on from what that one left.
insert into {schema}.queues as q (name, paused, concurrency, rate, rate_seconds, tokens, tokens_at)
select $1, coalesce($2::boolean, false), $4::integer, $6::float8, coalesce($7::float8, 1),
  coalesce(greatest($6::float8, 1), 0), {schema}.clock()
on conflict (name) do update set paused = coalesce($2::boolean, q.paused),
  concurrency = case when $3::boolean then $4::integer else q.concurrency end,
  rate = case when $5::boolean then $6::float8 else q.rate end,
  rate_seconds = coalesce($7::float8, q.rate_seconds),
  (tokens, tokens_at) = (
    select case when is_new then coalesce(greatest(rate, 1), 0) else q.tokens end,
      case when is_new then excluded.tokens_at else q.tokens_at end
    from (select rate, (q.rate, q.rate_seconds) is distinct from (rate, coalesce($7::float8, q.rate_seconds)) as is_new
      from (select case when $5::boolean then $6::float8 else q.rate end as rate) r) n)
returning paused, concurrency, rate, rate_seconds

-- name: listener_arm
insert into {schema}.listeners (id, topic, expires_at)
values ($1, $2, clock_timestamp() + $3::float8 * interval '1 second')
on conflict (topic, id) do update set expires_at = excluded.expires_at

-- name: listener_remove
delete from {schema}.listeners where id = $1 or expires_at < clock_timestamp() - interval '1 hour'

-- name: queue_stats
select * from {schema}.queue_stats_1($1, $2, $3)
