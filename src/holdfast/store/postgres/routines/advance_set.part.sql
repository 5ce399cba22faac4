-- What an advance `o` writes into its row `e`; the one source for many rows and for one.
status = (case
  when o.status = 'executing' then case
    when e.paused and not coalesce(o.replay, false) and not {include cancel_bars} then 'runnable' else 'executing' end
  when {include cancel_bars} and o.status not in ('done', 'failed', 'cancelled') then 'runnable'
  else o.status end)::{schema}.status,
step = coalesce(o.step, e.step),
state = coalesce(o.state, e.state),
result = o.result,
error = case when o.replay then coalesce(o.error, e.error) else o.error end,
attempt = coalesce(o.attempt, 0),
crashes = case when o.replay then e.crashes else 0 end,
-- What a step that failed was woken by is kept, too: a retry of a machine begins with it.
awaits = case when o.replay or o.status = 'failed' then e.awaits else o.awaits::text[] end,
timed_out = (coalesce(o.replay, false) or o.status = 'failed') and e.timed_out,
children_ready = (coalesce(o.replay, false) or o.status = 'failed') and e.children_ready,
eligible_at = case
  when o.status = 'runnable' and not {include cancel_bars}
    then p_now + coalesce(o.delay, 0) * interval '1 second'
  when o.status = 'executing' and (not e.paused or coalesce(o.replay, false) or {include cancel_bars}) then e.eligible_at
  when o.status in ('done', 'failed', 'cancelled') then e.eligible_at
  else p_now end,
wake_at = case
  when o.status in ('awaiting_signal', 'awaiting_children', 'awaiting_promise') and not {include cancel_bars}
  then coalesce(o.wake_at, p_now + o.wake_after * interval '1 second') end,
locked_by = case
  when o.status = 'executing' and (not e.paused or coalesce(o.replay, false) or {include cancel_bars})
  then e.locked_by end,
digest = coalesce(o.digest, e.digest),
revision = o.revision + 1,
journal_length = e.journal_length + coalesce(o.added, 0),
-- A park that nobody counted anything for waits for no children.
children_pending = coalesce(
  o.pending, case when o.status = 'awaiting_promise' and not coalesce(o.replay, false) then 0 end, e.children_pending),
ended_at = case when o.status in ('done', 'failed', 'cancelled') then p_now end,
updated_at = p_now
