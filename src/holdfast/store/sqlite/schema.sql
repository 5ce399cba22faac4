-- Holdfast's ledger on SQLite. This file is the truth; a test proves that the migrations arrive here.
--
--   executions       one row an execution of any kind: what it is, where it stands, who holds it; `executions_now` is
--                    what to read, for a row in hand may be behind its journal
--   attributes       what executions are searched by
--   signals          the inboxes; a row goes when it is consumed or its target ends; one that failed keeps it
--   signal_keys      dedup keys of consumed signals, for as long as their target lives (ruling E12)
--   partition_locks  which execution holds a partition key (ruling E9)
--   workers          the leases: a claimed row names its worker, the worker's row says until when (ruling E15)
--   queues           limits that hold for all workers together
--   listeners        who is idle and wants to be woken, and at which socket
--   transitions      the optional history
--   journal          what happened in workflows, a segment of events a commit; `journal_events` shows one event a row
--   definitions      what workers have had code for: enough to start it by name
--   schedules        what is started when
--   batches, chunks  the counters of a batch's run, and its items
--   activities, guids        the two 15-digit ledgers of flows (core.collation); a guid's response is what it answered
--   semaphores, arrivals     open obligations of jobs (activity '') and of joins; what has come to joins
--   failures                 activities that failed for good, by job
--   schema_version   the migrations that were applied
--
-- Times are microseconds since 1970. JSON is text. Booleans are 0 and 1. No foreign keys: they would be checked on
-- every hot write, and every statement that deletes an execution deletes what belongs to it.

create table executions (
  -- autoincrement: a purged id must never come back, children outlive their parents (ruling E10)
  id               integer primary key autoincrement,
  promise          blob    not null unique,
  -- the fence and what every commit reads: kept in front, so that a long state is not read for it
  -- (compared one by one: a list of more than two builds a table for every row that is written)
  status           text    not null default 'runnable'
                   check (status = 'runnable' or status = 'executing' or status = 'done' or status = 'failed'
                          or status = 'cancelled' or status = 'awaiting_signal' or status = 'awaiting_children'
                          or status = 'awaiting_promise' or status = 'stranded' or status = 'delegated'),
  locked_by        text,
  lease_epoch      integer not null default 0,
  revision         integer not null default 0,
  cancel_requested integer not null default 0,
  paused           integer not null default 0,
  reports          integer not null default 0,
  cleans_up        integer not null default 0,
  -- scheduling
  queue            text    not null,
  priority         integer not null check (priority between -32768 and 32767),
  eligible_at      integer not null,
  handler          integer not null,
  partition_key    text,
  key_blocked      integer not null default 0,
  wake_at          integer,
  deadline_at      integer,
  attempt          integer not null default 0,
  crashes          integer not null default 0,
  timed_out        integer not null default 0,
  children_ready   integer not null default 0,
  -- the tree
  parent_id        integer,
  parent_round     integer,
  children_pending integer not null default 0 check (children_pending >= 0),
  barrier_round    integer not null default 0,
  next_child       integer not null default 0,
  successor        blob, -- the run that goes on in its place; of the first of several, always the newest
  -- what it is
  kind             text    not null,
  name             text    not null,
  version          integer not null,
  step             text    not null,
  digest           text,
  input_hash       text    not null,
  idempotency_key  text,
  journal_length   integer not null default 0,
  -- uniqueness: leaving the scope releases the key for good (ruling E14)
  unique_key       blob,
  unique_scope     text,
  unique_released  integer not null default 0,
  unique_guard     blob generated always as (
    case when unique_key is not null and unique_released = 0 and instr(unique_scope, '"' || status || '"') > 0
         then unique_key end
  ) virtual,
  -- live, but neither executing nor up for picking
  held             text generated always as (
    case when status = 'executing' or ended_at is not null then null
         when status <> 'runnable' or paused or key_blocked then status end
  ) virtual,
  inserted_at      integer not null,
  started_at       integer,
  ended_at         integer,
  updated_at       integer not null,
  -- what may be long
  awaits           text,
  state            text    not null,
  result           text,
  error            text,
  cancel_reason    text,
  attributes       text,
  published        text,
  beats            text,
  tried            text -- JSON: digests of code that stranded it (ruling B17)
) strict;

