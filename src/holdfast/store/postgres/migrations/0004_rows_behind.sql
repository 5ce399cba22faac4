-- Rows in hand may be behind their journals. See schema.sql.

alter table {schema}.journal add column step text, add column revision bigint;

create view {schema}.executions_now as
select
  e.id, e.promise, e.kind, e.name, e.version, e.handler, e.status, e.state, e.result, e.error, e.awaits, e.queue,
  e.priority, e.partition_key, e.key_blocked, e.eligible_at, e.attempt, e.crashes, e.locked_by, e.lease_epoch,
  e.parent_id, e.parent_round, e.children_pending, e.barrier_round, e.next_child, e.successor, e.timed_out,
  e.children_ready, e.unique_key, e.unique_scope, e.unique_released, e.cancel_requested, e.cancel_reason, e.paused,
  e.reports, e.cleans_up, e.wake_at, e.deadline_at, e.input_hash, e.idempotency_key, e.digest, e.tried, e.attributes,
  e.published, e.beats, e.inserted_at, e.started_at, e.ended_at, e.updated_at,
  coalesce(case when e.status = 'executing' and e.journal_length > 0 then (
    select j.revision from {schema}.journal j where j.execution_id = e.id and j.first >= e.journal_length
    order by j.first desc limit 1
  ) end, e.revision) as revision,
  coalesce(case when e.status = 'executing' and e.journal_length > 0 then (
    select j.first + j.count from {schema}.journal j where j.execution_id = e.id and j.first >= e.journal_length
    order by j.first desc limit 1
  ) end, e.journal_length) as journal_length,
  coalesce(case when e.status = 'executing' and e.journal_length > 0 then (
    select j.step from {schema}.journal j
    where j.execution_id = e.id and j.first >= e.journal_length and j.step is not null
    order by j.first desc limit 1
  ) end, e.step) as step
from {schema}.executions e;
