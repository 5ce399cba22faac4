-- How the routines that are called from outside are planned, whatever the session or a pooler in front of it has set:
-- once and for all parameters, and never by reading a whole table because it was empty when the plan was made. Nor by a
-- bitmap: it never marks an entry of an index as dead, so that each look into an inbox would read all that was ever
-- consumed, until the next vacuum; and it has no order, so that all would be read for the first few. No routine has
-- conditions that only a bitmap could put together. What they call in turn is planned so as well. Entering a function with
-- settings costs five microseconds, with any number.

do $$
declare
  v_routine regprocedure;
begin
  for v_routine in
    select oid from pg_proc
    where pronamespace = '{schema}'::regnamespace and proname ~ '_[0-9]+$' and prorettype <> 'trigger'::regtype
      -- One of plain SQL becomes part of the query that calls it, unless it has settings of its own.
      and prolang <> (select oid from pg_language where lanname = 'sql')
      and proname !~ '^(advance|release_keys|unsettle_keys|settle_keys|block_rows|limit_rooms|scan_keyed|pick_widely)_'
      and proname !~ '^(wake|put_back|catch_up|release_barriers|report_ends|finish|inboxes|next_queue)_'
  loop
    execute format(
      'alter function %s set enable_seqscan = off set enable_bitmapscan = off set jit = off '
      'set plan_cache_mode = force_generic_plan', v_routine);
  end loop;
end $$;
