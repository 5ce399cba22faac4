-- Half a migration is none, and would be begun again at every start: it takes the time it needs. Not every release of
-- the server has all of these.
-- name: migrate_patience
select set_config(name, '0', true) from pg_settings
where name in ('statement_timeout', 'transaction_timeout', 'lock_timeout')

-- A lock of the transaction, not of the session: that one would not survive a pooler.
-- name: migrate_lock
select pg_advisory_xact_lock(hashtextextended($1, 0))

-- While others migrate there is reason to wait; for who reads a table that is to be altered, as long as the role may.
-- name: migrate_locked
set local lock_timeout to default

-- A read of a table, not of the session's memory of names: it makes the session hear of what was committed while it
-- waited for the lock.
-- name: migrate_has_schema
select oid from pg_catalog.pg_namespace where nspname = $1

-- name: migrate_create_schema
create schema {schema}

-- name: migrate_has_version
select to_regclass($1)

-- name: migrate_version
select version, routines, routines_digest from {schema}.schema_version

-- name: migrate_note
insert into {schema}.schema_version as v (version, routines, routines_digest) values ($1, $2, $3)
on conflict (singleton) do update set version = excluded.version,
  routines = greatest(v.routines, excluded.routines),
  routines_digest = case when v.routines > excluded.routines then v.routines_digest else excluded.routines_digest end
