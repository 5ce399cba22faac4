"""Flows: a graph of activities. Ledgers: two of fifteen digits, and a semaphore a job (core.collation).

- `activity.py`, `making.py`: what a node is; `graph.py`: what a graph must be; `fitting.py`: types along an edge
- `flow.py`: what users declare; `start.py`, `registry.py`; `diagram.py`, `drawing.py`
- `message.py`: the rows that move a job; `outcome.py`: what an activity answered; `settling.py`: what follows from it
- `runner.py`: begins jobs; `delivery.py`: a message under a lease, and its commits; `looking.py`: reading together
- `attempts.py`, `work.py`: user code between the legs; `steps.py`: the three steps of Leg2; `transition.py`: both legs
- `ending.py`, `job.py`: the end of a job
- `reading.py`: a job as people see it; `letters.py`: dead letters; `audit.py`: whether all of it agrees
"""
