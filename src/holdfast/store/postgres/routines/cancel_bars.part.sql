(e.cancel_requested and not (e.cleans_up and coalesce(o.knows, false)))
