-- Flows. See schema.sql for what each table is.

create table {schema}.activities (
  job_id bigint not null,
  activity text not null,
  dimension text not null,
  ledger bigint not null check (ledger between 0 and 999999999999999
    and ledger / 100000000 % 10 <= 1 and ledger / 1000000000 % 10 <= 1
    and ledger / 10000000000 % 10 <= 1 and ledger / 100000000000 % 10 <= 1),
  seq bigint generated always as identity,
  primary key (job_id, activity, dimension)
) with (fillfactor = 70);

create table {schema}.guids (
  job_id bigint not null,
  guid bytea not null,
  activity text not null,
  dimension text not null,
  ordinal int not null,
  ledger bigint not null check (ledger between 0 and 999999999999
    and ledger / 100000000 % 10 <= 1 and ledger / 1000000000 % 10 <= 1
    and ledger / 10000000000 % 10 <= 1 and ledger / 100000000000 % 10 <= 1),
  response json,
  seq bigint generated always as identity,
  primary key (job_id, guid)
) with (fillfactor = 70);

create table {schema}.semaphores (
  job_id bigint not null,
  activity text not null,
  dimension text not null,
  status bigint not null check (status >= 0),
  needed bigint check ((needed is null) = (activity = '')),
  seq bigint generated always as identity,
  primary key (job_id, activity, dimension)
) with (fillfactor = 70);

create table {schema}.arrivals (
  job_id bigint not null,
  activity text not null,
  dimension text not null,
  source text not null,
  value json,
  counts boolean not null,
  seq bigint generated always as identity,
  primary key (job_id, activity, dimension, source)
);

create table {schema}.failures (
  job_id bigint not null,
  guid bytea not null,
  activity text not null,
  dimension text not null,
  error json not null,
  seq bigint generated always as identity,
  primary key (job_id, guid)
);

create function {schema}.strand_job() returns trigger language plpgsql as $$
begin
  update {schema}.executions set status = 'stranded', error = new.error, updated_at = new.updated_at
  where id = new.parent_id and status = 'delegated';
  return null;
end $$;
create trigger executions_dead_letter after update of status on {schema}.executions for each row
  when (new.kind = 'message' and new.status = 'stranded')
  execute function {schema}.strand_job();
