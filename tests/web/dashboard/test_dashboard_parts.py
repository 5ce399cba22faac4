"""The parts of pages: words, payloads, diagrams, the picture of a timeline, charts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.journal.events import ExecutionAwaiting, Failure
from holdfast.core.journal.local_ids import whole
from holdfast.core.status import Status
from holdfast.store.watching import Pace, PaceBucket
from holdfast.views.ledger_shapes import StatusCount
from holdfast.views.timeline import Attempt, Mark, Piece, PieceKind, Row, Timeline, Tone
from holdfast.web.dashboard import words
from holdfast.web.dashboard.diagram import Edge, Node, layout
from holdfast.web.dashboard.gantt import FAILED_MOST, FOLDS_MOST, draw
from holdfast.web.dashboard.json_view import DEPTH_MAX, ENTRIES_MAX, STRING_MAX, json_view, one_line
from holdfast.web.dashboard.pages.execution import event_line
from holdfast.web.dashboard.pages.executions import filter_of
from holdfast.web.dashboard.pages.overview import Count, chart, counted
from holdfast.web.dashboard.render import error_line, error_text

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (0, "0 s"), (7, "7 µs"), (1_500, "1.5 ms"), (340_000, "340 ms"), (999_600, "1 s"), (1_240_000, "1.24 s"),
        (59_960_000, "1 min"), (200_000_000, "3 min 20 s"), (7_200_000_000, "2 h"), (187_200_000_000, "2 d 4 h"),
        (86_400_000_000 * 400, "400 d"),
    ],
)  # fmt: skip
def test_lengths_have_two_units_at_most(us: int, shown: str) -> None:
    assert words.length(us) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "now"), (5, "5 s ago"), (-130, "in 2 min"), (7_199, "1 h ago"), (86_399, "23 h ago"), (87_000, "1 d ago"),
        (100_800, "1 d 4 h ago"), (-863_999, "in 9 d 23 h"), (990_000, "11 d ago"),
    ],
)  # fmt: skip
def test_moments_are_told_shortly_and_rounded_down(seconds: float, shown: str) -> None:
    assert words.ago(NOW - timedelta(seconds=seconds), NOW) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(9, "9"), (9_999, "9\u202f999"), (12_300, "12.3 k"), (1_250_000, "1.25 M"), (4_217.3, "4\u202f217"), (2.5, "2.5")]  # noqa: E501
)  # fmt: skip
def test_numbers_are_short_where_space_is(value: float, shown: str) -> None:
    assert words.compact(value) == shown


# ---------------------------------------------------------------------- payloads

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


class Text(HTMLParser):
    """What a reader sees, and which elements there are."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.shown: list[str] = []
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(markup)

    def handle_data(self, data: str) -> None:
        self.shown.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attrs)


@given(JSON)
def test_a_payload_becomes_text_and_nothing_else(value: Any) -> None:
    seen = Text(str(json_view(json.dumps(value))))
    assert seen.elements <= {"div", "details", "summary", "ul", "li", "span"}
    assert seen.attributes <= {"class", "open"}


@given(st.text(max_size=60))
def test_every_string_is_shown_as_it_is(text: str) -> None:
    seen = Text(str(json_view(json.dumps([text]))))
    assert json.dumps(text, ensure_ascii=False) in "".join(seen.shown).replace("\r\n", "\n")


def test_what_is_no_json_is_shown_as_it_is() -> None:
    assert "".join(Text(str(json_view("<b>{"))).shown) == "<b>{"


def test_long_payloads_are_cut_and_say_so() -> None:
    assert f"{STRING_MAX} of {STRING_MAX + 5} characters" in json_view(json.dumps(["x" * (STRING_MAX + 5)]))
    assert "and 3 more" in json_view(json.dumps(list(range(ENTRIES_MAX + 3))))
    deep = "[" * (DEPTH_MAX + 9) + "{}" + "]" * (DEPTH_MAX + 9)
    assert str(json_view(deep)).count("<details") == DEPTH_MAX
    assert "of 300002 characters" in json_view('"' + "x" * 300_000 + '"')


def test_one_line_of_a_payload_ends_in_an_ellipsis_where_it_is_cut() -> None:
    assert one_line(b'{"a":1}') == '{"a":1}'
    assert one_line("x" * 100, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ('{"type":"ValueError","message":"a\\nb"}', "ValueError: a b"),
        ('{"type":"E","message":""}', "E"),
        ("not json", "not json"),
        ("[1]", "[1]"),
        (None, ""),
    ],
)
def test_recorded_errors_are_told_in_a_line(error: str | None, line: str) -> None:
    assert error_line(error) == line
    assert " ".join(error_text(error).split()) == line


