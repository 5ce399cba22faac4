"""The worker process of the demo: `python -m holdfast.cli.demo.worker`, started by `process`.

It is an ordinary worker, and ends by itself when its parent is gone: then its standard input is at its end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from holdfast.app import DATABASE_VARIABLE
from holdfast.cli.demo.machines import build_app
from holdfast.cli.worker import run_on_fast_loop
from holdfast.engine.settings import WorkerSettings

LEASE_SECONDS = 2.0  # short, so that the work of a killed worker is soon taken over
CONCURRENCY = 20


async def work(database: str, queue: str, audit: str, work_seconds: float) -> None:
    app = build_app(database, queue, Path(audit), work_seconds)
    async with app:
        worker = await app.make_worker(
            WorkerSettings(queues=[queue], concurrency=CONCURRENCY, lease_seconds=LEASE_SECONDS, drain_seconds=5)
        )
        await worker.run()


def _end_with_parent() -> None:
    # Past the buffer of Python: who waits in `sys.stdin` holds its lock, without which Python aborts at its end.
    while os.read(sys.stdin.fileno(), 1_024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s")
    settings: dict[str, Any] = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run_on_fast_loop(lambda: work(os.environ[DATABASE_VARIABLE], **settings))


if __name__ == "__main__":
    main()
