"""Batches: one function over many items; each reaches one terminal state and is committed once, in order.

- `definition.py`: what `@app.batch` makes, `Skip`, the registry; `spec.py`: what a run's row says of its source
- `start.py`, `feeding.py`: starting a run and feeding it; `run.py`: a started run, as its starter holds it
- `coordinator.py`: works on the run's row: takes in, dispatches, commits in order; `sources.py`, `sinks.py`
- `chunk_runner.py`, `chunk_run.py`, `chunk_items.py`: works on a chunk; `pool.py`: items at once in a worker
- `packing.py`: states as bytes; `items.py`: outcomes as people read them; `audit.py`
- `status.py`: counters, rate, what the head waits for, a picture of the run
"""
