"""Live events lose nothing: a client that is cut off anywhere goes on after the last event it had."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from time import time
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.web.kit import Box, Shop, client, parse_events

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.journal import decode_segment
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.watching import Feed, Position
from holdfast.web.problems import Problem
from holdfast.web.security import SESSION_COOKIE, Tokens
from holdfast.web.server import build, make_server
from holdfast.web.streams import BEAT, Streams, Told

TOKEN = "a-token-to-read-with"


def streams(**given: Any) -> Streams:
    return Streams(first_poll_seconds=0.001, last_poll_seconds=0.002, **given)


@asynccontextmanager
async def serving(web: Starlette) -> AsyncIterator[str]:
    """Over a real connection; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = make_server(web, "127.0.0.1", port)
    at_work = asyncio.ensure_future(server.serve())
    await server.is_up.wait()
    yield f"http://127.0.0.1:{port}"
    server.stop()
    await at_work


async def take(events: AsyncGenerator[bytes, None], count: int) -> list[dict[str, str]]:
    """The next so many events; then the connection breaks."""
    found: list[dict[str, str]] = []
    async for text in events:
        found += parse_events(text)
        if len(found) >= count:
            break
    await events.aclose()
    return found


async def sequences(store: Store, promise: bytes) -> list[int]:
    segments = [decode_segment(text) for text in await store.journal(promise)]
    return [event.sequence for segment in segments for event in segment.events]


async def test_a_stream_cut_off_after_every_event_tells_each_event_once(shop: Shop) -> None:
    handle = await shop.order.start(4)
    await shop.work()
    store, promise = await shop.app.store(), handle.id.to_bytes()
    live = streams()
    found: list[dict[str, str]] = []
    last: str | None = None
    while not found or found[-1]["event"] != "end":
        if len(found) == 3:  # something happens while nobody listens
            await handle.signal("ship", "now")
            await shop.work()
        (event,) = await take(live.execution(store, promise, last), 1)
        found.append(event)
        last = event["id"]
    told = [json.loads(event["data"])["sequence"] for event in found if event["event"] == "journal"]
    assert told == await sequences(store, promise)
    events = [json.loads(event["data"]) for event in found if event["event"] == "journal"]
    assert {event["promise_id"].rpartition(".")[0] for event in events if "promise_id" in event} == {str(handle.id)}
    assert [event["event"] for event in found][-2:] == ["status", "end"]
    assert json.loads(found[-1]["data"])["status"] == "done"
    assert live.open == 0


async def test_a_machine_is_told_by_its_history(shop: Shop) -> None:
    handle = await shop.parcel.start(Box(1))
    store = await shop.app.store()
    first = await take(streams().execution(store, handle.id.to_bytes(), None), 1)
    assert json.loads(first[0]["data"])["status"] == "runnable"
    await shop.work()
    rest = await take(streams().execution(store, handle.id.to_bytes(), first[0]["id"]), 4)
    assert [event["event"] for event in rest] == ["transition", "transition", "status", "end"]
    assert [json.loads(event["data"])["step"] for event in rest[:2]] == ["pack", "send"]


async def test_what_happens_is_told_while_the_stream_is_open(shop: Shop) -> None:
    handle = await shop.order.start(4)
    events = streams().execution(await shop.app.store(), handle.id.to_bytes(), None)
    found: list[str] = []
    async for text in events:
        found += [event["event"] for event in parse_events(text)]
        if found == ["status"]:
            await handle.signal("ship", "now")
            await shop.work()
    assert found[-1] == "end"
    assert found.count("journal") == len(await sequences(await shop.app.store(), handle.id.to_bytes()))


async def test_every_end_is_told_once_through_any_number_of_reconnects(shop: Shop) -> None:
    store = await shop.app.store()
    live = streams()
    (ready,) = await take(live.ledger(store, None), 1)
    assert ready["event"] == "ready"
    started = []
    for number in range(6):
        started.append(str((await shop.broken.start(str(number))).id))
        await shop.work()
        await shop.stores.advance(1)
    found: list[str] = []
    last = ready["id"]
    while len(found) < len(started):
        _, event = await take(live.ledger(store, last), 2)
        assert event["event"] == "ended"
        found.append(json.loads(event["data"])["id"])
        last = event["id"]
    assert found == started


async def test_a_stream_of_ends_can_be_narrowed_and_show_the_overview(shop: Shop) -> None:
    store = await shop.app.store()
    (ready,) = await take(streams().ledger(store, None), 1)
    await shop.broken.start("x")
    await shop.parcel.start(Box(1))
    await shop.work()
    await shop.stores.advance(1)
    _, event = await take(streams().ledger(store, ready["id"], name="Parcel"), 2)
    assert json.loads(event["data"])["kind"] == "machine"
    found = await take(streams().ledger(store, ready["id"], with_overview=True), 4)
    assert "statuses" in json.loads(found[-1]["data"])
    assert "id" not in found[-1]


