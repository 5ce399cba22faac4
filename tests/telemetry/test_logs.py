"""Log records name the execution and attempt they belong to, as attributes and as JSON."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import App, Context, Done, Machine, RetryPolicy, step
from holdfast.engine.settings import WorkerSettings
from holdfast.models.machine.context import MachineContext
from holdfast.telemetry.logs import JsonFormatter, LogContext, configure_logging
from holdfast.testing.stores import Stores

log = logging.getLogger("shop")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Where JSON logs go, while a test runs."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure_logging("json", logging.INFO, stream)
    yield stream
    for handler in root.handlers:
        if handler not in before:
            root.removeHandler(handler)
    root.setLevel(level)


def parsed(stream: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if line["logger"] == "shop"]


async def test_a_line_of_a_task_or_a_step_says_where_it_was_written(stores: Stores, lines: io.StringIO) -> None:
    app = App("logged", store=stores.unopened())
    app.observe(LogContext())
    seen: list[int] = []

    @app.task(retry=RetryPolicy(max_attempts=2, initial_delay=0.0))
    def charge(amount: int) -> int:  # in a thread
        seen.append(amount)
        log.info("charging %d", amount, extra={"city": "Rome"})
        if len(seen) == 1:
            raise ValueError("not yet")
        return amount

    @app.workflow(name="order")
    async def order(ctx: Context, amount: int) -> int:
        return await charge(amount)

    @app.machine(name="Parcel")
    class Parcel(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Any:
            log.info("packing")
            return Done()

    ordered, parcel = await order.start(7), await Parcel.start(1)
    worker = await app.make_worker(WorkerSettings())
    await worker.open()
    await worker.run_until_idle()
    await worker.stop(0)
    await app.close()
    log.info("outside")
    found = {(line["message"], line.get("attempt")): line for line in parsed(lines)}
    first, second = found["charging 7", 1], found["charging 7", 2]
    assert first["execution"] == second["execution"] == str(ordered.id)
    assert first["call"] == second["call"]
    assert first["call"].startswith(f"{ordered.id}.")
    assert (first["execution_name"], first["city"], first["level"]) == ("order", "Rome", "info")
    packing = found["packing", 1]
    assert (packing["execution"], packing["execution_name"]) == (str(parcel.id), "Parcel")
    assert "call" not in packing
    assert "execution" not in found["outside", None]


def test_an_error_is_an_object_and_odd_values_do_not_break_a_line() -> None:
    try:
        raise ValueError("bad\nthing")
    except ValueError:
        record = logging.makeLogRecord({"msg": "it %s", "args": ("broke",), "levelname": "ERROR", "odd": object()})
        record.exc_info = sys.exc_info()
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["message"], line["error"]["type"], line["error"]["message"]) == (
        "it broke",
        "ValueError",
        "bad\nthing",
    )
    assert line["odd"].startswith("<object")


def test_no_extra_forges_a_line_and_no_odd_text_loses_one(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()  # what else captures logs in a test run cannot send half a surrogate on
    ours = [handler for handler in root.handlers if getattr(handler, "stream", None) is lines]
    monkeypatch.setattr(root, "handlers", ours)
    log.info("first", extra={"level": "critical", "time": "never", "city": "Rome"})
    log.info("a file named \udcff")
    first, second = parsed(lines)
    assert (first["level"], first["city"]) == ("info", "Rome")
    assert first["time"] != "never"
    assert second["message"] == "a file named \udcff"


class Mute(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def holding_itself() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["self"] = made
    return made


@pytest.mark.parametrize("odd", [Mute(), holding_itself(), {(1, 2): "\ud800"}, {"deep": Mute()}])
def test_no_value_loses_a_line(odd: Any) -> None:
    try:
        raise Mute
    except Mute:
        fields = {"msg": "it broke", "odd": odd, "city": "Rome", "exc_info": sys.exc_info()}
    line = json.loads(JsonFormatter().format(logging.makeLogRecord(fields)))
    assert (line["message"], line["city"], line["error"]["type"]) == ("it broke", "Rome", "Mute")
    assert "odd" in line


async def test_a_line_of_text_names_its_execution(stores: Stores) -> None:
    """Also where nobody observes, as `holdfast worker` does not unless it writes JSON."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure_logging("text", logging.INFO, stream)
    app = App("logged", store=stores.unopened())

    @app.task
    async def charge(amount: int) -> None:
        log.info("charging %d", amount)

    @app.workflow(name="order")
    async def order(ctx: Context) -> None:
        ctx.log("begun")
        await charge(3)

    try:
        async with app, app.worker():
            handle = await order.start()
            await handle.result()
        log.info("over", extra={"execution": 7})
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    said = [line.split(" INFO ", 1)[1] for line in stream.getvalue().splitlines()]
    assert said == [f"holdfast.workflow: {handle.label}: begun", f"shop: {handle.id.short}: charging 3", "shop: over"]
