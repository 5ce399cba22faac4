-- What is started in bulk has no entry of its own in the index of names. See schema.sql.

alter table {schema}.executions add column listed boolean not null default true;

drop index {schema}.executions_named;
create index executions_named on {schema}.executions ((kind || '/' || name), id) where listed;

create table {schema}.crowds (
  definition text not null,
  block bigint not null
);
create index crowds_of on {schema}.crowds (definition, block);
