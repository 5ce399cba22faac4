-- Batches: the counters of a run, and its items in chunks.

create table batches (
  id          integer primary key, -- of the run's row in executions
  taken       integer not null default 0,
  closed      integer not null default 0,
  latched     integer not null default 0,
  expected    integer,
  progress    text,
  digest      text,
  open_bytes  integer not null default 0,
  head        integer not null default 0,
  dispatched  integer not null default 0 check (dispatched >= 0),
  in_flight   integer not null default 0 check (in_flight >= 0),
  succeeded   integer not null default 0 check (succeeded >= 0),
  skipped     integer not null default 0 check (skipped >= 0),
  failed      integer not null default 0 check (failed >= 0),
  cancelled   integer not null default 0 check (cancelled >= 0),
  retries     integer not null default 0 check (retries >= 0),
  updated_at  integer not null,
  check (head <= succeeded + skipped + failed + cancelled),
  check (dispatched + in_flight + succeeded + skipped + failed + cancelled <= taken)
) strict;

create table chunks (
  run_id        integer not null,
  first         integer not null,
  count         integer not null check (count > 0),
  size          integer not null,
  is_dispatched integer not null default 0,
  ended         integer not null default 0,
  failed        integer not null default 0,
  prefix        integer not null default 0 check (prefix between 0 and ended),
  states        blob, -- a byte an item: state, and above it the class of its last failure; null: all UNSEEN
  attempts      blob, -- 16 bits an item; null: no item was retried
  inputs        text, -- of a chunk that has ended those of failed items alone
  results       text,
  notes         text, -- why items failed or were skipped
  ready_ms      text, -- when the items that wait for a retry may be tried, since 1970, by place; null: none waits
  primary key (run_id, first)
) strict;

create index chunks_undispatched on chunks (run_id, first) where is_dispatched = 0;

create index chunks_failed on chunks (run_id, first) where failed > 0;

-- Whoever deletes a run deletes what belongs to it.
create trigger executions_delete_batch after delete on executions when old.kind = 'batch'
begin
  delete from chunks where run_id = old.id;
  delete from batches where id = old.id;
end;
