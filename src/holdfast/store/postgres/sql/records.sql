-- Whole ledgers as records (store/records.py): read in one snapshot, written in one commit. `{columns}` are those that
-- the fields of a record stand for, `{table}`, `{owner}` and `{order}` are of its table.

-- name: records_executions
select e.promise, (select p.promise from {schema}.executions p where p.id = e.parent_id) as parent, {columns}
from {schema}.executions_now e {within} order by e.id

-- name: records_owned
select e.promise, {columns} from {schema}.executions e join {schema}.{table} t on t.{owner} = e.id {within} order by {order}

-- One tree: an id and everything below it lie side by side.
-- name: records_in_tree
where e.promise >= $1 and e.promise < $2

-- Some executions, in their order, and what belongs to them: no more of a ledger than fits into memory.
-- name: records_in_window
where e.id > $1 and e.id <= $2

-- name: records_window
select max(id) from (select id from {schema}.executions where id > $1 order by id limit $2) found

-- name: records_shared
select {columns} from {schema}.{table} order by 1

-- name: records_find
select promise, id from {schema}.executions where promise = any ($1::bytea[])

-- The rows stay locked until the commit: nobody picks one meanwhile.
-- name: records_lock
select from {schema}.executions where promise >= $1 and promise < $2 order by id for update

-- name: records_last
select coalesce(max(id), 0) from {schema}.executions

-- A tree whose place may be taken: nothing hangs on it from above, it is not further than what comes, nothing in it can
-- move, and none of it came just now.
-- name: records_at_rest
select not exists (
  select from {schema}.executions e where e.promise >= $1 and e.promise < $2 and (
    (e.promise = $1 and (e.parent_id is not null or e.status in ('done', 'failed') or e.revision > $4))
    or (e.ended_at is null and (not e.paused or e.status = 'executing'))
    or exists (select from {schema}.partition_locks l where l.holder = e.id)
    or e.id > $3))

-- name: records_delete
delete from {schema}.{table} where {owner} in (
  select e.id from {schema}.executions e where e.promise >= $1 and e.promise < $2)

-- name: records_occupants
select unique_key, promise from {schema}.executions
where unique_key = any ($1::bytea[]) and not unique_released and status = any (unique_scope)

-- name: records_ids
select nextval('{schema}.executions_id_seq') from generate_series(1, $1::int)

-- name: records_insert
insert into {schema}.{table} ({columns}) values ({values})

-- name: records_adopt
update {schema}.executions set parent_id = $1 where id = $2

-- What the ledger has already stays as it is.
-- name: records_insert_queue
insert into {schema}.queues (name, paused, concurrency, rate, rate_seconds, tokens, tokens_at)
select $1, $2, $3, $4::float8, $5, coalesce(greatest($4::float8, 1), 0), {schema}.clock()
on conflict do nothing

-- name: records_insert_definition
insert into {schema}.definitions (name, version, kind, step, queue, priority, parameters, handler)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict do nothing

-- name: records_insert_schedule
insert into {schema}.schedules (name, spec, next_at, paused, buffered_at, last_at, last)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict do nothing

-- name: records_wake
select {schema}.wake_1('work')

-- Rows that belong to no execution: every statement that deletes one deletes what belongs to it.
-- name: records_orphans
select count(*) from {schema}.{table} t where not exists (select from {schema}.executions e where e.id = t.{owner})

-- name: records_unlisted
select e.promise, e.name from {schema}.executions e
where not e.listed and not exists (
  select from {schema}.crowds c where c.definition = e.kind || '/' || e.name and c.block = e.id >> 8)
order by e.id limit 1000

-- What is asked of several tables at once.
-- name: records_filled
exists (select from {schema}.{table}) as {table}

-- name: records_workers
select id from {schema}.workers

-- A row that is up for picking and holds its key waits for a worker that knows it: see scan_keyed_1.
-- name: records_locks
select l.key, e.promise,
  l.holder is null or coalesce(
    e.partition_key = l.key and e.status = 'runnable' and not e.paused and not e.key_blocked
    and e.eligible_at <= {schema}.clock(), false) as is_free
from {schema}.partition_locks l left join {schema}.executions e on e.id = l.holder
