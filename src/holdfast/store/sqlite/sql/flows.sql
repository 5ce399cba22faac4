-- These two are run with many rows at once (`ledgers`); what they return is in the order of these.
-- name: flow_activity
insert into activities (job_id, activity, dimension, ledger) values (?3, ?4, ?5, ?1 + ?2)
on conflict do update
set ledger = ledger + ?1 + case when ?2 > 0 and ledger / ?2 % 10 = 0 then ?2 else 0 end
returning job_id, ledger;

-- name: flow_guid
insert into guids (job_id, guid, activity, dimension, ordinal, ledger, response) values (?, ?, ?, ?, ?, ?, ?)
on conflict do update set ledger = ledger + excluded.ledger, response = coalesce(excluded.response, response)
returning job_id, ordinal, ledger;

-- name: flow_activity_ledger
select ledger from activities where job_id = ? and activity = ? and dimension = ?;

-- name: flow_guid_ledger
select ordinal, ledger from guids where job_id = ? and guid = ?;

-- name: flow_fail
insert into failures (job_id, guid, activity, dimension, error) values (?, ?, ?, ?, ?) on conflict do nothing;

-- The seed's setStatusAndCollateGuid (12.2) as one statement: the trigger of the table adds the weight to the GUID's
-- ledger if this very move brought the status to the threshold.
-- name: set_status_and_collate
update semaphores set status = status + ?4, threshold = ?5, guid = ?6, weight = ?7
where job_id = ?1 and activity = ?2 and dimension = ?3
returning status;

-- From now on a cancel asks it, whatever its status, and its messages close it (ruling A11).
-- name: flow_open
update executions set cleans_up = 1 where id = ?;

-- name: flow_semaphore
insert into semaphores (job_id, activity, dimension, status, needed) values (?, ?, ?, ?, ?) on conflict do nothing;

