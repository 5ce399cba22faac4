-- Every change of an execution's status is checked against core.status.LEGAL, whichever statement makes it.
-- {legal} is generated from that table: ('runnable', 'executing'), ...
create or replace function {schema}.testing_guard() returns trigger language plpgsql as $$
begin
    if (old.status::text, new.status::text) not in ({legal}) then
        raise exception 'illegal status transition % -> % of execution %', old.status, new.status, old.id;
    end if;
    return new;
end $$;

create or replace trigger testing_guard before update of status on {schema}.executions
    for each row execute function {schema}.testing_guard();

-- The ledgers of flows: no counter goes back (Rule A), no ordinal moves (ruling A3), a semaphore reaches 0 once, and
-- one GUID of a job at most says that it closed it (9.3).
create or replace function {schema}.testing_guard_activities() returns trigger language plpgsql as $$
begin
    raise exception 'Rule A: the ledger of an activity went back: % -> % of %', old.ledger, new.ledger, old.activity;
end $$;

create or replace trigger testing_guard_activities before update on {schema}.activities
    for each row when (new.ledger < old.ledger) execute function {schema}.testing_guard_activities();

create or replace function {schema}.testing_guard_guids() returns trigger language plpgsql as $$
begin
    if new.ledger < old.ledger or new.ordinal <> old.ordinal or exists (
        select from {schema}.guids g
        where g.job_id = new.job_id and g.guid <> new.guid and g.ledger >= 100000000000) then
        raise exception 'Rule A: the record of a GUID went back, or a second one closed the job: % -> % of %',
            old.ledger, new.ledger, old.activity;
    end if;
    return new;
end $$;

create or replace trigger testing_guard_guids before update on {schema}.guids
    for each row when (new.ledger < old.ledger or new.ordinal <> old.ordinal
        or new.ledger / 100000000000 > old.ledger / 100000000000)
    execute function {schema}.testing_guard_guids();

create or replace function {schema}.testing_guard_semaphores() returns trigger language plpgsql as $$
begin
    raise exception 'section 9.1: the semaphore of % left 0: %', old.job_id, new.status;
end $$;

create or replace trigger testing_guard_semaphores before update on {schema}.semaphores
    for each row when (old.status = 0 and new.status <> 0) execute function {schema}.testing_guard_semaphores();
