"""Every page on both stores: the SQL behind it is another, what it shows is the same."""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.web.kit import Box, Shop, client

from holdfast import Context, PromiseId, RetryPolicy, Status
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import Retention
from holdfast.testing.hand import Hand, done, row
from holdfast.web.dashboard.pages import engine
from holdfast.web.server import build
from holdfast.web.streams import standing_of


@pytest_asyncio.fixture
async def pages(shop: Shop) -> AsyncIterator[httpx.AsyncClient]:
    async with client(build(shop.app)) as made:
        yield made


async def shown(pages: httpx.AsyncClient, path: str) -> str:
    answer = await pages.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
    return answer.text


async def test_lists_show_what_the_ledger_holds(shop: Shop, pages: httpx.AsyncClient) -> None:
    order = await shop.order.options(attributes={"customer": 17}, key="<order> 17").start(5)
    parcel = await shop.parcel.start(Box(3))
    broken = await shop.broken.start("<b>torn</b>")
    await shop.work()
    for path, texts in {
        "/": ["Throughput", "&lt;b&gt;torn"],
        "/executions": [order.id.short, "&lt;order&gt; 17", parcel.id.short, broken.id.short],
        "/executions?status=failed": [broken.id.short],
        "/executions?q=customer%3D17": [order.id.short],
        "/executions?kind=machine": [parcel.id.short],
        "/dead-letters": [broken.id.short, "Retry"],
        "/dead-letters?status=stranded": ["No dead letters"],
        "/machines": ["Parcel"],
        "/machines/Parcel": ["from its code", "send"],
        "/queues": ["default"],
        "/schedules": ["daily", "0 6 * * *"],
        "/workers": ["alive"],
        "/flows": ["No flow is known"],
        "/batches": ["No batch was started"],
    }.items():
        text = await shown(pages, path)
        assert [wanted for wanted in texts if wanted not in text] == [], path


async def test_a_key_that_names_a_failed_run_leads_to_its_last_retry(shop: Shop, pages: httpx.AsyncClient) -> None:
    failed = await shop.broken.options(key="letter 17").start("no")
    for _ in range(2):
        await shop.work()
        await failed.retry()
    last = await failed.newest()
    assert (await shop.app.handle(last).describe()).status == "runnable"
    text = await shown(pages, f"/executions/{failed.id}")
    assert f'It was retried as another run: <a href="/executions/{last}"' in text
    assert f"{last.short}</a>, which is runnable" in text
    went_on = f'<a href="/executions/{last}">was retried</a>'
    for path in ("/dead-letters", "/executions?status=failed", "/"):
        assert went_on in await shown(pages, path), path
    newest = (await pages.get("/api/v1/executions/letter 17")).json()["newest"]
    assert (newest["id"], newest["status"], newest["how"]) == (str(last), "runnable", "retried")
    assert (await pages.get(f"/api/v1/executions/{last}")).json()["newest"] is None


async def test_a_page_says_how_far_a_task_in_flight_is(shop: Shop, pages: httpx.AsyncClient) -> None:
    """With the next commit it says otherwise, and the page's stream tells the page of each."""
    store, waiting = shop.stores.store, row("load", kind="task", name="load", state='{"input":null}')
    hand = await Hand(store).start()
    await hand.insert(waiting)
    (claim,) = await hand.pick(handlers=[waiting.handler])
    path, standings = f"/executions/{PromiseId.from_bytes(claim.promise)}", set()
    for said, seen in (('{"at":"<b>half</b>"}', "&lt;b&gt;half&lt;/b&gt;"), ('"all"', "&#34;all&#34;")):
        beat = AdvanceExecution(status=Status.EXECUTING, progress=False, beats=said)
        await hand.apply(claim, beat)
        text = await shown(pages, path)
        assert f'<span class="sub told" title="{html.escape(said).replace("&quot;", "&#34;")}">' in text
        assert seen in text.partition("<h3>Progress</h3>")[2]
        assert "<b>half" not in text
        (told,) = (await pages.get(f"/api/v1{path}")).json()["progress"]
        assert (told["name"], told["attempt"], told["progress"]) == ("load", 1, json.loads(said))
        standings.add(standing_of(await hand.view(claim)))
    assert len(standings) == 2
    await hand.apply(claim, done("5"))
    assert "told" not in await shown(pages, path)
    assert (await pages.get(f"/api/v1{path}")).json()["progress"] == []


async def test_a_search_that_is_too_long_to_be_read_holds_nobody_up(shop: Shop, pages: httpx.AsyncClient) -> None:
    """Its time grew with the square of its length, and any page of another site may send a browser here."""
    text = await shown(pages, "/executions?q=" + "a" * 20_000)
    assert "a search has at most 2000 characters" in text
    assert "a" * 2_000 not in text


