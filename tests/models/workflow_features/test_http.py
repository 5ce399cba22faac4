"""`ctx.http`: requests as durable calls, against a server of this test's own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from holdfast import Context, RetryPolicy, Status, TaskFailed
from holdfast.core.codec import DEFAULT_MAX_BYTES
from holdfast.core.errors import ExecutionStrandedError, InvalidArgumentError
from holdfast.engine.upkeep import StrandedSweep
from tests.models.workflow.kit import Gate, Rig


@dataclass
class Server:
    """Answers with `answers` in turn, the last one for ever; keeps what it was asked."""

    url: str = ""
    answers: list[tuple[int, str]] = field(default_factory=lambda: [(200, '{"ok":true}')])
    asked: list[tuple[str, dict[str, str], str]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (item.partition(": ") for item in rest if item)}
        body = (await reader.readexactly(int(headers.get("content-length", "0")))).decode()
        self.asked.append((line.removesuffix(" HTTP/1.1"), headers, body))
        status, text = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        answer = f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\nx-seen: yes\r\nconnection: close\r\n\r\n{text}"
        writer.write(answer.encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield made


async def test_a_request_is_a_call_whose_answer_is_in_the_journal(rig: Rig, server: Server) -> None:
    @rig.app.workflow
    async def ask(ctx: Context) -> tuple[int, bool, str]:
        answer = await ctx.http("post", f"{server.url}/pay", json={"amount": 7}, headers={"x-mine": "1"})
        await ctx.signal("go")
        return answer.status, answer.json()["ok"], answer.headers["x-seen"]

    handle = await ask.start()
    await rig.run()
    rig.forget()  # the rest is replay
    await handle.signal("go")
    assert await rig.result(handle) == (200, True, "yes")
    ((line, headers, body),) = server.asked
    assert (line, body, headers["x-mine"]) == ("POST /pay", '{"amount":7}', "1")
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"] == f"{handle.id}.0"
    assert (await rig.facts(handle))[1]["kind"] == "Http"


async def test_later_is_tried_again_and_a_refusal_is_a_result(rig: Rig, server: Server) -> None:
    server.answers = [(503, ""), (429, ""), (404, "no such thing")]

    @rig.app.workflow
    async def ask(ctx: Context) -> tuple[int, str]:
        answer = await ctx.http("GET", server.url, retry=RetryPolicy(initial_delay=1))
        return answer.status, answer.text

    handle = await ask.start()
    for _ in range(3):
        await rig.run()
        await rig.advance(5)
    assert await rig.result(handle) == (404, "no such thing")
    assert len(server.asked) == 3
    assert "idempotency-key" not in server.asked[0][1]


async def test_what_stays_broken_fails_the_call(rig: Rig, server: Server) -> None:
    server.answers = [(500, "")]

    @rig.app.workflow
    async def ask(ctx: Context) -> list[str]:
        failures = []
        for url in (server.url, "http://127.0.0.1:1"):
            try:
                await ctx.http("GET", url, retry=RetryPolicy(max_attempts=1))
            except TaskFailed as error:
                failures.append(str(error).partition(": ")[2].partition(":")[0].rpartition(".")[2])
        return failures

    assert await rig.result(await ask.start()) == ["HttpLaterError", "ConnectError"]


async def test_an_answer_that_is_too_large_to_record_is_not_read_to_its_end(rig: Rig) -> None:
    """One of gigabytes, or a small one that unpacks to them, would take the worker's memory and time with it."""
    asked: list[str] = []

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 10000000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                writer.write(b"x" * DEFAULT_MAX_BYTES)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"

        @rig.app.workflow
        async def ask(ctx: Context) -> str:
            try:
                await ctx.http("GET", url)
            except TaskFailed as error:
                return str(error)
            return "read"

        assert "PayloadTooLargeError: the answer to GET" in await rig.result(await ask.start())
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [(("G T", "http://a"), {}), (("GET", "a.example"), {}), (("POST", "http://a"), {"json": 1, "content": "1"})],
)
async def test_what_is_no_request_is_refused_at_the_call(
    rig: Rig, arguments: tuple[str, str], keywords: dict[str, object]
) -> None:
    @rig.app.workflow
    async def ask(ctx: Context) -> str:
        try:
            await ctx.http(*arguments, **keywords)  # type: ignore[arg-type]
        except InvalidArgumentError:
            return "refused"
        return "sent"

    assert await rig.result(await ask.start()) == "refused"


async def test_what_ended_before_a_run_is_stranded_by_what_its_worker_lacks_is_not_repeated(
    rig: Rig, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    gate = Gate()

    @rig.app.task(effects="at_most_once")
    async def charge() -> str:
        begun.append("charge")
        return "charged"

    @rig.app.task
    async def plain() -> str:
        begun.append("plain")
        return "plain"

    @rig.app.task
    async def slow() -> str:
        begun.append("slow")
        await gate.wait()
        return "slow"

    @rig.app.workflow
    async def ask(ctx: Context) -> list[Any]:
        in_flight, paid = slow(), charge()
        first = (await ctx.any(paid, in_flight)).result()
        second = await plain()
        return [first, second, (await ctx.http("GET", server.url)).status, await in_flight]

    handle = await ask.start()
    with monkeypatch.context() as bare:
        bare.setitem(sys.modules, "httpx", None)
        working = rig.working(await rig.worker())
        await gate.reached.wait()
        gate.opened.set()
        await working
        with pytest.raises(ExecutionStrandedError):
            await rig.result(handle)
    await rig.check_journals()
    await handle.resume()
    assert await rig.result(handle) == ["charged", "plain", 200, "slow"]
    assert sorted(begun) == ["charge", "plain", "slow"]


async def test_a_worker_without_httpx_strands_the_run_and_one_with_it_goes_on(
    rig: Rig, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure that the body could catch, nor one of the run."""

    @rig.app.workflow
    async def ask(ctx: Context) -> int:
        try:
            return (await ctx.http("GET", server.url)).status
        except Exception:
            return 0

    handle = await ask.start()
    with monkeypatch.context() as bare:
        bare.setitem(sys.modules, "httpx", None)
        with pytest.raises(ExecutionStrandedError, match=r"pip install 'holdfast\[http\]'; a worker with it goes on"):
            await rig.result(handle)
        await StrandedSweep(rig.stores.store, ["default"], [ask.handler], rig.app._release()).run_once()
        assert await rig.status(handle) is Status.STRANDED
    await StrandedSweep(rig.stores.store, ["default"], [ask.handler], rig.app._release()).run_once()
    assert await rig.result(handle) == 200
