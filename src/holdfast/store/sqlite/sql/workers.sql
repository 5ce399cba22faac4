-- name: worker_register
insert into workers (id, host, pid, queues, started_at, expires_at) values (?, ?, ?, ?, ?, ?)
on conflict (id) do update
set host = excluded.host, pid = excluded.pid, queues = excluded.queues, started_at = excluded.started_at,
    expires_at = excluded.expires_at;

-- name: worker_beat
update workers set expires_at = ? where id = ?;
