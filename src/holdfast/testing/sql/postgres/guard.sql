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