# ---------------------------------------------------------------------- diagrams

GRAPHS = st.integers(1, 7).flatmap(
    lambda count: st.tuples(
        st.just([Node(id=f"n{i}", label=f"step {i}", note="x" * (i % 3)) for i in range(count)]),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count)), max_size=14),
    )
)


@given(GRAPHS)
def test_boxes_never_overlap_and_everything_is_inside(graph: tuple[list[Node], list[tuple[int, int]]]) -> None:
    nodes, pairs = graph
    drawing = layout(nodes, [Edge(source=f"n{a}", target=f"n{b}") for a, b in pairs])
    assert [box.node.id for box in drawing.boxes] != [] or not nodes
    for one, two in combinations(drawing.boxes, 2):
        apart = one.x + one.width <= two.x or two.x + two.width <= one.x
        assert apart or one.y + one.height <= two.y or two.y + two.height <= one.y
    for box in drawing.boxes:
        assert 0 <= box.x <= box.x + box.width <= drawing.width
        assert 0 <= box.y <= box.y + box.height <= drawing.height
    assert len(drawing.curves) == sum(b < len(nodes) for _, b in pairs)  # edges to nowhere are left out
    for curve in drawing.curves:
        numbers = [float(number) for number in re.findall(r"-?[0-9.]+", curve.path)]
        assert all(-1 <= x <= drawing.width + 1 for x in numbers[0::2])


def test_a_chain_goes_down_and_its_way_back_is_at_the_side() -> None:
    nodes = [Node(id=name, label=name) for name in "abc"]
    edges = [Edge(source="a", target="b"), Edge(source="b", target="c"), Edge(source="c", target="a")]
    drawing = layout(nodes, edges)
    tops = {box.node.id: box.y for box in drawing.boxes}
    assert tops["a"] < tops["b"] < tops["c"]
    assert drawing.width > layout(nodes, edges[:2]).width


# ---------------------------------------------------------------------- the picture of a timeline


def test_a_bar_says_what_it_is_when_it_is_hovered_over() -> None:
    row = Row(number="0", kind="call", name="charge", start_us=0, end_us=4_000_000, tone=Tone.GOOD, attempts=2)
    row.pieces = [
        Piece(kind=PieceKind.WORK, start_us=0, end_us=1_000_000, tone=Tone.BAD, attempt=1),
        Piece(kind=PieceKind.RETRY, start_us=1_000_000, end_us=3_000_000, tone=Tone.BAD),
        Piece(kind=PieceKind.WORK, start_us=3_000_000, tone=Tone.OPEN, attempt=2),
    ]
    timeline = Timeline(start_us=0, end_us=4_000_000, is_open=True, rows=[row], marks=[Mark(2_000_000, "cancel")])
    gantt = draw(timeline)
    assert [bar.title for bar in gantt.lines[0].bars] == [
        "attempt 1, worked 1 s, failed", "waited before the next attempt 2 s", "attempt 2, worked, still 1 s",
    ]  # fmt: skip
    assert [(bar.x, bar.width) for bar in gantt.lines[0].bars] == [(0.0, 25.0), (25.0, 50.0), (75.0, 25.0)]
    assert [(mark.x, mark.title) for mark in gantt.marks] == [(50.0, "cancel")]
    assert gantt.lines[0].summary == "call charge, 4 s, 2 attempts, done"
    assert [(part.words, part.shown) for part in gantt.legend] == [("working", "50 %"), ("before retries", "50 %")]


def test_the_shortest_call_of_a_long_run_is_drawn() -> None:
    row = Row(number="0", kind="call", name="x", start_us=5, end_us=6, tone=Tone.GOOD)
    row.pieces = [Piece(kind=PieceKind.WORK, start_us=5, end_us=6, tone=Tone.GOOD)]
    gantt = draw(Timeline(start_us=0, end_us=86_400_000_000, is_open=False, rows=[row]), fold=False)
    assert gantt.lines[0].bars[0].width > 0


def test_long_runs_are_drawn_a_page_at_a_time_on_one_scale() -> None:
    rows = [
        Row(number=str(n), kind="call", name="x", start_us=n, end_us=n + 1, tone=Tone.GOOD,
            pieces=[Piece(kind=PieceKind.WORK, start_us=n, end_us=n + 1, tone=Tone.GOOD)])
        for n in range(100)
    ]  # fmt: skip
    gantt = draw(Timeline(start_us=0, end_us=100, is_open=False, rows=rows), first=30, most=20)
    assert [line.row.number for line in gantt.lines] == [str(n) for n in range(30, 50)]
    assert (gantt.more_before, gantt.more_after) == (30, 50)
    assert gantt.lines[0].bars[0].x == 30.0


