-- Partition keys: at most one execution of a key executes, in the order (priority, eligible_at, id) (ruling E9).

-- name: key_holder
select holder from partition_locks where key = ?;

-- name: key_take
insert into partition_locks (key, holder) values (?, ?);

-- name: key_drop
delete from partition_locks where key = ? and holder = ?;

-- name: key_block
update executions set key_blocked = 1 where id = ?;

-- The first row of the next queue. Only rows that were due have been blocked, so the first is the best.
-- name: key_next
select id, queue from executions
where status = 'runnable' and paused = 0 and key_blocked = 1 and partition_key = ? and queue > ?
order by queue, priority, eligible_at, id limit 1;

-- name: key_unblock
update executions set key_blocked = 0 where id = ?;
