"""A whole ledger as plain values, to compare what two runs left behind.

Times, leases and attempts are not in it: a run with a crash takes longer and tries more often. `revision` is: it
counts the commits of an execution, so a commit that was made twice, or lost, shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from holdfast.core.error_record import decode_error
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView
from holdfast.testing.audit import all_views

Facts: TypeAlias = dict[str, object]
Snapshot: TypeAlias = dict[str, Facts]

_COPIED: Final = (
    "kind",
    "name",
    "version",
    "step",
    "status",
    "state",
    "result",
    "queue",
    "priority",
    "partition_key",
    "revision",
    "awaits",
    "barrier_round",
    "cancel_requested",
    "paused",
    "unique_key",
    "digest",
    "attributes",
)


async def snapshot(store: Store) -> Snapshot:
    """Every execution by its id, with its inbox and history."""
    return {str(PromiseId.from_bytes(view.promise)): await _facts(store, view) for view in await all_views(store)}


async def _facts(store: Store, view: ExecutionView) -> Facts:
    facts: Facts = {name: getattr(view, name) for name in _COPIED}
    facts["parent"] = None if view.parent is None else str(PromiseId.from_bytes(view.parent))
    facts["error"] = _error(view.error)
    facts["inbox"] = [(signal.name, signal.payload) for signal in await store.inbox(view.promise)]
    facts["history"] = [
        (line.revision, line.step, line.outcome, line.next_step, _error(line.error))
        for line in await store.history(view.promise)
    ]
    if view.status is Status.AWAITING_CHILDREN:  # what is left of a barrier that is open says nothing
        facts["children_pending"] = view.children_pending
    return facts


def _error(text: str | None) -> str | None:
    return None if text is None else str(decode_error(text))


def differences(expected: Snapshot, found: Snapshot, ignore: Collection[str] = ()) -> list[str]:
    """What differs, as sentences; `ignore` names facts that may."""
    lines = [f"{_label(name, expected[name])} is missing" for name in sorted(expected.keys() - found.keys())]
    lines += [f"{_label(name, found[name])} should not exist" for name in sorted(found.keys() - expected.keys())]
    for name in sorted(expected.keys() & found.keys()):
        before, after = expected[name], found[name]
        lines += [
            f"{_label(name, before)}: {fact} should be {before.get(fact)!r} and is {after.get(fact)!r}"
            for fact in sorted(before.keys() | after.keys())
            if fact not in ignore and before.get(fact) != after.get(fact)
        ]
    return lines


def _label(name: str, facts: Mapping[str, object]) -> str:
    root, dot, path = name.partition(".")
    return f"{facts['name']}/{root[:8]}{dot}{path}"
