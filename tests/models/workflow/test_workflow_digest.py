"""The digest of a workflow's code (ruling B6): all workers tell alike which release tried a stranded run (B17)."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from holdfast import App, Context, Done, Machine, MachineContext, Outcome, step
from holdfast.core.codec_hooks import shape_of
from holdfast.models.code import code_digest

ItemT = TypeVar("ItemT")


async def choose(ctx: Context, city: str) -> bool:
    return city in {"Ulm", "Bonn", "Jena", "Kiel", "Hof", "Trier"}


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any) -> Any:
        return await function(*args)

    return wrapper


def release() -> str:
    app = App("digest", store="unused.db")
    app.workflow(choose)

    @app.machine
    class Choose(Machine[str]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[str]) -> Outcome:
            return Done(ctx.state in {"Ulm", "Bonn", "Jena", "Kiel", "Hof", "Trier"})

    return app._release()


def test_every_process_finds_the_same() -> None:
    program = "from tests.models.workflow.test_workflow_digest import release; print(release(), end='')"
    path = os.pathsep.join(part for part in sys.path if part)
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert found == {release()}


def test_what_a_decorator_wraps_counts() -> None:
    @logged
    async def one(ctx: Context) -> int:
        return 1

    @logged
    async def two(ctx: Context) -> int:
        return 2

    assert code_digest(one) != code_digest(two)


def test_what_a_type_reads_counts_and_its_defaults_do_not() -> None:
    order = [("number", int), ("folder", Path)]
    bare, filled, otherwise = (
        shape_of(msgspec.defstruct("Order", [*order[:1], ("folder", Path, *default)]))
        for default in ((), (Path("a"),), (Path("b"),))
    )
    assert bare == shape_of(msgspec.defstruct("Order", order)) != filled == otherwise
    renamed = shape_of(msgspec.defstruct("Order", [("id", int), ("folder", Path, Path("a"))]))
    assert renamed != filled, "though that default has no JSON form"
    kept, lost = (StrEnum("Size", names) for names in (["small", "large"], ["small"]))
    assert shape_of(dict[str, kept]) != shape_of(dict[str, lost])  # type: ignore[valid-type]


def test_constants_and_nested_functions_count() -> None:
    def made(number: int) -> list[Callable[..., Any]]:
        async def plain(ctx: Context) -> int:
            return number

        async def nested(ctx: Context) -> int:
            def inner() -> int:
                return 3

            return inner() + number

        async def other(ctx: Context) -> int:
            def inner() -> int:
                return 4

            return inner() + number

        return [plain, nested, other]

    assert len({code_digest(function) for function in made(1)}) == 3
    assert [*map(code_digest, made(1))] == [*map(code_digest, made(2))]  # what it closes over is no code


class Paged(msgspec.Struct, Generic[ItemT]):
    items: list[ItemT]
    following: Paged[ItemT] | None = None


def test_what_a_generic_type_is_of_counts() -> None:
    numbers, texts = shape_of(Paged[int]), shape_of(Paged[str])
    assert numbers != texts
    assert shape_of(Paged[int]) == numbers


def test_generic_types_are_read_wherever_one_may_stand() -> None:
    app = App("generic", store="unused.db")

    @app.workflow
    async def turn(ctx: Context, page: Paged[int]) -> Paged[str]:
        return Paged([str(item) for item in page.items])

    @app.machine
    class Turn(Machine[Paged[int]]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[Paged[int]]) -> Outcome:
            return Done(ctx.state)

    assert app._release()


def release_with(kind: str, annotation: type, unit: str) -> str:
    app = App("weights", store="unused.db")

    async def grams(item: Any) -> str:
        return f"{item} g"

    async def tons(item: Any) -> str:
        return f"{item} t"

    function = grams if unit == "g" else tons
    function.__annotations__["item"] = annotation
    if kind == "task":
        app.task(name="weigh")(function)
    else:
        app.batch(name="weigh")(function)
    return app._release()


@pytest.mark.parametrize("kind", ["task", "batch"])
def test_what_it_reads_and_its_constants_make_another_release(kind: str) -> None:
    one = release_with(kind, int, "g")
    assert one == release_with(kind, int, "g")
    assert len({one, release_with(kind, str, "g"), release_with(kind, int, "t")}) == 3
