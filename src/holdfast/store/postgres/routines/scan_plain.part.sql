-- Lock the first `v_plain` rows of one queue and priority from a place on. Rows that others hold are passed over.
select e.id from {schema}.executions e
where e.queue = v_queue and e.priority = v_priority and e.status = 'runnable' and not e.paused
  and e.partition_key is null and (e.eligible_at, e.id) >= (v_from_at, v_from_id)
  and e.eligible_at <= v_now and e.handler = any (p_handlers)
order by e.eligible_at, e.id limit v_plain for update skip locked
