-- Every routine waits for a lock and then looks again, in a later statement: at any other level that would be a look at
-- the time before it waited, and a signal could be missed for ever (ruling E2).
-- name: connect_isolation
set session characteristics as transaction isolation level read committed

-- name: connect_default_isolation
select current_setting('default_transaction_isolation')

-- name: connect_session
select pg_backend_pid()
