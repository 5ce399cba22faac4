-- No plan may go by this index for an id. See schema.sql.

drop index {schema}.executions_named;
create index executions_named on {schema}.executions ((kind || '/' || name), id) where name <> '';
