-- name: health_facts
select current_setting('server_version') as version, current_setting('server_version_num')::int as number,
  current_setting('server_encoding') as encoding, current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
  current_setting('synchronous_commit') as synchronous_commit, current_setting('autovacuum') as autovacuum,
  current_setting('max_connections')::int as max_connections, pg_is_in_recovery() as is_replica,
  current_setting('synchronous_standby_names') as standbys,
  (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
  (select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 from pg_stat_activity
    where state like 'idle in transaction%') as idle_seconds,
  (select coalesce(max(extract(epoch from clock_timestamp() - began)), 0)::float8 from (
    select xact_start from pg_stat_activity where backend_type in ('client backend', 'walsender')
    union all select prepared from pg_prepared_xacts) o(began)) as open_seconds,
  pg_database_size(current_database()) as size

-- name: health_vacuum
select n_live_tup as live, n_dead_tup as dead, coalesce(last_autovacuum, last_vacuum) as vacuumed
from pg_stat_user_tables where schemaname = $1 and relname = 'executions'

-- name: health_indexes
select c.relname as name, i.indisvalid as is_valid from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = $1::regnamespace

-- name: health_version
select version, routines from {schema}.schema_version

-- What a worker could not write with this role.
-- name: health_rights
select coalesce(array_agg(c.relname::text order by c.relname), '{}') as missing from pg_class c
where c.relnamespace = $1::regnamespace and (
  c.relkind = 'r' and c.relname <> 'schema_version' and not (
    has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
    and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))
  or c.relname = 'executions_now' and not (
    has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'update'))
  or c.relname = 'executions_id_seq' and not has_sequence_privilege(c.oid, 'usage'))

-- By how many seconds the last end, or the last start, is ahead of the clock.
-- name: health_newest
select coalesce(extract(epoch from greatest(
  (select max(ended_at) from {schema}.executions),
  (select inserted_at from {schema}.executions where id = (select max(id) from {schema}.executions))) - {schema}.clock()), 0)::float8
