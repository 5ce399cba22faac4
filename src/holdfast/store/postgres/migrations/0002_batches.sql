-- Batches: the counters of a run, and its items in chunks.

create table {schema}.batches (
  id bigint primary key,                  -- of the run's row in executions
  taken bigint not null default 0,
  closed boolean not null default false,
  latched boolean not null default false,
  expected bigint,
  progress text,
  digest text,
  open_bytes bigint not null default 0,
  head bigint not null default 0,
  dispatched bigint not null default 0 check (dispatched >= 0),
  in_flight bigint not null default 0 check (in_flight >= 0),
  succeeded bigint not null default 0 check (succeeded >= 0),
  skipped bigint not null default 0 check (skipped >= 0),
  failed bigint not null default 0 check (failed >= 0),
  cancelled bigint not null default 0 check (cancelled >= 0),
  retries bigint not null default 0 check (retries >= 0),
  updated_at timestamptz not null,
  check (head <= succeeded + skipped + failed + cancelled),
  check (dispatched + in_flight + succeeded + skipped + failed + cancelled <= taken)
) with (fillfactor = 50);

create table {schema}.chunks (
  run_id bigint not null,
  first bigint not null,
  count int not null check (count > 0),
  size int not null,
  is_dispatched boolean not null default false,
  ended int not null default 0,
  failed int not null default 0,
  prefix int not null default 0 check (prefix between 0 and ended),
  states bytea,                           -- a byte an item: state, and above it the class of its last failure
  attempts bytea,                         -- 16 bits an item; null: no item was retried
  inputs text,                            -- of a chunk that has ended those of failed items alone
  results text,
  notes text,                             -- why items failed or were skipped
  ready_ms text,                          -- when items that wait for a retry may be tried, since 1970, by place
  primary key (run_id, first)
) with (fillfactor = 70);

create index chunks_undispatched on {schema}.chunks (run_id, first) where not is_dispatched;

create index chunks_failed on {schema}.chunks (run_id, first) where failed > 0;

-- Whoever deletes a run deletes what belongs to it.
create function {schema}.delete_batch() returns trigger language plpgsql as $$
begin
  delete from {schema}.chunks where run_id = old.id;
  delete from {schema}.batches where id = old.id;
  return null;
end $$;
create trigger executions_delete_batch after delete on {schema}.executions for each row
  when (old.kind = 'batch') execute function {schema}.delete_batch();
