-- The revision of a held row `e`, which may be behind its journal (store/behind.py).
coalesce(case when e.journal_length > 0 then (
  select j.revision from {schema}.journal j where j.execution_id = e.id and j.first >= e.journal_length
  order by j.first desc limit 1) end, e.revision)
