-- Whether a transaction of another session has touched this ledger and is not over.
select exists (
    select from pg_locks held join pg_class relation on relation.oid = held.relation
    where relation.relnamespace = '{schema}'::regnamespace and held.pid <> pg_backend_pid()
)
