-- name: schedule_put
insert into schedules (name, spec, next_at) values (?1, ?2, ?3)
on conflict (name) do update set spec = excluded.spec, next_at = excluded.next_at;

-- name: schedule_list
select name, spec, paused, next_at, buffered_at, last_at, last from schedules
where ?1 is null or name = ?1
order by name;

-- name: schedule_pause
update schedules set paused = ? where name = ?;

-- name: schedule_delete
delete from schedules where name = ?;

-- Only from where it was seen, and not while it is paused: of several workers one moves it on.
-- name: schedule_tick
update schedules set next_at = ?, buffered_at = ?, last_at = ?, last = ?
where name = ? and next_at = ? and buffered_at is ? and paused = 0;
