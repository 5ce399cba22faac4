"""What is refused when a flow is declared, with a sentence that says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import pytest

from holdfast import App, Flow, RetryPolicy
from holdfast.core.codec import ErrorRecord
from holdfast.core.errors import CallNotAllowedError, DefinitionError, InvalidArgumentError
from holdfast.models.flow.activity import Activity
from holdfast.models.flow.fitting import fits


@pytest.fixture
def flow() -> Flow:
    return App("definitions", store="unused.db").flow("order")


def number(flow: Flow, name: str, **settings: Any) -> Activity[..., int]:
    async def work(n: int) -> int:
        return n

    work.__name__ = name
    return flow.activity(**settings)(work)


async def word(s: str) -> str:
    return s


async def pair(a: int, b: int) -> int:
    return a + b


def test_types_must_fit_along_an_edge(flow: Flow) -> None:
    first = number(flow, "first")
    with pytest.raises(DefinitionError, match="first answers int, and s of word is str"):
        flow.activity(after=first)(word)


def test_types_must_fit_along_a_back_edge(flow: Flow) -> None:
    first = number(flow, "first")

    @flow.activity(after=first)
    async def text(n: int) -> str:
        return str(n)

    with pytest.raises(DefinitionError, match="from text to first"):
        flow.repeat(after=text, to=first, when=lambda s: bool(s))


def test_an_activity_comes_after_one_of_its_own_flow(flow: Flow) -> None:
    """So nothing can be declared that no entry leads to."""
    other = number(App("other", store="unused.db").flow("other"), "first")
    with pytest.raises(DefinitionError, match="no activity of the flow order"):
        number(flow, "second", after=other)
    with pytest.raises(DefinitionError, match="no activity of the flow order"):
        number(flow, "second", after="first")


def test_names_are_unique(flow: Flow) -> None:
    number(flow, "first")
    with pytest.raises(DefinitionError, match="declared twice"):
        number(flow, "first")


def test_a_cycle_needs_a_way_out(flow: Flow) -> None:
    first = number(flow, "first")
    with pytest.raises(DefinitionError, match="no way out"):
        flow.repeat(after=first, to=first, when=None)  # type: ignore[arg-type]


def test_a_back_edge_leads_to_what_comes_before(flow: Flow) -> None:
    first, second = number(flow, "first"), number(flow, "second")
    with pytest.raises(DefinitionError, match="makes no cycle"):
        flow.repeat(after=first, to=second, when=bool)


def test_a_join_of_a_cycle_and_what_is_outside_cannot_fill(flow: Flow) -> None:
    first = number(flow, "first")
    polling, plain = number(flow, "polling", after=first), number(flow, "plain", after=first)
    flow.repeat(after=polling, to=polling, when=bool)
    with pytest.raises(DefinitionError, match=r"cannot fill.*same cycles"):
        flow.join(after=[polling, plain])(pair)


def test_a_cycle_around_half_of_a_join_is_refused(flow: Flow) -> None:
    first = number(flow, "first")
    left, right = number(flow, "left", after=first), number(flow, "right", after=first)
    flow.join(after=[left, right])(pair)
    with pytest.raises(DefinitionError, match="cannot fill"):
        flow.repeat(after=left, to=left, when=bool)
    flow.repeat(after=left, to=first, when=bool)


def test_a_join_of_success_and_failure_cannot_fill(flow: Flow) -> None:
    first = number(flow, "first")
    good = number(flow, "good", after=first)

    @flow.error(after=first)
    async def bad(error: ErrorRecord) -> int:
        return 0

    with pytest.raises(DefinitionError, match="never both happen"):
        flow.join(after=[good, bad])(pair)

    @flow.join(after=[good, bad], optional=[good, bad])
    async def either(a: int | None, b: int | None) -> int:
        return a or b or 0


JOINS: dict[str, Callable[[Flow, Any, Any], object]] = {
    "two activities or more": lambda flow, a, b: flow.join(after=[a])(pair),
    "twice": lambda flow, a, b: flow.join(after=[a, a])(pair),
    "but not in `after`": lambda flow, a, b: flow.join(after=[a, b], optional=[number(flow, "c")])(pair),
    "make it `| None`": lambda flow, a, b: flow.join(after=[a, b], optional=[b])(pair),
    "is given 2": lambda flow, a, b: flow.join(after=[a, b])(word),
    "b of pair is int": lambda flow, a, b: flow.join(after=[a, flow.activity(after=a)(_to_text)])(pair),
}


async def _to_text(n: int) -> str:
    return str(n)


@pytest.mark.parametrize("reason", JOINS)
def test_joins_that_make_no_sense(flow: Flow, reason: str) -> None:
    a, b = number(flow, "a"), number(flow, "b")
    with pytest.raises(DefinitionError, match=reason):
        JOINS[reason](flow, a, b)


async def _never(n: int) -> bool:
    return False


OTHERS: dict[str, Callable[[Flow, Any], object]] = {
    "is a function": lambda flow, a: flow.activity(3),  # type: ignore[call-overload]
    "there is no answer": lambda flow, a: number(flow, "b", when=bool),
    "both entries": lambda flow, a: flow.activity(word),
    "name of a signal": lambda flow, a: flow.hook(after=a, signal=""),
    "classes of exceptions": lambda flow, a: flow.error(after=a, catches=3),  # type: ignore[arg-type]
    "annotate it with ErrorRecord": lambda flow, a: flow.error(after=a)(word),
    "max_elapsed": lambda flow, a: number(flow, "b", after=a, retry=RetryPolicy(max_elapsed=3)),
    "takes a flow": lambda flow, a: flow.subflow(a, after=a),
    "must have an entry": lambda flow, a: flow.subflow(App("x", store="unused.db").flow("empty"), after=a),
    "one parameter, the job": lambda flow, a: flow.on_complete(pair),
    "takes 2 parameters": lambda flow, a: flow.activity(after=a)(pair),
    "`when` of the activity of order is True; give a plain function": lambda flow, a: flow.activity(
        after=a,
        when=True,  # type: ignore[call-overload]
    ),
    "`when` of the hook of order": lambda flow, a: flow.hook(after=a, signal="go", when=1),  # type: ignore[arg-type]
    "`when` of the sub-flow of order": lambda flow, a: flow.subflow(flow, after=a, when=1),  # type: ignore[arg-type]
    "`when` of the cycle .* give a plain function": lambda flow, a: flow.repeat(
        after=a,
        to=a,
        when=_never,  # type: ignore[arg-type]
    ),
    "start itself without end": lambda flow, a: flow.subflow(flow, after=a),
    "use `join`": lambda flow, a: number(flow, "b", after=[a]),
    "of 1 to 200 characters": lambda flow, a: flow.hook(after=a, signal="a\0b"),
    "a join: a cycle cannot": lambda flow, a: flow.repeat(
        after=(j := flow.join(after=[a, number(flow, "b", after=a)])(pair)), to=j, when=bool
    ),
}


@pytest.mark.parametrize("reason", OTHERS)
def test_other_mistakes(flow: Flow, reason: str) -> None:
    first = number(flow, "first")
    with pytest.raises(DefinitionError, match=reason):
        OTHERS[reason](flow, first)


def test_flows_that_start_each_other_without_a_condition_are_refused() -> None:
    app = App("loops", store="unused.db")
    flows = [app.flow(name) for name in ("one", "two", "three")]
    firsts = [number(flow, "first") for flow in flows]
    for at in (0, 1):
        flows[at].subflow(flows[at + 1], after=firsts[at])
    with pytest.raises(DefinitionError, match="three would start itself without end, by way of one"):
        flows[2].subflow(flows[0], after=firsts[2])
    flows[2].subflow(flows[0], after=firsts[2], when=bool)
    flows[2].subflow(flows[1], after=firsts[2], name="again", when=bool)


def test_one_completion_task_a_flow(flow: Flow) -> None:
    async def done(job: Any) -> None: ...

    flow.on_complete(done)
    with pytest.raises(DefinitionError, match="has a completion task already"):
        flow.on_complete(done)


def test_two_flows_of_one_name_are_refused() -> None:
    app = App("twice", store="unused.db")
    app.flow("order")
    app.flow("order", version=2)
    with pytest.raises(DefinitionError, match="declared twice"):
        app.flow("order")


async def test_an_activity_can_be_called_like_its_function(flow: Flow) -> None:
    first = number(flow, "first")
    assert await first(3) == 3
    with pytest.raises(CallNotAllowedError, match="start it with"):
        await flow(1)


async def test_a_flow_takes_no_partition_key(flow: Flow) -> None:
    number(flow, "first")
    with pytest.raises(InvalidArgumentError, match="partition_key"):
        await flow.options(partition_key="k").start(1)


async def test_a_flow_without_activities_cannot_be_started(flow: Flow) -> None:
    with pytest.raises(DefinitionError, match="has no activity yet"):
        await flow.start(1)


@dataclass
class Base: ...


@dataclass
class Derived(Base): ...


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (int, int, True),
        (int, float, True),
        (int, str, False),
        (Derived, Base, True),
        (Base, Derived, False),
        (int, int | None, True),
        (int | None, int, False),
        (list[int], list[str], False),
        (list[int], list[Any], True),
        (Any, str, True),
        (str, object, True),
        (None, str, False),
        (dict[str, int], dict[str, float], True),
    ],
)
def test_what_fits(source: Any, target: Any, expected: bool) -> None:
    assert fits(source, target) is expected


def test_a_diagram_shows_every_edge(flow: Flow) -> None:
    first = number(flow, "first")
    left = number(flow, "left", after=first, when=bool)
    right = number(flow, "right", after=first)
    joined = flow.join(after=[left, right])(pair)

    @flow.hook(after=joined, signal='say "go"')
    async def wait(n: int, s: str) -> int:
        return n

    @flow.error(after=joined, catches=ValueError)
    async def sorry(error: ErrorRecord) -> str:
        return ""

    flow.repeat(after=wait, to=first, when=bool)

    async def done(job: Any) -> None: ...

    flow.on_complete(done)
    assert flow.diagram() == (
        "flowchart TD\n"
        '    n0["first"]\n'
        '    n1["left"]\n'
        '    n2["right"]\n'
        '    n3{{"pair"}}\n'
        '    n4(["wait<br/>waits for say #quot;go#quot;"])\n'
        '    n5>"sorry"]\n'
        '    n0 -. "if" .-> n1\n'
        "    n0 --> n2\n"
        "    n1 --> n3\n"
        "    n2 --> n3\n"
        "    n3 --> n4\n"
        '    n3 -. "ValueError" .-> n5\n'
        '    n4 == "again" ==> n0\n'
        '    done(("done"))\n'
        "    n4 --> done\n"
        "    n5 --> done\n"
    )
    drawn = ElementTree.fromstring(flow.diagram("svg"))
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert sorted(text or "" for text in texts) == ["first", "left", "pair", "right", "sorry", "wait"]
    with pytest.raises(InvalidArgumentError, match="mermaid"):
        flow.diagram("png")
