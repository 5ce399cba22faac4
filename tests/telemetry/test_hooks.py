"""Hooks hear of every failure, stranding and dead letter at least once, whoever crashes; and of nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
import pytest_asyncio

from holdfast import App, RetryPolicy
from holdfast.core.errors import ConfigurationError, InvalidArgumentError
from holdfast.engine.settings import WorkerSettings
from holdfast.models.hooks import LEASE_SECONDS, HookEvent, HookRunner, function_hook
from holdfast.models.webhook import sign, verify_signature, webhook
from holdfast.testing.stores import Stores


class Shop:
    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.app = app = App("hooked", store=stores.unopened())

        @app.task(queue="default", retry=RetryPolicy(max_attempts=1))
        async def work(is_good: bool) -> None:
            if not is_good:
                raise ValueError("no")

        self.task = work

    async def fail(self, *, is_good: bool = False) -> str:
        handle = await self.task.options(attributes={"city": "Rome"}).start(is_good)
        worker = await self.app.make_worker(WorkerSettings())
        await worker.open()
        await worker.run_until_idle()
        await worker.stop(0)
        await self.stores.advance(1)
        return str(handle.id)

    def runner(self, hook: Any) -> HookRunner:
        return HookRunner(self.app._connection, hook)


@pytest_asyncio.fixture
async def shop(stores: Stores) -> AsyncIterator[Shop]:
    made = Shop(stores)
    yield made
    await made.app.close()


def broken_hook(tried: list[str], attempts: int) -> Any:
    async def broken(event: HookEvent) -> None:
        tried.append(event.id)
        raise RuntimeError("not today")

    hook = function_hook("failed", broken, "h")
    return type(hook)(hook.name, hook.events, hook.deliver, attempts)


async def until(runner: HookRunner, is_enough: Callable[[], bool]) -> None:
    """Passes until it was told: a commit of somebody else's may hold the feed back for a moment."""
    while not is_enough():
        await runner.run_once()


async def test_a_hook_hears_of_each_failure_once_and_of_nothing_else(shop: Shop) -> None:
    told: list[HookEvent] = []
    runner = shop.runner(function_hook("failed", told.append, "h"))
    await runner.run_once()  # it begins now
    await shop.fail(is_good=True)
    failed = [await shop.fail(), await shop.fail()]
    await until(runner, lambda: len(told) == 2)
    await runner.run_once()
    assert [event.id for event in told] == failed
    assert (told[0].event, told[0].kind, json.loads(bytes(told[0].attributes))) == ("failed", "task", {"city": "Rome"})
    assert json.loads(bytes(told[0].error or b""))["message"] == "no"


