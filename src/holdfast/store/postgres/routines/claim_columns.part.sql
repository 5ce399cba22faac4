-- A claim, as pick_3 and reclaim_1 answer it. `inbox` has an array a signal: its id, name, payload and kind.
id bigint, promise bytea, epoch bigint, kind text, name text, version int, handler bigint, queue text,
priority smallint, attempt int, partition_key text, revision bigint, step text, state json, crashes int,
digest text, awaits text[], timed_out boolean, children_ready boolean, barrier_round int, next_child bigint,
cancel_requested boolean, parent_id bigint, inbox text[], cancel_reason text, journal_length bigint,
idempotency_key text, beats json, published json, attributes json, eligible_at timestamptz, picked_at timestamptz,
next_due double precision
