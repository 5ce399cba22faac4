"""The JSON that `--json` prints, one function a shape. docs/cli.md documents them; names are never changed.

Times are ISO 8601 in UTC. Payloads (state, result, signals) appear as the JSON they are, not as text in text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from holdfast.cli.output import exact
from holdfast.core.identity import PromiseId
from holdfast.store.values import ExecutionView, QueueStats, Signal, Transition, WorkerInfo

Shape: TypeAlias = dict[str, Any]


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def id_of(view: ExecutionView) -> PromiseId:
    return PromiseId.from_bytes(view.promise)


def label_of(view: ExecutionView) -> str:
    return id_of(view).label(view.name)


def summary(view: ExecutionView) -> Shape:
    """What `list` says of an execution."""
    return {
        "id": str(id_of(view)),
        "label": label_of(view),
        "kind": view.kind,
        "name": view.name,
        "version": view.version,
        "status": view.status.value,
        "step": view.step,
        "attempt": view.attempt,
        "queue": view.queue,
        "priority": view.priority,
        "partition_key": view.partition_key,
        "paused": view.paused,
        "cancel_requested": view.cancel_requested,
        "parent": None if view.parent is None else str(PromiseId.from_bytes(view.parent)),
        "error": _parsed(view.error),
        "attributes": _parsed(view.attributes) or {},
        "inserted_at": exact(view.inserted_at),
        "started_at": exact(view.started_at),
        "ended_at": exact(view.ended_at),
        "updated_at": exact(view.updated_at),
    }


def details(view: ExecutionView, inbox: Sequence[Signal], children: Sequence[ExecutionView]) -> Shape:
    """What `show` says: the summary and all the rest."""
    return summary(view) | {
        "state": _parsed(view.state),
        "result": _parsed(view.result),
        "crashes": view.crashes,
        "revision": view.revision,
        "locked_by": view.locked_by,
        "awaits": None if view.awaits is None else list(view.awaits),
        "children_pending": view.children_pending,
        "unique_key": None if view.unique_key is None else view.unique_key.decode("utf-8", "backslashreplace"),
        "digest": view.digest,
        "eligible_at": exact(view.eligible_at),
        "wake_at": exact(view.wake_at),
        "inbox": [signal(found) for found in inbox],
        "children": [summary(child) for child in children],
    }


def signal(found: Signal) -> Shape:
    return {"name": found.name, "payload": _parsed(found.payload)}


def transition(line: Transition) -> Shape:
    return {
        "revision": line.revision,
        "at": exact(line.at),
        "step": line.step,
        "attempt": line.attempt,
        "outcome": line.outcome,
        "next_step": line.next_step,
        "error": _parsed(line.error),
    }


def queue(stats: QueueStats) -> Shape:
    settings = stats.settings
    return {
        "name": settings.name,
        "paused": settings.paused,
        "concurrency": settings.concurrency,
        "rate": settings.rate,
        "rate_seconds": None if settings.rate is None else settings.rate_seconds,
        "runnable": stats.runnable,
        "executing": stats.executing,
        "capped": stats.capped,
        "oldest_eligible_at": exact(stats.oldest_eligible_at),
    }


def worker(info: WorkerInfo) -> Shape:
    return {
        "id": info.id,
        "host": info.host,
        "pid": info.pid,
        "queues": list(info.queues),
        "executing": info.executing,
        "is_expired": info.is_expired,
        "started_at": exact(info.started_at),
        "expires_at": exact(info.expires_at),
    }
