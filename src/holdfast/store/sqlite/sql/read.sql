-- name: view_by_promise
select e.promise, e.kind, e.name, e.version, e.step, e.status, e.state, e.result, e.error, e.queue, e.priority,
  e.partition_key, e.attempt, e.crashes, e.revision, e.lease_epoch, e.locked_by, e.awaits, e.children_pending,
  e.barrier_round, (select p.promise from executions p where p.id = e.parent_id), e.cancel_requested, e.paused,
  e.unique_key, e.digest, e.attributes, e.eligible_at, e.wake_at, e.inserted_at, e.started_at, e.ended_at,
  e.updated_at
from executions e where e.promise = ?;

-- name: inbox_of
select s.id, s.name, s.payload from signals s
where s.target_id = (select id from executions where promise = ?) order by s.id;
