-- Several writes of one commit follow each other in one transaction, after the flush whose fence they ride on.

-- name: batch_lock
select id from {schema}.batches where id = any ($1::bigint[]) order by id for update

-- name: batch_create
insert into {schema}.batches (id, updated_at) values ($1, {schema}.clock()) on conflict do nothing

-- name: batch_take
update {schema}.batches
set taken = taken + $1, open_bytes = open_bytes + $2, progress = coalesce($3, progress), closed = closed or $4,
    latched = latched or $5, digest = coalesce($6, digest), expected = coalesce($7, expected),
    updated_at = {schema}.clock()
where id = $8

-- name: batch_chunk_insert
insert into {schema}.chunks (run_id, first, count, size, inputs)
select $1, c.* from unnest($2::bigint[], $3::int[], $4::int[], $5::text[]) c

-- name: batch_dispatch
with dispatched as (
  update {schema}.chunks set is_dispatched = true, states = decode(repeat('01', count), 'hex')
  where run_id = $1 and first = any ($2::bigint[]) and not is_dispatched returning count
)
update {schema}.batches set dispatched = dispatched + (select coalesce(sum(count), 0) from dispatched),
  updated_at = {schema}.clock()
where id = $1

-- name: batch_mark
with marked as (
  update {schema}.chunks
  set is_dispatched = true, states = $3, attempts = $4, prefix = $5, ended = ended + $6, failed = failed + $7,
      notes = $8, results = $9, inputs = case when $10 then $11 else inputs end, ready_ms = $18
  where run_id = $1 and first = $2 returning size
)
update {schema}.batches
set dispatched = dispatched + $12, in_flight = in_flight + $13, succeeded = succeeded + $14, skipped = skipped + $15,
    failed = failed + $7, cancelled = cancelled + $16, retries = retries + $17,
    open_bytes = open_bytes - case when $10 then (select size from marked) else 0 end, updated_at = {schema}.clock()
where id = $1

-- name: batch_commit
update {schema}.batches set head = $1, updated_at = {schema}.clock() where id = $2 and head = $3 returning id

-- name: batch_clear
update {schema}.chunks set results = null where run_id = $1 and first = any ($2::bigint[])

-- name: batch_run
select id, ended_at is not null as has_ended from {schema}.executions where promise = $1 for update

-- name: batch_view
select b.*, e.ended_at is not null as has_ended
from {schema}.executions e join {schema}.batches b on b.id = e.id where e.promise = $1

-- The chunk that holds a seq begins at or before it.
-- name: batch_chunks
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix
from {schema}.executions e join {schema}.chunks c on c.run_id = e.id
where e.promise = $1 and c.first >= coalesce(
  (select x.first from {schema}.chunks x where x.run_id = e.id and x.first <= $2 order by x.first desc limit 1), 0)
order by c.first limit $3

-- name: batch_chunks_whole
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix,
  c.states, c.attempts, c.inputs, c.results, c.notes, c.ready_ms
from {schema}.executions e join {schema}.chunks c on c.run_id = e.id
where e.promise = $1 and c.first >= coalesce(
  (select x.first from {schema}.chunks x where x.run_id = e.id and x.first <= $2 order by x.first desc limit 1), 0)
order by c.first limit $3

-- name: batch_chunks_undispatched
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix
from {schema}.executions e join {schema}.chunks c on c.run_id = e.id
where e.promise = $1 and not c.is_dispatched and c.first >= $2 order by c.first limit $3

-- name: batch_chunks_failed
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix,
  c.states, c.attempts, c.inputs, c.results, c.notes, c.ready_ms
from {schema}.executions e join {schema}.chunks c on c.run_id = e.id
where e.promise = $1 and c.failed > 0 and c.first >= coalesce(
  (select x.first from {schema}.chunks x where x.run_id = e.id and x.first <= $2 order by x.first desc limit 1), 0)
order by c.first limit $3
