-- Vacuum comes before a fifth of the ledger has been through. See schema.sql.

alter table {schema}.executions set (autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_scale_factor = 0.01);
