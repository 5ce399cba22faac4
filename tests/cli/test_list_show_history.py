"""`list`, `show` and `history`: in a pipe and in a terminal, on both stores, by every form of an id."""

from __future__ import annotations

import pytest

from holdfast import App, PromiseId, Status
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.values import NewExecution, QueueRoom
from holdfast.testing.hand import row
from holdfast.views.shapes import Details, Summary
from tests.cli.conftest import Call, Shop

SUMMARY_KEYS = set(Summary.__struct_fields__)
DETAIL_KEYS = set(Details.__struct_fields__)
COLUMNS = ["ID", "STATUS", "STEP", "ATTEMPT", "QUEUE", "UPDATED", "KEY", "NOTE"]


def test_list_in_a_pipe_is_aligned_text_with_exact_times(holdfast: Call, orders: Shop) -> None:
    waiting, done = orders.start("wait", "done")
    ran = holdfast("list", "--queue", orders.queue)
    header, *lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert header.split() == COLUMNS
    assert [line.split()[:3] for line in lines] == [
        [f"Order/{done[:8]}", "done", "close"],
        [f"Order/{waiting[:8]}", "awaiting_signal", "close"],
    ]
    assert lines[1].endswith("awaits paid, refused")
    status_at = header.index("STATUS")
    assert [line[status_at:].split()[0] for line in lines] == ["done", "awaiting_signal"]
    assert "\x1b" not in ran.out
    assert lines[0].split()[5].endswith("Z")


@pytest.mark.parametrize("state", ["[" * 2_000 + "]" * 2_000, f'{{"n":{"9" * 5_000}}}'], ids=["deep", "long"])
def test_show_takes_values_that_python_cannot_read(holdfast: Call, orders: Shop, state: str) -> None:
    """As SQL may have started it."""
    odd = row(orders.queue, state=state)
    orders.run(lambda app: _insert(app, odd))
    ran = holdfast("show", str(PromiseId.from_bytes(odd.promise)))
    assert (ran.code, ran.err) == (0, "")
    assert "9" * 5_000 in ran.out or "[[[" in ran.out


def test_show_says_how_far_a_task_in_flight_is(holdfast: Call, orders: Shop) -> None:
    loading = row(orders.queue, kind="task", name="load", queue=orders.queue)

    async def begin(app: App) -> None:
        store = await app.store()
        await store.insert([loading])
        await store.register_worker(orders.queue, host="h", pid=1, queues=[orders.queue], lease_seconds=60)
        (claim,) = (await store.pick(orders.queue, [QueueRoom(orders.queue, 1)], [loading.handler], 1)).claims
        beat = AdvanceExecution(status=Status.EXECUTING, progress=False, beats='{"rows":40}')
        await store.flush(orders.queue, [Commit(claim, (beat,))])

    orders.run(begin)
    id = str(PromiseId.from_bytes(loading.promise))
    assert 'progress\n  load  attempt 1  {"rows":40}\n' in holdfast("show", id).out
    assert orders.show(id)["progress"] == [{"id": id, "name": "load", "attempt": 1, "progress": {"rows": 40}}]


async def _insert(app: App, odd: NewExecution) -> None:
    await (await app.store()).insert([odd])


def test_list_tells_what_was_lost_with_its_worker(holdfast: Call, orders: Shop) -> None:
    """Of many at work, the one that takes its workers along stands out."""
    poison = row("poison", queue=orders.queue)

    async def crash(app: App) -> None:
        store = await app.store()
        await store.insert([poison])
        for worker in ("first", "second"):
            await store.register_worker(worker, host="h", pid=1, queues=[orders.queue], lease_seconds=60)
            picked = await store.pick(worker, [QueueRoom(orders.queue, 1)], [poison.handler], 1)
            assert len(picked.claims) == 1
            await store.register_worker(worker, host="h", pid=1, queues=[orders.queue], lease_seconds=0)
            await store.reap(10, 10)

    orders.run(crash)
    _, line = holdfast("list", "--queue", orders.queue).out.splitlines()
    assert line.endswith("lost with its worker 2 times")


def test_list_in_a_terminal_has_colours_and_a_persons_times(holdfast_in_terminal: Call, orders: Shop) -> None:
    orders.start("fail")
    ran = holdfast_in_terminal("list", "--queue", orders.queue)
    assert ran.code == 0
    assert "\x1b[31mfailed" in ran.out
    assert "out of stock" in ran.plain
    assert " ago " in ran.plain or " now " in ran.plain


