"""What is to begin of a body's inline calls: found as the body makes them, in its order, one transaction at a time."""

from __future__ import annotations

from typing import Any, cast

from holdfast import App
from holdfast.models.workflow.agenda import Agenda
from holdfast.models.workflow.open_call import OpenCall

NOW_US = 1_000


class Calls(dict[str, OpenCall]):
    """Open calls, by their ids; counts how often it was asked for one, or went through all of them."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


def calls(kinds: str) -> Calls:
    """`t` is a task, `x` a transaction, `r` a call of another queue."""
    app = App("agenda")

    @app.task
    async def task() -> None: ...

    @app.transaction
    async def transaction(tx: Any) -> None: ...

    callees = {"t": task, "x": transaction, "r": task}
    made = Calls()
    for number, kind in enumerate(kinds):
        made[f".{number}"] = OpenCall(f".{number}", "call", "[]", kind == "r", cast(Any, callees[kind]))
    return made


def ids(todo: list[OpenCall]) -> list[str]:
    return [call.promise_id for call in todo]


def test_what_the_body_has_made_begins_once_and_in_its_order() -> None:
    open_calls, agenda = calls("trttt"), Agenda()
    assert ids(agenda.startable(open_calls, 3, NOW_US)) == [".0", ".2"]
    assert ids(agenda.startable(open_calls, 3, NOW_US)) == [".0", ".2"]  # neither began
    agenda.began(open_calls[".2"])
    assert ids(agenda.startable(open_calls, 5, NOW_US)) == [".0", ".3", ".4"]
    for number in (0, 3, 4):
        agenda.began(open_calls[f".{number}"])
    assert agenda.startable(open_calls, 5, NOW_US) == []


def test_what_has_ended_before_it_began_does_not_begin() -> None:
    open_calls, agenda = calls("tt"), Agenda()
    agenda.startable(open_calls, 2, NOW_US)
    del open_calls[".0"]
    assert ids(agenda.startable(open_calls, 2, NOW_US)) == [".1"]


def test_a_call_that_became_another_one_begins_once() -> None:
    """The lane goes on with the same object."""
    open_calls, agenda = calls("t"), Agenda()
    agenda.startable(open_calls, 1, NOW_US)
    call = open_calls.pop(".0")
    call.promise_id = ".1"
    open_calls[".1"] = call
    assert ids(agenda.startable(open_calls, 2, NOW_US)) == [".1"]


def test_a_call_begins_again_when_its_retry_is_due() -> None:
    open_calls, agenda = calls("ttt"), Agenda()
    open_calls[".2"].retry_at_us = NOW_US + 7  # as a journal is read in
    for call in agenda.startable(open_calls, 3, NOW_US):
        agenda.began(call)
    first = open_calls[".0"]
    first.retry_at_us = NOW_US + 5
    agenda.note_retry(first)
    assert agenda.next_retry_us(open_calls) == NOW_US + 5
    assert agenda.startable(open_calls, 3, NOW_US + 4) == []
    assert ids(agenda.startable(open_calls, 3, NOW_US + 9)) == [".0", ".2"]
    first.retry_at_us = None
    agenda.began(first)
    assert ids(agenda.startable(open_calls, 3, NOW_US + 9)) == [".2"]
    assert agenda.next_retry_us(open_calls) is None


def test_transactions_begin_one_at_a_time_and_before_all_else() -> None:
    open_calls, agenda = calls("txtx"), Agenda()
    assert ids(agenda.startable(open_calls, 4, NOW_US)) == [".1"]
    assert ids(agenda.startable(open_calls, 4, NOW_US)) == [".1"]
    open_calls[".1"].retry_at_us = NOW_US + 5
    agenda.note_retry(open_calls[".1"])
    assert ids(agenda.startable(open_calls, 4, NOW_US)) == [".3"]
    assert ids(agenda.startable(open_calls, 4, NOW_US + 5)) == [".1"]
    del open_calls[".1"], open_calls[".3"]
    assert ids(agenda.startable(open_calls, 4, NOW_US)) == [".0", ".2"]


def test_what_is_found_costs_no_look_at_what_is_open() -> None:
    for kinds, most in (("x" * 400, 3), ("t" * 399 + "x", 3)):
        open_calls, agenda = calls(kinds), Agenda()
        agenda.startable(open_calls, 400, NOW_US)
        for number in range(400):
            if kinds[number] == "x":
                before = open_calls.looks
                assert ids(agenda.startable(open_calls, 400, NOW_US)) == [f".{number}"]
                assert open_calls.looks - before <= most
                del open_calls[f".{number}"]


def test_of_many_operations_and_few_open_calls_the_calls_are_looked_at() -> None:
    open_calls, agenda = calls("t"), Agenda()
    open_calls[".900"] = open_calls.pop(".0")
    open_calls[".900"].promise_id = ".900"
    assert ids(agenda.startable(open_calls, 1_000, NOW_US)) == [".900"]
    assert open_calls.looks < 5
