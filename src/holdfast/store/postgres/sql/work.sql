-- name: insert
select * from {schema}.insert_1(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
  '{}', '{}')

-- name: insert_one
select * from {schema}.insert_one_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- In a transaction of the caller's, whose connection may have a codec of its own for json: that would encode it twice.
-- name: insert_yours
select * from {schema}.insert_1(
  $1, $2, $3, $4, $5, $6, $7::text[]::json[], $8, $9, $10, $11, $12, $13, $14, $15, $16, $17::text[]::json[], $18, $19,
  $20, $21, $22, $23, '{}', '{}')

-- name: insert_one_yours
select * from {schema}.insert_one_1($1, $2, $3::text::json, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: fork_journal
with copied as (
  update {schema}.executions set journal_length = $2 where promise = $1 returning id
)
insert into {schema}.journal (execution_id, first, count, body) select id, 0, $2, $3 from copied

-- Before the insert: retention passes over a row that is held, and what it has taken is waited for. With the children that
-- the new row takes over: one of them may be at work, and end.
-- name: fork_replaced
select promise, successor from {schema}.executions where id = any (array(
  select id from {schema}.executions where promise = any ($1::bytea[])
  union all
  select c.id from {schema}.executions o
  join {schema}.executions c on c.parent_id = o.id and c.parent_round = o.barrier_round
  where o.promise = any ($1::bytea[]) and o.kind = 'machine' and (o.children_ready or o.timed_out and o.awaits is null)))
order by id for update

-- name: fork_successor
update {schema}.executions set successor = $1 where id = any (array(
  select id from {schema}.executions where promise = any (array[$2::bytea, $3::bytea]) order by id for update))

-- It shows what the run showed, has what tasks had told of their progress, and is to end when that was to: a deadline that
-- has passed is none, or it could not be retried.
-- name: fork_place
update {schema}.executions n
set published = o.published, beats = o.beats, deadline_at = case when o.deadline_at > {schema}.clock() then o.deadline_at end
from {schema}.executions o
where n.promise = $1 and o.promise = $2

-- A machine begins at the step that failed, and that sees what it saw.
-- name: fork_step
update {schema}.executions n
set awaits = o.awaits, timed_out = o.timed_out, children_ready = o.children_ready, barrier_round = o.barrier_round
from {schema}.executions o
where n.promise = $1 and o.promise = $2 and o.kind = 'machine'

-- The children too: they are the new row's now, and of its round.
-- name: fork_children
update {schema}.executions c set parent_id = (select id from {schema}.executions where promise = $1)
from {schema}.executions o
where o.promise = $2 and o.kind = 'machine' and (o.children_ready or o.timed_out and o.awaits is null)
  and c.parent_id = o.id and c.parent_round = o.barrier_round

-- name: fork_parent
update {schema}.executions set parent_id = (select id from {schema}.executions where promise = $2) where promise = $1

-- name: fork_signals
update {schema}.signals set target_id = (select id from {schema}.executions where promise = $1)
where target_id = (select id from {schema}.executions where promise = $2)

-- name: fork_keys
update {schema}.signal_keys set target_id = (select id from {schema}.executions where promise = $1)
where target_id = (select id from {schema}.executions where promise = $2)

-- name: transact_lend
savepoint holdfast_work

-- An error that the code swallowed shows in the release. What it set for the session would hold for what is written
-- after it, and for whoever has the connection next.
-- name: transact_take_back
release savepoint holdfast_work; reset role; reset all

-- name: transact_fence
select cancel_requested, paused from {schema}.executions_now
where id = $1 and locked_by = $2 and lease_epoch = $3 and revision = $4 for update

-- name: definition_put
insert into {schema}.definitions as d (name, version, kind, handler, step, queue, priority, parameters)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (name, version) do update set kind = excluded.kind, handler = excluded.handler, step = excluded.step,
  queue = excluded.queue, priority = excluded.priority, parameters = excluded.parameters

-- name: definition_list
select name, version, kind, step, queue, priority, parameters from {schema}.definitions
where $1::text is null or name = $1
order by name, version

-- name: schedule_create
insert into {schema}.schedules (name, spec, next_at) values ($1, $2, $3) on conflict (name) do nothing

-- name: schedule_change
update {schema}.schedules set spec = $1, next_at = $2 where name = $3 and next_at = $4 and spec::text = $5

-- name: schedule_list
select name, spec, paused, next_at, buffered_at, last_at, last from {schema}.schedules
where $1::text is null or name = $1
order by name

-- name: schedule_pause
update {schema}.schedules set paused = $1 where name = $2

-- name: schedule_delete
delete from {schema}.schedules where name = $1

-- Only from where it was seen, and not while it is paused: of several workers one moves it on, by what it says now.
-- name: schedule_tick
update {schema}.schedules set next_at = $1, buffered_at = $2, last_at = $3, last = $4
where name = $5 and next_at = $6 and buffered_at is not distinct from $7 and spec::text = $8 and not paused

-- name: pick
select * from {schema}.pick_3($1, $2, $3, $4, $5, $6, $7, $8)

-- name: flush_plain
select * from {schema}.flush_plain_2(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)

-- name: flush_ends
select * from {schema}.flush_ends_2(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)

-- name: flush_one
select * from {schema}.flush_one_2(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)

-- name: flush_kept
select has_inbox, at from {schema}.flush_kept_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- Steps that leave their rows alone, after whatever `{flush}` writes.
-- name: leave_beside
select * from ({flush}) f cross join lateral {schema}.leave_2(f.at, $1, {columns}) l

-- name: leave
select *, {schema}.clock() as at from {schema}.leave_2(null, $1, $2, $3, $4, $5, $6, $7, $8)

-- name: flush_step
select false as has_inbox, {schema}.flush_step_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) as at

