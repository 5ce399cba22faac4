-- name: health_indexes
select name from sqlite_master where type = 'index' and sql is not null;

-- The last end, and the last start.
-- name: health_newest
select max(coalesce((select max(ended_at) from executions where ended_at is not null), 0),
  coalesce((select inserted_at from executions where id = (select max(id) from executions)), 0));
