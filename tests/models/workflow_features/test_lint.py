"""The look at a workflow's body when it is declared (ruling B5): by name and line, with what to use instead."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import pathlib
import random
import threading
import time
import uuid
import warnings
from datetime import datetime
from os import environ
from pathlib import Path
from random import randint
from uuid import uuid4

import pytest

from holdfast import App, Context
from holdfast.core.errors import DefinitionError
from holdfast.models.workflow.lint import DeterminismWarning, findings


class tasks:  # noqa: N801  (stands for a module)
    @staticmethod
    async def read_text(name: str) -> str:
        return name


async def bad(ctx: Context) -> None:
    time.time()
    random.random()
    randint(1, 2)
    datetime.now()
    dt.datetime.utcnow()
    uuid.uuid4()
    uuid4()
    os.environ["HOME"]
    environ.get("HOME")
    os.getenv("HOME")
    open("x")  # noqa: ASYNC230, SIM115
    threading.Thread()
    await asyncio.sleep(1)
    import requests  # type: ignore[import-untyped,unused-ignore]

    requests.get("x")  # noqa: ASYNC210

    def later() -> float:
        return time.monotonic()

    later()


async def good(ctx: Context, time: float) -> None:
    ctx.now()
    ctx.random()
    moment = datetime(2025, 1, 1)
    moment.replace(year=2026)
    os.path.join("a", "b")
    try:  # noqa: SIM105
        await ctx.sleep(time.real)
    except (asyncio.CancelledError, OSError):
        pass
    uuid.uuid5(uuid.NAMESPACE_DNS, "a")
    print(__import__)


def test_everything_that_a_replay_would_do_otherwise_is_found_with_its_line() -> None:
    start = bad.__code__.co_firstlineno
    found = findings(bad)
    assert [(finding.line - start, finding.used) for finding in found] == [
        (1, "time.time"),
        (2, "random.random"),
        (3, "random.Random.randint"),
        (4, "datetime.datetime.now"),
        (5, "datetime.datetime.utcnow"),
        (6, "uuid.uuid4"),
        (7, "uuid.uuid4"),
        (8, "os.environ"),
        (9, "os.environ.get"),
        (10, "os.getenv"),
        (11, "open"),
        (12, "threading.Thread"),
        (13, "asyncio.sleep"),
        (16, "requests.get"),
        (19, "time.monotonic"),
    ]
    assert "ctx.now()" in str(found[0])
    assert found[0].file == __file__


def test_files_are_found_by_the_methods_of_a_path() -> None:
    async def reads(ctx: Context, here: Path) -> None:
        Path("a").exists()  # noqa: ASYNC240
        pathlib.Path("a").open()  # noqa: ASYNC230, SIM115
        here.read_text()  # noqa: ASYNC240
        Path.cwd()

    async def names(ctx: Context, here: Path) -> str:
        await ctx.invoke(tasks.read_text, "a")
        return (here / "a").name + Path("b").suffix + "a".replace("a", "b")

    start = reads.__code__.co_firstlineno
    assert [(finding.line - start, finding.used) for finding in findings(reads)] == [
        (1, "pathlib.Path.exists"),
        (2, "pathlib.Path.open"),
        (3, "pathlib.Path.read_text"),
        (4, "pathlib.Path.cwd"),
    ]
    assert findings(names) == []


def test_what_gives_the_same_answer_always_is_left_alone() -> None:
    assert findings(good) == []


def test_a_line_may_say_that_it_is_safe() -> None:
    async def body(ctx: Context) -> None:
        os.getpid()  # holdfast: replay-safe

    assert findings(body) == []


def test_it_warns_refuses_or_is_silent_as_asked() -> None:
    app = App("test", "unused.db")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        app.workflow(name="bad")(bad)
    assert {warning.category for warning in caught} == {DeterminismWarning}
    first = caught[0]
    assert (first.filename, first.lineno) == (__file__, bad.__code__.co_firstlineno + 1)
    assert str(first.message).startswith("in the workflow bad: ")
    assert "time.time gives another answer in every replay: use ctx.now()" in str(first.message)
    with pytest.raises(DefinitionError, match="cannot be replayed"):
        app.workflow(name="worse", lint="error")(bad)
    with pytest.raises(DefinitionError, match="lint"):
        app.workflow(name="worst", lint="loud")(bad)  # type: ignore[call-overload]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        app.workflow(name="silent", lint="off")(bad)
        app.workflow(name="good", lint="error")(good)


def test_a_body_without_a_source_is_taken_as_it_is() -> None:
    scope: dict[str, object] = {}
    exec("import time\nasync def body(ctx):\n    time.time()\n", scope)
    assert findings(scope["body"]) == []  # type: ignore[arg-type]
