"""Tasks for other processes, which import them by name."""

from __future__ import annotations

import os

from holdfast import App, RetryPolicy, current

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


class DeclinedError(Exception):
    """As many are written: pickle calls it with one argument, and it takes two."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


@app.task(executor="process", retry=RetryPolicy(initial_delay=1, jitter=0, max_attempts=2), raises=(DeclinedError,))
def decline_at_last() -> None:
    call = current()
    if call.attempt == 1:
        call.heartbeat({"key": call.idempotency_key, "pid": os.getpid()})
        call.heartbeat()
        raise ValueError("try again")
    assert call.progress["key"] == call.idempotency_key == call.promise
    raise DeclinedError(call.attempt, call.execution)


@app.task(executor="process", heartbeat_timeout=60, retry=RetryPolicy(max_attempts=1))
def beat(times: int) -> int:
    for number in range(times):
        current().heartbeat(number)
    return times
