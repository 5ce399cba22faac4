-- As on PostgreSQL; raise() takes no expression here, so the message cannot name the row.
create trigger if not exists testing_guard before update of status on executions
when (old.status, new.status) not in (values {legal})
begin
    select raise(abort, 'illegal status transition: not in core.status.LEGAL');
end;

-- The ledgers of flows: no counter goes back (Rule A), no ordinal moves (ruling A3), a semaphore reaches 0 once, and
-- one GUID of a job at most says that it closed it (9.3).
create trigger if not exists testing_guard_activities before update on activities
when new.ledger < old.ledger
begin
    select raise(abort, 'Rule A: the ledger of an activity went back');
end;

create trigger if not exists testing_guard_guids before update on guids
when new.ledger < old.ledger or new.ordinal <> old.ordinal or (
    new.ledger / 100000000000 > old.ledger / 100000000000 and exists (
        select 1 from guids g where g.job_id = new.job_id and g.guid <> new.guid and g.ledger >= 100000000000))
begin
    select raise(abort, 'Rule A: the record of a GUID went back, or a second one closed the job');
end;

create trigger if not exists testing_guard_semaphores before update on semaphores
when old.status = 0 and new.status <> 0
begin
    select raise(abort, 'section 9.1: a semaphore left 0');
end;
