"""Machines and flows as graphs: from their code, from what was recorded, with every ledger decoded."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from holdfast import App, Await, Done, Machine, MachineContext, Next, Outcome, Stop, step
from holdfast.core.collation.ledger import ActivityLedger
from holdfast.core.status import Status
from holdfast.models.machine.definition import definition_of
from holdfast.store.flows import (
    ActivityView,
    ArrivalView,
    FailureView,
    GuidView,
    JobRecords,
    MessageView,
    SemaphoreView,
)
from holdfast.store.values import Transition
from holdfast.views.flow_job import decoded, graph_of, picture_of
from holdfast.views.machine_graph import step_graph

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Parcel(Machine[int]):
    @step(initial=True)
    async def pack(self, ctx: MachineContext[int]) -> Outcome:
        return Await("go", self.send, ctx.state) if ctx.state else Next(step="send", state=1)

    @step
    async def send(self, ctx: MachineContext[int]) -> Outcome:
        return Done() if ctx.state else Stop("lost")


def line(source: str, target: str | None, outcome: str) -> Transition:
    return Transition(revision=1, at=NOW, step=source, outcome=outcome, next_step=target, attempt=0, error=None)


def test_edges_of_a_machine_are_read_from_its_code() -> None:
    App("graphs", "never-opened.db").machine(Parcel)
    graph = step_graph(definition_of(Parcel), [], "")
    assert graph.steps == ["pack", "send", "done", "failed"]
    assert {(edge.source, edge.target) for edge in graph.edges} == {
        ("pack", "send"), ("send", "done"), ("send", "failed"),
    }  # fmt: skip


def test_without_its_code_the_history_shows_the_way() -> None:
    history = [line("a", "b", "Next"), line("b", "b", "Replay"), line("b", "a", "Next"), line("a", "b", "Next")]
    graph = step_graph(None, [*history, line("b", None, "Done")], "b")
    assert not graph.is_from_code
    assert [(edge.source, edge.target, edge.times) for edge in graph.edges] == [
        ("a", "b", 2), ("b", "a", 1), ("b", "done", 1),
    ]  # fmt: skip


def test_fifteen_digits_are_decoded_in_their_order() -> None:
    digits = decoded(ActivityLedger.parse("002110100000007"))
    assert "".join(part.text for part in digits) == "002110100000007"
    assert [(part.value, part.is_marker) for part in digits] == [
        (2, False), (1, True), (1, True), (0, True), (1, True), (7, False),
    ]  # fmt: skip


def records() -> JobRecords:
    def message(activity: str, status: Status) -> MessageView:
        state = f'{{"activity":"{activity}","queue":"default"}}'
        return MessageView(
            promise=bytes(48), step="work", status=status, state=state, error=None, attempt=0, eligible_at=NOW
        )

    return JobRecords(
        activities=[
            ActivityView("a", "", 1_111_000_000_001),
            ActivityView("b", "a=0", 1_100_000_000_000),
            ActivityView("c", "", 1_100_000_000_000),
            ActivityView("d", "", 1_100_000_000_000),
        ],
        guids=[
            GuidView(b"2", "a", "", 2, 0, '{"value":"second","taken":["b"]}'),
            GuidView(b"1", "a", "", 1, 0, '{"value":1}'),
        ],
        semaphores=[SemaphoreView("", "", 2), SemaphoreView("d", "", 1)],
        arrivals=[ArrivalView("d", "", "a", "1"), ArrivalView("d", "", "b", None)],
        failures=[FailureView("b", "a=0", '{"type":"E","message":"no"}')],
        messages=[message("c", Status.EXECUTING), message("d", Status.STRANDED)],
    )


def test_a_job_is_told_by_its_ledgers_and_messages() -> None:
    picture = picture_of(records(), None)
    assert [(found.activity, found.state) for found in picture.activities] == [
        ("a", "done"), ("b", "failed"), ("c", "working"), ("d", "dead"),
    ]  # fmt: skip
    assert picture.activities[0].answers == ["1", '"second"']
    assert picture.semaphore == 2
    assert [(join.activity, join.value, join.arrived) for join in picture.joins] == [("d", 1, ["a", "b (skipped)"])]
    assert [letter.activity for letter in picture.dead_letters] == ["d"]
    assert picture.has_dimensions
    assert {(edge.source, edge.target) for edge in picture.graph.edges} == {("a", "d"), ("b", "d")}


def test_a_message_that_cannot_be_read_is_shown_as_the_dead_letter_that_it_is() -> None:
    job = records()
    job.messages.append(replace(job.messages[-1], state="{}"))
    assert [letter.activity for letter in picture_of(job, None).dead_letters] == ["d", "?"]


def test_the_graph_of_a_flow_is_as_it_is_declared() -> None:
    flow = App("flows", "never-opened.db").flow("order")

    @flow.activity(name="reserve")
    async def reserve(number: int) -> int:
        return number

    @flow.activity(name="pick", after=reserve, when=lambda number: number > 0)
    async def pick(number: int) -> int:
        return number - 1

    @flow.hook(name="sign", after=pick, signal="signature")
    async def sign(number: int, name: str) -> str:
        return name

    flow.repeat(after=pick, to=pick, when=lambda left: left > 0)
    graph = graph_of(flow)
    assert [(node.name, node.note) for node in graph.nodes] == [
        ("reserve", ""), ("pick", ""), ("sign", "waits for signature"),
    ]  # fmt: skip
    assert [(edge.source, edge.target, edge.kind) for edge in graph.edges] == [
        ("reserve", "pick", "if"), ("pick", "sign", "plain"), ("pick", "pick", "again"),
    ]  # fmt: skip