def test_list_as_json_has_the_documented_shape(holdfast: Call, orders: Shop) -> None:
    (failed,) = orders.start("fail")
    answer = holdfast("list", "--queue", orders.queue, "--json").json
    assert set(answer) == {"executions", "cursor"}
    (execution,) = answer["executions"]
    assert set(execution) == SUMMARY_KEYS
    assert execution["id"] == failed
    assert execution["status"] == "failed"
    assert execution["error"]["message"] == "out of stock"


def test_list_narrows_by_status_name_and_parent(holdfast: Call, orders: Shop) -> None:
    parent, failed, _ = orders.start("children", "fail", "done")

    def ids(*options: str) -> list[str]:
        answer = holdfast("list", "--queue", orders.queue, "--json", *options).json
        return [execution["id"] for execution in answer["executions"]]

    assert ids("--status", "failed", "--status", "awaiting_children") == [failed, parent]
    assert ids("--parent", parent[:12]) == [f"{parent}.1", f"{parent}.0"]
    assert ids("--name", "Press") == []
    assert len(ids("--name", "Order", "--kind", "machine")) == 5


def test_list_begins_at_a_time(holdfast: Call, orders: Shop) -> None:
    started = orders.start("done", "fail")

    def ids(before: str) -> list[str]:
        answer = holdfast("list", "--queue", orders.queue, "--json", "--before", before).json
        return [execution["id"] for execution in answer["executions"]]

    assert ids("9000-01-31") == started[::-1]
    assert ids("2001-01-31T14:00") == []


def test_list_goes_on_after_a_cursor_without_repeats(holdfast: Call, orders: Shop) -> None:
    started = orders.start(*["done"] * 5)
    found: list[str] = []
    cursor: list[str] = []
    while True:
        answer = holdfast("list", "--queue", orders.queue, "--limit", "2", "--json", *cursor).json
        found += [execution["id"] for execution in answer["executions"]]
        if answer["cursor"] is None:
            break
        cursor = ["--cursor", answer["cursor"]]
    assert found == started[::-1]


def test_list_says_how_to_go_on_and_when_there_is_nothing(holdfast: Call, orders: Shop) -> None:
    orders.start("done", "done")
    assert "there are more: --cursor " in holdfast("list", "--queue", orders.queue, "--limit", "1").out
    assert holdfast("list", "--queue", "nobody's").out == "no execution fits\n"


@pytest.mark.parametrize("form", ["{id}", "{id:.10}", "Order/{id:.8}", "{upper:.9}"])
def test_show_takes_any_unambiguous_form_of_an_id(holdfast: Call, orders: Shop, form: str) -> None:
    (waiting,) = orders.start("wait")
    ran = holdfast("show", form.format(id=waiting, upper=waiting.upper()), "--json")
    assert ran.json["id"] == waiting
    assert set(ran.json) == DETAIL_KEYS


def test_show_tells_what_a_person_asks_next(holdfast: Call, orders: Shop) -> None:
    parent, flaky = orders.start("children", "flaky")
    holdfast("signal", f"{parent}.0", "other", '{"a": 1}')
    whole = holdfast("show", parent).out
    assert whole.startswith(f"Order/{parent[:8]}\nid                {parent}\n")
    assert "status            awaiting_children\n" in whole
    assert "children (2)" in whole
    assert f"Order/{parent[:8]}.0  awaiting_signal" in whole
    child = holdfast("show", f"{parent}.0").out
    facts = dict(line.split("  ", 1) for line in child.split("\n\n")[0].splitlines()[1:])
    assert facts["awaits"].strip() == "paid, refused"
    assert facts["parent"].strip() == parent[:8]
    assert "inbox (1)\n  other  " in child
    result = holdfast("show", flaky).out
    assert 'result\n  {\n    "signals": [],\n    "wish": "flaky"\n  }' in result


def test_show_keeps_the_lines_of_an_error(in_process: Call, database: str, orders: Shop) -> None:
    (jammed,) = orders.start("jam")
    shown = in_process("show", jammed, "--database", database).out
    assert "the till is jammed\\x1b[31m\n  for good\n" in shown


def test_show_as_json_holds_payloads_as_json(holdfast: Call, orders: Shop) -> None:
    (parent,) = orders.start("children")
    holdfast("signal", f"{parent}.0", "other", '{"a": [1, null]}')
    shown = holdfast("show", f"{parent}.0", "--json").json
    assert shown["state"] == {"wish": "wait", "queue": "default"}
    assert shown["inbox"] == [{"name": "other", "payload": {"a": [1, None]}}]
    assert shown["awaits"] == ["paid", "refused"]
    assert shown["parent"] == parent
    assert [child["id"] for child in holdfast("show", parent, "--json").json["children"]] == [
        f"{parent}.0",
        f"{parent}.1",
    ]


