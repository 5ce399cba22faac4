"""Intake: any iterable, files, another start of the same key; windows with back-pressure and durable progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast import App, PromiseId, Status
from holdfast.core.errors import (
    ExecutionStrandedError,
    InvalidArgumentError,
    KeyConflictError,
    PayloadError,
    StoreUnavailableError,
)
from holdfast.models.batch.definition import Batch
from holdfast.models.definitions import NamedStarter
from holdfast.models.options import Options
from tests.engine.rig import Faulty, Rig
from tests.models.batch.kit import committed, until


def echo(rig: Rig, **settings: int) -> Batch[int, int]:
    @rig.app.batch(results=True, **settings)  # type: ignore[call-overload, untyped-decorator]
    async def echo(number: int) -> int:
        return number

    made: Batch[int, int] = echo
    return made


async def values(run: object) -> list[object]:
    return [item.value for item in await committed(run)]  # type: ignore[arg-type]


async def test_a_generator_is_read_once(rig: Rig) -> None:
    run = await echo(rig).start(number * number for number in range(300))
    await rig.run()
    assert await values(run) == [number * number for number in range(300)]


async def test_an_async_iterable_is_taken_in_as_it_comes(rig: Rig) -> None:
    more = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 1
        await more.wait()
        yield 2

    batch = echo(rig)
    async with rig.app.worker():
        run = await batch.start(source())
        seen = []
        async for item in run.committed():
            seen.append(item.value)
            more.set()
    assert seen == [1, 2]


async def test_what_the_source_raises_is_told_and_the_same_key_goes_on(rig: Rig) -> None:
    async def source(fails: bool) -> AsyncIterator[int]:
        for number in range(20):
            if fails and number == 12:
                raise ConnectionError("the source is gone")
            yield number

    batch = echo(rig)
    async with rig.app.worker():
        run = await batch.options(key="nightly").start(source(True))
        with pytest.raises(ConnectionError, match="the source is gone"):
            await run.result()
        again = await batch.options(key="nightly").start(source(False))
        assert again.id == run.id
        await again.result()
    assert await values(again) == list(range(20))


async def test_an_endless_source_is_held_back_by_the_window(rig: Rig) -> None:
    read: list[int] = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            read.append(number)
            yield number
            number += 1

    run = await echo(rig, window=100, chunk=10).start(endless())
    status = await run.status()
    assert status.taken == 100, "the window is the limit, not a hint"
    assert len(read) == status.taken
    async with rig.app.worker():
        await until(lambda: len(read) > 1_000)
        taken = await run.close_intake()
        result = await run.result()
    assert result.total == taken == result.succeeded


async def test_bytes_hold_a_source_back_as_well(rig: Rig) -> None:
    @rig.app.batch(window_bytes=10_000, chunk=2)
    async def weigh(text: str) -> None: ...

    run = await weigh.start("x" * 1_000 for _ in range(200))
    assert (await run.status()).taken == 10
    await run.cancel()
    await rig.run()
    assert (await run.status()).status is Status.CANCELLED


async def test_bytes_are_counted_as_they_are_stored(rig: Rig) -> None:
    @rig.app.batch(window_bytes=10_000, chunk=2)
    async def weigh(text: str) -> None: ...

    run = await weigh.start("\u4e2d" * 1_000 for _ in range(200))
    assert (await run.status()).taken == 4
    await run.cancel()
    await rig.run()


async def test_of_an_async_source_no_more_is_held_in_memory_than_a_feed(rig: Rig) -> None:
    read: list[int] = []

    async def endless() -> AsyncIterator[str]:
        while True:
            read.append(len(read))
            yield "x" * 100_000

    @rig.app.batch(window_bytes=500_000)
    async def weigh(text: str) -> None: ...

    run = await weigh.start(endless())

    async def is_full() -> bool:
        return (await run.status()).taken >= 5

    await until(is_full)
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(read) < 100
    await run.cancel()
    await rig.run()
    await run.fed()


async def test_a_window_is_the_limit_for_a_file_too(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text("".join(f"{number}\n" for number in range(300)))
    gate = asyncio.Event()
    highest = 0

    @rig.app.batch(window=50, chunk=10)
    async def work(number: int) -> None:
        if number == 70:
            await gate.wait()

    run = await work.start(path)

    async def is_held_up() -> bool:
        nonlocal highest
        status = await run.status()
        highest = max(highest, status.taken - status.committed)
        return status.committed == 70 and status.terminal > 20

    async with rig.app.worker():
        await until(is_held_up)
        gate.set()
        assert (await run.result()).total == 300
    assert highest <= 50


async def test_the_same_key_and_source_find_the_run(rig: Rig) -> None:
    batch = echo(rig)
    first = await batch.options(key="k").start(range(50))
    second = await batch.options(key="k").start(range(50))
    assert first.id == second.id
    await rig.run()
    assert (await first.result()).total == 50


@pytest.mark.parametrize("other", [range(49), range(51), range(1, 51)])
async def test_the_same_key_with_another_source_is_refused(rig: Rig, other: range) -> None:
    batch = echo(rig)
    await batch.options(key="k").start(range(50))
    with pytest.raises(KeyConflictError, match="started before with the same key"):
        await batch.options(key="k").start(other)


async def test_a_feed_whose_reply_was_lost_is_not_taken_in_twice(rig: Rig) -> None:
    faulty = Faulty(rig.stores.unopened())
    rig.app.use_store(faulty.as_store())
    batch = echo(rig, chunk=4)
    faulty.fail("feed_batch", StoreUnavailableError("cut"), applied=True)
    faulty.fail("feed_batch", StoreUnavailableError("cut"))
    run = await batch.start(range(500))
    assert not faulty.pending()
    await rig.run()
    assert await values(run) == list(range(500))


async def test_two_starters_may_feed_one_run(rig: Rig) -> None:
    batch = echo(rig, window=40, chunk=4)
    first = await batch.options(key="k").start(range(400))
    second = await batch.options(key="k").start(range(400))
    async with rig.app.worker():
        await asyncio.gather(first.fed(), second.fed())
        await first.result()
    assert await values(first) == list(range(400))


async def test_a_file_of_lines_is_read_by_the_workers(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "paths.txt"
    path.write_text("".join(f"/images/{number}.png\n" for number in range(250)) + "\n/last without an end")

    @rig.app.batch(results=True, window=60, chunk=20)
    async def name(image: Path) -> str:
        return image.name

    run = await name.start(path)
    await rig.run()
    found = await values(run)
    assert found[:2] == ["0.png", "1.png"]
    assert found[-1] == "last without an end"
    assert len(found) == 251


async def test_a_file_of_json_lines_that_is_wrong_strands_the_run_until_it_is_mended(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text("1\n2\nthree\n")
    batch = echo(rig)
    run = await batch.start(path)
    await rig.run()
    with pytest.raises(
        ExecutionStrandedError, match=r"line 3 of .*numbers\.jsonl is no item .* Mend the file"
    ) as caught:
        await run.result()
    assert "new fields" not in str(caught.value)
    path.write_text("1\n2\n3\n")
    await run.resume()
    await rig.run()
    assert await values(run) == [1, 2, 3]


async def test_of_json_lines_in_a_file_of_another_name_the_error_says_what_to_do(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1\n2\n")
    (tmp_path / "words.txt").write_text("one\n")
    batch = echo(rig)
    as_json, words = await batch.start(tmp_path / "numbers.txt"), await batch.start(tmp_path / "words.txt")
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match=r"line 1 of .*numbers\.txt is no item .* ends in \.jsonl or"):
        await as_json.result()
    with pytest.raises(ExecutionStrandedError, match=r"line 1 of .*words\.txt is no item") as caught:
        await words.result()
    assert "jsonl" not in str(caught.value)


async def test_a_mark_of_byte_order_belongs_to_no_line(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffone\r\ntw\u2028o\r\n".encode())

    @rig.app.batch(results=True)
    async def same(text: str) -> str:
        return text

    run = await same.start(path)
    await rig.run()
    assert await values(run) == ["one", "tw\u2028o"]


async def test_a_line_without_an_end_is_not_read_into_memory(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(b"short\n" + b"x" * 40_000_000)

    @rig.app.batch
    async def same(text: str) -> None: ...

    run = await same.start(path)
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match=r"line 2 of .*long\.txt is longer than"):
        await run.result()


async def test_a_run_can_be_started_by_name_with_its_items(rig: Rig) -> None:
    batch = echo(rig)
    await rig.app.register()
    handle = await rig.app.start_by_name(batch.name, {"items": [1, 2, 3]}, key="named")
    await rig.run()
    assert (await handle.result())["succeeded"] == 3
    assert await values(rig.app.batch_run(batch.name, key="named")) == [1, 2, 3]


@pytest.mark.parametrize("has_code", [True, False], ids=["with the code", "without"])
async def test_of_a_run_that_was_started_by_name_an_item_that_cannot_be_read_fails_alone(
    rig: Rig, has_code: bool
) -> None:
    @rig.app.batch(name="double", results=True)
    async def double(number: int) -> int:
        return 2 * number

    await rig.app.register()
    async with App("far", store=rig.stores.unopened()) as far:
        starter = rig.app if has_code else far
        await starter.start_by_name("double", {"items": [1, "two", 3]}, key="named")
    await rig.run()
    items = [(item.outcome, item.value) async for item in rig.app.batch_run("double", key="named").committed()]
    assert items == [("success", 2), ("fail", None), ("success", 6)]


@pytest.mark.parametrize("source", ["text", b"bytes", {"a": 1}, 7, None])
async def test_what_is_no_source_is_refused(rig: Rig, source: object) -> None:
    with pytest.raises(InvalidArgumentError, match="iterable of items"):
        await echo(rig).start(source)  # type: ignore[arg-type]


async def test_a_file_that_is_not_there_is_refused(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no file"):
        await echo(rig).start(tmp_path / "missing.txt")


async def test_an_item_that_does_not_fit_is_named_by_its_seq(rig: Rig) -> None:
    with pytest.raises(PayloadError, match="item 3 of"):
        await echo(rig).start([0, 1, 2, "three"])  # type: ignore[list-item]


async def test_app_run_works_and_gives_the_result(rig: Rig) -> None:
    assert (await rig.app.run(echo(rig), range(5))).succeeded == 5


async def test_items_that_are_no_list_say_so(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """As SQL may start it, which looks at no values."""
    batch = echo(rig)
    await rig.worker()
    row = await NamedStarter(rig.app._connection, batch.name, Options()).row({"items": []})
    await rig.stores.store.insert([msgspec.structs.replace(row, state='{"items":5}')])
    handle = rig.app.handle(PromiseId.from_bytes(row.promise))
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match="are no list"):
        await handle.result()
    assert f"{handle.label} is stranded: " in caplog.text
