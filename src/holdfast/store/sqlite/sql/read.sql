-- name: view_by_promise
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor
from executions_now e where e.promise = ?;

-- Asked with as many promises as there are; of those that live it says nothing.
-- name: endings
with asked(promise) as (values (?))
select a.promise, e.status, e.result, e.error, e.successor, e.cancel_reason
from asked a left join executions e on e.promise = a.promise
where e.id is null or e.ended_at is not null or e.status = 'stranded' or e.successor is not null;

-- name: shown
with asked(promise) as (values (?))
select a.promise, e.status, e.published, e.successor
from asked a left join executions e on e.promise = a.promise
where e.id is null or e.published is not null or e.ended_at is not null or e.status = 'stranded'
  or e.successor is not null;

-- name: inbox_of
select s.id, s.name, s.payload, s.kind from signals s
where s.target_id = (select id from executions where promise = ?) order by s.id;

-- name: journal_of
select j.body from journal j
where j.execution_id = (select id from executions where promise = ?) order by j.first;

-- name: history_of
select t.revision, t.at, t.step, t.outcome, t.next_step, t.attempt, t.error from transitions t
where t.execution_id = (select id from executions where promise = ?) order by t.revision;

-- name: view_children
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor
from executions_now e
where e.parent_id = (select id from executions where promise = ?1) and (?2 is null or e.parent_round = ?2)
order by e.id;

-- The bytes of a root and of its children lie side by side; the length tells them apart.
-- name: view_by_prefix
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor
from executions_now e
where e.promise >= ?1 and e.promise < ?2 and length(e.promise) = ?3 and substr(e.promise, 33) = ?4
  and (?5 is null or e.name = ?5)
order by e.promise limit ?6;

-- Newest first, by the row's own order, down to a floor. The last column is the cursor.
-- name: browse
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor, e.id
from executions_now e
where e.id < ?1 and e.id > ?2 and e.kind not in ('message', 'chunk') and (?3 is null or e.queue = ?3)
  and (?4 is null or e.status in (select value from json_each(?4)))
order by e.id desc limit ?5;

-- The same of one definition.
-- name: browse_named
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor, e.id
from executions_now e
where e.kind = ?6 and e.name = ?7 and e.id < ?1 and e.id > ?2 and (?3 is null or e.queue = ?3)
  and (?4 is null or e.status in (select value from json_each(?4)))
order by e.id desc limit ?5;

-- Rows are numbered as they are inserted, so halving finds a time without an index: below `low` all are older, from
-- `high` on none is.
-- name: cursor_before
with recursive halving (low, high) as (
  select 0, coalesce(max(id), 0) + 1 from executions
  union all
  select
    coalesce((select case when inserted_at < ?1 then id + 1 end from executions
              where id >= (low + high) / 2 order by id limit 1), low),
    coalesce((select case when inserted_at < ?1 then high end from executions
              where id >= (low + high) / 2 order by id limit 1), (low + high) / 2)
  from halving where low < high
)
select low from halving where low >= high;

-- The first row that is out of sight when so many are looked at.
-- name: browse_floor
select id from executions where id < ?1 order by id desc limit 1 offset ?2;

-- name: browse_named_floor
select id from executions where kind = ?3 and name = ?4 and id < ?1 order by id desc limit 1 offset ?2;

-- From one definition to the next: a few steps, however many rows they have.
-- name: next_kind
select name, kind from executions where name = ?1 and kind > ?2 order by kind limit 1;

-- name: next_name
select name, kind from executions where name > ?1 order by name, kind limit 1;

-- name: newest_named
select max(id) from executions where kind = ?1 and name = ?2 and id < ?3;

-- Statuses that few rows have: found through their indexes instead of past all the others.
-- name: browse_rare
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor, e.id
from executions_now e
where e.id < ?1 and (?2 is null and e.kind not in ('message', 'chunk') or e.kind = ?2) and (?3 is null or e.name = ?3) and (?4 is null or e.queue = ?4)
  and e.id in (
    select id from executions where held in (select value from json_each(?5))
    union all
    select id from executions where status = 'executing' and 'executing' in (select value from json_each(?5))
    union all
    select id from executions
    where status = 'runnable' and paused = 0 and key_blocked = 0 and 'runnable' in (select value from json_each(?5))
  )
order by e.id desc limit ?6;

-- Through the rows of the first attribute; the others are looked up.
-- name: browse_attributes
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor, e.id
from attributes a join executions_now e on e.id = a.execution_id
where a.name = ?7 and a.value = ?8 and a.execution_id < ?1
  and (?2 is null and e.kind not in ('message', 'chunk') or e.kind = ?2)
  and (?3 is null or e.name = ?3) and (?4 is null or e.queue = ?4)
  and (?5 is null or e.status in (select value from json_each(?5)))
  and (?10 is null or e.parent_id = (select id from executions where promise = ?10))
  and not exists (
    select 1 from json_each(?9) w where not exists (
      select 1 from attributes b where b.execution_id = e.id and b.name = w.key
        and b.value = case w.type when 'true' then x'01' when 'false' then x'00' else w.value end))
order by a.execution_id desc limit ?6;

-- name: count_attributes
select e.status, count(*) from attributes a join executions e on e.id = a.execution_id
where a.name = ?5 and a.value = ?6 and (?1 is null and e.kind <> 'message' or e.kind = ?1)
  and (?2 is null or e.name = ?2) and (?3 is null or e.queue = ?3)
  and (?4 is null or e.status in (select value from json_each(?4)))
  and (?8 is null or e.parent_id = (select id from executions where promise = ?8))
  and not exists (
    select 1 from json_each(?7) w where not exists (
      select 1 from attributes b where b.execution_id = e.id and b.name = w.key
        and b.value = case w.type when 'true' then x'01' when 'false' then x'00' else w.value end))
group by e.status;

-- name: browse_children
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at, e.idempotency_key, e.cancel_reason, e.deadline_at, e.journal_length, e.reports, e.published,
  e.beats, e.successor, e.id
from executions_now e
where e.parent_id = (select id from executions where promise = ?7) and e.id < ?1 and (?2 is null and e.kind <> 'message' or e.kind = ?2)
  and (?3 is null or e.name = ?3) and (?4 is null or e.queue = ?4)
  and (?5 is null or e.status in (select value from json_each(?5)))
order by e.id desc limit ?6;

-- name: count_by_status
select e.status, count(*) from executions e
where (?1 is null and e.kind <> 'message' or e.kind = ?1) and (?2 is null or e.name = ?2) and (?3 is null or e.queue = ?3)
  and (?4 is null or e.status in (select value from json_each(?4)))
group by e.status;

-- name: count_children_by_status
select e.status, count(*) from executions e
where e.parent_id = (select id from executions where promise = ?5) and (?1 is null and e.kind <> 'message' or e.kind = ?1)
  and (?2 is null or e.name = ?2) and (?3 is null or e.queue = ?3)
  and (?4 is null or e.status in (select value from json_each(?4)))
group by e.status;

-- Without a filter every row is in one of four indexes, and none is read.
-- name: count_all
select 'runnable', count(*) from executions where status = 'runnable' and paused = 0 and key_blocked = 0
union all
select held, count(*) from executions where held is not null group by held
union all
select 'executing', count(*) from executions where status = 'executing'
union all
select status, count(*) from executions where ended_at is not null group by status;
