-- One notification a commit at most, and only where someone is idle: NOTIFY takes a lock that serialises commits.
-- Who is idle is a hint and no lease, so it goes by the real time even where a test holds the store's clock.

create or replace function {schema}.wake_1(p_topic text) returns void
language plpgsql as $$
begin
  perform pg_notify('{schema}', p_topic)
    where exists (select from {schema}.listeners where topic = p_topic and expires_at > clock_timestamp());
end $$;
