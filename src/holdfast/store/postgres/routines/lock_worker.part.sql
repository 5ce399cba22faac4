-- A row must never be leased by a worker whose lease was taken away: the reaper passes over this lock, who retires waits
-- for it. We wait for neither of them: what is locked here already may be what they, or others before them, wait for.
-- Once there is something to lease, so that an idle worker, which comes by again and again, writes nothing.
perform from {schema}.workers w where w.id = p_worker for key share skip locked;
if not found and p_limit > 0 then
  next_due := -1;
  return next;
  return;
end if;
