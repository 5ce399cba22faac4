"""Serving: on loopback freely, elsewhere with a token only; stopped in good order, open streams or not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import httpx
import pytest
from tests.web.kit import ADMIN, Shop, client

from holdfast import App
from holdfast.core.errors import ConfigurationError
from holdfast.web import guard
from holdfast.web.connections import PromptProtocol
from holdfast.web.security import Tokens
from holdfast.web.server import build, serve


async def test_another_address_without_a_token_is_not_served(shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="there is no token"):
        await serve(shop.app, host="0.0.0.0", port=0, tokens=Tokens())


async def test_a_port_that_is_taken_is_said(shop: Shop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match="use another --port"):
            await serve(shop.app, port=taken.getsockname()[1], tokens=Tokens(), handle_signals=False)


async def test_stopping_ends_open_streams(shop: Shop) -> None:
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(shop.app, port=0, tokens=Tokens(), handle_signals=False, on_up=up.set_result))
    async with httpx.AsyncClient(base_url=await up, timeout=30) as http:
        async with http.stream("GET", "/api/v1/events") as answer:
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith("retry: ")
            serving.cancel()
            rest = [line async for line in lines]
        assert "event: ready" in rest
    with pytest.raises(asyncio.CancelledError):
        await serving


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntok",
        b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntok",
    ],
    ids=["nothing", "half a head", "half a form", "a body that nobody reads"],
)
async def test_a_stranger_who_does_not_come_to_the_point_holds_no_connection(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(PromptProtocol, "head_seconds", 0.05)
    monkeypatch.setattr(guard, "LOGIN_SECONDS", 0.05)
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    tokens = Tokens([("admin", ADMIN)])
    serving = asyncio.ensure_future(serve(shop.app, port=0, tokens=tokens, handle_signals=False, on_up=up.set_result))
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(await up).port)
    writer.write(sent)
    if b"\r\n\r\n" in sent:
        assert (await reader.readline()).split()[1] in (b"400", b"401")
        writer.write(b"en")  # what is answered is not taken for a new request
    async with asyncio.timeout(30):
        assert b"HTTP/1.1" not in await reader.read()
    writer.close()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


def test_the_command_serves_with_a_token_that_it_never_shows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli", "--database", "l.db"]
    environment = {**os.environ, "HOLDFAST_TOKENS": f"admin:{ADMIN}"}
    subprocess.run([*command, "migrate"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    running = subprocess.Popen(
        [*command, "--json", "web", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        first = running.stdout.readline()
        told = json.loads(first)
        assert told["event"] == "serving"
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"{told['url']}api/v1/queues", timeout=30)
        refused.value.close()
        request = urllib.request.Request(f"{told['url']}api/v1/queues", headers={"Authorization": f"Bearer {ADMIN}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer) == {"queues": [], "cursor": None}
    finally:
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0
    assert ADMIN not in first + out + err
    assert err == ""


async def test_a_server_whose_ledger_is_gone_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    app = App("shop", str(path))
    async with app, client(build(app)) as http:
        assert (await http.get("/ready")).status_code == 200
        path.unlink()
        answer = await http.get("/ready")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:holdfast:problem:unavailable")