-- The pick walks this and nothing else: every column that its statements name is here, so that what it passes over
-- costs no look-up.
create index executions_pick
  on executions (queue, priority, eligible_at, id, handler, partition_key, status, paused, key_blocked)
  where status = 'runnable' and paused = 0 and key_blocked = 0;

-- Rows behind a held key: out of the pick's way until the key is free (ruling E9).
create index executions_blocked on executions (partition_key, queue, priority, eligible_at, id)
  where status = 'runnable' and paused = 0 and key_blocked = 1;

create index executions_locked on executions (locked_by, queue) where status = 'executing';

create index executions_held on executions (held, queue) where held is not null;

create index executions_wake on executions (wake_at) where wake_at is not null;

-- Deadlines of whole executions, until their cancel is requested.
create index executions_deadline on executions (deadline_at)
  where deadline_at is not null and ended_at is null and cancel_requested = 0;

create index executions_parent on executions (parent_id, parent_round) where parent_id is not null;

-- What people ask for by name and kind; the row's own order comes with it.
create index executions_named on executions (name, kind);

-- Retention goes through it from the oldest; with the status in it, counting the ended reads no row.
create index executions_ended on executions (ended_at, status) where ended_at is not null;

-- What failed, by time: for those who watch.
create index executions_failed on executions (ended_at) where status = 'failed';

create unique index executions_unique on executions (unique_guard) where unique_guard is not null;

create trigger executions_leave_scope after update of status on executions
  when new.unique_key is not null and new.unique_released = 0 and new.unique_guard is null
begin
  update executions set unique_released = 1 where id = new.id;
end;

-- What executions are searched by: one row an attribute, kept by the triggers. A truth value is a blob here, so that it
-- is no number.
create table attributes (
  name         text    not null,
  value        any     not null,
  execution_id integer not null,
  primary key (name, value, execution_id)
) strict, without rowid;

create index attributes_execution on attributes (execution_id);

create trigger attributes_insert after insert on executions when new.attributes is not null
begin
  insert into attributes (name, value, execution_id)
  select key, case type when 'true' then x'01' when 'false' then x'00' else value end, new.id
  from json_each(new.attributes);
end;

create trigger attributes_update after update of attributes on executions when new.attributes is not old.attributes
begin
  delete from attributes where execution_id = new.id;
  insert into attributes (name, value, execution_id)
  select key, case type when 'true' then x'01' when 'false' then x'00' else value end, new.id
  from json_each(coalesce(new.attributes, '{}'));
end;

create trigger attributes_delete after delete on executions when old.attributes is not null
begin
  delete from attributes where execution_id = old.id;
end;

create table signals (
  -- autoincrement: the order of delivery, and an id that a claim holds never means another signal
  id          integer primary key autoincrement,
  target_id   integer not null,
  kind        text    not null default 'signal', -- or 'child': the end of a child, its name is the promise in hex
  name        text    not null,
  payload     text    not null,
  dedup_key   text, -- null: the sender gave none
  inserted_at integer not null
) strict;

create index signals_target on signals (target_id, id);

create unique index signals_dedup on signals (target_id, dedup_key) where dedup_key is not null;

create table signal_keys (
  target_id integer not null,
  dedup_key text    not null,
  primary key (target_id, dedup_key)
) strict, without rowid;

create table partition_locks (
  key    text    not null primary key,
  holder integer not null
) strict, without rowid;

create table workers (
  id         text    not null primary key,
  host       text    not null,
  pid        integer not null,
  queues     text    not null,
  started_at integer not null,
  expires_at integer not null
) strict, without rowid;

create table queues (
  name         text    not null primary key,
  paused       integer not null default 0,
  concurrency  integer,
  rate         real,
  rate_seconds real    not null default 1.0,
  tokens       real    not null default 0.0,
  tokens_at    integer not null default 0
) strict, without rowid;

create table listeners (
  id         text    not null,
  topic      text    not null,
  address    text    not null,
  expires_at integer not null,
  primary key (topic, id)
) strict, without rowid;

create table transitions (
  execution_id integer not null,
  revision     integer not null,
  at           integer not null,
  step         text    not null,
  outcome      text    not null,
  next_step    text,
  attempt      integer not null,
  error        text,
  primary key (execution_id, revision)
) strict, without rowid;

