-- Rows that leave this holder other than by a commit of its own: what their journals say that they do not tell of yet.
-- Only its own: the claim of another holder still has that to tell, and would tell it twice.
-- name: lease_catch_up
update executions set revision = now.revision, journal_length = now.journal_length, step = now.step
from (
  select id, revision, journal_length, step from executions_now
  where id in (select value from json_each(?)) and +status = 'executing' and +locked_by = ?
) now
where executions.id = now.id and executions.revision <> now.revision;

-- name: lease_anew
update executions set lease_epoch = lease_epoch + 1, updated_at = ?
where id in (select value from json_each(?)) and +status = 'executing' and +locked_by = ?;

-- name: lease_stirred
select id from executions
where id in (select value from json_each(?)) and +status = 'executing' and +locked_by = ?
  and (cancel_requested = 1 or exists (select 1 from signals where target_id = executions.id))
order by id;

-- name: lease_held
select id, partition_key from executions where status = 'executing' and locked_by = ? order by id;

-- name: lease_release
update executions set status = 'runnable', locked_by = null, updated_at = ? where id = ?;

-- name: reap_workers
select id from workers where expires_at <= ? order by expires_at, id;

-- name: reap_held
select id, promise, partition_key, crashes, step from executions_now
where status = 'executing' and locked_by = ? order by id limit ?;

-- name: reap_release
update executions
set status = 'runnable', locked_by = null, attempt = attempt + 1, crashes = crashes + 1, updated_at = ?
where id = ?;

-- name: reap_strand
update executions
set status = 'stranded', locked_by = null, attempt = attempt + 1, crashes = crashes + 1, error = ?, updated_at = ?
where id = ?;

-- name: timers_due
select id from executions where wake_at <= ? order by wake_at, id limit ?;

-- name: timers_fire
update executions set status = 'runnable', timed_out = 1, eligible_at = ?, wake_at = null, updated_at = ?
where id in (select value from json_each(?));

-- name: timers_next
select wake_at from executions where wake_at > ? order by wake_at limit 1;
