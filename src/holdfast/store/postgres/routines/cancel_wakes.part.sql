(not e.cancel_requested and e.status in ('runnable', 'awaiting_signal', 'awaiting_children', 'awaiting_promise'))
