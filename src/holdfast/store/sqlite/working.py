"""Workers and their leases: one row a worker, whatever it holds (ruling E15)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.sqlite.rows import after, names_json
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx


def register(tx: Tx, worker: str, host: str, pid: int, queues: Sequence[str], lease_seconds: float) -> None:
    expires_at = after(tx.now, lease_seconds)
    tx.db.execute(SQL["worker_register"], (worker, host, pid, names_json(queues), tx.now, expires_at))


def beat(tx: Tx, worker: str, lease_seconds: float) -> bool:
    return bool(tx.db.execute(SQL["worker_beat"], (after(tx.now, lease_seconds), worker)).rowcount)