-- name: flow_arrive
insert into arrivals (job_id, activity, dimension, source, value, counts) values (?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- name: flow_job
select parent_id, parent_round, reports, paused, cancel_requested from executions where id = ?;

-- name: flow_last_arrival
select coalesce(max(rowid), 0) from arrivals;

-- name: flow_arrival
select rowid from arrivals where job_id = ? and activity = ? and dimension = ? and source = ?;

-- name: flow_paused
select id from executions where id in (select value from json_each(?)) and paused = 1;

-- name: flow_end
update executions
set status = ?, result = ?, error = ?, ended_at = ?, revision = revision + 1, updated_at = ?, awaits = null,
    wake_at = null
where id = ? and status = 'delegated'
returning parent_id, parent_round, reports;

-- name: flow_onward
update or ignore executions
set promise = ?, step = ?, state = ?, attempt = 0, crashes = 0, awaits = null, error = null, timed_out = 0,
    children_ready = 0, inserted_at = ?, started_at = ?
where id = ?;

-- A response that came before its Leg1 was published (ruling A5): the row is the Leg1's now, and takes it along.
-- name: flow_early
update executions
set step = 'leg1', state = ?1 || ',"early":' || state || '}', queue = ?2, attempt = 0, crashes = 0, updated_at = ?3,
    eligible_at = case when status = 'runnable' then ?3 else eligible_at end
where promise = ?4 and kind = 'message' and step = 'leg2';

-- name: flow_went_on
select 1 from executions where id = ? and promise = ?;

-- name: flow_acknowledge
delete from executions where id = ? and kind = 'message';

-- A signal of the job goes to the hook that waits for its name; the job remembers its dedup key (ruling E12).
-- name: flow_signal
select id from signals where target_id = ? and kind = 'signal' and name = ? order by id limit 1;

-- name: flow_signal_key
insert or ignore into signal_keys (target_id, dedup_key)
select target_id, dedup_key from signals where id = ? and dedup_key is not null;

-- name: flow_signal_move
update signals set target_id = ?, dedup_key = null where id = ?;

-- By when they were published: a row that its parent's child took over is older than what it stands for now.
-- name: flow_hook
select e.id from executions e
where e.parent_id = ? and e.kind = 'message' and e.status = 'awaiting_signal'
  and exists (select 1 from json_each(e.awaits) a where a.value = ?)
order by e.inserted_at, e.id limit 1;

-- name: flow_messages
select id, status, partition_key, parent_id, parent_round, reports, cleans_up, cancel_requested
from executions where parent_id in (select value from json_each(?)) and kind = 'message' order by id;

-- name: flow_pause
update executions set paused = ? and not cancel_requested, updated_at = ? where parent_id = ? and kind = 'message';

-- name: flow_look
select m.step, m.state, j.status, j.cancel_requested, s.status, a.ledger, g.ledger, g.ordinal, g.response
from executions m
join executions j on j.id = ?2
left join semaphores s on s.job_id = ?2 and s.activity = '' and s.dimension = ''
left join activities a on a.job_id = ?2 and a.activity = ?3 and a.dimension = ?4
left join guids g on g.job_id = ?2 and g.guid = ?5
where m.id = ?1;

-- name: flow_arrived
select source, value from arrivals
where job_id = ? and activity = ? and dimension = ? order by rowid;

-- Whether a job has more than so many GUIDs.
-- name: flow_is_long
select 1 from guids where job_id = ? limit 1 offset ?;

-- name: flow_closing
select cancel_requested, (select f.error from failures f where f.job_id = executions.id order by f.rowid limit 1)
from executions where id = ?;

-- Of what has had its Step 1.
-- name: flow_answers
select activity, dimension, ordinal, response from guids
where job_id = ?1 and response is not null and ledger / 10000000000 % 10 = 1
  and (?2 is null or activity in (select value from json_each(?2)))
order by rowid;

-- name: flow_id
select id from executions where promise = ?;

-- name: flow_activities
select activity, dimension, ledger from activities where job_id = ? order by rowid;

-- name: flow_guids
select guid, activity, dimension, ordinal, ledger, response from guids where job_id = ? order by rowid;

-- name: flow_semaphores
select activity, dimension, status, needed from semaphores where job_id = ? order by rowid;

-- name: flow_arrivals
select activity, dimension, source, value, counts from arrivals where job_id = ? order by rowid;

-- name: flow_failures
select activity, dimension, error from failures where job_id = ? order by rowid;

-- name: flow_message_views
select promise, step, status, state, error, attempt, eligible_at from executions
where parent_id = ? and kind = 'message' order by id;

-- A dead letter goes back to work, or is closed; once the job has no other, it goes on.
-- name: flow_letter
select id, parent_id from executions where promise = ? and kind = 'message' and status = 'stranded';

-- name: flow_letters_of
select promise from executions where parent_id = ? and kind = 'message' and status = 'stranded' order by id;

-- name: flow_letters_in
select promise from executions
where parent_id in (select value from json_each(?)) and kind = 'message' and status = 'stranded' order by id;

-- name: flow_letter_again
update executions
set status = 'runnable', step = coalesce(?, step), attempt = max(attempt - crashes, 0), crashes = 0, eligible_at = ?,
    updated_at = ?
where id = ?;

-- name: flow_unstrand
update executions set status = 'delegated', error = null, updated_at = ?1
where id = ?2 and status = 'stranded' and not exists (
  select 1 from executions m where m.parent_id = ?2 and m.kind = 'message' and m.status = 'stranded'
);

-- name: flow_is_begun
select 1 from semaphores where job_id = (select id from executions where promise = ? and kind = 'flow')
  and activity = '' and dimension = '';

-- name: flow_purge_activities
delete from activities where job_id in (select value from json_each(?));

-- name: flow_purge_guids
delete from guids where job_id in (select value from json_each(?));

-- name: flow_purge_semaphores
delete from semaphores where job_id in (select value from json_each(?));

-- name: flow_purge_arrivals
delete from arrivals where job_id in (select value from json_each(?));

-- name: flow_purge_failures
delete from failures where job_id in (select value from json_each(?));
