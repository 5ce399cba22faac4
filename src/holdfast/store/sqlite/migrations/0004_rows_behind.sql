-- Rows in hand may be behind their journals. See schema.sql.

alter table journal add column step text;

create view executions_now as
select
  e.id, e.promise, e.status, e.locked_by, e.lease_epoch, e.cancel_requested, e.paused, e.reports, e.cleans_up,
  e.queue, e.priority, e.eligible_at, e.handler, e.partition_key, e.key_blocked, e.wake_at, e.deadline_at, e.attempt,
  e.crashes, e.timed_out, e.children_ready, e.parent_id, e.parent_round, e.children_pending, e.barrier_round,
  e.next_child, e.successor, e.kind, e.name, e.version, e.digest, e.input_hash, e.idempotency_key, e.unique_key,
  e.unique_scope, e.unique_released, e.unique_guard, e.held, e.inserted_at, e.started_at, e.ended_at, e.updated_at,
  e.awaits, e.state, e.result, e.error, e.cancel_reason, e.attributes, e.published, e.beats, e.tried,
  e.revision + iif(e.status = 'executing' and e.journal_length > 0, (
    select count(*) from journal j where j.execution_id = e.id and j.first >= e.journal_length
  ), 0) as revision,
  coalesce(iif(e.status = 'executing' and e.journal_length > 0, (
    select j.first + j.count from journal j where j.execution_id = e.id and j.first >= e.journal_length
    order by j.first desc limit 1
  ), null), e.journal_length) as journal_length,
  coalesce(iif(e.status = 'executing' and e.journal_length > 0, (
    select j.step from journal j where j.execution_id = e.id and j.first >= e.journal_length and j.step is not null
    order by j.first desc limit 1
  ), null), e.step) as step
from executions e;
