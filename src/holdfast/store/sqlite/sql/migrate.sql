-- name: migrate_has_version
select 1 from sqlite_master where name = 'schema_version';

-- name: migrate_version
select coalesce(max(version), 0) from schema_version;

-- name: migrate_note
insert into schema_version (version, name, applied_at) values (?, ?, ?);