async def test_every_start_is_told_once_and_before_its_end_through_any_number_of_reconnects(shop: Shop) -> None:
    store = await shop.app.store()
    live = streams()
    (ready,) = await take(live.ledger(store, None, starts=True), 1)
    assert ready["event"] == "ready"
    wanted = []
    for number in range(3):
        wanted.append(str((await shop.broken.start(str(number))).id))
        await shop.work()
        await shop.stores.advance(1)
    found: list[tuple[str, str]] = []
    last = ready["id"]
    while len(found) < 2 * len(wanted):
        _, event = await take(live.ledger(store, last, starts=True), 2)
        found.append((event["event"], json.loads(event["data"])["id"]))
        last = event["id"]
    for one in wanted:
        assert found.index(("started", one)) < found.index(("ended", one))
    assert len(set(found)) == 2 * len(wanted)


async def test_starts_are_told_to_who_asks_and_narrowed_by_name(shop: Shop) -> None:
    store = await shop.app.store()
    (ready,) = await take(streams().ledger(store, None, starts=True), 1)
    parcel, broken = await shop.parcel.start(Box(1)), await shop.broken.start("x")

    async def told(count: int, **given: Any) -> list[tuple[str, str]]:
        found = await take(streams().ledger(store, ready["id"], **given), 1 + count)
        return [(event["event"], json.loads(event["data"])["id"]) for event in found[1:]]

    both = [("started", str(parcel.id)), ("started", str(broken.id))]
    assert await told(2, starts=True) == both
    assert await told(1, starts=True, name="Parcel", statuses=[Status.FAILED]) == both[:1]
    await shop.work()
    await shop.stores.advance(1)
    assert {event for event, _ in await told(2)} == {"ended"}


async def test_starts_are_asked_for_in_the_query(shop: Shop) -> None:
    live = streams()
    live.close()  # so that a stream is over once it is ready
    async with client(build(shop.app, dashboard=False, streams=live)) as http:
        places = []
        for query in ("", "?starts=false", "?starts=true"):
            (ready,) = parse_events((await http.get(f"/api/v1/events{query}")).content)
            places.append(Position.parse(ready["id"]).started_row is not None)
        assert places == [False, False, True]
        assert (await http.get("/api/v1/events?starts=perhaps")).status_code == 422


async def test_a_stream_from_before_there_were_starts_goes_on_with_them(shop: Shop) -> None:
    store = await shop.app.store()
    (ready,) = await take(streams().ledger(store, None), 1)
    await shop.broken.start("before")
    await shop.work()
    await shop.stores.advance(1)
    events = streams().ledger(store, ready["id"], starts=True)
    found = [parse_events(await anext(events))[0] for _ in range(2)]
    assert [event["event"] for event in found] == ["ready", "ended"]
    handle = await shop.broken.start("after")
    async for text in events:
        if text != BEAT:
            (event,) = parse_events(text)
            break
    assert (event["event"], json.loads(event["data"])["id"]) == ("started", str(handle.id))
    await events.aclose()


class Unsettled:
    """A store in which it is not known, for so many looks, where starts begin: a transaction is open."""

    def __init__(self, store: Store, looks: int) -> None:
        self._store = store
        self.looks = looks

    async def ends(self, position: str | None, limit: int, *given: Any, **more: Any) -> Feed:
        if self.looks == 0:
            return await self._store.ends(position, limit, *given, **more)
        self.looks -= 1
        return Feed([], "1-0-1-0-5-6-7", is_settled=False)


async def test_a_stream_is_ready_once_it_is_known_where_starts_begin(shop: Shop) -> None:
    held: Any = Unsettled(await shop.app.store(), 3)
    live = streams(beat_seconds=0.004)
    events = live.ledger(held, None, starts=True)
    assert await anext(events) == BEAT  # at once
    while (text := await anext(events)) == BEAT:
        pass
    assert parse_events(text)[0]["event"] == "ready"
    assert held.looks == 0
    await events.aclose()
    waiting = live.ledger(Unsettled(held, -1), None, starts=True)  # type: ignore[arg-type]
    assert await anext(waiting) == BEAT
    live.close()
    assert [text async for text in waiting if text != BEAT] == []