-- One row a commit that added events. With a rowid: a table without one was slower to append to by two fifths.
create table journal (
  execution_id integer not null,
  first        integer not null, -- the sequence of the first event in it
  count        integer not null,
  body         text    not null, -- JSON of a segment
  step         text, -- that its row would say now, if the commit left the row alone and this is new
  primary key (execution_id, first)
) strict;

-- Executions as they stand. A row that a worker holds may be behind its journal (see `keeping`): what the segments say
-- that it does not tell of yet is added here, and by whoever takes it from its holder (`lease_catch_up`).
create view executions_now as
select
  e.id, e.promise, e.status, e.locked_by, e.lease_epoch, e.cancel_requested, e.paused, e.reports, e.cleans_up,
  e.queue, e.priority, e.eligible_at, e.handler, e.partition_key, e.key_blocked, e.wake_at, e.deadline_at, e.attempt,
  e.crashes, e.timed_out, e.children_ready, e.parent_id, e.parent_round, e.children_pending, e.barrier_round,
  e.next_child, e.successor, e.kind, e.name, e.version, e.digest, e.input_hash, e.idempotency_key, e.unique_key,
  e.unique_scope, e.unique_released, e.unique_guard, e.held, e.inserted_at, e.started_at, e.ended_at, e.updated_at,
  e.awaits, e.state, e.result, e.error, e.cancel_reason, e.attributes, e.published, e.beats, e.tried,
  e.revision + iif(e.status = 'executing' and e.journal_length > 0, (
    select count(*) from journal j where j.execution_id = e.id and j.first >= e.journal_length
  ), 0) as revision,
  coalesce(iif(e.status = 'executing' and e.journal_length > 0, (
    select j.first + j.count from journal j where j.execution_id = e.id and j.first >= e.journal_length
    order by j.first desc limit 1
  ), null), e.journal_length) as journal_length,
  coalesce(iif(e.status = 'executing' and e.journal_length > 0, (
    select j.step from journal j where j.execution_id = e.id and j.first >= e.journal_length and j.step is not null
    order by j.first desc limit 1
  ), null), e.step) as step
from executions e;

-- One event a row, for people and their queries. Ids in `body` are local to the journal (`.7`), `promise_id` is whole:
-- the hex digits of the first 32 bytes, then a number for every 4.
create view journal_events as
select e.promise, json_extract(event.value, '$.sequence') as sequence,
  json_extract(event.value, '$.timestamp') as timestamp, json_extract(event.value, '$.event') as event,
  (with recursive own(id, number, rest) as (
    select lower(hex(substr(e.promise, 1, 32))), 0, hex(substr(e.promise, 33))
    union all
    select id || iif(length(rest) % 8 = 1, '.' || (number * 16 + instr('123456789ABCDEF', substr(rest, 1, 1))), ''),
      iif(length(rest) % 8 = 1, 0, number * 16 + instr('123456789ABCDEF', substr(rest, 1, 1))), substr(rest, 2)
    from own where rest <> ''
  ) select id from own where rest = '') || json_extract(event.value, '$.promise_id') as promise_id,
  event.value as body
from journal j join executions e on e.id = j.execution_id, json_each(j.body, '$.events') event;

create table definitions (
  name       text    not null,
  version    integer not null,
  kind       text    not null,
  step       text    not null,
  queue      text    not null,
  priority   integer not null,
  parameters text    not null,
  primary key (name, version)
) strict, without rowid;

-- Who reads the feed of ends, and how far.
create table places (
  name         text    not null primary key,
  position     text    not null,
  owner        text    not null,
  leased_until integer not null
) strict, without rowid;

create table schedules (
  name        text    not null primary key,
  spec        text    not null,
  paused      integer not null default 0,
  next_at     integer not null,
  buffered_at integer, -- a tick that waits for the last execution to end
  last_at     integer,
  last        blob     -- what the last tick started
) strict, without rowid;

create table schema_version (
  version    integer not null primary key,
  name       text    not null,
  applied_at integer not null
) strict;

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

-- Flows (migration 0003). A message that is stranded is a dead letter: it strands its job (ruling A6).
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
