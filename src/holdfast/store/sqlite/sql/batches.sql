-- name: batch_create
insert into batches (id, updated_at) values (?, ?) on conflict do nothing;

-- name: batch_take
update batches
set taken = taken + ?, open_bytes = open_bytes + ?, progress = coalesce(?, progress), closed = closed or ?,
    latched = latched or ?, digest = coalesce(?, digest), expected = coalesce(?, expected), updated_at = ?
where id = ?;

-- name: batch_chunk_insert
insert into chunks (run_id, first, count, size, inputs) values (?, ?, ?, ?, ?);

-- name: batch_dispatch
update chunks set is_dispatched = 1, states = ? where run_id = ? and first = ? and is_dispatched = 0;

-- name: batch_chunk_count
select count from chunks where run_id = ? and first = ? and is_dispatched = 0;

-- name: batch_mark
update chunks
set is_dispatched = 1, states = ?, attempts = ?, prefix = ?, ended = ended + ?, failed = failed + ?, notes = ?,
    results = ?, ready_ms = ?, inputs = case when ? then ? else inputs end
where run_id = ? and first = ?;

-- name: batch_count
update batches
set dispatched = dispatched + ?, in_flight = in_flight + ?, succeeded = succeeded + ?, skipped = skipped + ?,
    failed = failed + ?, cancelled = cancelled + ?, retries = retries + ?, open_bytes = open_bytes - ?, updated_at = ?
where id = ?;

-- name: batch_chunk_size
select size from chunks where run_id = ? and first = ?;

-- name: batch_commit
update batches set head = ?, updated_at = ? where id = ? and head = ?;

-- name: batch_clear
update chunks set results = null where run_id = ? and first = ?;

-- name: batch_run
select id, ended_at is not null from executions where promise = ?;

-- name: batch_view
select b.taken, b.closed, b.latched, b.expected, b.progress, b.digest, b.open_bytes, b.head, b.dispatched, b.in_flight,
  b.succeeded, b.skipped, b.failed, b.cancelled, b.retries, b.updated_at, e.ended_at is not null
from executions e join batches b on b.id = e.id where e.promise = ?;

-- The chunk that holds a seq begins at or before it.
-- name: batch_chunks
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix
from executions e join chunks c on c.run_id = e.id
where e.promise = ?1 and c.first >= coalesce(
  (select max(x.first) from chunks x where x.run_id = e.id and x.first <= ?2), 0)
order by c.first limit ?3;

-- name: batch_chunks_whole
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix,
  c.states, c.attempts, c.inputs, c.results, c.notes, c.ready_ms
from executions e join chunks c on c.run_id = e.id
where e.promise = ?1 and c.first >= coalesce(
  (select max(x.first) from chunks x where x.run_id = e.id and x.first <= ?2), 0)
order by c.first limit ?3;

-- name: batch_chunks_undispatched
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix
from executions e join chunks c on c.run_id = e.id
where e.promise = ?1 and c.is_dispatched = 0 and c.first >= ?2 order by c.first limit ?3;

-- name: batch_chunks_failed
select c.first, c.count, c.size, c.is_dispatched, c.ended, c.failed, c.prefix,
  c.states, c.attempts, c.inputs, c.results, c.notes, c.ready_ms
from executions e join chunks c on c.run_id = e.id
where e.promise = ?1 and c.failed > 0 and c.first >= coalesce(
  (select max(x.first) from chunks x where x.run_id = e.id and x.first <= ?2), 0)
order by c.first limit ?3;
