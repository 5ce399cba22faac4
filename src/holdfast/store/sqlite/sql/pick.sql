-- Whatever looks for rows here walks executions_pick alone; a test pins the plans (ruling E8).

-- The limits of those of the queues that have any, or one row of nulls; nothing at all if the worker is gone.
-- name: pick_limits
select q.name, q.paused, q.concurrency, q.rate, q.rate_seconds, q.tokens, q.tokens_at
from workers w left join queues q on q.name in (select value from json_each(?))
where w.id = ?;

-- name: pick_next_priority
select priority from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority > ?
order by priority limit 1;

-- A row with a key counts even if no code here can run it: it is the head of its key (ruling E9).
-- name: pick_due
select priority, eligible_at, id, handler, partition_key, queue from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority = ? and eligible_at <= ?
  and (handler in (select value from json_each(?)) or partition_key is not null)
order by eligible_at, id;

-- All that a pick asks of the first priority in use from one on: the first of its rows as one list, so that Python does not
-- handle each of them (where one has a key, it must); when the next is due; and which priority comes after.
-- name: pick_priority
with this (priority) as (
  select priority from executions
  where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ?1 and priority >= ?2
  order by priority limit 1
)
select count(*), count(partition_key), group_concat(id),
  (
    select eligible_at from executions
    where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ?1
      and priority = (select priority from this) and eligible_at > ?3
    order by eligible_at limit 1
  ),
  (
    select priority from executions
    where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ?1
      and priority > (select priority from this)
    order by priority limit 1
  )
from (
  select id, partition_key from executions
  where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ?1
    and priority = (select priority from this) and eligible_at <= ?3
    and (handler in (select value from json_each(?4)) or partition_key is not null)
  order by eligible_at, id limit ?5
);

-- name: pick_lease
update executions
set status = 'executing', locked_by = ?, lease_epoch = lease_epoch + 1, started_at = coalesce(started_at, ?),
    updated_at = ?
where id in (select value from json_each(?));

-- What a claim is made of, of those of the rows that the worker holds, in the order asked for. Read after the update:
-- `returning` would keep every row in a table of its own first.
-- name: pick_claims
select e.id, e.lease_epoch, e.kind, e.name, e.version, e.handler, e.queue, e.priority, e.attempt, e.promise, e.revision,
  e.step, e.state, e.digest, e.partition_key, e.crashes, e.awaits, e.timed_out, e.children_ready, e.barrier_round,
  e.next_child, e.cancel_requested, e.parent_id, e.cancel_reason, e.journal_length, e.idempotency_key, e.beats,
  e.published, e.attributes
from json_each(?) listed cross join executions e
where e.id = listed.value and +e.status = 'executing' and +e.locked_by = ?;

-- name: pick_inboxes
select target_id, id, name, payload, kind from signals
where target_id in (select value from json_each(?)) order by id;

-- name: waiting_due
select 1 from executions
where status = 'runnable' and paused = 0 and key_blocked = 0 and queue = ? and priority = ? and eligible_at <= ?
  and handler in (select value from json_each(?))
limit 1;
