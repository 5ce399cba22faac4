-- Flows. See schema.sql for what each table is.

create table activities (
  job_id    integer not null,
  activity  text    not null,
  dimension text    not null,
  ledger    integer not null check (ledger between 0 and 999999999999999
                                    and ledger / 100000000 % 10 <= 1 and ledger / 1000000000 % 10 <= 1
                                    and ledger / 10000000000 % 10 <= 1 and ledger / 100000000000 % 10 <= 1),
  primary key (job_id, activity, dimension)
) strict;

create table guids (
  job_id    integer not null,
  guid      blob    not null,
  activity  text    not null,
  dimension text    not null,
  ordinal   integer not null,
  ledger    integer not null check (ledger between 0 and 999999999999
                                    and ledger / 100000000 % 10 <= 1 and ledger / 1000000000 % 10 <= 1
                                    and ledger / 10000000000 % 10 <= 1 and ledger / 100000000000 % 10 <= 1),
  response  text,
  primary key (job_id, guid)
) strict;

create table semaphores (
  job_id    integer not null,
  activity  text    not null,
  dimension text    not null,
  status    integer not null check (status >= 0),
  needed    integer check ((needed is null) = (activity = '')),
  threshold integer not null default 0,
  guid      blob,
  weight    integer not null default 0,
  primary key (job_id, activity, dimension)
) strict;

create trigger semaphores_collate after update of status on semaphores
when new.weight > 0 and new.status = new.threshold
begin
  update guids set ledger = ledger + new.weight where job_id = new.job_id and guid = new.guid;
end;

create table arrivals (
  job_id    integer not null,
  activity  text    not null,
  dimension text    not null,
  source    text    not null,
  value     text,
  counts    integer not null,
  primary key (job_id, activity, dimension, source)
) strict;

create table failures (
  job_id    integer not null,
  guid      blob    not null,
  activity  text    not null,
  dimension text    not null,
  error     text    not null,
  primary key (job_id, guid)
) strict;

create trigger executions_dead_letter after update of status on executions
when new.kind = 'message' and new.status = 'stranded'
begin
  update executions set status = 'stranded', error = new.error, updated_at = new.updated_at
  where id = new.parent_id and status = 'delegated';
end;
