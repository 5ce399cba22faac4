-- The store's clock reads one row instead of the operating system's time; tests move it.
create table if not exists {schema}.testing_clock (now timestamptz not null);

insert into {schema}.testing_clock select '2000-01-01T00:00:00Z'
    where not exists (select from {schema}.testing_clock);

create or replace function {schema}.clock() returns timestamptz language sql volatile as $$
    select now from {schema}.testing_clock
$$;
