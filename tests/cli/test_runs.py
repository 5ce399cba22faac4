"""Runs from the command line, in real processes on both stores: start, follow, look back, try again, fork, force.

Every command is called in a pipe with `--json`, parsed by its documented type, and in a terminal.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest

from holdfast.cli import answers
from holdfast.cli.past import said
from holdfast.core.journal.events import ExecutionAwaiting, InvokeScheduled
from holdfast.core.journal.local_ids import whole
from holdfast.core.status import Status
from holdfast.views import shapes
from tests.cli.conftest import Call
from tests.cli.desks import Desk
from tests.cli.processes import Ran

T = TypeVar("T", bound=msgspec.Struct)
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def parsed(ran: Ran, shape: type[T], *, code: int = 0, text: str | None = None) -> T:
    """What a command answered, by its type: every field is there, and no other."""
    assert ran.code == code, ran.err
    out = ran.out if text is None else text
    value = msgspec.json.decode(out, type=shape)
    given: dict[str, Any] = msgspec.json.decode(out)
    fields = {name for name in shape.__struct_fields__ if getattr(value, name) is not msgspec.UNSET}
    assert set(given) == fields
    return value


def test_a_long_value_is_whole_in_a_pipe_and_cut_in_a_terminal(
    desk: Desk, holdfast: Call, holdfast_in_terminal: Call
) -> None:
    run, note = desk.start("pay", 5), "long " * 40
    assert holdfast("signal", run, "approval", f'"{note}"').code == 0
    desk.work()
    for command in ("history", "tail"):
        assert f'approval "{note}"\n' in holdfast(command, run).out
    screen = holdfast_in_terminal("history", run).plain
    assert "..." in screen
    assert 0 < screen.count("long") < 40


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("desk", "pay cannot be started with this, at $.amount: Expected `int`, got `str`"),
        ("shop", "does not declare pay in version 1"),
    ],
)
def test_what_the_code_at_hand_cannot_read_is_not_started(
    desk: Desk, holdfast: Call, program: str, reason: str
) -> None:
    desk.register()
    given = ("start", "pay", '{"amount": "five"}', "--queue", desk.queue)
    refused = holdfast(*given, "--app", f"tests.cli.programs.{program}:app")
    assert refused.code == 2
    assert reason in refused.err
    assert holdfast("list", "--queue", desk.queue, "--json").json["executions"] == []
    assert holdfast(*given).code == 0
    assert len(holdfast("list", "--queue", desk.queue, "--json").json["executions"]) == 1


def test_a_run_is_started_found_followed_and_told(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    desk.register()
    given = ("start", "pay", '{"amount": 5}', "--queue", desk.queue, "--key", desk.queue)
    first = parsed(holdfast(*given, "--attribute", f"of={desk.queue}", "--json"), answers.Started)
    assert (first.status, first.label, first.existing) == (Status.RUNNABLE, f"pay/{first.id[:8]}", False)
    shown = holdfast_in_terminal(*given)  # the same key: the same run
    assert shown.plain == f"pay/{first.id[:8]} was started before with this key; it is runnable\n"
    assert parsed(holdfast(*given, "--json"), answers.Started) == msgspec.structs.replace(first, existing=True)
    fresh = holdfast_in_terminal("start", "pay", '{"amount": 5}', "--queue", f"{desk.queue}-other")
    assert fresh.plain.endswith(" started; it is runnable\n")

    found = parsed(holdfast("list", "--where", f"of={desk.queue}", "--json"), shapes.ExecutionPage)
    assert [one.id for one in found.executions] == [first.id]
    assert holdfast("list", "--where", f"of={desk.queue}x", "--json").json["executions"] == []

    desk.work()
    past = parsed(holdfast("history", first.id[:12], "--json"), answers.PastOf)
    assert (past.kind, past.transitions) == ("workflow", [])
    assert [type(event).__name__ for event in past.events][:2] == ["ExecutionStarted", "InvokeScheduled"]
    assert isinstance(past.events[1], InvokeScheduled)
    assert past.events[1].promise_id == f"{first.id}.0"
    plain = holdfast("history", first.id)
    assert "\x1b" not in plain.out
    assert "InvokeScheduled    0 charge" in plain.out
    screen = holdfast_in_terminal("history", first.id)
    assert "ExecutionAwaiting" in screen.plain
    assert "\x1b[" in screen.out

    with desk.working():
        assert (
            parsed(holdfast("signal", first.id, "approval", "true", "--json"), answers.Signalled).delivery
            == "delivered"
        )
        followed = holdfast("tail", first.id, "--json")
    lines = [parsed(followed, answers.TailLine, text=line) for line in followed.out.splitlines()]
    assert [line.what for line in lines][-1] == "end"
    assert lines[-1].status is Status.DONE
    events = [line.event for line in lines if line.what == "event"]
    assert [event.sequence for event in events if event is not msgspec.UNSET] == list(range(len(events)))
    assert events[1] == past.events[1]
    screen = holdfast_in_terminal("tail", first.id)
    assert screen.plain.splitlines()[-1] == f"{first.label} has ended as done"


def test_show_tells_what_was_published_and_the_deadline(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    run, plain = desk.start("tell", 3, deadline=3_600), desk.start("pay", 3)
    deadline = datetime.fromisoformat(holdfast("show", run, "--json").json["deadline_at"])
    out = holdfast("show", run).out
    assert 'published\n  {\n    "stage": "packing",\n    "left": {\n      "boxes": 3\n    }\n  }\n' in out
    facts = dict(line.split("  ", 1) for line in out.split("\n\n")[0].splitlines()[1:])
    assert facts["deadline"].strip().startswith(f"{deadline:%Y-%m-%dT%H:%M:%S}")
    assert "deadline" in holdfast_in_terminal("show", run).plain
    other = holdfast("show", plain).out
    assert "published" not in other
    assert "deadline" not in other


@pytest.mark.parametrize(
    ("given", "eligible"),
    [
        ("2090-01-31", "2090-01-31T00:00:00Z"),
        ("2090-01-31T14:00", "2090-01-31T14:00:00Z"),
        ("2090-01-31T14:00:30Z", "2090-01-31T14:00:30Z"),
        ("2090-01-31T14:00+01:00", "2090-01-31T13:00:00Z"),
    ],
)
def test_a_start_waits_for_its_moment(desk: Desk, holdfast: Call, given: str, eligible: str) -> None:
    desk.register()
    started = holdfast("start", "pay", '{"amount": 5}', "--queue", desk.queue, "--at", given, "--json")
    shown = parsed(holdfast("show", parsed(started, answers.Started).id, "--json"), shapes.Details)
    assert shown.eligible_at == datetime.fromisoformat(eligible)
    assert shown.status is Status.RUNNABLE


def test_an_end_is_waited_for_and_shown(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    run, broken = desk.start("pay", 5), desk.start("double", -1)
    late = holdfast("wait", run, "--timeout", "0.05")
    assert (late.code, "has not ended within 0.05; it goes on" in late.err) == (1, True)
    with desk.working():
        holdfast("signal", run, "approval", "true")
        answer = parsed(holdfast("wait", run[:12], "--json"), answers.Started)
    assert (answer.id, answer.status, bytes(answer.result)) == (run, Status.DONE, b'"5 and 6"')  # type: ignore[arg-type]
    assert holdfast_in_terminal("wait", run).plain == f'{answer.label} is done\n"5 and 6"\n'
    failed = holdfast("wait", broken)
    assert (failed.code, "is failed: " in failed.err, "-1 is no amount" in failed.err) == (1, True, True)
    assert parsed(holdfast("wait", broken, "--json"), answers.Started, code=1).status is Status.FAILED
    assert holdfast("wait", "0123456789").code == 3


def test_what_can_be_started_is_listed(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    desk.register()
    found = holdfast("definitions", "--name", "pay", "--json").json["definitions"]
    assert [(line["kind"], line["name"], line["parameters"]) for line in found] == [("workflow", "pay", ["amount"])]
    assert {"charge", "double", "pay", "tell"} <= {
        line["name"] for line in holdfast("definitions", "--json").json["definitions"]
    }
    header, line = holdfast("definitions", "--name", "charge").out.splitlines()
    assert header.split() == ["NAME", "KIND", "VERSION", "QUEUE", "PRIORITY", "TAKES"]
    assert line.split() == ["charge", "task", "1", "default", "-", "amount"]
    assert "amount" in holdfast_in_terminal("definitions", "--name", "pay").plain
    assert holdfast("definitions", "--name", "nothing").out == "no worker of this ledger has known nothing yet\n"


def test_a_start_is_refused_while_another_has_its_unique_key(desk: Desk, holdfast: Call) -> None:
    desk.register()
    given = ("start", "pay", '{"amount": 5}', "--queue", desk.queue, "--unique-key", desk.queue)
    first = parsed(holdfast(*given, "--json"), answers.Started)
    refused = holdfast(*given)
    assert (refused.code, f"{first.label} occupies its unique key" in refused.err) == (1, True)
    assert holdfast(*given[:-1], "").code == 2
    assert holdfast("cancel", first.id, "--force").code == 0
    assert holdfast(*given).code == 0


@pytest.mark.parametrize("given", ["soon", "2090-13-01", "9500-01-01"])
def test_a_moment_that_is_none_is_wrong_use(desk: Desk, holdfast: Call, given: str) -> None:
    desk.register()
    refused = holdfast("start", "pay", '{"amount": 5}', "--queue", desk.queue, "--at", given)
    assert refused.code == 2
    assert holdfast("list", "--queue", desk.queue, "--json").json["executions"] == []


def test_a_start_with_a_signal_starts_once_and_signals_each_time(
    desk: Desk, holdfast: Call, holdfast_in_terminal: Call
) -> None:
    desk.register()
    given = ("start", "pay", '{"amount": 5}', "--queue", desk.queue)
    for more, why in (
        (("--signal", "approval=true"), "by its key"),
        (("--key", desk.queue, "--signal", "approval=yes"), "the payload 'yes' is no JSON"),
        (("--key", desk.queue, "--signal", "=true"), "no name of a signal"),
        (("--key", desk.queue, "--dedup-key", "e1"), "give one, too, with --signal"),
    ):
        refused = holdfast(*given, *more)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    with_key = (*given, "--key", desk.queue, "--dedup-key", "e1", "--signal")
    first = parsed(holdfast(*with_key, "approval=true", "--json"), answers.Started)
    assert (first.status, first.existing, first.delivery) == (Status.RUNNABLE, False, "delivered")
    again = parsed(holdfast(*with_key, "approval=true", "--json"), answers.Started)
    assert again == msgspec.structs.replace(first, existing=True, delivery="duplicate")
    shown = holdfast_in_terminal(*with_key, "approval=true").plain
    assert shown == f"{first.label} was started before with this key and has had this signal before; it is runnable\n"
    plain = holdfast(*given, "--key", f"{desk.queue}-2", "--signal", "approval")
    assert plain.out.endswith(" started and has the signal; it is runnable\n")
    inbox = parsed(holdfast("show", f"{desk.queue}-2", "--json"), shapes.Details).inbox
    assert [(signal.name, bytes(signal.payload)) for signal in inbox] == [("approval", b"null")]
    desk.work()
    assert holdfast("show", first.id, "--json").json["result"] == "5 and 6"
    late = holdfast(*given, "--key", desk.queue, "--signal", "approval=true")
    assert (late.code, "has ended" in late.err) == (1, True)


@pytest.mark.parametrize(
    ("waiting_on", "kind", "join_set", "told"),
    [
        ((3, 7), "Any", None, "any of 3, 7"),
        ((), "Any", 2, "any of the results left of join set 2"),
        ((7,), "Any", 2, "any of the results left of join set 2, or 7"),
    ],
)
def test_a_wait_is_told_by_its_numbers(waiting_on: Any, kind: Any, join_set: int | None, told: str) -> None:
    local = ExecutionAwaiting(
        0, NOW, tuple(f".{one}" for one in waiting_on), kind, (), None if join_set is None else f".{join_set}"
    )
    assert said(whole("ab.3", local), "ab.3") == told


def test_a_result_is_waited_for(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    desk.register()
    with desk.working():
        given = ("start", "double", '{"amount": 4}', "--queue", desk.queue, "--wait")
        answer = parsed(holdfast(*given, "--json"), answers.Started)
        assert (answer.status, bytes(answer.result), bytes(answer.error)) == (Status.DONE, b"8", b"null")  # type: ignore[arg-type]
        assert answer.existing is False
        keyed = (*given, "--key", desk.queue)
        shown = [holdfast_in_terminal(*keyed).plain.splitlines() for _ in range(2)]
        assert [lines[1:] for lines in shown] == [["8"], ["8"]]
        assert ["was started before with this key and is done" in lines[0] for lines in shown] == [False, True]
        failed = holdfast("start", "double", '{"amount": -4}', "--queue", desk.queue, "--wait")
        assert (failed.code, failed.out) == (1, "")
        assert "is failed" in failed.err
        assert "-4 is no amount" in failed.err
        answer = parsed(
            holdfast("start", "double", '{"amount": -4}', "--queue", desk.queue, "--wait", "--json"),
            answers.Started,
            code=1,
        )
        assert answer.status is Status.FAILED
        late = holdfast("start", "pay", '{"amount": 1}', "--queue", desk.queue, "--wait", "--timeout", "0.2s")
        assert (late.code, "has not ended within 0.2s" in late.err) == (1, True)


def test_a_run_that_was_tried_again_is_cancelled_by_its_first_id(desk: Desk, holdfast: Call) -> None:
    failed = desk.start("double", -1)
    again = parsed(holdfast("retry", failed, "--json"), answers.Started)
    cancelled = holdfast("cancel", failed, "--reason", "not worth it")
    assert (cancelled.code, cancelled.err) == (0, "")
    assert cancelled.out.startswith(again.label)
    desk.work()
    assert holdfast("show", again.id, "--json").json["status"] == "cancelled"
    refused = holdfast("cancel", failed)
    assert (refused.code, "has ended before, as cancelled" in refused.err) == (1, True)


def test_a_failed_run_is_tried_again_and_a_good_one_forked(
    desk: Desk, holdfast: Call, holdfast_in_terminal: Call
) -> None:
    failed, good = desk.start("double", -1), desk.start("double", 3)
    again = parsed(holdfast("retry", failed, "--json"), answers.Started)
    shown = [line.split() for line in holdfast("show", failed).out.splitlines()]
    short = again.label.removeprefix("double/")
    assert ["retried", "as", f"{short},", "which", "is", "runnable"] in shown
    told = holdfast("show", failed, "--json").json
    assert (told["status"], told["successor"]) == ("failed", again.id)
    assert told["newest"] == {"id": again.id, "label": again.label, "status": "runnable", "how": "retried"}
    assert f"retried as {short}; " in holdfast("list", "--queue", desk.queue).out
    assert again.existing is msgspec.UNSET
    assert again.id.startswith(failed)
    paused = parsed(holdfast("pause", failed, "--json"), answers.Paused)  # what is done to it is done to the last run
    assert (paused.id, paused.status, paused.paused) == (again.id, Status.RUNNABLE, True)
    assert parsed(holdfast("resume", failed, "--json"), answers.Paused).status is Status.RUNNABLE
    refused = holdfast_in_terminal("retry", good)
    assert (refused.code, "only a failed execution can be retried" in refused.plain) == (1, True)
    fork = parsed(holdfast("fork", good[:10], "--at", "1", "--json"), answers.Started)
    assert fork.id != good
    assert holdfast_in_terminal("fork", good, "--at", "1").plain.endswith("is forked; it is runnable\n")
    assert holdfast("fork", good, "--at", "999").code == 1
    desk.work()
    assert [line["status"] for line in holdfast("list", "--queue", desk.queue, "--json").json["executions"]][:2] == [
        "done",
        "done",
    ]


def test_what_nobody_works_on_is_ended_by_force(desk: Desk, holdfast: Call, holdfast_in_terminal: Call) -> None:
    one, other = desk.start("pay", 1), desk.start("pay", 2)
    assert parsed(holdfast("cancel", one, "--json"), answers.Cancelled).status is Status.RUNNABLE  # asked, to clean up
    assert parsed(holdfast("cancel", one, "--force", "--json"), answers.Cancelled).status is Status.CANCELLED
    assert holdfast_in_terminal("cancel", other, "--force").plain == f"pay/{other[:8]} is cancelled\n"
