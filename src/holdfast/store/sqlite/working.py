"""Workers and their leases: one row a worker, whatever it holds (ruling E15)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.sqlite.rows import after, names_json
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Registered


def register(tx: Tx, worker: str, host: str, pid: int, queues: Sequence[str], lease_seconds: float) -> Registered:
    expires_at = after(tx.now, lease_seconds)
    tx.db.execute(SQL["worker_register"], (worker, host, pid, names_json(queues), tx.now, expires_at))
    (has_run_out,) = tx.db.execute(SQL["worker_run_out"], (tx.now,)).fetchone()
    return Registered(tx.now, bool(has_run_out))


def beat(tx: Tx, worker: str, lease_seconds: float) -> bool:
    return bool(tx.db.execute(SQL["worker_beat"], (after(tx.now, lease_seconds), worker)).rowcount)
