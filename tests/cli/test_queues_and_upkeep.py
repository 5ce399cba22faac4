"""`queues`, `workers`, `gc`, `migrate`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.cli.queues import parse_rate, runnable_text
from holdfast.store import store_from_url
from holdfast.views import ledger_shapes
from tests.cli.conftest import Call, Shop
from tests.cli.processes import HOLDFAST, in_pipe, in_terminal

QUEUE_KEYS = {
    "name", "paused", "concurrency", "rate", "rate_seconds", "runnable", "executing", "capped", "estimate",
    "oldest_eligible_at",
}  # fmt: skip
WORKER_KEYS = {"id", "host", "pid", "queues", "executing", "is_expired", "started_at", "expires_at"}


def _of(answer: dict[str, list[dict[str, object]]], queue: str) -> dict[str, object]:
    return next(found for found in answer["queues"] if found["name"] == queue)


def test_queues_lists_what_waits_and_its_limits(holdfast: Call, orders: Shop) -> None:
    orders.start("done", "done", work=False)
    answer = holdfast("queues", "--json").json
    assert set(_of(answer, orders.queue)) == QUEUE_KEYS
    assert _of(answer, orders.queue)["runnable"] == 2
    assert _of(holdfast("queues", "list", "--json").json, orders.queue)["concurrency"] is None
    header, *lines = holdfast("queues").out.splitlines()
    assert header.split()[:4] == ["QUEUE", "STATE", "RUNNABLE", "EXECUTING"]
    assert [line.split()[:4] for line in lines if line.startswith(orders.queue)] == [[orders.queue, "open", "2", "0"]]


@pytest.mark.parametrize(
    ("capped", "estimate", "shown"), [(False, None, 7), (True, None, "7+"), (True, 1_200_000, "about 1200000")]
)
def test_what_waits_in_a_queue_is_told_as_good_as_it_is_known(
    capped: bool, estimate: int | None, shown: int | str
) -> None:
    queue = ledger_shapes.Queue(
        name="mail",
        paused=False,
        concurrency=None,
        rate=None,
        rate_seconds=None,
        runnable=7,
        executing=0,
        capped=capped,
        estimate=estimate,
        oldest_eligible_at=None,
    )
    assert runnable_text(queue) == shown


def test_queues_in_a_terminal(holdfast_in_terminal: Call, orders: Shop) -> None:
    orders.start("done", work=False)
    holdfast_in_terminal("queues", "pause", orders.queue)
    ran = holdfast_in_terminal("queues")
    assert ran.code == 0
    assert "\x1b[33mpaused" in ran.out


def test_setting_one_limit_leaves_the_others(holdfast: Call, orders: Shop) -> None:
    queue = orders.queue
    assert holdfast("queues", "set", queue, "--concurrency", "3", "--rate", "100/m").out == (
        f"queue {queue} is open: at most 3 at work, at most 100/1m\n"
    )
    assert holdfast("queues", "pause", queue, "--json").json == {
        "name": queue,
        "paused": True,
        "concurrency": 3,
        "rate": 100.0,
        "rate_seconds": 60.0,
    }
    assert holdfast("queues", "set", queue, "--no-rate", "--json").json == {
        "name": queue,
        "paused": True,
        "concurrency": 3,
        "rate": None,
        "rate_seconds": None,
    }
    holdfast("queues", "set", queue, "--no-concurrency")
    assert holdfast("queues", "resume", queue).out == f"queue {queue} is open: no limit, any rate\n"


def test_nothing_is_taken_from_a_paused_queue(holdfast: Call, orders: Shop) -> None:
    holdfast("queues", "pause", orders.queue)
    (order,) = orders.start("done")
    assert orders.show(order)["status"] == "runnable"
    holdfast("queues", "resume", orders.queue)
    orders.work()
    assert orders.show(order)["status"] == "done"


@pytest.mark.parametrize(
    ("text", "rate", "seconds"),
    [("5", 5, 1), ("2.5/s", 2.5, 1), ("20/m", 20, 60), ("7/90s", 7, 90), ("1/1h30m", 1, 5400)],
)
def test_a_rate_is_a_number_in_a_time(text: str, rate: float, seconds: float) -> None:
    assert parse_rate(text) == (rate, seconds)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "nothing to set"),
        (["--rate", "fast"], "'fast' is no rate"),
        (["--rate", "0/s"], "'0/s' is no rate"),
        (["--rate", "5/0s"], "'5/0s' is no rate"),
        (["--rate", "nan"], "'nan' is no rate"),
        (["--rate", "1e-308/1w"], "'1e-308/1w' is no rate"),
        (["--rate", "1e300"], "'1e300' is no rate"),
        (["--concurrency", "2147483648"], "2147483648 is not in the range"),
        (["--concurrency", "0"], "0 is not in the range"),
        (["--rate", "5", "--no-rate"], "contradict"),
        (["--concurrency", "5", "--no-concurrency"], "contradict"),
    ],
)
def test_wrong_limits_are_wrong_use(in_process: Call, options: list[str], complaint: str) -> None:
    in_process("migrate")
    ran = in_process("queues", "set", "q", *options)
    assert ran.code == 2
    assert complaint in ran.err
    assert len(ran.err.splitlines()) == 1


def test_workers_tells_the_living_from_the_expired(holdfast: Call, database: str, orders: Shop) -> None:
    async def register() -> None:
        store = store_from_url(database)
        await store.open()
        for name, lease in ((f"live-{orders.queue}", 600.0), (f"dead-{orders.queue}", 0.0)):
            await store.register_worker(name, host="here", pid=17, queues=["a", "b"], lease_seconds=lease)
        await store.close()

    asyncio.run(register())
    answer = holdfast("workers", "--json").json
    found = {worker["id"]: worker for worker in answer["workers"] if orders.queue in worker["id"]}
    assert {name: worker["is_expired"] for name, worker in found.items()} == {
        f"live-{orders.queue}": False,
        f"dead-{orders.queue}": True,
    }
    assert all(set(worker) == WORKER_KEYS for worker in found.values())
    lines = [line for line in holdfast("workers").out.splitlines() if orders.queue in line]
    assert sorted(line.split()[3] for line in lines) == ["alive", "expired"]
    assert all(line.endswith("a, b") for line in lines)


def test_workers_in_a_terminal(holdfast_in_terminal: Call, orders: Shop) -> None:
    orders.start("done")
    assert holdfast_in_terminal("workers").code == 0


def test_gc_deletes_what_ended_long_enough_ago(holdfast: Call, orders: Shop) -> None:
    done, waiting = orders.start("done", "wait")
    assert holdfast("gc", "--older-than", "1h", "--queue", orders.queue).out == "0 ended executions were deleted\n"
    assert holdfast("gc", "--older-than", "0s", "--queue", orders.queue, "--name", "Press", "--json").json == {
        "deleted": 0
    }
    assert holdfast("gc", "--older-than", "0s", "--queue", orders.queue).out == "1 ended execution was deleted\n"
    assert holdfast("show", done).code == 3
    assert holdfast("show", waiting).code == 0


def test_gc_in_a_terminal(holdfast_in_terminal: Call, orders: Shop) -> None:
    orders.start("done")
    ran = holdfast_in_terminal("gc", "--older-than", "0s", "--queue", orders.queue)
    assert ran.plain.endswith("1 ended execution was deleted\n")


@pytest.mark.parametrize("given", [[], ["--older-than", "long"], ["--older-than", "-1d"]])
def test_gc_needs_an_age(in_process: Call, given: list[str]) -> None:
    in_process("migrate")
    ran = in_process("gc", *given)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


def test_migrate_creates_a_ledger_and_is_harmless_again(backend: str, cli_postgres: str, tmp_path: Path) -> None:
    database = str(tmp_path / "new.db") if backend == "sqlite" else cli_postgres
    first, again = (in_pipe([*HOLDFAST, "migrate", "--json"], folder=tmp_path, database=database) for _ in range(2))
    assert first.code == again.code == 0
    assert set(first.json) == {"database", "migrated"}
    assert in_pipe([*HOLDFAST, "list"], folder=tmp_path, database=database).code == 0
    shown = in_terminal([*HOLDFAST, "migrate"], folder=tmp_path, database=database)
    assert shown.plain.endswith(" is up to date\n")