-- name: warm_flush
select from {schema}.flush_one_2(
  '', 0, 0, 0, 'awaiting_signal', null, null, null, null, null, null, null, null, null, 0, 0, 0, '{}', '{}', '{""}', null, null,
  '{}');
select from {schema}.flush_kept_2('', 0, 0, 0, null, null, null, 0, null, null, null);
select {schema}.flush_step_2('', 0, 0, 0, 0, 0, 0, 0, '{}', null);
select from {schema}.wake_1('')

-- name: warm_flushes
select from {schema}.flush_ends_2(
  '', '{0}', '{0}', '{0}', '{done}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{1}',
  '{1}', '{0}', '{1}', '{"{}"}', '{}', '{}');
select from {schema}.inboxes_1('{}', '{}');
select from {schema}.flush_2(
  '', '{0}', '{0}', '{0}', '{awaiting_promise}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
  '{}', '{1}', '{1}', '{0}', '{1}', '{"{}"}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
  '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
  '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
select from {schema}.leave_2(null, '', '{0}', '{0}', '{0}', '{0}', '{0}', '{"{}"}', '{}');
select from {schema}.insert_1(
  '{"",""}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
  '{}', '{}', '{}', '{}', '{}', '{}', '{}')

-- name: flush
select * from {schema}.flush_2(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
  $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47,
  $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70,
  $71, $72)

-- name: deliver
select * from {schema}.deliver_1($1, $2, $3, $4)

-- name: deliver_one
select answer, woke from {schema}.deliver_one_1($1, $2, $3, $4)

-- name: reclaim
select * from {schema}.reclaim_1($1, $2, $3)

-- name: disown
select {schema}.disown_1($1, $2)

-- name: release
select {schema}.release_1($1, $2, $3)

-- name: stirred
select unnest({schema}.stirred_1($1, $2))

-- name: waiting_priority
select {schema}.waiting_priority_1($1, $2)

-- It does not wait for the disk: all that this worker leases is written behind it, so a server that forgets it has
-- forgotten that too; and its next beat finds nothing, upon which it takes another name.
-- name: worker_register
insert into {schema}.workers (id, host, pid, queues, started_at, expires_at)
select $1, $2, $3, $4, now, now + $5::float8 * interval '1 second'
from {schema}.clock() now, set_config('synchronous_commit', 'off', true)
on conflict (id) do update
set host = excluded.host, pid = excluded.pid, queues = excluded.queues, started_at = excluded.started_at,
    expires_at = excluded.expires_at
returning (extract(epoch from {schema}.clock()) * 1000000)::bigint as at_us,
  exists (select from {schema}.workers w where w.expires_at <= {schema}.clock()) as is_after_others

-- name: worker_beat
update {schema}.workers set expires_at = {schema}.clock() + $2::float8 * interval '1 second' where id = $1 returning id

-- name: retire_worker
select {schema}.retire_worker_1($1)

-- name: reap
select * from {schema}.reap_1($1, $2)

-- name: fire_timers
select * from {schema}.fire_timers_1($1, $2)

-- The rows and their parents, in the order of ids, as every writer of many locks them.
-- name: cancel_force_lock
select e.id from {schema}.executions e
where e.id = any (array(
  select unnest(array[x.id, x.parent_id]) from {schema}.executions x where x.promise = any ($1::bytea[])
  union all
  select unnest(array[x.id, x.parent_id]) from unnest($2::bytea[], $3::bytea[]) r(low, high)
    join {schema}.executions x on x.promise >= r.low and x.promise < r.high and x.ended_at is null))
order by e.id for update

-- What nobody holds does not clean up: then it is ended like everything else. But messages of a flow close its
-- obligations (ruling A11).
-- name: cancel_force
update {schema}.executions e set cleans_up = false
where e.id = any (array(
    select x.id from {schema}.executions x where x.promise = any ($1::bytea[])
    union all
    select x.id from unnest($2::bytea[], $3::bytea[]) r(low, high)
      join {schema}.executions x on x.promise >= r.low and x.promise < r.high and x.ended_at is null))
  and e.status not in ('executing', 'delegated', 'done', 'failed', 'cancelled')
  and e.kind <> 'message'

-- name: cancel
select unnest({schema}.cancel_1($1, $2, $3, $4))

-- name: pause
select {schema}.pause_1($1, $2)

-- name: resume
select {schema}.resume_1($1)

-- name: retry_stranded
select * from {schema}.retry_stranded_1($1, $2, $3, $4, $5)

-- name: purge
select {schema}.purge_1($1, $2, $3, $4)

-- name: now_us
select (extract(epoch from {schema}.clock()) * 1000000)::bigint