def test_show_in_a_terminal_spells_out_what_could_play_tricks(
    holdfast_in_terminal: Call, holdfast: Call, orders: Shop
) -> None:
    (waiting,) = orders.start("wait")
    holdfast("signal", waiting, "evil", '"\\u001b]0;title\\u0007 \\u202e"')
    ran = holdfast_in_terminal("show", waiting)
    assert ran.code == 0
    assert "\x1b]0;" not in ran.out
    assert "\u202e" not in ran.out
    assert "evil" in ran.plain
    assert " ago (" in ran.plain or "now (" in ran.plain


def test_json_in_a_terminal_is_json_without_colours(holdfast_in_terminal: Call, orders: Shop) -> None:
    (waiting,) = orders.start("wait")
    ran = holdfast_in_terminal("show", waiting, "--json")
    assert "\x1b" not in ran.out
    assert ran.json["id"] == waiting


def test_history_shows_every_committed_step_and_its_error(holdfast: Call, orders: Shop) -> None:
    (flaky,) = orders.start("flaky")
    answer = holdfast("history", flaky, "--json").json
    assert set(answer) == {"id", "label", "kind", "transitions", "events"}
    assert {key for line in answer["transitions"] for key in line} == {
        "revision", "at", "step", "attempt", "outcome", "next_step", "error",
    }  # fmt: skip
    steps = [(line["step"], line["attempt"], line["outcome"]) for line in answer["transitions"]]
    assert steps == [("take", 0, "Next"), ("work", 0, "Replay"), ("work", 1, "Next"), ("close", 0, "Done")]
    assert answer["transitions"][1]["error"]["type"] == "ValueError"
    header, *lines = holdfast("history", flaky).out.splitlines()
    assert header.split() == ["REVISION", "AT", "STEP", "ATTEMPT", "OUTCOME", "NEXT", "ERROR"]
    assert lines[1].endswith("ValueError: the till is jammed\\x1b[31m\\nfor good")


def test_history_in_a_terminal(holdfast_in_terminal: Call, orders: Shop) -> None:
    (done,) = orders.start("done")
    ran = holdfast_in_terminal("history", done)
    assert ran.code == 0
    assert [line.split()[2] for line in ran.plain.splitlines()[1:]] == ["take", "work", "close"]


def test_a_history_that_is_not_there_says_why(holdfast: Call, orders: Shop) -> None:
    (fresh,) = orders.start("done", work=False)
    assert "has no history" in holdfast("history", fresh).out


@pytest.mark.parametrize("command", ["show", "history", "cancel", "pause", "resume"])
def test_an_unknown_id_is_exit_code_3(holdfast: Call, orders: Shop, command: str) -> None:
    orders.start("done")
    ran = holdfast(command, "0123456789")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == (
        "holdfast: no execution has the id 0123456789: check the digits, or list the executions to find it\n"
    )


def test_an_ambiguous_prefix_is_exit_code_3_and_names_the_candidates(holdfast: Call, orders: Shop) -> None:
    seen: dict[str, str] = {}
    for number in range(100_000):
        key = f"{orders.queue}-{number}"
        prefix = str(PromiseId.of("Order", key))[:4]
        if prefix in seen:
            break
        seen[prefix] = key
    for chosen in (key, seen[prefix]):
        orders.start("done", work=False, key=chosen)
    ran = holdfast("show", prefix)
    assert ran.code == 3
    assert "fits 2 executions" in ran.err
    assert ran.err.count("Order/") == 2
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("given", ["abc", "not-an-id", "Order/", "12345678.x"])
def test_what_is_neither_id_nor_key_is_exit_code_3(in_process: Call, given: str) -> None:
    in_process("migrate")
    ran = in_process("show", given)
    assert ran.code == 3
    assert f"no execution has the key {given!r}, and it is no id" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_key_names_an_execution_and_is_shown(holdfast: Call, orders: Shop) -> None:
    key = f"order of {orders.queue}"
    orders.start("done", key=key)
    for given in (key, f"Order/{key}"):
        ran = holdfast("show", given)
        assert (ran.code, ran.err) == (0, "")
        assert ["key", *key.split()] in [line.split() for line in ran.out.splitlines()]
    assert f"  {key}  -\n" in holdfast("list", "--queue", orders.queue).out
