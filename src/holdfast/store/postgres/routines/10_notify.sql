-- One notification a commit at most, and only where someone is idle: NOTIFY takes a lock that serialises commits.

create or replace function {schema}.wake_1(p_topic text, p_now timestamptz) returns void
language plpgsql as $$
begin
  if exists (select from {schema}.listeners where topic = p_topic and expires_at > p_now) then
    perform pg_notify('{schema}', p_topic);
  end if;
end $$;
