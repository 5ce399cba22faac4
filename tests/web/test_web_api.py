"""The API steers what the ledger holds, and says what is wrong without saying too much."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.web.kit import Shop, client

from holdfast.core.errors import StoreUnavailableError
from holdfast.store.values import Definition
from holdfast.web.api import ROUTES
from holdfast.web.openapi import document, markdown
from holdfast.web.server import build

API = "/api/v1"


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["request_id"] == answer.headers["x-request-id"]
    return answer.status_code, body["type"].removeprefix("urn:holdfast:problem:")


async def test_a_workflow_is_started_signalled_and_read(shop: Shop) -> None:
    async with client(build(shop.app, dashboard=False)) as http:
        body = {"name": shop.order.name, "input": {"amount": 7}, "key": "k", "attributes": {"city": "Rome", "n": 3}}
        started = await http.post(f"{API}/executions", json=body)
        assert started.status_code == 201
        id = started.json()["id"]
        assert started.json()["existing"] is False
        assert (await http.post(f"{API}/executions", json=body)).json() == {**started.json(), "existing": True}
        await shop.work()
        shown = (await http.get(f"{API}/executions/{id[:8]}")).json()
        assert (shown["id"], shown["status"], shown["idempotency_key"]) == (id, "awaiting_promise", "k")
        for where, count in (("city=Rome", 1), ("n=3", 1), ("n=4", 0), ('n="3"', 0)):
            found = await http.get(f"{API}/executions", params={"where": where})
            assert len(found.json()["executions"]) == count, where
        sent = await http.post(f"{API}/executions/{id}/signals", json={"name": "ship", "payload": "now"})
        assert sent.json()["delivery"] == "delivered"
        assert (await http.get(f"{API}/executions/{id}/inbox")).json()["inbox"] == [{"name": "ship", "payload": "now"}]
        await shop.work()
        shown = (await http.get(f"{API}/executions/{id}")).json()
        assert (shown["status"], shown["result"]) == ("done", 7)
        journal = (await http.get(f"{API}/executions/{id}/journal")).json()
        assert [event["sequence"] for event in journal["events"]] == list(range(shown["journal_length"]))
        assert journal["events"][0]["event"] == "ExecutionStarted"
        named = [
            promise for event in journal["events"] for promise in event.get("waiting_on", [event.get("promise_id")])
        ]
        assert {promise.rpartition(".")[0] for promise in named if promise is not None} == {id}
        rest = (await http.get(f"{API}/executions/{id}/journal", params={"after": 2, "limit": 2})).json()
        assert rest["events"] == journal["events"][3:5]
        assert rest["more"]
        forked = await http.post(f"{API}/executions/{id}/fork", json={"at": 2})
        assert forked.status_code == 201
        assert forked.json()["id"] != id
        refused = await http.post(f"{API}/executions/{id}/signals", json={"name": "ship"})
        assert problem(refused) == (409, "refused")
        assert problem(await http.post(f"{API}/executions/{id}/pause")) == (409, "refused")
        assert problem(await http.post(f"{API}/executions/{id}/fork", json={"at": 10_000})) == (409, "refused")


async def test_a_failed_task_is_retried_and_a_waiting_workflow_is_cancelled(shop: Shop) -> None:
    failed, waiting = await shop.broken.start("no"), await shop.order.start(1)
    await shop.work()
    async with client(build(shop.app, dashboard=False)) as http:
        found = (await http.get(f"{API}/executions", params={"status": ["failed", "cancelled"]})).json()
        assert [item["id"] for item in found["executions"]] == [str(failed.id)]
        again = await http.post(f"{API}/executions/{failed.id}/retry")
        assert again.status_code == 201
        for parent in (again.json()["id"], f"{again.json()['id']}.4294967295" + ".1234567890" * 60):
            listed = await http.get(f"{API}/executions", params={"parent": parent})
            assert listed.status_code == (200 if parent == again.json()["id"] else 404)  # it is read as an id
        for action, is_paused in (("pause", True), ("resume", False)):  # what is done to it is done to the last run
            standing = (await http.post(f"{API}/executions/{failed.id}/{action}")).json()
            assert standing == {**again.json(), "status": "runnable", "paused": is_paused}
        assert problem(await http.post(f"{API}/executions/{waiting.id}/retry")) == (409, "refused")
        paused = (await http.post(f"{API}/executions/{waiting.id}/pause")).json()
        assert paused["paused"]
        assert not (await http.post(f"{API}/executions/{waiting.id}/resume")).json()["paused"]
        await http.post(f"{API}/executions/{waiting.id}/cancel", json={"cascade": True, "reason": "ordered twice"})
        await shop.work()
        shown = (await http.get(f"{API}/executions/{waiting.id}")).json()
        assert (shown["status"], shown["cancel_reason"]) == ("cancelled", "ordered twice")


async def test_an_execution_is_steered_by_its_key(shop: Shop) -> None:
    """As it is shown by it. Digits that are a key too, and the id of another, name neither."""
    wanted = await shop.order.options(key="letter 17").start(1)
    digits = str((await shop.order.start(2)).id)[:8]
    await shop.order.options(key=digits).start(3)
    async with client(build(shop.app, dashboard=False)) as http:
        for action, standing in (("pause", True), ("resume", False)):
            answer = (await http.post(f"{API}/executions/letter 17/{action}")).json()
            assert (answer["id"], answer["paused"]) == (str(wanted.id), standing)
        sent = await http.post(f"{API}/executions/letter 17/signals", json={"name": "ship"})
        assert sent.json()["delivery"] == "delivered"
        assert problem(await http.post(f"{API}/executions/{digits}/pause")) == (409, "ambiguous")
        assert problem(await http.post(f"{API}/executions/letter 18/pause"))[0] == 404


async def test_children_are_listed_by_every_name_of_their_parent(shop: Shop) -> None:
    """Its id as it was answered, also that of a run which goes on for another, the form that people see, its key."""
    failed = await shop.broken.options(key="letter 17").start("no")
    await shop.work()
    async with client(build(shop.app, dashboard=False)) as http:
        again = (await http.post(f"{API}/executions/{failed.id}/retry")).json()
        for name in (str(failed.id), "letter 17", again["id"], again["label"]):
            listed = await http.get(f"{API}/executions", params={"parent": name})
            assert (listed.status_code, listed.json()["executions"]) == (200, []), name
        short = again["label"].rpartition("/")[2]
        assert (await http.get(f"{API}/executions/{short}")).json()["id"] == again["id"]


async def test_pages_of_a_list_follow_each_other_by_cursor(shop: Shop) -> None:
    started = [str((await shop.order.start(number)).id) for number in range(5)]
    async with client(build(shop.app, dashboard=False)) as http:
        found: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            page = (await http.get(f"{API}/executions", params={"limit": 2, **cursor})).json()
            found += [item["id"] for item in page["executions"]]
            if page["cursor"] is None:
                break
            cursor = {"cursor": page["cursor"]}
    assert found == started[::-1]


async def test_a_list_begins_at_a_time(shop: Shop) -> None:
    old = await shop.order.start(1)
    await shop.stores.advance(60)
    began = shop.stores.clock.now
    new = await shop.order.start(2)
    async with client(build(shop.app, dashboard=False)) as http:
        for before, wanted in {
            began.isoformat(): [old],
            (began + timedelta(seconds=1)).isoformat(): [new, old],
            "9999-12-31T23:59:59-12:00": [new, old],
            "0001-01-01T00:00:00+12:00": [],
        }.items():
            page = (await http.get(f"{API}/executions", params={"before": before})).json()
            assert [item["id"] for item in page["executions"]] == [str(handle.id) for handle in wanted]
        assert problem(await http.get(f"{API}/executions", params={"before": "2030-01-31T14:00"})) == (422, "invalid")


async def test_the_history_of_a_machine_is_read(shop: Shop) -> None:
    from tests.web.kit import Box

    handle = await shop.parcel.start(Box(3))
    await shop.work()
    async with client(build(shop.app, dashboard=False)) as http:
        lines = (await http.get(f"{API}/executions/{handle.id}/history")).json()["transitions"]
    assert [line["step"] for line in lines] == ["pack", "send"]


async def test_a_schedule_that_cannot_be_read_is_listed_among_the_others(shop: Shop) -> None:
    """Another release may have written it. It must be seen to be deleted."""
    await shop.work()
    await (await shop.app.store()).put_schedule("odd", '{"cron":"@solstice"}', datetime(2030, 1, 1, tzinfo=UTC))
    async with client(build(shop.app)) as http:
        listed = {line["name"]: line["spec"] for line in (await http.get(f"{API}/schedules")).json()["schedules"]}
        assert (listed["odd"], listed["daily"]["cron"]) == (None, "0 6 * * *")
        page = (await http.get("/schedules")).text
        assert "cannot be read by this release" in page
        assert "0 6 * * *" in page
        assert (await http.post(f"{API}/schedules/odd/pause")).json()["paused"]
        refused = await http.post(f"{API}/schedules/odd/trigger")
        assert problem(refused)[0] == 422
        assert "create it anew, or delete it" in refused.json()["detail"]
        assert (await http.delete(f"{API}/schedules/odd")).status_code == 200


async def test_a_schedule_is_created_and_changed(shop: Shop) -> None:
    await shop.worker()  # the ledger knows its definitions
    path = f"{API}/schedules/weekly"
    body = {"cron": "0 7 * * mon", "definition": shop.order.name, "input": {"amount": 5}}
    wrong: list[tuple[str, dict[str, Any]]] = [
        (path, {"definition": shop.order.name}),
        (path, {**body, "cron": "every day"}),
        (path, {**body, "timezone": "Atlantis"}),
        (path, {**body, "overlap": "sometimes"}),
        (path, {**body, "input": {"amount": "five"}}),
        (path, {**body, "definition": "a definition"}),
        (path, {**body, "args": {}}),
        (f"{API}/schedules/every%20day", body),
    ]
    async with client(build(shop.app, dashboard=False)) as http:
        for where, given in wrong:
            assert problem(await http.put(where, json=given)) == (422, "invalid"), given
        assert problem(await http.get(path)) == (404, "not-found")
        made = await http.put(path, json=body)
        assert made.status_code == 200
        terms = {**body, "timezone": "UTC", "queue": None, "overlap": "skip", "catch_up": "latest"}
        assert made.json()["spec"] == {**terms, "window_seconds": 86_400.0}
        await http.post(f"{path}/pause")
        changed = await http.put(path, json={**made.json()["spec"], "cron": "0 8 * * mon", "overlap": "allow"})
        assert (changed.json()["paused"], changed.json()["spec"]["overlap"]) == (True, "allow")
        assert changed.json() == (await http.get(path)).json()
        assert changed.json()["next_at"] > made.json()["next_at"]
        started = (await http.post(f"{path}/trigger")).json()
        assert (await http.get(f"{API}/executions/{started['id']}")).json()["state"] == {"amount": 5}


@pytest.mark.parametrize("what", ["queues", "schedules"])
async def test_names_are_listed_a_page_at_a_time(shop: Shop, what: str) -> None:
    names = ["B", "a", "a:2", "ä" * 100, "日本"]
    for name in reversed(names):
        if what == "queues":
            await shop.app.configure_queue(name, concurrency=1)
        else:
            await (await shop.app.store()).put_schedule(name, "{}", datetime(2030, 1, 1, tzinfo=UTC))
    pages: list[list[str]] = []
    async with client(build(shop.app, dashboard=False)) as http:
        cursor: str | None = "A"
        while cursor is not None:
            answer = (await http.get(f"{API}/{what}", params={"limit": 2, "cursor": cursor})).json()
            pages.append([line["name"] for line in answer[what] if line["name"] in names])
            cursor = answer["cursor"]
        assert problem(await http.get(f"{API}/{what}?limit=0"))[0] == 422
    assert [name for page in pages for name in page] == names
    assert max(map(len, pages)) <= 2


async def test_definitions_are_listed_a_page_at_a_time_by_name_and_version(shop: Shop) -> None:
    longest = "z" * 200
    known = (("Ant", 10), ("Ant", 2), ("Ant.b", 1), (longest, 1), (longest, 2))
    await (await shop.app.store()).register_definitions(
        [Definition(kind="workflow", name=name, version=version, step="", queue="default") for name, version in known]
    )
    found = await listed(shop, "definitions", limit=1)
    assert [(line["name"], line["version"]) for line in found if line["name"].startswith("Ant")] == [
        ("Ant", 2),
        ("Ant", 10),
        ("Ant.b", 1),
    ]
    assert [line["version"] for line in found if line["name"] == longest] == [1, 2]


async def test_workers_are_listed_a_page_at_a_time(shop: Shop) -> None:
    store = await shop.app.store()
    for number in range(5):
        await store.register_worker(f"w{number}", host="h", pid=number, queues=["default"], lease_seconds=30)
    assert [line["id"] for line in await listed(shop, "workers", limit=2)] == ["w0", "w1", "w2", "w3", "w4"]


async def listed(shop: Shop, what: str, limit: int) -> list[dict[str, Any]]:
    """All pages of it, of so many each."""
    found: list[dict[str, Any]] = []
    async with client(build(shop.app, dashboard=False)) as http:
        query: dict[str, Any] = {"limit": limit}
        while True:
            answer = (await http.get(f"{API}/{what}", params=query)).json()
            assert len(answer[what]) <= limit
            found += answer[what]
            if answer["cursor"] is None:
                return found
            query["cursor"] = answer["cursor"]


async def test_queues_and_schedules_are_steered(shop: Shop) -> None:
    async with client(build(shop.app, dashboard=False)) as http:
        changed = await http.patch(f"{API}/queues/slow", json={"concurrency": 2, "rate": 5, "rate_seconds": 60})
        assert changed.json() == {"name": "slow", "paused": False, "concurrency": 2, "rate": 5.0, "rate_seconds": 60.0}
        assert (await http.post(f"{API}/queues/slow/pause")).json()["paused"]
        lifted = (await http.patch(f"{API}/queues/slow", json={"concurrency": None})).json()
        assert (lifted["paused"], lifted["concurrency"], lifted["rate"]) == (True, None, 5.0)
        assert [queue["name"] for queue in (await http.get(f"{API}/queues")).json()["queues"]] == ["slow"]
        assert (await http.post(f"{API}/schedules/daily/pause")).json()["paused"]
        assert not (await http.post(f"{API}/schedules/daily/resume")).json()["paused"]
        assert (await http.post(f"{API}/schedules/daily/trigger")).status_code == 201
        assert (await http.delete(f"{API}/schedules/daily")).json() == {"schedule": "daily"}
        assert problem(await http.delete(f"{API}/schedules/daily")) == (404, "not-found")
        names = [line["name"] for line in (await http.get(f"{API}/definitions")).json()["definitions"]]
        assert shop.order.name in names


async def test_the_overview_counts_and_workers_are_listed(shop: Shop) -> None:
    await shop.broken.start("no")
    await shop.work()
    async with client(build(shop.app, dashboard=False)) as http:
        overview = (await http.get(f"{API}/overview")).json()
        workers = (await http.get(f"{API}/workers")).json()["workers"]
    counts = {item["status"]: item["count"] for item in overview["statuses"]}
    assert (counts["failed"], counts["done"], overview["workers"], len(workers)) == (1, 0, 1, 1)
    assert sum(bucket["failed"] for bucket in overview["pace"]["buckets"]) == 1


# ---------------------------------------------------------------------- what is wrong


async def test_wrong_and_huge_bodies_are_refused(shop: Shop) -> None:
    headers = {"content-type": "application/json"}
    async with client(build(shop.app, dashboard=False, body_max_bytes=1_000)) as http:
        start = f"{API}/executions"

        async def chunks() -> Any:
            for _ in range(50):
                yield b"x" * 100

        wrong: list[tuple[Any, int, str]] = [
            (b"{", 400, "invalid"),
            (b"\xff\xfe", 400, "invalid"),
            (b'{"name":"x","input":' + b"[" * 900, 400, "invalid"),
            (b"[]", 422, "invalid"),
            (b'{"name": 5}', 422, "invalid"),
            (b'{"name": "x", "unknown": 1}', 422, "invalid"),
            (b'{"name": "x", "priority": 99999}', 422, "invalid"),
            (b'{"name": "a\\u0000b"}', 422, "invalid"),
            (b"", 422, "invalid"),
            (b"x" * 1_001, 413, "too-large"),
            (chunks(), 413, "too-large"),
        ]
        for body, status, word in wrong:
            assert problem(await http.post(start, content=body, headers=headers)) == (status, word), body
        assert problem(await http.post(start, data={"name": "x"})) == (415, "unsupported-media-type")
        assert problem(await http.get(start, params={"limit": 0})) == (422, "invalid")
        assert problem(await http.get(f"{start}?limit=1&limit=2")) == (422, "invalid")
        assert problem(await http.get(start, params={"statsu": "done"})) == (422, "invalid")
        assert problem(await http.get(f"{start}/zz")) == (404, "not-found")
        assert problem(await http.get(f"{API}/nowhere")) == (404, "not-found")
        assert problem(await http.put(start)) == (405, "method-not-allowed")


async def test_a_start_with_a_signal_starts_once_and_signals_each_time(shop: Shop) -> None:
    body = {"name": shop.order.name, "input": {"amount": 7}, "key": "k"}
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"name": shop.order.name, "input": {"amount": 7}, "signal": {"name": "ship"}}, 422, "invalid"),  # no key
        ({**body, "signal": {"payload": 1}}, 422, "invalid"),
        ({**body, "signal": {"name": "ship", "nmae": 1}}, 422, "invalid"),
        ({**body, "input": {"amount": "seven"}, "signal": {"name": "ship"}}, 422, "invalid"),
        ({**body, "name": shop.broken.name, "input": {"reason": "no"}, "signal": {"name": "ship"}}, 422, "invalid"),
        ({**body, "name": "nobody", "signal": {"name": "ship"}}, 404, "not-found"),
    ]
    async with client(build(shop.app, dashboard=False)) as http:
        await shop.worker()  # the ledger knows its definitions
        for given, status, word in wrong:
            assert problem(await http.post(f"{API}/executions", json=given)) == (status, word), given
        assert (await http.get(f"{API}/executions")).json()["executions"] == []
        answers = []
        for payload, event in (("now", "e1"), ("now", "e1"), ("later", "e2")):
            signal = {"name": "ship", "payload": payload, "dedup_key": event}
            sent = await http.post(f"{API}/executions", json={**body, "signal": signal})
            assert sent.status_code == 201
            answers.append(sent.json())
        told = [(answer["existing"], answer["delivery"]) for answer in answers]
        assert told == [(False, "delivered"), (True, "duplicate"), (True, "delivered")]
        (id,) = {answer["id"] for answer in answers}
        await shop.work()
        assert (await http.get(f"{API}/executions/{id}")).json()["status"] == "done"
        late = await http.post(f"{API}/executions", json={**body, "signal": {"name": "ship"}})
        assert problem(late) == (409, "refused")
        plain = await http.post(f"{API}/executions", json=body)
        assert set(plain.json()) == {"id", "label", "existing"}


async def test_a_start_is_refused_while_another_has_its_unique_key(shop: Shop) -> None:
    await shop.worker()  # the ledger knows its definitions
    body = {"name": shop.order.name, "input": {"amount": 7}, "unique_key": "table 4"}
    async with client(build(shop.app, dashboard=False)) as http:
        first = (await http.post(f"{API}/executions", json=body)).json()
        for more in ({}, {"key": "k", "signal": {"name": "ship"}}):
            assert problem(await http.post(f"{API}/executions", json={**body, **more})) == (409, "unique-conflict")
        for wrong in ("", "x" * 1_025, "é" * 1_000):
            assert problem(await http.post(f"{API}/executions", json={**body, "unique_key": wrong})) == (422, "invalid")
        await http.post(f"{API}/executions/{first['id']}/cancel", json={"force": True})
        assert (await http.post(f"{API}/executions", json=body)).status_code == 201


async def test_an_ambiguous_id_names_the_candidates(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await shop.order.start(1)
    store = await shop.app.store()
    view = await store.get(first.id.to_bytes())
    assert view is not None
    twin = bytes([*first.id.to_bytes()[:4], *bytes(28)])

    async def two(*_: object) -> list[Any]:
        from msgspec.structs import replace

        return [view, replace(view, promise=twin)]

    monkeypatch.setattr(store, "find", two)
    async with client(build(shop.app, dashboard=False)) as http:
        answer = await http.get(f"{API}/executions/{first.id.short}")
    assert problem(answer) == (409, "ambiguous")
    assert "fits 2 executions" in answer.json()["detail"]


async def test_a_fault_of_ours_is_logged_and_not_shown(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await shop.app.store()

    async def broken(*_: object) -> None:
        raise RuntimeError("the password is hunter2")

    async def away(*_: object) -> None:
        raise StoreUnavailableError("postgresql://user@internal-host is down")

    async with client(build(shop.app, dashboard=False)) as http:
        monkeypatch.setattr(store, "workers", broken)
        answer = await http.get(f"{API}/workers", headers={"x-request-id": "abc-1"})
        assert problem(answer) == (500, "internal")
        assert "hunter2" not in answer.text
        assert answer.json()["request_id"] == "abc-1"
        assert "abc-1" in caplog.text
        monkeypatch.setattr(store, "get", away)
        answer = await http.get("/ready")
        assert problem(answer) == (503, "unavailable")
        assert "internal-host" not in answer.text
        assert (await http.get("/health")).status_code == 200
        odd = await http.get("/health", headers={"x-request-id": "a b\x7f"})
        assert odd.headers["x-request-id"] != "a b\x7f"


def test_the_document_names_every_route_once_and_is_plain_json() -> None:
    whole = document(ROUTES)
    assert json.loads(json.dumps(whole)) == whole
    named = [operation["operationId"] for path in whole["paths"].values() for operation in path.values()]
    assert sorted(named) == sorted(route.name for route in ROUTES)
    assert whole["openapi"].startswith("3.1")


def test_the_documentation_has_the_table_of_routes_and_the_fields_of_requests() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
    assert markdown(ROUTES) in text
    sent = text.partition("What is sent is JSON:")[2].partition("Shapes of answers")[0].splitlines()
    for route in ROUTES:
        if route.body is not None:
            end = route.path.split("/")[-1] if route.method == "POST" else f"{route.method} {route.path}"
            (row,) = (row for row in sent if row.partition("`")[2].partition("`")[0].endswith(end))
            fields = route.body.__struct_fields__
            assert [field for field in fields if f"`{field}`" not in row.split("|")[2]] == [], route.path


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", f"{API}/executions", "GET, HEAD, POST"),
        ("OPTIONS", f"{API}/queues/default", "PATCH"),
        ("GET", f"{API}/executions/abcd/pause", "POST"),
        ("DELETE", "/health", "GET, HEAD"),
        ("PUT", "/login", "GET, HEAD, POST"),
    ],
)
async def test_a_method_that_a_path_has_not_is_answered_with_those_it_has(
    shop: Shop, method: str, path: str, allowed: str
) -> None:
    async with client(build(shop.app, dashboard=False)) as http:
        answer = await http.request(method, path)
        assert problem(answer) == (405, "method-not-allowed")
        assert answer.headers["allow"] == allowed


async def test_an_error_quotes_a_part_of_what_was_sent_only(shop: Shop) -> None:
    async with client(build(shop.app, dashboard=False)) as http:
        answer = await http.post(f"{API}/executions", json={"name": shop.order.name, "input": ["x" * 100_000]})
        assert problem(answer) == (422, "invalid")
        assert len(answer.content) < 3_000


@pytest.mark.parametrize("where", ["n=99999999999999999999999", "n=-9223372036854775809"])
async def test_a_number_that_no_attribute_can_be_is_no_fault_of_the_server(shop: Shop, where: str) -> None:
    async with client(build(shop.app, dashboard=False)) as http:
        assert problem(await http.get(f"{API}/executions", params={"where": where})) == (422, "invalid")
        assert (await http.get(f"{API}/executions", params={"where": "n=9223372036854775807"})).status_code == 200


@pytest.mark.parametrize("path", ["schedules/%00", "executions/%00", "executions/%00/journal", "schedules/a%00b"])
async def test_a_path_with_a_nul_leads_nowhere(shop: Shop, path: str) -> None:
    async with client(build(shop.app)) as http:
        assert problem(await http.get(f"{API}/{path}")) == (404, "not-found")
        assert problem(await http.get(f"/{path}")) == (404, "not-found")


@pytest.mark.parametrize("name", ["a/b", "mail/urgent/pause", "ü ?#%", "a+b"])
async def test_a_queue_of_any_name_can_be_steered(shop: Shop, name: str) -> None:
    async with client(build(shop.app, dashboard=False)) as http:
        paused = await http.post(f"{API}/queues/{quote(name, safe='')}/pause")
        assert (paused.json()["name"], paused.json()["paused"]) == (name, True)
        changed = await http.patch(f"{API}/queues/{quote(name, safe='')}", json={"concurrency": 3})
        assert (changed.json()["name"], changed.json()["concurrency"]) == (name, 3)
        assert problem(await http.post(f"{API}/schedules/{quote(name, safe='')}/pause")) == (404, "not-found")
