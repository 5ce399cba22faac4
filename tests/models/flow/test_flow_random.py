"""Random graphs with random conditions and failures do what a plain interpreter in memory does."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from holdfast import App, Flow, RetryPolicy, Status
from holdfast.core.codec import ErrorRecord
from holdfast.core.errors import DefinitionError
from holdfast.engine.settings import WorkerSettings
from holdfast.models.flow.audit import audit_flows
from holdfast.models.flow.reading import read_job
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores

ONCE = RetryPolicy(max_attempts=1)


class Node(NamedTuple):
    """`sources` are numbers of earlier nodes; of several it is a join. The rest is what it does."""

    sources: tuple[int, ...]
    optional: frozenset[int]
    is_taken: bool  # the condition of its only edge
    fails: bool
    is_handler: bool  # takes the errors of its only source
    repeats: int  # how often it goes back to itself


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    nodes = [Node((), frozenset(), True, False, False, 0)]
    cycles: list[tuple[int, ...]] = [()]  # the heads that what comes after a node lies in
    for number in range(1, draw(st.integers(1, 9))):
        size = draw(st.sampled_from([1, 2, 3, 3]))
        sources = tuple(sorted(draw(st.sets(st.integers(0, number - 1), min_size=min(size, number), max_size=size))))
        if len({cycles[source] for source in sources}) > 1 or any(nodes[s].is_handler for s in sources):
            sources = sources[:1]
        is_join = len(sources) > 1
        optional = frozenset(draw(st.sets(st.sampled_from(sources)))) if is_join else frozenset()
        node = Node(
            sources,
            optional,
            True if is_join else draw(st.integers(0, 3)) > 0,
            draw(st.integers(0, 4)) == 0,
            not is_join and draw(st.integers(0, 4)) == 0,
            0 if is_join else draw(st.sampled_from([0, 0, 0, 2])),
        )
        if node.is_handler:
            node = node._replace(is_taken=True, repeats=0)
        nodes.append(node)
        around = cycles[sources[0]]
        cycles.append((*around, number) if node.repeats else around)
    return nodes


def interpret(nodes: list[Node]) -> tuple[Counter[str], bool]:
    """What runs how often, and whether an error is left over: a walk in the order of declaration."""
    ran: Counter[str] = Counter()
    failed = False
    done: Counter[int] = Counter()  # how often a node succeeded
    broke: Counter[int] = Counter()
    for number, node in enumerate(nodes):
        if not node.sources:
            times = 1
        elif node.is_handler:
            times = broke[node.sources[0]]
        elif len(node.sources) == 1:
            times = done[node.sources[0]] if node.is_taken else 0
        else:
            # All of one iteration come together, so each has come as often as the others, or never.
            required = [done[source] for source in node.sources if source not in node.optional]
            around = _times_around(nodes, node.sources[0], ran)
            times = min(required, default=around)
        entered = times * (1 + (node.repeats if not node.fails else 0))
        ran[f"n{number}"] = entered
        if node.fails:
            broke[number] = entered
            is_handled = any(other.is_handler and other.sources == (number,) for other in nodes)
            failed = failed or (entered > 0 and not is_handled)
        else:
            done[number] = entered
    return +ran, failed


def _times_around(nodes: list[Node], number: int, ran: Counter[str]) -> int:
    """How many iterations of the cycle around a node there are; one whose head failed is one."""
    while True:
        node = nodes[number]
        if node.repeats:
            return ran[f"n{number}"]
        if not node.sources:
            return 1
        number = node.sources[0]


def build(app: App, nodes: list[Node], ran: Counter[str]) -> Flow:
    flow = app.flow("random")
    made: list[Any] = []
    for number, node in enumerate(nodes):
        made.append(_declare(flow, number, node, made, ran))
        if node.repeats:
            flow.repeat(after=made[number], to=made[number], when=partial(_again, ran, number, node.repeats))
    return flow


def _again(ran: Counter[str], number: int, most: int, _: Any) -> bool:
    """In rounds of one entry and `most` iterations after it."""
    return ran[f"n{number}"] % (most + 1) != 0


def _declare(flow: Flow, number: int, node: Node, made: list[Any], ran: Counter[str]) -> Any:
    name = f"n{number}"

    def work() -> int:
        ran[name] += 1
        if node.fails:
            raise ValueError(name)
        return number

    async def one(value: Any) -> int:
        return work()

    async def caught(error: ErrorRecord) -> int:
        return work()

    async def several() -> int:
        return work()

    if not node.sources:
        return flow.activity(name=name, retry=ONCE)(one)
    sources = [made[source] for source in node.sources]
    if node.is_handler:
        return flow.error(after=sources[0], name=name, retry=ONCE)(caught)
    if len(sources) == 1:
        return flow.activity(after=sources[0], when=lambda _: node.is_taken, name=name, retry=ONCE)(one)
    optional = [made[source] for source in node.optional]
    return flow.join(after=sources, optional=optional, name=name, retry=ONCE)(several)


async def run(nodes: list[Node], stores: Stores) -> None:
    ran: Counter[str] = Counter()
    app = App("random", store=stores.unopened())
    try:
        flow = build(app, nodes, ran)
    except DefinitionError as error:
        if "cannot fill" not in str(error):
            raise
        reject()  # it is refused where it is declared
    await stores.open()
    try:
        handle = await flow.start(0)
        worker = await app.make_worker(WorkerSettings(concurrency=4))
        await worker.open()
        await worker.run_until_idle()
        await worker.stop()
        expected, failed = interpret(nodes)
        assert +ran == expected
        assert await handle.status() is (Status.FAILED if failed else Status.DONE)
        assert await audit_flows(stores.store) == []
        state = await read_job(stores.store, handle.id.to_bytes())
        assert state is not None
        assert state.semaphore == 0
        assert sum(entry.job_closed for found in state.activities for entry in found.entries) == 1
    finally:
        await app.close()
        await stores.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_a_random_graph_does_what_a_plain_interpreter_does(nodes: list[Node]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(run(nodes, SqliteStores(Path(folder))))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=graphs())
def test_so_it_does_on_postgres(postgres_schemas: str, nodes: list[Node]) -> None:
    """Fewer of them: each opens connections of its own."""
    asyncio.run(run(nodes, PostgresStores(postgres_schemas)))
