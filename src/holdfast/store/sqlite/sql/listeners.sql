-- name: listener_arm
insert into listeners (id, topic, address, expires_at) values (?, ?, ?, ?)
on conflict (topic, id) do update set expires_at = excluded.expires_at;

-- name: listener_forget
delete from listeners where expires_at < ? returning address;

-- name: listener_remove
delete from listeners where id = ?;

-- name: listener_addresses
select id, address from listeners where topic = ? and expires_at > ?;
