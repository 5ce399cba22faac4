"""A scenario for each outcome kind and each thing a person can do to an execution, over the machines of `outcomes`.

A scenario names what it starts by a key and what it sends by a dedup key, so that a client that died says it again.
`SCENARIOS` says how the execution it is about ends; `MAY_DIFFER` what a crash may change.
"""

from __future__ import annotations

import contextlib
from typing import Final

from holdfast import Status, Unique
from holdfast.core.errors import InvalidArgumentError
from holdfast.store.values import Retention
from holdfast.testing.crash import Scenario, Simulation
from tests.simulation.outcomes import (
    HOUR,
    Again,
    Deadline,
    Dropped,
    Fails,
    Family,
    HandleRaises,
    Handles,
    Meddles,
    Nested,
    Packs,
    Quorum,
    Retries,
    Sends,
    Sleeper,
    Steps,
    Waits,
    Work,
    app,
)


async def next_and_done(sim: Simulation) -> None:
    await sim.call(lambda: Steps.options(key="a").start(Work()))
    await sim.work()


async def replay_with_delay(sim: Simulation) -> None:
    await sim.call(lambda: Again.options(key="a").start(Work()))
    for _ in range(3):
        await sim.work()
        await sim.advance(5)


async def stop(sim: Simulation) -> None:
    await sim.call(lambda: Fails.options(key="a").start(Work()))
    await sim.work()


