-- Partition keys: at most one row of a key executes at a time (ruling E9).
--
-- A key's row in partition_locks names its holder. Rows found waiting behind a holder are `key_blocked`: they leave the
-- pick's index, so a crowded key costs later picks nothing. Releasing a key only empties the holder; the next pick
-- settles it, by unblocking the first row of each queue and deleting the lock. What must always hold: while a row is
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

-- Choose the next head of released keys: the first row of each queue. All of them are due, for only due rows are met
-- and blocked. The lock on the key comes first and the look at its rows after it: whoever blocks a row holds the key's
-- row meanwhile (block_rows_1), so no row is blocked behind a lock that goes away.
create or replace function {schema}.settle_keys_1(p_limit int) returns void
language plpgsql as $$
declare
  v_keys text[];
  v_heads bigint[];
  v_free bigint[];
begin
  v_keys := array(
    select key from {schema}.partition_locks where holder is null order by key limit p_limit for update skip locked
  );
  v_heads := array(
    with recursive head as (
      select k.key, h.queue, h.id from unnest(v_keys) k(key) cross join lateral (
        select e.queue, e.id from {schema}.executions e where e.key_blocked and e.partition_key = k.key
        order by e.queue, e.priority, e.eligible_at, e.id limit 1) h
      union all
      select head.key, h.queue, h.id from head cross join lateral (
        select e.queue, e.id from {schema}.executions e
        where e.key_blocked and e.partition_key = head.key and e.queue > head.queue
        order by e.queue, e.priority, e.eligible_at, e.id limit 1) h
    )
    select id from head
  );
  v_free := array(
    select id from {schema}.executions
    where id = any (v_heads) and key_blocked::text = 'true'  -- no condition of an index: all blocked would be read
    order by id for update skip locked
  );
  update {schema}.executions set key_blocked = false where id = any (v_free);
  -- A head that someone is just changing keeps its key for the next pick.
  delete from {schema}.partition_locks where key = any (v_keys) and key <> all (array(
    select e.partition_key from {schema}.executions e where e.id = any (v_heads) and e.id <> all (v_free)));
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
