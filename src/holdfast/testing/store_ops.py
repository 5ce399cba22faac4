"""Operations on a store as data, so that one random history can be played on a model and on any store.

They name executions and claims by number, never by a store's own ids. `store_world.World` plays them on a ledger,
`store_model.Model` in plain Python, and both give the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from holdfast.core.identity import PromiseId
from holdfast.core.status import LIVE, PARKED, Status
from holdfast.store.values import NewExecution
from holdfast.testing.hand import row

# Partition keys stay in the first queue and limits in the second: which of the two holds a key's head up where they
# meet is nobody's promise.
KEYED_QUEUE, LIMITED_QUEUE = "q0", "q1"
QUEUES = (KEYED_QUEUE, LIMITED_QUEUE)
NAMES = ("Known", "Foreign")
# Every scope here has all parked statuses or none together with `executing`: whether a row that parks and is woken
# within one flush was ever outside its scope is nobody's promise.
SCOPES: tuple[tuple[Status, ...], ...] = (
    tuple(sorted(LIVE)),
    (Status.RUNNABLE,),
    (Status.RUNNABLE, Status.EXECUTING, *sorted(PARKED), Status.DONE),
)
# Not a whole number, so that no history of whole seconds ends exactly with a lease.
LEASE_SECONDS = 30.5
MAX_CRASHES = 2
PLENTY = 1_000


class Spec(Struct, frozen=True, kw_only=True):
    """One execution to start. `again` starts one that exists instead."""

    again: int | None = None
    is_keyed: bool = True  # in the queue of partition keys; with `key` None without one
    key: str | None = None
    priority: int = 0
    delay: float = 0.0
    unique: bytes | None = None
    scope: int = 0
    is_foreign: bool = False
    paused: bool = False
    cleans_up: bool = False


class Outcome(Struct, frozen=True, kw_only=True):
    """What a commit does: one of `OUTCOMES`, and what rides on it."""

    kind: str
    names: tuple[str, ...] = ("x",)
    delay: float = 0.0
    wake_after: float | None = None
    children: int = 0
    child_key: str | None = None
    child_unique: bytes | None = None
    quorum: int | None = None
    wait_children: int = 0  # of a call: how many ends of children to wait for
    consumes: bool = False  # all of the inbox that the claim shows
    ignores: bool = False  # the same, at parking (ruling E3)
    signal_to: int | None = None
    signal_name: str = "x"
    signal_dedup: str | None = None
    records: bool = False
    is_behind: bool = False  # of a holder that does not know the row's last commit


# "children" are in a barrier, as a machine's; those of a "call" report, as a workflow's. A "step" adds to its journal,
# a "beat" is of the attempt that is under way.
OUTCOMES = (
    *("next", "keep", "step", "beat", "replay", "await", "children", "call", "sleep"),
    *("done", "fail", "cancel", "strand"),
)


def step_of(number: int, revision: int) -> str | None:
    """Where a "step" of a claim at this revision takes the row; None: not to another."""
    return f"s{number}.{revision}" if revision % 3 else None


class Start(Struct, frozen=True):
    specs: tuple[Spec, ...]


class Register(Struct, frozen=True):
    slot: int


class Beat(Struct, frozen=True):
    slot: int


class Pick(Struct, frozen=True):
    slot: int
    limit: int
    knows_all: bool = True


class Flush(Struct, frozen=True):
    """Claims by number, each at most once; those of other workers are flushed under their own name."""

    commits: tuple[tuple[int, Outcome], ...]


class Deliver(Struct, frozen=True):
    """Execution, name and dedup key of each."""

    signals: tuple[tuple[int, str, str | None], ...]


class Release(Struct, frozen=True):
    claims: tuple[int, ...]


class Reclaim(Struct, frozen=True):
    claim: int


class Disown(Struct, frozen=True):
    slot: int


class Retire(Struct, frozen=True):
    slot: int


class Advance(Struct, frozen=True):
    seconds: float


class Reap(Struct, frozen=True):
    pass


class FireTimers(Struct, frozen=True):
    pass


class Cancel(Struct, frozen=True):
    executions: tuple[int, ...]
    cascade: bool


class Pause(Struct, frozen=True):
    execution: int
    paused: bool


class Resume(Struct, frozen=True):
    execution: int


class Configure(Struct, frozen=True):
    paused: bool
    concurrency: int | None


Op: TypeAlias = (
    Start
    | Register
    | Beat
    | Pick
    | Flush
    | Deliver
    | Release
    | Reclaim
    | Disown
    | Retire
    | Advance
    | Reap
    | FireTimers
    | Cancel
    | Pause
    | Resume
    | Configure
)


def new_row(number: int, spec: Spec) -> NewExecution:
    """The row of the `number`-th start."""
    name = NAMES[spec.is_foreign]
    return row(
        f"e{number}",
        name=name,
        queue=KEYED_QUEUE if spec.is_keyed else LIMITED_QUEUE,
        partition_key=spec.key if spec.is_keyed else None,
        priority=spec.priority,
        delay=spec.delay,
        unique_key=spec.unique,
        unique_scope=SCOPES[spec.scope] if spec.unique is not None else (),
        paused=spec.paused,
        cleans_up=spec.cleans_up,
    )


def child_specs(parent: bytes, next_child: int, number: int, outcome: Outcome) -> Iterator[NewExecution]:
    """The children that claim `number` spawns. A workflow counts by its journal; here its calls count by claims."""
    if outcome.kind not in ("children", "call"):
        return
    first = next_child if outcome.kind == "children" else 1_000 + 10 * number
    for n in range(first, first + outcome.children):
        yield row(
            "child",
            promise=PromiseId.from_bytes(parent).child(n).to_bytes(),
            name=NAMES[0],
            queue=KEYED_QUEUE,
            partition_key=outcome.child_key,
            unique_key=outcome.child_unique,
            unique_scope=SCOPES[0] if outcome.child_unique is not None else (),
            reports=outcome.kind == "call",
        )
