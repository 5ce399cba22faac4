"""What forms may send, and what becomes of it: every refusal is a notice on the page it came from, none an error."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from tests.engine.rig import Rig
from tests.models.flow.test_flow_letters import stranded_at_ceiling
from tests.web.kit import ADMIN, OPERATE, READ, TOKENS, Box, Shop, client

from holdfast.core.errors import ExecutionFailedError, StoreError, StoreUnavailableError
from holdfast.web.dashboard.pages import flows
from holdfast.web.server import build


async def notice(pages: httpx.AsyncClient, path: str, **form: str) -> str:
    """What the page that follows says; of a refusal it begins with a minus."""
    answer = await pages.post(path, data=form)
    assert answer.status_code == 303, answer.text
    return unquote(answer.cookies["holdfast_notice"])


@pytest.mark.parametrize("payload", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, "NaN", '"\\ud800"', "{", "ship it"])
async def test_what_is_no_json_is_no_payload(shop: Shop, payload: str) -> None:
    order = await shop.order.start(5)
    async with client(build(shop.app)) as pages:
        said = await notice(pages, f"/executions/{order.id}/signal", name="ship", payload=payload)
    assert said.startswith("-the payload is no JSON")


async def test_a_cancel_that_came_too_late_is_not_told_as_one(shop: Shop) -> None:
    @shop.app.batch
    async def double(number: int) -> int:
        return 2 * number

    run: Any = await double.start(range(3))
    await run.fed()
    parcel, order = await shop.parcel.start(Box(1)), await shop.order.start(2)
    await shop.work()
    async with client(build(shop.app)) as pages:
        assert await notice(pages, f"/executions/{parcel.id}/cancel") == "-It had ended before: it is done."
        assert await notice(pages, f"/executions/{run.id}/cancel") == "-It had ended before: it is done."
        assert await notice(pages, f"/executions/{order.id}/cancel") == "+Cancel requested."


async def test_a_run_is_started_by_its_name(shop: Shop) -> None:
    await shop.worker()  # the ledger knows its definitions
    web = build(shop.app, tokens=TOKENS)
    order = {"name": shop.order.name, "input": '{"amount": 5}', "key": "order-17"}
    async with client(web, OPERATE) as pages, client(web, READ) as reader:
        assert 'action="/executions/start"' not in (await reader.get("/executions")).text
        assert (await reader.post("/executions/start", data=order)).status_code == 403
        text = (await pages.get("/executions")).text
        assert f'<option value="{shop.order.name}">takes amount</option>' in text
        assert f'<option value="{shop.parcel.__name__}">takes its state</option>' in text
        for wrong, why in (
            ({"input": "five"}, "-the input is no JSON"),
            ({"input": '{"amount": "five"}'}, f"-{shop.order.name} cannot be started with this"),
            ({"input": '{"sum": 5}'}, f"-{shop.order.name} has no parameter sum"),
            ({"name": "nobody"}, "-no worker of this ledger has known a definition 'nobody'"),
            ({"name": ""}, "-'' is no name"),
        ):
            assert (await notice(pages, "/executions/start", **{**order, **wrong})).startswith(why), wrong
        assert await notice(pages, "/executions/start", **order) == "+Started."
        again = await pages.post("/executions/start", data=order)
        handle = shop.app.handle(shop.order.name, key="order-17")
        assert again.headers["location"] == f"/executions/{handle.id}"
        assert unquote(again.cookies["holdfast_notice"]) == "+Its key had started it before: this is it."
        assert (await notice(pages, "/executions/explode")).startswith("-there is no action")
    assert (await handle.describe()).state == '{"amount":5}'


async def test_what_nobody_can_mend_is_ended_as_it_stands_by_an_admin(shop: Shop) -> None:
    @shop.app.batch(queue="nobody")
    async def double(number: int) -> int:
        return 2 * number

    run: Any = await double.start(range(3))
    await run.fed()
    order, parcel = await shop.order.start(2), await shop.parcel.start(Box(1))
    web = build(shop.app, tokens=TOKENS)
    async with client(web, OPERATE) as operator, client(web, ADMIN) as admin:
        for id, is_offered in ((order.id, True), (run.id, True), (parcel.id, False)):
            assert 'name="force"' not in (await operator.get(f"/executions/{id}")).text
            assert ('name="force"' in (await admin.get(f"/executions/{id}")).text) is is_offered
        refused = await operator.post(f"/executions/{order.id}/cancel", data={"force": "yes"})
        assert refused.status_code == 403
        assert "this needs the role admin" in refused.text
        assert await notice(operator, f"/executions/{order.id}/cancel", cascade="yes") == "+Cancel requested."
        assert await notice(admin, f"/executions/{order.id}/cancel", force="yes") == "+Cancelled."
        assert await notice(admin, f"/executions/{run.id}/cancel", force="yes", reason="moved") == "+Cancelled."
    assert (await run.describe()).cancel_reason == "moved"


async def test_a_long_notice_is_short_enough_for_a_cookie(shop: Shop) -> None:
    """A browser drops what is over 4096 bytes; of this text each character takes twelve."""
    order = await shop.order.start(5)
    async with client(build(shop.app)) as pages:
        answer = await pages.post(f"/executions/{order.id}/fork", data={"at": "\N{WHALE}" * 600})
        assert len(answer.headers["set-cookie"]) < 4_000
        assert "is a whole number" in (await pages.get(answer.headers["location"])).text


@pytest.mark.parametrize(
    "form", [{"concurrency": "9" * 30}, {"concurrency": str(2**31)}, {"rate": "inf"}, {"rate_seconds": "0"}]
)
async def test_limits_that_no_store_holds_are_refused(shop: Shop, form: dict[str, str]) -> None:
    async with client(build(shop.app)) as pages:
        assert (await notice(pages, "/queues/default/limits", **form)).startswith("-")


async def test_a_letter_at_a_ceiling_can_only_be_dropped(rig: Rig) -> None:
    job = await stranded_at_ceiling(rig)
    async with client(build(rig.app)) as pages:
        letter = str((await rig.app.dead_letters.list()).items[0].id)
        here = f"/executions/{job.id}/letters"
        assert "It can only be dropped" in await notice(pages, f"{here}/retry", message=letter)
        assert "there is no action" in await notice(pages, f"{here}/burn", message=letter)
        assert (await notice(pages, f"{here}/retry", message="zz")).startswith("-")
        assert len((await rig.app.dead_letters.list()).items) == 1, "nothing was done to it"
        assert "given up" in await notice(pages, f"{here}/drop", message=letter)
        assert "is no dead letter" in await notice(pages, f"{here}/drop", message=letter)
    await rig.run()
    with pytest.raises(ExecutionFailedError):
        await job.result()


async def test_a_run_that_is_deleted_while_the_list_is_made_is_left_out(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.app.batch(name="double")
    async def double(number: int) -> int:
        return 2 * number

    kept: Any = await double.options(key="kept").start(range(3))
    gone: Any = await double.options(key="gone").start(range(3))
    store: Any = await shop.app.store()
    found = store.get

    async def get(promise: bytes) -> Any:
        return None if promise == gone.id.to_bytes() else await found(promise)

    monkeypatch.setattr(store, "get", get)
    async with client(build(shop.app)) as pages:
        answer = await pages.get("/batches")
    assert answer.status_code == 200
    assert f"/executions/{kept.id}" in answer.text
    assert f"/executions/{gone.id}" not in answer.text
    await gone.fed()
    await kept.fed()


async def test_a_fault_of_the_ledger_is_no_notice(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailableError("connecting to db-7.internal failed")

    monkeypatch.setattr(await shop.app.store(), "change_queue", fail)
    async with client(build(shop.app)) as pages:
        answer = await pages.post("/queues/default/pause")
    assert answer.status_code == 503
    assert "the ledger cannot be reached" in answer.text
    assert "db-7" not in answer.text


async def test_a_fault_of_ours_is_found_in_the_log_by_what_its_page_says(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("relation executions does not exist")

    monkeypatch.setattr(await shop.app.store(), "workers", fail)
    async with client(build(shop.app)) as pages:
        answer = await pages.get("/workers", headers={"accept": "text/html", "x-request-id": "abc-1"})
    assert answer.status_code == 500
    assert "Request abc-1" in answer.text
    assert "abc-1" in caplog.text


async def test_a_message_that_goes_while_its_job_is_shown_does_not_break_the_page(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = shop.app.flow("twins")

    @flow.activity
    async def first(number: int) -> int:
        return number

    @flow.hook(after=first, signal="a")
    async def left(number: int, given: int) -> int:
        return number + given

    @flow.hook(after=first, signal="b")
    async def right(number: int, given: int) -> int:
        return number + given

    await shop.app.register()
    job: Any = await flow.start(4)
    await shop.work()
    monkeypatch.setattr(flows, "LINES", 1)  # of two messages only one is found when their times are read
    async with client(build(shop.app)) as pages:
        answer = await pages.get(f"/executions/{job.id}")
    assert answer.status_code == 200
    assert "2 under way" in answer.text