async def test_a_hook_leaves_a_server_that_fell_silent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would hold up its worker, which was told to stop, for as long as the server may take to answer."""
    monkeypatch.setattr("holdfast.models.hooks.LEAVE_SECONDS", 0.01)
    runner = shop.runner(function_hook("failed", print, "h"))
    await runner.run_once()

    async def silence(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(await shop.app.store(), "leave_place", silence)
    async with asyncio.timeout(10):
        await runner.stop()
    assert "the place of hook h is left to run out" in caplog.text


async def test_another_worker_goes_on_where_one_has_died(shop: Shop) -> None:
    first: list[str] = []
    second: list[str] = []
    hook = function_hook("failed", lambda event: first.append(event.id), "h")
    other = function_hook("failed", lambda event: second.append(event.id), "h")
    dying, heir = shop.runner(hook), shop.runner(other)
    await dying.run_once()
    one = await shop.fail()
    await until(dying, lambda: bool(first))
    two = await shop.fail()
    assert await heir.run_once() == LEASE_SECONDS / 2  # the place is held
    await shop.stores.advance(LEASE_SECONDS + 1)
    await until(heir, lambda: bool(second))
    assert (first, second) == ([one], [two])
    three = await shop.fail()
    await heir.stop()
    assert await dying.run_once() == 0  # it learns that it has lost the place before it tells anything
    await until(dying, lambda: len(first) == 2)
    assert first == [one, three]
    assert second == [two]


async def test_an_event_whose_hook_fails_is_told_again_and_at_last_given_up(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []

    async def broken(event: HookEvent) -> None:
        tried.append(event.delivery)
        if event.id != good:
            raise RuntimeError("not today")

    hook = function_hook("failed", broken, "h")
    runner = shop.runner(type(hook)(hook.name, hook.events, hook.deliver, 3))
    await runner.run_once()
    await shop.fail()
    good = await shop.fail()
    pauses = []
    while len(tried) < 4:
        count = len(tried)
        pause = await runner.run_once()
        pauses += [pause] if len(tried) > count else []
    assert pauses[:2] == [1.0, 2.0]
    assert len(set(tried[:3])) == 1
    assert len(tried) == 4
    assert "given up after 3 attempts" in caplog.text


async def test_other_workers_do_not_begin_anew_while_a_hook_pauses(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []
    first, second = [shop.runner(broken_hook(tried, 8)) for _ in range(2)]
    await first.run_once()
    await shop.fail()
    paused = 0.0
    while "given up" not in caplog.text:
        pause = await first.run_once()
        paused += pause if tried and pause else 0
        await shop.stores.advance(pause or 0)
        assert await second.run_once() == LEASE_SECONDS / 2  # the place is held
    assert len(tried) == 8
    assert paused >= sum(2**n for n in range(7))


async def test_failures_of_an_event_that_another_worker_dealt_with_count_for_no_other(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []
    told: list[str] = []
    failing = shop.runner(broken_hook(tried, 3))
    heir = shop.runner(function_hook("failed", lambda event: told.append(event.id), "h"))
    await failing.run_once()
    one = await shop.fail()
    await until(failing, lambda: tried == [one, one])
    await shop.stores.advance(LEASE_SECONDS + 1)
    await until(heir, lambda: told == [one])
    await heir.stop()
    two = await shop.fail()
    await until(failing, lambda: tried == [one, one, two])
    assert "given up" not in caplog.text


async def test_a_stranded_run_is_told_as_stranded(shop: Shop) -> None:
    told: list[HookEvent] = []
    runner = shop.runner(function_hook("stranded", told.append, None))
    await runner.run_once()
    handle = await shop.task.start(True)
    dying = shop.app
    for _ in range(2):
        worker = await dying.make_worker(WorkerSettings(max_crashes=1))
        await worker.open()
        await worker._picker.run_once()
        await worker.abandon()
        await shop.stores.advance(31)
        reaper = await dying.make_worker(WorkerSettings(max_crashes=1))
        await reaper.open()
        await reaper.reap_once()
        await reaper.stop(0)
    await shop.stores.advance(1)
    await until(runner, lambda: bool(told))
    assert [(event.event, event.id) for event in told] == [("stranded", str(handle.id))]


def test_what_is_no_occasion_and_what_is_declared_twice_is_refused() -> None:
    app = App("twice", "unused.db")
    with pytest.raises(InvalidArgumentError, match="failed, stranded, dead_lettered"):
        app.on("done", print)  # type: ignore[call-overload]
    app.on("failed", print, name="a")
    with pytest.raises(ConfigurationError, match="declared twice"):
        app.on("failed", print, name="a")
    for url in ("ftp://x", "nothing", "https://"):
        with pytest.raises(InvalidArgumentError, match="https://"):
            app.webhook(url)
    with pytest.raises(InvalidArgumentError):
        app.webhook("https://example.org", events=())


# ---------------------------------------------------------------------- webhooks


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2@example.org/",
        "https://example.org/a b?token=hunter2",
        "https://example.org/é?token=hunter2",
        "https://example.org:hunter2/",
        "https://[::1/hunter2",
        "https://example.org:0/hunter2",
        "file:///etc/hunter2",
    ],
)
def test_a_url_that_cannot_be_called_is_refused_where_it_is_declared_and_not_quoted(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        webhook(url, ("failed",), None, None)
    assert "hunter2" not in str(refused.value)


class Receiver:
    """Answers what it is told to, and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers = [200]
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                status = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                self.send_response(status)
                self.send_header("location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook?token=s3cret"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


async def test_a_webhook_is_signed_and_sent_again_until_it_is_taken(
    shop: Shop, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    runner = shop.runner(webhook(receiver.url, ("failed",), "shh", None))
    await runner.run_once()
    id = await shop.fail()
    receiver.answers = [500, 302, 204]
    await until(runner, lambda: len(receiver.got) == 3)
    headers, body = receiver.got[-1]
    assert json.loads(body)["id"] == id
    assert headers["holdfast-event"] == "failed"
    assert len({headers["holdfast-delivery"] for headers, _ in receiver.got}) == 1
    assert verify_signature("shh", body, headers["holdfast-signature"])
    assert not verify_signature("other", body, headers["holdfast-signature"])
    assert not verify_signature("shh", body + b" ", headers["holdfast-signature"])
    assert "s3cret" not in caplog.text
    await runner.run_once()
    assert len(receiver.got) == 3


def test_an_old_signature_is_refused() -> None:
    signature = sign("shh", b"{}", 1_000)
    assert verify_signature("shh", b"{}", signature, now=1_200)
    assert not verify_signature("shh", b"{}", signature, now=2_000)
    for wrong in ("", "t=,v1=", "t=x,v1=y", "v1=abc", "t=1000"):
        assert not verify_signature("shh", b"{}", wrong, now=1_000)


def test_an_empty_secret_signs_and_proves_nothing() -> None:
    """A variable that is not set: whoever reads this signs as well as we do."""
    for use in (
        lambda: webhook("https://example.org", ("failed",), "", None),
        lambda: sign("", b"{}", 1_000),
        lambda: verify_signature("", b"{}", "t=1000,v1=whatever", now=1_000),
    ):
        with pytest.raises(InvalidArgumentError, match="secret of a webhook is empty"):
            use()
