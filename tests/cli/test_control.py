"""`signal`, `cancel`, `pause`, `resume`: what they do to the ledger, and what they refuse."""

from __future__ import annotations

import io

import pytest

from tests.cli.conftest import Call, Shop


def test_signal_wakes_the_execution_that_awaits_it(holdfast: Call, orders: Shop) -> None:
    (waiting,) = orders.start("wait")
    ran = holdfast("signal", waiting[:10], "paid", '{"amount": 5}')
    assert (ran.code, ran.out) == (0, f"paid is in the inbox of Order/{waiting[:8]}\n")
    assert orders.show(waiting)["inbox"] == [{"name": "paid", "payload": {"amount": 5}}]
    orders.work()
    assert orders.show(waiting)["result"] == {"wish": "wait", "signals": ["paid"]}


def test_a_payload_is_read_from_standard_input_as_utf_8_whatever_the_locale(
    in_process: Call, orders: Shop, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (waiting,) = orders.start("wait")
    for sent, code in ((b'\xef\xbb\xbf{"name": "caf\xc3\xa9"}', 0), (b'"caf\xe9"', 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent), "latin-1"))
        assert in_process("signal", waiting, "paid", "-", "--database", database).code == code
    assert orders.show(waiting)["inbox"] == [{"name": "paid", "payload": {"name": "café"}}]


def test_signal_without_a_payload_carries_null(holdfast: Call, orders: Shop) -> None:
    (waiting,) = orders.start("wait")
    answer = holdfast("signal", waiting, "paid", "--json").json
    assert answer == {"id": waiting, "label": f"Order/{waiting[:8]}", "signal": "paid", "delivery": "delivered"}
    assert orders.show(waiting)["inbox"] == [{"name": "paid", "payload": None}]


def test_signal_with_a_dedup_key_is_delivered_once(holdfast: Call, orders: Shop) -> None:
    (waiting,) = orders.start("wait")
    deliveries = [holdfast("signal", waiting, "other", "--dedup-key", "k", "--json").json["delivery"] for _ in range(2)]
    assert deliveries == ["delivered", "duplicate"]
    assert "nothing was sent" in holdfast("signal", waiting, "other", "--dedup-key", "k").out
    assert len(orders.show(waiting)["inbox"]) == 1


def test_signal_to_an_ended_execution_is_refused_with_exit_code_1(holdfast: Call, orders: Shop) -> None:
    """Ruling E5: refused with a typed answer, not dropped."""
    (done,) = orders.start("done")
    ran = holdfast("signal", done, "paid")
    assert ran.code == 1
    assert ran.err == f"holdfast: Order/{done[:8]} has ended, so the signal 'paid' would never be read\n"


@pytest.mark.parametrize("payload", ["yes", "{a: 1}", ""])
def test_a_payload_that_is_no_json_is_wrong_use(holdfast: Call, orders: Shop, payload: str) -> None:
    (waiting,) = orders.start("wait")
    ran = holdfast("signal", waiting, "paid", payload)
    assert ran.code == 2
    assert "is no JSON" in ran.err


def test_a_payload_that_is_nested_too_deeply_is_wrong_use(holdfast: Call, orders: Shop) -> None:
    (waiting,) = orders.start("wait")
    ran = holdfast("signal", waiting, "paid", "[" * 20_000 + "]" * 20_000)
    assert ran.code == 2
    assert ran.err.endswith("is nested too deeply to be read\n")
    assert orders.show(waiting)["inbox"] == []


def test_cancel_ends_what_nobody_works_on(holdfast: Call, orders: Shop) -> None:
    (waiting,) = orders.start("wait")
    ran = holdfast("cancel", waiting, "--reason", "ordered twice")
    assert (ran.code, ran.out) == (0, f"Order/{waiting[:8]} is cancelled\n")
    shown = orders.show(waiting)
    assert (shown["status"], shown["cancel_reason"]) == ("cancelled", "ordered twice")
    (line,) = (line for line in holdfast("show", waiting).out.splitlines() if line.startswith("cancel reason"))
    assert line.split(maxsplit=2)[2] == "ordered twice"
    assert "to do it after all, start it anew" in holdfast("retry", waiting).err


def test_cancel_leaves_children_alone_unless_it_cascades(holdfast: Call, orders: Shop) -> None:
    """Ruling E10."""
    alone, whole = orders.start("children", "children")
    assert holdfast("cancel", alone, "--json").json == {
        "id": alone,
        "label": f"Order/{alone[:8]}",
        "status": "cancelled",
    }
    assert holdfast("cancel", whole, "--cascade").code == 0
    statuses = {
        child: orders.show(child)["status"] for child in (f"{alone}.0", f"{alone}.1", f"{whole}.0", f"{whole}.1")
    }
    assert list(statuses.values()) == ["awaiting_signal", "done", "cancelled", "done"]


def test_cancel_of_an_ended_execution_is_exit_code_1(holdfast: Call, orders: Shop) -> None:
    (done,) = orders.start("done")
    ran = holdfast("cancel", done)
    assert ran.code == 1
    assert "has ended before, as done" in ran.err


def test_a_cascade_reaches_the_children_of_an_ended_parent(holdfast: Call, orders: Shop) -> None:
    (parent,) = orders.start("children")
    holdfast("cancel", parent)
    ran = holdfast("cancel", parent, "--cascade")
    assert ran.code == 0
    assert orders.show(f"{parent}.0")["status"] == "cancelled"


def test_a_paused_execution_waits_for_resume(holdfast: Call, orders: Shop) -> None:
    (order,) = orders.start("done", work=False)
    assert holdfast("pause", order).out == f"Order/{order[:8]} is paused\n"
    orders.work()
    assert orders.show(order)["status"] == "runnable"
    assert "paused" in holdfast("list", "--queue", orders.queue).out
    ran = holdfast("resume", order, "--json")
    assert ran.json == {"id": order, "label": f"Order/{order[:8]}", "status": "runnable", "paused": False}
    orders.work()
    assert orders.show(order)["status"] == "done"


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_an_ended_execution_can_be_neither_paused_nor_resumed(holdfast: Call, orders: Shop, command: str) -> None:
    (done,) = orders.start("done")
    ran = holdfast(command, done)
    assert ran.code == 1
    assert "it has ended" in ran.err


@pytest.mark.parametrize("command", ["signal", "cancel", "pause", "resume"])
def test_control_in_a_terminal(holdfast_in_terminal: Call, orders: Shop, command: str) -> None:
    (waiting,) = orders.start("wait")
    ran = holdfast_in_terminal(command, waiting, *(["paid"] if command == "signal" else []))
    assert ran.code == 0
    assert f"Order/{waiting[:8]}" in ran.plain