def test_a_run_that_waited_thousands_of_times_is_no_heavier_to_draw_than_another() -> None:
    """As one that looks every minute for days: each row has a picture of all folds."""
    day_us, pieces = 86_400_000_000, []
    for n in range(2_000):
        pieces.append(Piece(kind=PieceKind.SLEEP, start_us=n * day_us, end_us=(n + 1) * day_us - 5_000))
        pieces.append(Piece(kind=PieceKind.WORK, start_us=(n + 1) * day_us - 5_000, end_us=(n + 1) * day_us, attempt=n))
    rows = [
        Row(number=str(n), kind="call", name="x", start_us=piece.start_us, end_us=piece.end_us, pieces=[piece])
        for n, piece in enumerate(pieces)
    ]
    gantt = draw(Timeline(start_us=0, end_us=2_000 * day_us, is_open=False, rows=rows))
    assert gantt.is_folded
    assert 0 < len(gantt.folds) <= FOLDS_MOST
    assert all(before.end < after.start for before, after in pairwise(gantt.folds))


def test_of_a_call_that_failed_a_thousand_times_the_newest_attempts_are_shown() -> None:
    failed = [Attempt(number=n, at_us=n, failure=Failure(kind="user", type="E", message=str(n))) for n in range(1_000)]
    row = Row(number="0", kind="call", name="x", start_us=0, end_us=9, failed=failed)
    (line,) = draw(Timeline(start_us=0, end_us=9, is_open=False, rows=[row])).lines
    assert line.failed == failed[-FAILED_MOST:]


# ---------------------------------------------------------------------- lists and charts


def test_columns_of_the_chart_are_inside_it_and_stand_on_its_base() -> None:
    buckets = [PaceBucket(NOW - timedelta(minutes=n), done=n, failed=n % 3, cancelled=n % 2) for n in (59, 30, 1)]
    pace = Pace(bucket_seconds=60, since=NOW - timedelta(hours=1), until=NOW, buckets=buckets)
    columns, highest = chart(pace)
    assert highest == 59 + 2 + 1
    for column in columns:
        assert 0 <= column.x <= column.x + column.width <= 100
        assert all(0 <= top <= top + height <= 72.01 for _, top, height in column.parts)
    assert chart(Pace(bucket_seconds=60, since=NOW, until=NOW, buckets=[])) == ([], 0)


def test_words_of_a_search_are_attributes_or_a_name() -> None:
    where = filter_of({"status": "waiting", "kind": "", "name": "", "queue": ""}, 'checkout vip=true n=17 x="17" f=1.5')
    assert where.name == "checkout"
    assert where.attributes == {"vip": True, "n": 17, "x": "17", "f": 1.5}
    assert {status.value for status in where.statuses} == {
        "awaiting_signal", "awaiting_children", "awaiting_promise", "delegated",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        ((7, False, None), "7"),
        ((10_000, True, None), "10\u202f000+"),
        ((10_000, True, 1_200_000), "about 1.2 M"),
    ],
)
def test_an_amount_says_how_well_it_is_known(known: tuple[int, bool, int | None], shown: str) -> None:
    assert words.amount(*known) == shown


def test_a_sum_of_counts_is_as_good_as_what_is_known() -> None:
    def line(status: Status, count: int, capped: bool = False, estimate: int | None = None) -> StatusCount:
        return StatusCount(status=status, count=count, capped=capped, estimate=estimate)

    exact, floor = line(Status.DONE, 200), line(Status.FAILED, 10_000, True)
    about = line(Status.RUNNABLE, 10_000, True, 1_200_000)
    names = [status.value for status in Status]
    assert counted([exact], *names) == Count("200", True)
    assert counted([exact, floor], *names) == Count("10.2 k+", True)
    assert counted([exact, floor, about], *names) == Count("1.21 M", True, True)
    assert counted([exact, floor, about], "done") == Count("200", True)


@pytest.mark.parametrize(
    ("waiting_on", "join_set_id", "told"),
    [
        ((".3", ".7"), None, "on #3, #7"),
        ((), ".2", "on any of the results left of join set #2"),
        ((".7",), ".2", "on any of the results left of join set #2, or #7"),
    ],
)
def test_a_wait_is_told_by_its_numbers(waiting_on: tuple[str, ...], join_set_id: str | None, told: str) -> None:
    event = ExecutionAwaiting(0, NOW, waiting_on, "Any", (), join_set_id)
    assert event_line(whole("ab.3", event)).subject == told
