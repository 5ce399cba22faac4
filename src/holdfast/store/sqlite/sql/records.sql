-- Whole ledgers as records (store/records.py): read in one snapshot, written in one commit. `{columns}` are those that
-- the fields of a record stand for, `{table}`, `{owner}` and `{order}` are of its table.

-- name: records_executions
select e.promise, (select p.promise from executions p where p.id = e.parent_id), {columns}
from executions_now e {within} order by e.id;

-- name: records_owned
select e.promise, {columns} from executions e join {table} t on t.{owner} = e.id {within} order by {order};

-- One tree: an id and everything below it lie side by side.
-- name: records_in_tree
where e.promise >= ?1 and e.promise < ?2

-- Some executions, in their order, and what belongs to them: no more of a ledger than fits into memory.
-- name: records_in_window
where e.id > ?1 and e.id <= ?2

-- name: records_window
select max(id) from (select id from executions where id > ?1 order by id limit ?2) found;

-- name: records_shared
select {columns} from {table} order by 1;

-- name: records_find
select id from executions where promise = ?;

-- name: records_last
select coalesce(max(id), 0) from executions;

-- A tree whose place may be taken: nothing hangs on it from above, it is not further than what comes, nothing in it can
-- move, and none of it came just now.
-- name: records_at_rest
select not exists (
  select 1 from executions e where e.promise >= ?1 and e.promise < ?2 and (
    (e.promise = ?1 and (e.parent_id is not null or e.status in ('done', 'failed') or e.revision > ?4))
    or (e.ended_at is null and (e.paused = 0 or e.status = 'executing'))
    or exists (select 1 from partition_locks l where l.holder = e.id)
    or e.id > ?3));

-- name: records_delete
delete from {table} where {owner} in (select e.id from executions e where e.promise >= ?1 and e.promise < ?2);

-- name: records_occupant
select promise from executions where unique_guard = ?;

-- name: records_insert
insert into {table} ({columns}) values ({values});

-- name: records_adopt
update executions set parent_id = ? where id = ?;

-- What the ledger has already stays as it is.
-- name: records_insert_new
insert into {table} ({columns}) values ({values}) on conflict do nothing;

-- Rows that belong to no execution: every statement that deletes one deletes what belongs to it.
-- name: records_orphans
select count(*) from {table} t where not exists (select 1 from executions e where e.id = t.{owner});

-- name: records_workers
select id from workers;

-- name: records_locks
select l.key, l.holder is null, e.promise from partition_locks l left join executions e on e.id = l.holder;

-- What is searched by is what the row says.
-- name: records_attributes
select e.promise, e.name from executions e
where (select count(*) from attributes a where a.execution_id = e.id)
    <> (select count(*) from json_each(coalesce(e.attributes, '{}')))
  or exists (
    select 1 from json_each(coalesce(e.attributes, '{}')) w where not exists (
      select 1 from attributes b where b.execution_id = e.id and b.name = w.key
        and b.value = case w.type when 'true' then x'01' when 'false' then x'00' else w.value end));
