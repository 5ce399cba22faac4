"""Bad input: each a typed error that names what, which and what to do; nothing is written, and the worker goes on."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import App, Done, HoldfastError, Machine, MachineContext, Next, Outcome, RetryPolicy, Unique, step
from holdfast.core.errors import (
    ConfigurationError,
    EncodeError,
    ExecutionFailedError,
    InvalidArgumentError,
    PayloadTooLargeError,
)
from holdfast.store.values import ExecutionFilter
from tests.engine.rig import Rig

HALF = "\ud800"  # half of a surrogate pair has no UTF-8 form


@pytest.fixture
def machine(rig: Rig) -> type[Machine[str]]:
    @rig.app.machine(retry=RetryPolicy(max_attempts=1))
    class Job(Machine[str]):
        @step(initial=True)
        async def work(self, ctx: MachineContext[str]) -> Outcome:
            return Next(self.end, ctx.state * 50)

        @step
        async def end(self, ctx: MachineContext[str]) -> Outcome:
            return Done(len(ctx.state))

    return Job


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://db/orders", "a store on mysql:// is not known: use a path, sqlite:///path or postgresql://"),
        ("", "names no file"),
        ("sqlite://", "names no file"),
        (":memory:", "would be lost with the process"),
    ],
)
def test_an_unknown_store_is_refused_where_it_is_written(
    url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        App("orders", store=url)
    monkeypatch.setenv("HOLDFAST_DATABASE", url or "sqlite://")
    with pytest.raises(ConfigurationError):
        App("orders")


@pytest.mark.parametrize("name", ["", "no spaces", "x" * 201, 3])
def test_an_app_needs_a_name(name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="is no name for an app"):
        App(name)


def test_a_release_is_a_text() -> None:
    with pytest.raises(InvalidArgumentError, match="release is a text"):
        App("orders", store="unused.db", release=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, True, "2MB"])
def test_a_payload_limit_is_a_number_of_bytes(limit: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="payload_limit is a number of bytes"):
        App("orders", store="unused.db", payload_limit=limit)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": -1}, "delay is -1 seconds, below zero"),
        ({"delay": "soon"}, "delay is 'soon'"),
        ({"delay": float("nan")}, "delay is not a number"),
        ({"delay": 10**12}, "over a hundred years"),
        ({"at": datetime(2030, 1, 1)}, "no moment with a time zone"),
        ({"at": "tomorrow"}, "no moment with a time zone"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "after the year 9000"),
        ({"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}, "before the year 2"),
        ({"queue": ""}, "no name of a queue"),
        ({"queue": "q" * 101}, "no name of a queue"),
        ({"queue": "a\0b"}, "no name of a queue"),
        ({"queue": HALF}, "no name of a queue"),
        ({"priority": 1.5}, "a priority is a whole number"),
        ({"priority": True}, "a priority is a whole number"),
        ({"priority": 32_768}, "priority 32768 is outside"),
        ({"partition_key": ""}, "a partition key is a non-empty text"),
        ({"partition_key": 7}, "a partition key is a non-empty text"),
        ({"partition_key": HALF}, "a partition key is a non-empty text"),
        ({"partition_key": "k" * 256}, "has 256 characters, the limit is 255"),
        ({"unique": "k"}, "use Unique"),
        ({"colour": "red"}, "there is no option 'colour'; the options are .*partition_key"),
    ],
)
async def test_a_bad_option_is_refused(machine: type[Machine[str]], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        machine.options(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": ""}, "must not be empty"),
        ({"key": 17}, "is a string, not int"),
        ({"key": "k" * 513}, "has 513 characters, the limit is 512"),
        ({"key": "a\0b"}, "NUL"),
        ({"key": HALF}, "surrogate"),
        ({"unique": Unique(key="")}, "a unique key is a non-empty text or bytes"),
        ({"unique": Unique(key=3)}, "a unique key is a non-empty text or bytes"),  # type: ignore[arg-type]
        ({"unique": Unique(key="k" * 1025)}, "over the limit of 1024"),
        ({"unique": Unique(key="k", scope=())}, "leaves out 'runnable'"),
        ({"unique": Unique(key="k", scope="runnable")}, "it is a set of Status values"),  # type: ignore[arg-type]
        ({"unique": Unique(key="k", scope={"runnable", "asleep"})}, "'asleep'"),  # type: ignore[arg-type]
        ({"attributes": {"a": [1]}}, "the attribute 'a' is"),
        ({"attributes": {3: "x"}}, "the attribute 3 is"),
        ({"attributes": {"a": HALF}}, "the attribute 'a' is"),
        ({"attributes": {"a": float("nan")}}, "the attribute 'a' is nan; use .* finite numbers"),
        ({"attributes": {"a": float("inf")}}, "the attribute 'a' is inf"),
        ({"attributes": {"a": 2**63}}, "the attribute 'a' is 9223372036854775808; use .* of 64 bits"),
    ],
)
async def test_a_bad_start_is_refused_and_starts_nothing(
    rig: Rig, machine: type[Machine[str]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        await machine.options(**options).start("a")
    assert await (await rig.store()).count(ExecutionFilter()) == {}


@pytest.mark.parametrize("state", [5, None, ["a"], b"bytes"])
async def test_a_state_that_does_not_fit_is_refused_where_it_enters(machine: type[Machine[str]], state: Any) -> None:
    with pytest.raises(EncodeError, match=r"(does not fit|would not survive as) str"):
        await machine.start(state)


async def test_text_that_has_no_utf8_form_is_refused_where_it_enters(machine: type[Machine[str]]) -> None:
    with pytest.raises(EncodeError):
        await machine.start(HALF)


async def test_one_bad_input_of_start_many_starts_none(rig: Rig, machine: type[Machine[str]]) -> None:
    states: list[Any] = ["a", 5, "b"]
    with pytest.raises(EncodeError):
        await machine.start_many(states)
    assert await (await rig.store()).count(ExecutionFilter()) == {}


async def test_one_key_cannot_name_many(machine: type[Machine[str]]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"the key 'k' names one execution, not 2"):
        await machine.options(key="k").start_many(["a", "b"])


async def test_a_payload_over_the_limit_is_refused_where_it_enters(rig: Rig) -> None:
    small = Rig(rig.stores, payload_limit=100)
    try:

        @small.app.machine(retry=RetryPolicy(max_attempts=1))
        class Grows(Machine[str]):
            @step(initial=True)
            async def work(self, ctx: MachineContext[str]) -> Outcome:
                return Done(ctx.state * 50) if ctx.state == "done" else Next(self.work, ctx.state * 50)

        with pytest.raises(PayloadTooLargeError, match=r"takes 102 bytes as JSON, over the limit of 100"):
            await Grows.start("x" * 100)
        grown, ended, fine = await Grows.start("next"), await Grows.start("done"), await Grows.start("ok")
        with pytest.raises(PayloadTooLargeError, match="over the limit of 100"):
            await fine.signal("big", "x" * 100)
        await small.run()
        for handle in (grown, ended):
            with pytest.raises(ExecutionFailedError, match=rf"{handle.label} failed: .*PayloadTooLargeError"):
                await handle.result()
    finally:
        await small.close()


@pytest.mark.parametrize("name", ["", "s" * 201, "a\0b", HALF, 7, None])
async def test_a_signal_needs_a_name(machine: type[Machine[str]], name: Any) -> None:
    handle = await machine.start("a")
    with pytest.raises(InvalidArgumentError, match="is no name of a signal"):
        await handle.signal(name)


@pytest.mark.parametrize("key", ["", "k" * 256, HALF, 7])
async def test_a_dedup_key_is_a_short_text(machine: type[Machine[str]], key: Any) -> None:
    handle = await machine.start("a")
    with pytest.raises(InvalidArgumentError, match="a dedup key has 1 to 255 characters"):
        await handle.signal("go", dedup_key=key)


async def test_a_signal_without_a_json_form_is_refused(machine: type[Machine[str]]) -> None:
    handle = await machine.start("a")
    with pytest.raises(HoldfastError, match="object"):
        await handle.signal("go", object())


@pytest.mark.parametrize("text", ["", "xyz", "Job/", "4f", "Job/4f7a.x"])
def test_what_is_no_id_is_refused(rig: Rig, text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        rig.app.handle(text)


async def test_a_result_of_another_type_is_refused(rig: Rig, machine: type[Machine[str]]) -> None:
    handle = await machine.start("a")
    await rig.run()
    assert await handle.result(int) == 50
    with pytest.raises(HoldfastError, match=r"does not fit list\[str\]"):
        await handle.result(list[str])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "a whole number from 1"),
        ({"concurrency": 1.5}, "a whole number from 1"),
        ({"concurrency": 2**31}, "a whole number from 1"),
        ({"rate": 0}, "a rate is 1e-06 to"),
        ({"rate": 5, "rate_period": 0}, "in a period of 0.001 s or more"),
        ({"rate": 5, "rate_period": 1e-9}, "in a period of 0.001 s or more"),
        ({"rate_period": 0}, "the period of a rate is 0.001 s or more"),
        ({"rate": math.inf}, "None lifts the limit"),
        ({"rate": math.nan}, "a rate is"),
        ({"rate": 1e-308}, "a rate is"),
        ({"rate": "5"}, "a rate is"),
        ({"rate": True}, "a rate is"),
    ],
)
async def test_a_bad_limit_of_a_queue_is_refused(rig: Rig, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        await rig.app.configure_queue("default", **options)
