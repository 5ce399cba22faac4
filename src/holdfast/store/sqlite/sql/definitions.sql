-- name: definition_put
insert or replace into definitions (name, version, kind, step, queue, priority, parameters)
values (?, ?, ?, ?, ?, ?, ?);

-- name: definition_list
select name, version, kind, step, queue, priority, parameters from definitions
where ?1 is null or name = ?1
order by name, version;