async def exception_through_handle(sim: Simulation) -> None:
    await sim.call(lambda: Handles.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(1)
    await sim.work()


async def handle_that_raises(sim: Simulation) -> None:
    await sim.call(lambda: HandleRaises.options(key="a").start(Work()))
    await sim.work()


async def default_retry(sim: Simulation) -> None:
    await sim.call(lambda: Retries.options(key="a").start(Work()))
    for _ in range(4):
        await sim.work()
        await sim.advance(10)


async def await_then_signal(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: waits.signal("other", 0, dedup_key="0"))
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.work()


async def await_with_the_signal_there(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.call(lambda: waits.signal("stop", 1, dedup_key="1"))
    await sim.work()


async def await_until_its_deadline(sim: Simulation) -> None:
    await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(HOUR)
    await sim.work()


async def await_a_pack(sim: Simulation) -> None:
    packs = await sim.call(lambda: Packs.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: packs.signal("a", dedup_key="1"))
    await sim.work()
    await sim.call(lambda: packs.signal("b", dedup_key="2"))
    await sim.work()


async def signal_from_a_step(sim: Simulation) -> None:
    await sim.call(lambda: Waits.options(key="partner").start(Work()))
    await sim.work()
    await sim.call(lambda: Sends.options(key="a").start(Work(7)))
    await sim.work()


async def children_all(sim: Simulation) -> None:
    await sim.call(lambda: Family.options(key="a").start(Work()))
    await sim.work()


async def children_quorum(sim: Simulation) -> None:
    await sim.call(lambda: Quorum.options(key="a").start(Work()))
    await sim.work()


async def children_deadline(sim: Simulation) -> None:
    await sim.call(lambda: Deadline.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(HOUR)
    await sim.work()


async def children_dropped_by_uniqueness(sim: Simulation) -> None:
    await sim.call(lambda: Sleeper.options(key="first", unique=Unique(key="only")).start(Work()))
    await sim.call(lambda: Dropped.options(key="a").start(Work()))
    await sim.work()


async def children_nested(sim: Simulation) -> None:
    await sim.call(lambda: Nested.options(key="a").start(Work(2)))
    await sim.work()


async def cancel_before_it_runs(sim: Simulation) -> None:
    steps = await sim.call(lambda: Steps.options(key="a").start(Work()))
    await sim.call(lambda: steps.cancel())
    await sim.work()


async def cancel_while_parked(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: waits.signal("other", dedup_key="0"))
    await sim.call(lambda: waits.cancel())
    await sim.work()


async def cancel_cascades(sim: Simulation) -> None:
    deadline = await sim.call(lambda: Deadline.options(key="a").start(Work()))
    await sim.work()
    await sim.call(lambda: deadline.cancel(cascade=True))
    await sim.work()


async def cancel_of_a_child_opens_the_barrier(sim: Simulation) -> None:
    await sim.call(lambda: Deadline.options(key="a").start(Work()))
    await sim.work()
    child = app.handle(app.handle("Deadline", key="a").id.child(0))
    await sim.call(lambda: child.cancel())
    await sim.work()


async def cancel_while_executing(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel",))))
    await sim.work()


async def cancel_instead_of_parking(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel", "park"))))
    await sim.work()


async def cancel_instead_of_spawning(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel", "spawn"))))
    await sim.work()


async def cancel_of_a_paused_one(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("cancel", "pause", "park"))))
    await sim.work()


async def pause_while_executing(sim: Simulation) -> None:
    meddles = await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("pause",))))
    await sim.work()

    async def resume() -> None:
        with contextlib.suppress(InvalidArgumentError):  # a second attempt does not pause, and has ended
            await meddles.resume()

    await sim.call(resume)
    await sim.work()


async def signal_before_parking(sim: Simulation) -> None:
    await sim.call(lambda: Meddles.options(key="a").start(Work(seen=("signal", "park"))))
    await sim.work()


async def pause_and_resume(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.call(lambda: waits.pause())
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.work()
    await sim.call(lambda: waits.resume())
    await sim.work()


async def partition_key(sim: Simulation) -> None:
    for n in range(3):
        await sim.call(lambda n=n: Steps.options(key=f"k{n}", partition_key="depot", priority=-n).start(Work(n)))  # type: ignore[misc]
    await sim.call(lambda: Steps.options(key="free").start(Work()))
    await sim.work()


async def drain_and_restart(sim: Simulation) -> None:
    waits = await sim.call(lambda: Waits.options(key="a").start(Work()))
    await sim.work()
    await sim.restart()
    await sim.call(lambda: waits.signal("go", 1, dedup_key="1"))
    await sim.work()
    await sim.restart()


async def retention(sim: Simulation) -> None:
    await sim.call(lambda: Steps.options(key="a").start(Work()))
    await sim.work()
    await sim.advance(HOUR)
    await sim.call(lambda: Steps.options(key="b").start(Work()))
    await sim.work()

    async def purge() -> int:
        return await (await sim.store()).purge(Retention(age_seconds=HOUR / 2), 10)

    await sim.call(purge)


# Each scenario, and how the execution it is about ends.
SCENARIOS: Final[dict[Scenario, tuple[str, str, Status, object]]] = {
    next_and_done: ("Steps", "a", Status.DONE, ["one", "two"]),
    replay_with_delay: ("Again", "a", Status.DONE, 2),
    stop: ("Fails", "a", Status.FAILED, None),
    exception_through_handle: ("Handles", "a", Status.DONE, 11),
    handle_that_raises: ("HandleRaises", "a", Status.FAILED, None),
    default_retry: ("Retries", "a", Status.FAILED, None),
    await_then_signal: ("Waits", "a", Status.DONE, [["parked", "go=1"], ["other"]]),
    await_with_the_signal_there: ("Waits", "a", Status.DONE, [["parked", "stop=1"], []]),
    await_until_its_deadline: ("Waits", "a", Status.DONE, [["parked", "timed out"], []]),
    await_a_pack: ("Packs", "a", Status.DONE, [["a", "b"], 0]),
    signal_from_a_step: ("Waits", "partner", Status.DONE, [["parked", "go=7"], []]),
    signal_before_parking: ("Meddles", "a", Status.DONE, ["go"]),
    children_all: (
        "Family",
        "a",
        Status.DONE,
        [
            ["[['Leaf', 'done', 0], ['Leaf', 'failed', None], ['Leaf', 'done', 20]]"],
            [["Leaf", "done", 80]],
        ],
    ),
    children_quorum: (
        "Quorum",
        "a",
        Status.DONE,
        [["Leaf", "done", 20], ["Sleeper", "awaiting_signal", None]],
    ),
    children_deadline: ("Deadline", "a", Status.DONE, [True, [["Sleeper", "awaiting_signal", None]]]),
    children_dropped_by_uniqueness: ("Dropped", "a", Status.DONE, [["[['Leaf', 'done', 40]]"], []]),
    children_nested: (
        "Nested",
        "a",
        Status.DONE,
        [["Nested", "done", [["Leaf", "done", 0], ["Leaf", "done", 60]]], ["Leaf", "done", 60]],
    ),
    cancel_before_it_runs: ("Steps", "a", Status.CANCELLED, None),
    cancel_while_parked: ("Waits", "a", Status.CANCELLED, None),
    cancel_while_executing: ("Meddles", "a", Status.CANCELLED, None),
    cancel_instead_of_parking: ("Meddles", "a", Status.CANCELLED, None),
    cancel_instead_of_spawning: ("Meddles", "a", Status.CANCELLED, None),
    cancel_of_a_paused_one: ("Meddles", "a", Status.CANCELLED, None),
    cancel_cascades: ("Deadline", "a", Status.CANCELLED, None),
    cancel_of_a_child_opens_the_barrier: ("Deadline", "a", Status.DONE, [False, [["Sleeper", "cancelled", None]]]),
    pause_and_resume: ("Waits", "a", Status.DONE, [["parked", "go=1"], []]),
    pause_while_executing: ("Meddles", "a", Status.DONE, []),
    partition_key: ("Steps", "k1", Status.DONE, ["one", "two"]),
    drain_and_restart: ("Waits", "a", Status.DONE, [["parked", "go=1"], []]),
    retention: ("Steps", "b", Status.DONE, ["one", "two"]),
}
# What a crash may change of these: a crash is an attempt (seed section 4.3), and the default policy counts attempts; an
# execution whose cancel was asked for ends at its next claim, whether or not the step that ran then was recorded.
MAY_DIFFER: Final[dict[Scenario, frozenset[str]]] = {
    default_retry: frozenset({"revision"}),
    cancel_while_executing: frozenset({"revision", "step", "history"}),
    cancel_instead_of_parking: frozenset({"revision", "step", "history"}),
    cancel_instead_of_spawning: frozenset({"revision", "step", "history"}),
    cancel_of_a_paused_one: frozenset({"revision", "step", "history"}),
}
