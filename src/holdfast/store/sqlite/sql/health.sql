-- name: health_indexes
select name from sqlite_master where type = 'index' and sql is not null;
