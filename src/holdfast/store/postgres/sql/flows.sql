-- name: flush_flows
select * from {schema}.flush_flows_2(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
  $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47,
  $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70,
  $71, $72, $73, $74, $75, $76)

-- name: flow_lock
select {schema}.flow_lock_1($1, $2, $3)

-- name: collate
select * from {schema}.collate_1(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
  $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47,
  $48, $49, $50, $51, $52, $53, $54)

-- Row by row and by key: a join may be planned to read a whole table, if that was small when it was planned.
-- name: flow_look
select m.step, m.state, j.status as job_status, j.cancel_requested, s.status as semaphore, a.ledger,
  g.ledger as guid_ledger, g.ordinal, g.response
from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bytea[])
  with ordinality k(id, job, activity, dimension, guid, at)
left join lateral (select step, state from {schema}.executions where id = k.id limit 1) m on true
left join lateral (select status, cancel_requested from {schema}.executions where id = k.job limit 1) j on true
left join lateral (
  select status from {schema}.semaphores where job_id = k.job and activity = '' and dimension = '' limit 1) s on true
left join lateral (
  select ledger from {schema}.activities
  where job_id = k.job and activity = k.activity and dimension = k.dimension limit 1) a on true
left join lateral (
  select ledger, ordinal, response from {schema}.guids where job_id = k.job and guid = k.guid limit 1) g on true
order by k.at

-- name: flow_arrived
select source, value from {schema}.arrivals
where job_id = $1 and activity = $2 and dimension = $3 order by seq

-- The answers are of what has had its Step 1; a job without any is one row.
-- name: flow_closing
select k.at, j.cancel_requested, f.error, g.activity, g.dimension, g.ordinal, g.response
from unnest($1::bigint[]) with ordinality k(job, at)
cross join lateral (select cancel_requested from {schema}.executions where id = k.job limit 1) j
left join lateral (select error from {schema}.failures where job_id = k.job order by seq limit 1) f on true
left join lateral (
  select activity, dimension, ordinal, response, seq from {schema}.guids
  where job_id = k.job and response is not null and ledger / 10000000000 % 10 = 1
    and ($2::text[] is null or activity = any ($2))
  order by seq) g on true
order by k.at, g.seq

-- name: flow_id
select id from {schema}.executions where promise = $1

-- name: flow_activities
select activity, dimension, ledger from {schema}.activities where job_id = $1 order by seq

-- name: flow_guids
select guid, activity, dimension, ordinal, ledger, response from {schema}.guids where job_id = $1 order by seq

-- name: flow_semaphores
select activity, dimension, status, needed from {schema}.semaphores where job_id = $1 order by seq

-- name: flow_arrivals
select activity, dimension, source, value, counts from {schema}.arrivals where job_id = $1 order by seq

-- name: flow_failures
select activity, dimension, error from {schema}.failures where job_id = $1 order by seq

-- name: flow_message_views
select promise, step, status::text, state, error, attempt, eligible_at from {schema}.executions
where parent_id = $1 and kind = 'message' order by id

-- name: letter_again
select {schema}.letter_again_1($1, $2)
