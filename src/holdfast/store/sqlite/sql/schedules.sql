-- name: schedule_create
insert into schedules (name, spec, next_at) values (?, ?, ?) on conflict (name) do nothing;

-- name: schedule_change
update schedules set spec = ?, next_at = ? where name = ? and next_at = ? and spec = ?;

-- name: schedule_list
select name, spec, paused, next_at, buffered_at, last_at, last from schedules
where ?1 is null or name = ?1
order by name;

-- name: schedule_pause
update schedules set paused = ? where name = ?;

-- name: schedule_delete
delete from schedules where name = ?;

-- Only from where it was seen, and not while it is paused: of several workers one moves it on, by what it says now.
-- name: schedule_tick
update schedules set next_at = ?, buffered_at = ?, last_at = ?, last = ?
where name = ? and next_at = ? and buffered_at is ? and spec = ? and paused = 0;
