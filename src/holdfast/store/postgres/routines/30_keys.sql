-- Partition keys: at most one row of a key executes at a time (ruling E9).
--
-- A key's row in partition_locks names its holder. Rows found waiting behind a holder are `key_blocked`: they leave the
-- pick's index, so a crowded key costs later picks nothing. Releasing a key only empties the holder; the next pick
-- settles it, by unblocking the best row of each queue and deleting the lock. What must always hold: while a row is
-- blocked, its key has a row in partition_locks, or a row that is not blocked in the pick's index.

-- Called by whoever ends the holding of these rows.
create or replace function {schema}.release_keys_1(p_keys text[], p_holders bigint[]) returns void
language plpgsql as $$
begin
  update {schema}.partition_locks set holder = null where key = any (p_keys) and holder = any (p_holders);
end $$;

-- Called by whoever takes a runnable row of these keys away without picking it: it may have been the head.
create or replace function {schema}.unsettle_keys_1(p_keys text[]) returns void
language plpgsql as $$
begin
  insert into {schema}.partition_locks (key)
    select distinct k from unnest(p_keys) k where k is not null order by k
    on conflict do nothing;
end $$;

-- The row that is next in a key and queue: among those that are due by priority, otherwise the earliest.
create or replace function {schema}.next_of_key_1(p_key text, p_queue text, p_now timestamptz) returns bigint
language plpgsql as $$
declare
  v_priority int := -32769;
  v_id bigint;
begin
  loop
    select priority into v_priority from {schema}.executions
      where key_blocked and partition_key = p_key and queue = p_queue and priority > v_priority
      order by partition_key, queue, priority limit 1;
    exit when not found;
    select id into v_id from {schema}.executions
      where key_blocked and partition_key = p_key and queue = p_queue and priority = v_priority
        and eligible_at <= p_now
      order by partition_key, queue, priority, eligible_at, id limit 1;
    if found then
      return v_id;
    end if;
  end loop;
  select id into v_id from {schema}.executions
    where key_blocked and partition_key = p_key and queue = p_queue
    order by eligible_at, id limit 1;
  return v_id;
end $$;

-- Choose the next head of released keys. The lock on the key comes first and the look at its rows after it: whoever
-- blocks a row holds the key's row meanwhile (block_rows_1), so no row is blocked behind a lock that goes away.
create or replace function {schema}.settle_keys_1(p_now timestamptz, p_limit int) returns void
language plpgsql as $$
declare
  v_key text;
  v_queue text;
  v_id bigint;
  v_settled boolean;
begin
  foreach v_key in array array(
    select key from {schema}.partition_locks where holder is null order by key limit p_limit for update skip locked
  ) loop
    v_queue := '';
    v_settled := true;
    loop
      select queue into v_queue from {schema}.executions
        where key_blocked and partition_key = v_key and queue > v_queue
        order by partition_key, queue limit 1;
      exit when not found;
      v_id := {schema}.next_of_key_1(v_key, v_queue, p_now);
      perform from {schema}.executions where id = v_id and key_blocked for update skip locked;
      if found then
        update {schema}.executions set key_blocked = false where id = v_id;
      else
        v_settled := false;  -- someone is just changing it: the key stays for the next pick
      end if;
    end loop;
    if v_settled then
      delete from {schema}.partition_locks where key = v_key;
    end if;
  end loop;
end $$;

-- Take rows that wait behind a held key out of the pick's index.
create or replace function {schema}.block_rows_1(p_ids bigint[]) returns void
language plpgsql as $$
declare
  v_ids bigint[];
  v_keys text[];
begin
  select array_agg(id), array_agg(partition_key) into v_ids, v_keys from (
    select id, partition_key from {schema}.executions
    where id = any (p_ids) and status = 'runnable' and not paused and not key_blocked
    order by id for update skip locked
  ) rows;
  v_keys := array(
    select key from {schema}.partition_locks where key = any (v_keys) for key share skip locked
  );
  update {schema}.executions set key_blocked = true where id = any (v_ids) and partition_key = any (v_keys);
end $$;