async def test_what_is_too_much_to_count_is_shown_about(
    shop: Shop, pages: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await shop.app.store()
    for number in range(3):
        await shop.parcel.start(Box(number))
    assert "<small>about</small>" not in await shown(pages, "/")
    monkeypatch.setattr(store, "tally", functools.partial(store.tally, 2))
    assert "<small>about</small> 3</span>" in await shown(pages, "/")


async def test_an_execution_is_found_by_a_prefix_and_shows_its_life(shop: Shop, pages: httpx.AsyncClient) -> None:
    order = await shop.order.options(key="k-1").start(5)
    parcel = await shop.parcel.start(Box(3))
    await shop.work()
    moved = await pages.get(f"/executions/{order.id.short}")
    assert moved.headers["location"] == f"/executions/{order.id}"
    searched = await pages.get("/executions", params={"q": "k-1"})
    assert searched.headers["location"] == f"/executions/{order.id}"
    text = await shown(pages, f"/executions/{order.id}")
    for wanted in ("charge", "ship", "Send signal", "k-1", "InvokeCompleted", "Fork after this"):
        assert wanted in text, wanted
    text = await shown(pages, f"/executions/{parcel.id}")
    for wanted in ("Next → send", "State diagram", "pack"):
        assert wanted in text, wanted
    found = await pages.get("/executions", params={"q": f"{order.label}"})
    assert found.headers["location"] == f"/executions/{order.id}"


async def test_an_execution_with_a_value_that_python_cannot_read_is_shown(shop: Shop, pages: httpx.AsyncClient) -> None:
    """SQL takes deeper values than Python: such a task is stranded, and must be seen."""
    deep = row("deep", kind="task", state='{"input":' + "[" * 2_000 + "]" * 2_000 + "}")
    store = shop.stores.store
    await store.insert([deep])
    await shown(pages, f"/executions/{PromiseId.from_bytes(deep.promise)}")
    await store.cancel([deep.promise], force=True)
    await store.purge(Retention(age_seconds=0), 1)  # what cannot be read is a fault of its ledger


async def test_of_many_children_the_tree_shows_some_and_leads_to_all(shop: Shop, pages: httpx.AsyncClient) -> None:
    @shop.app.task(queue="default")
    async def child(number: int) -> int:
        return number

    @shop.app.workflow
    async def family(ctx: Context, size: int) -> int:
        await ctx.all(*[child(number) for number in range(size)])
        return size

    await shop.app.register()
    started = await family.start(70)
    await shop.work()
    text = await shown(pages, f"/executions/{started.id}")
    assert f'<a href="/executions?parent={started.id}">all its children</a>' in text
    seen: set[str] = set()
    path = f"/executions?parent={started.id.short}"
    while path:
        text = await shown(pages, path)
        assert f'Children of <a href="/executions/{started.id}">' in text
        seen |= set(re.findall(rf'rowlink" href="/executions/({started.id}\.\d+)"', text))
        older = re.search(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(older[1]) if older else ""
    assert len(seen) == 70
    assert "Nothing to show" in await shown(pages, "/executions?parent=00000000")


async def test_of_an_inbox_the_oldest_signals_are_shown(shop: Shop, pages: httpx.AsyncClient) -> None:
    order = await shop.order.start(5)
    for number in range(53):
        await order.signal("note", f"number {number}")
    text = await shown(pages, f"/executions/{order.id}")
    assert re.findall(r"number (\d+)", text) == [str(number) for number in range(50)]
    assert "and 3 more" in text


async def test_forms_steer_a_run(shop: Shop, pages: httpx.AsyncClient) -> None:
    order = await shop.order.start(5)
    await shop.work()

    async def post(action: str, **form: str) -> str:
        answer = await pages.post(f"/executions/{order.id}/{action}", data=form)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    await post("pause")
    assert "s-paused" in await shown(pages, f"/executions/{order.id}")
    await post("resume")
    await post("signal", name="ship", payload='"now"')
    await shop.work()
    assert (await order.status()).value == "done"
    fork = await post("fork", at="0")
    assert fork != f"/executions/{order.id}"
    await post("cancel", cascade="yes")  # it has ended: nothing happens
    assert (await order.status()).value == "done"
    await post("explode")
    assert "there is no action" in await shown(pages, f"/executions/{order.id}")


async def test_queues_with_any_name_can_be_steered(shop: Shop, pages: httpx.AsyncClient) -> None:
    name = "a/b ?&<b>é"
    await shop.app.configure_queue(name, concurrency=3)
    text = await shown(pages, "/queues")
    (action,) = re.findall(r'action="(/queues/a[^"]*/pause)"', text)
    assert (await pages.post(html.unescape(action))).status_code == 303
    text = await shown(pages, "/queues")
    assert "&lt;b&gt;é is paused" in text
    assert "0 of 3" in text


async def test_jobs_and_runs_are_drawn(shop: Shop, pages: httpx.AsyncClient) -> None:
    flow = shop.app.flow("flow")

    @flow.activity(name="double")
    async def double(number: int) -> int:
        return number * 2

    @flow.activity(name="show", after=double)
    async def show(number: int) -> str:
        return f"<i>{number}</i>"

    @shop.app.batch(name="half", chunk=4, retry=RetryPolicy(max_attempts=1))
    async def half(number: int) -> float:
        return 1 / (number % 5)

    @flow.hook(name="sign", after=show, signal="signature <b>")
    async def sign(paper: str, name: str) -> str:
        return paper + name

    await shop.app.register()
    job: Any = await flow.start(4)
    run: Any = await half.start(range(12))
    await run.fed()
    await shop.work()
    text = await shown(pages, f"/executions/{job.id}")
    for wanted in ("double", "&lt;i&gt;8", "children spawned", "Semaphore"):
        assert wanted in text, wanted
    assert 'value="signature &lt;b&gt;"' in text  # what its hook waits for, ready to be sent
    assert re.search(r"<th[^>]*>Since</th>.*<td>work</td>.*<time ", text, re.DOTALL)
    assert "flow" in await shown(pages, "/flows/flow")
    text = await shown(pages, f"/executions/{run.id}")
    for wanted in ("ZeroDivisionError", "Run them again", "committed in order"):
        assert wanted in text, wanted
    assert "half" in await shown(pages, "/batches")
    chunk = f"/executions/{run.id}.0"
    assert chunk not in await shown(pages, "/executions")
    assert chunk in await shown(pages, "/executions?kind=chunk")
    again = await pages.post(f"/executions/{run.id}/retry-failed")
    assert "takes the failed items of the other one again" in await shown(pages, again.headers["location"])


@pytest.mark.parametrize("what", ["queues", "schedules"])
async def test_many_names_are_listed_a_page_at_a_time_and_found_by_a_part(
    shop: Shop, pages: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(engine, "NAMES_A_PAGE", 4)
    names = [f"tenant-{number:02}:a" for number in range(10)]
    for name in names:
        if what == "queues":
            await shop.app.configure_queue(name, concurrency=1)
        else:
            await shop.app.schedules.create(name, "0 * * * *", "order", args={"amount": 1})
    seen: list[str] = []
    path = f"/{what}?q=TENANT"
    while path:
        text = await shown(pages, path)
        assert "of 10 shown" in text
        seen += sorted(set(re.findall(r"tenant-\d\d:a", text)))
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(following[1]) if following else ""
    assert seen == names
    # What is done on a page leads back to it.
    form = re.search(rf'action="(/{what}/tenant-09[^"]+/pause[^"]*)"', text)
    assert form
    answer = await pages.post(html.unescape(form[1]))
    text = await shown(pages, answer.headers["location"])
    assert "tenant-09:a is paused" in text
    assert "tenant-08:a" in text
    assert "tenant-07:a" not in text
    assert "No name fits" in await shown(pages, f"/{what}?q=nobody")


async def test_a_list_begins_at_a_time(shop: Shop, pages: httpx.AsyncClient) -> None:
    """What failed yesterday is not sought through all that came since."""
    for day in range(3):
        for number in range(2):
            await shop.broken.options(key=f"day {day} number {number}").start("torn")
            await shop.parcel.options(key=f"box {day} number {number}").start(Box(number))
        await shop.work()
        await shop.stores.advance(86_400)
    noon = shop.stores.clock.now - timedelta(hours=36)
    before = f"{noon:%Y-%m-%dT%H:%M}"
    for path in ("", "&status=failed", "&status=done", f"&status=failed&name={shop.broken.name}", "&kind=machine"):
        text = await shown(pages, f"/executions?before={before}{path}")
        found = set(re.findall(r"(?:day|box) (\d) number", text))
        assert found == {"0", "1"}, path
    assert f'value="{before}"' in text
    late = await shown(pages, f"/executions?before={before}%2B20:00")  # it was then, where days begin earlier
    assert "day 1" not in late
    assert "is no day and time" in await shown(pages, "/executions?before=yesterday")
