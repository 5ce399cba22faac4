-- name: worker_register
insert into workers (id, host, pid, queues, started_at, expires_at) values (?, ?, ?, ?, ?, ?)
on conflict (id) do update
set host = excluded.host, pid = excluded.pid, queues = excluded.queues, started_at = excluded.started_at,
    expires_at = excluded.expires_at;

-- name: worker_run_out
select exists (select 1 from workers where expires_at <= ?);

-- name: worker_beat
update workers set expires_at = ? where id = ?;

-- name: worker_remove
delete from workers where id = ?;

-- name: worker_list
select w.id, w.host, w.pid, w.queues, w.started_at, w.expires_at,
  (select count(*) from executions e where e.status = 'executing' and e.locked_by = w.id)
from workers w order by w.started_at, w.id;
