"""Tasks for other processes, which import them by name."""

from __future__ import annotations

import os

from holdfast import App, RetryPolicy

app = App("process-tasks", store="unused.db")


@app.task(executor="process", retry=RetryPolicy(initial_delay=1, jitter=0, max_attempts=2))
def pid_and(number: int) -> list[int]:
    return [os.getpid(), number]


@app.task(executor="process", retry=RetryPolicy(initial_delay=1, jitter=0))
def die_unless(path: str) -> str:
    """Kills its process the first time."""
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(9)
    return "survived"


@app.task(executor="process", retry=RetryPolicy(max_attempts=1))
def divide(number: int) -> float:
    return 1 / number
