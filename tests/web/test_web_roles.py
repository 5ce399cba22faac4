"""Every role against every route: a route without an expectation here fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.web.kit import ADMIN, OPERATE, READ, TOKENS, Shop, client

from holdfast.core.errors import ConfigurationError
from holdfast.web.api import ROUTES
from holdfast.web.security import Role, Tokens, check_binding
from holdfast.web.server import build
from holdfast.web.table import EVENT_STREAM, PREFIX

# What is needed at least, by the name of a route. Written by hand, apart from the table: both must agree.
EXPECTED = {
    "list_executions": "read",
    "show_execution": "read",
    "show_journal": "read",
    "show_history": "read",
    "list_children": "read",
    "show_inbox": "read",
    "start_execution": "operate",
    "send_signal": "operate",
    "cancel_execution": "operate",
    "pause_execution": "operate",
    "resume_execution": "operate",
    "retry_execution": "operate",
    "fork_execution": "operate",
    "list_queues": "read",
    "change_queue": "admin",
    "pause_queue": "operate",
    "resume_queue": "operate",
    "list_schedules": "read",
    "show_schedule": "read",
    "put_schedule": "admin",
    "pause_schedule": "operate",
    "resume_schedule": "operate",
    "trigger_schedule": "operate",
    "delete_schedule": "admin",
    "list_dead_letters": "read",
    "retry_dead_letter": "operate",
    "drop_dead_letter": "operate",
    "show_flow_job": "read",
    "show_batch_run": "read",
    "list_failed_items": "read",
    "retry_failed_items": "operate",
    "show_overview": "read",
    "list_workers": "read",
    "list_definitions": "read",
    "watch_ledger": "read",
    "watch_execution": "read",
}
GIVEN = {"read": READ, "operate": OPERATE, "admin": ADMIN}


def test_every_route_has_an_expectation() -> None:
    assert {route.name for route in ROUTES} == set(EXPECTED)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


async def test_every_role_against_every_route(shop: Shop) -> None:
    """A route that is allowed answers whatever it answers, but neither 401 nor 403."""
    web = build(shop.app, tokens=TOKENS, dashboard=False)
    for route in ROUTES:
        path = PREFIX + route.path.replace("{id}", "ffff0000").replace("{name}", "nothing")
        needed = Role[EXPECTED[route.name].upper()]
        async with client(web, host="example.org") as nobody:
            assert (await nobody.request(route.method, path)).status_code == 401, route.name
        async with client(web, "x" * 20) as stranger:
            answer = await stranger.request(route.method, path)
            assert answer.status_code == 401, route.name
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for word, token in GIVEN.items():
            is_allowed = Role[word.upper()] >= needed
            if is_allowed and route.media == EVENT_STREAM and "{id}" not in path and route.name == "watch_ledger":
                path += "?status=runnable&unknown=1"  # refused after the role, before a stream begins
            async with client(web, token) as known:
                answer = await known.request(route.method, path)
            assert (answer.status_code not in (401, 403)) == is_allowed, (route.name, word, answer.status_code)
            if not is_allowed:
                assert answer.status_code == 403
                assert answer.json()["type"] == "urn:holdfast:problem:forbidden"


async def test_only_an_admin_ends_a_run_without_its_clean_up(shop: Shop) -> None:
    order = await shop.order.start(1)
    path = f"{PREFIX}/executions/{order.id}/cancel"
    web = build(shop.app, tokens=TOKENS, dashboard=False)
    async with client(web, OPERATE) as operator, client(web, ADMIN) as admin:
        refused = await operator.post(path, json={"force": True, "reason": "its code is gone"})
        assert refused.status_code == 403
        assert "this needs the role admin; the token has operate" in refused.json()["detail"]
        assert not (await order.describe()).cancel_requested
        asked = await operator.post(path, json={"force": False})
        assert asked.json()["status"] == "runnable", "it is to clean up first"
        ended = await admin.post(path, json={"force": True, "reason": "its code is gone"})
        assert ended.json()["status"] == "cancelled"
    assert (await order.describe()).cancel_reason == "its code is gone"


async def test_metrics_need_a_token_and_health_does_not(shop: Shop) -> None:
    web = build(shop.app, tokens=TOKENS, dashboard=False)
    async with client(web) as nobody:
        assert (await nobody.get("/metrics")).status_code == 401
        assert (await nobody.get("/health")).status_code == 200
        assert (await nobody.get("/ready")).status_code == 200
        assert (await nobody.get(f"{PREFIX}/openapi.json")).status_code == 200
    async with client(web, READ) as reader:
        assert (await reader.get("/metrics")).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_other_addresses_demand_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_TOKENS"):
        check_binding(host, Tokens())
    check_binding(host, TOKENS)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.9"])
def test_loopback_demands_none(host: str) -> None:
    check_binding(host, Tokens())


@pytest.mark.parametrize(
    "text",
    [
        "abc",
        "root:abcdefghijklmnopqrst",
        "read:short",
        "read:",
        "admin:with space-------------",
        "read:ünïcödé-ünïcödé-ü",
    ],
)
def test_bad_tokens_are_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Tokens.parse(text)
    secret = text.partition(":")[2]
    assert not secret or secret not in str(refused.value)


def test_a_file_without_a_token_opens_nothing(tmp_path: Path) -> None:
    """On loopback no token means that everything is open, also to who comes through a proxy on this machine."""
    file = tmp_path / "tokens"
    file.write_text("# admin:abcdefghijklmnopqrst\n")
    with pytest.raises(ConfigurationError, match="holds no token"):
        Tokens.from_file(file)


def test_tokens_are_kept_as_hashes_only() -> None:
    tokens = Tokens.parse(f"# a comment\nread:{READ}, admin:{ADMIN}\n")
    assert len(tokens) == 2
    kept = repr(vars(tokens)) + repr(tokens)
    assert READ not in kept
    assert ADMIN not in kept
    assert tokens.find(READ) is not None
    assert tokens.find(READ + "r") is None
