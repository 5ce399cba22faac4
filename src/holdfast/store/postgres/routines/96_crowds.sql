-- Rows of a definition that are not listed: newest first, below `p_before` and above `p_floor`, at most `p_limit`. A loop, so
-- that no plan reads more blocks than it takes.
create or replace function {schema}.crowd_1(
  p_kind text, p_name text, p_before bigint, p_floor bigint, p_queue text, p_statuses {schema}.status[], p_limit bigint
) returns setof bigint language plpgsql stable as $$
declare
  v_block bigint;
  v_id bigint;
  v_left bigint := p_limit;
begin
  for v_block in
    select distinct c.block from {schema}.crowds c
    where c.definition = p_kind || '/' || p_name and c.block between p_floor >> 8 and p_before >> 8
    order by c.block desc
  loop
    for v_id in
      select e.id from {schema}.executions e
      where e.id between v_block << 8 and (v_block << 8) + 255 and e.id < p_before and e.id > p_floor and not e.listed
        and e.kind = p_kind and e.name = p_name
        and (p_queue is null or e.queue = p_queue) and (p_statuses is null or e.status = any (p_statuses))
      order by e.id desc limit v_left
    loop
      v_left := v_left - 1;
      return next v_id;
    end loop;
    exit when v_left <= 0;
  end loop;
end $$;
