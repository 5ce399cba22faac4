-- The statements that empty the ledger, as text: SQLite has no loop. Tables that a test made in its file are dropped.
select group_concat(iif(name in ({tables}, 'sqlite_sequence'), 'delete from', 'drop table') || ' "' || name || '";', ' ')
from sqlite_schema where type = 'table' and name <> 'schema_version'
