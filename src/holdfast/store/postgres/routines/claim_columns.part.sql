-- A claim, as pick_1 and reclaim_1 answer it.
id bigint, promise bytea, epoch bigint, kind text, name text, version int, handler bigint, queue text,
priority smallint, attempt int, partition_key text, revision bigint, step text, state json, crashes int,
digest text, awaits text[], timed_out boolean, children_ready boolean, barrier_round int, next_child bigint,
cancel_requested boolean, parent_id bigint, signal_ids bigint[], signal_names text[], signal_payloads json[],
signal_kinds text[], cancel_reason text, journal_length bigint, idempotency_key text, beats json, published json,
attributes json, picked_at timestamptz, next_due double precision