async def test_time_alone_is_no_news(shop: Shop) -> None:
    """Or every page that is open would be asked for anew every other second."""
    live = streams(beat_seconds=0.004, overview_seconds=0)
    store = await shop.app.store()
    seconds_left = 60 - (await store.now_us() // 1_000_000) % 60
    await shop.stores.advance(seconds_left)  # a minute begins
    events = live.ledger(store, None, with_overview=True)
    assert [parse_events(await anext(events))[0]["event"] for _ in range(2)] == ["ready", "overview"]
    await shop.stores.advance(5)
    assert await anext(events) == BEAT
    await shop.order.start(1)
    while (text := await anext(events)) == BEAT:
        pass
    assert parse_events(text)[0]["event"] == "overview"
    await events.aclose()


async def test_a_quiet_stream_beats_and_closes_when_told(shop: Shop) -> None:
    live = streams(beat_seconds=0.004)
    events = live.ledger(await shop.app.store(), None)
    assert parse_events(await anext(events))[0]["event"] == "ready"
    assert await anext(events) == BEAT
    live.close()
    assert [text async for text in events if text != BEAT] == []


async def test_too_many_streams_are_refused(shop: Shop) -> None:
    live = streams(most=1)
    store = await shop.app.store()
    first = live.ledger(store, None)
    await anext(first)
    with pytest.raises(Problem, match="open streams"):
        await anext(live.ledger(store, None))
    await first.aclose()
    again = live.ledger(store, None)
    await anext(again)
    await again.aclose()


async def test_one_reader_leaves_streams_to_others(shop: Shop) -> None:
    live = streams(reader_most=1)
    store, promise = await shop.app.store(), (await shop.order.start(1)).id.to_bytes()
    first, other = live.ledger(store, None, reader="a"), live.execution(store, promise, None, reader="b")
    await anext(first)
    await anext(other)
    for more in (live.ledger(store, None, reader="a"), live.execution(store, promise, None, reader="b")):
        with pytest.raises(Problem, match="you have 1 open streams already") as refused:
            await anext(more)
        assert (refused.value.status, refused.value.word) == (429, "too-many")
    await first.aclose()
    again = live.ledger(store, None, reader="a")
    await anext(again)
    for events in (again, other):
        await events.aclose()


async def test_a_reader_is_a_session_or_an_address(shop: Shop) -> None:
    tokens = Tokens([("read", TOKEN)])
    web = build(shop.app, dashboard=False, tokens=tokens, streams=streams(reader_most=1))
    async with serving(web) as url, httpx.AsyncClient(timeout=30) as http:

        def ask(headers: dict[str, str]) -> AbstractAsyncContextManager[httpx.Response]:
            return http.stream("GET", f"{url}/api/v1/events", headers=headers)

        sessions = [{"cookie": f"{SESSION_COOKIE}={tokens.open_session(TOKEN, time())}"} for _ in range(2)]
        program = {"authorization": f"Bearer {TOKEN}"}
        async with AsyncExitStack() as held:
            for headers in (*sessions, program):
                assert (await held.enter_async_context(ask(headers))).status_code == 200
            for headers in (*sessions, program):
                async with ask(headers) as answer:
                    assert answer.status_code == 429


async def test_a_wrong_id_of_an_event_is_refused(shop: Shop) -> None:
    handle = await shop.order.start(1)
    async with client(build(shop.app, dashboard=False)) as http:
        for path in (f"/api/v1/executions/{handle.id}/events", "/api/v1/events"):
            assert (await http.get(path, headers={"last-event-id": "nonsense"})).status_code == 422
    for text in ("1/2", "a/b/c", "1/2/3/4", f"1/2/{'x' * 300}"):
        with pytest.raises(InvalidArgumentError):
            Told.parse(text)
    assert str(Told.parse("3/4/5.1.done.")) == "3/4/5.1.done."


async def test_over_a_real_connection_a_client_reconnects_and_then_is_told_to_stop(shop: Shop) -> None:
    handle = await shop.order.start(4)
    await shop.work()
    async with serving(build(shop.app, dashboard=False)) as base, httpx.AsyncClient(timeout=30) as http:
        url = f"{base}/api/v1/executions/{handle.id}/events"

        async def listen(last: str | None, count: int) -> list[dict[str, str]]:
            headers = {} if last is None else {"last-event-id": last}
            found: list[dict[str, str]] = []
            async with http.stream("GET", url, headers=headers) as answer:
                if answer.status_code == 204:
                    return []
                assert answer.headers["content-type"].startswith("text/event-stream")
                held = b""
                async for part in answer.aiter_bytes():
                    held += part
                    found, rest = parse_events(held[: held.rfind(b"\n\n") + 2]), held
                    if len(found) >= count and rest:
                        break
            return found[:count]

        first = await listen(None, 2)
        await handle.signal("ship", "now")
        await shop.work()
        rest = await listen(first[-1]["id"], 10_000)
        told = [json.loads(e["data"])["sequence"] for e in first + rest if e["event"] == "journal"]
        assert told == await sequences(await shop.app.store(), handle.id.to_bytes())
        assert rest[-1]["event"] == "end"
        assert await listen(rest[-1]["id"], 1) == []


async def test_a_stream_is_not_opened_for_who_asks_for_its_head_alone(shop: Shop) -> None:
    live = streams()
    handle = await shop.order.start(4)
    async with client(build(shop.app, dashboard=False, streams=live)) as http:
        for path in ("/api/v1/events", f"/api/v1/executions/{handle.id}/events"):
            answer = await http.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
            assert answer.headers["content-type"].startswith("text/event-stream")
        assert live.open == 0
