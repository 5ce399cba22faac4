"""Prometheus: what the ledger holds and what workers do, in a form that its own parser reads."""

from __future__ import annotations

import functools
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import App, RetryPolicy
from holdfast.engine.settings import WorkerSettings
from holdfast.store.values import Reaped
from holdfast.telemetry.meters import Meters
from holdfast.testing.stores import Stores
from holdfast.web.metrics import Metrics

Samples = dict[tuple[str, frozenset[Any]], float]


def samples(text: bytes) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(found: Samples, metric: str, /, **labels: str) -> float:
    return found[metric, frozenset(labels.items())]


async def test_a_scrape_tells_what_the_ledger_holds_and_the_engine_did(stores: Stores) -> None:
    app = App("metered", store=stores.unopened())
    into = CollectorRegistry()
    app.observe(Meters(into))

    @app.task(name="flaky", queue="default", retry=RetryPolicy(max_attempts=2, initial_delay=0.0))
    async def flaky(is_good: bool) -> None:
        if not is_good:
            raise ValueError("no")

    for is_good in (True, False):
        await flaky.start(is_good)
    await flaky.options(queue="slow").start(True)
    worker = await app.make_worker(WorkerSettings())
    await worker.open()
    await worker.run_until_idle()
    await stores.advance(60)
    held = samples(await Metrics().render(await app.store()))
    await worker.stop(0)
    await app.close()
    assert value(held, "holdfast_executions", status="done") == 1
    assert value(held, "holdfast_executions_capped", status="done") == 0
    assert value(held, "holdfast_queue_capped", queue="slow") == 0
    assert value(held, "holdfast_executions", status="failed") == 1
    assert value(held, "holdfast_queue_runnable", queue="slow") == 1
    assert value(held, "holdfast_queue_oldest_seconds", queue="slow") == 60
    assert value(held, "holdfast_workers", lease="alive") + value(held, "holdfast_workers", lease="expired") == 1
    did = samples(generate_latest(into))
    task = {"kind": "task", "name": "flaky"}
    assert value(did, "holdfast_ended_total", **task, status="done") == 1
    assert value(did, "holdfast_ended_total", **task, status="failed") == 1
    assert value(did, "holdfast_retries_total", **task) == 1
    assert value(did, "holdfast_steps_total", **task) == 3
    assert value(did, "holdfast_picked_total") == 3
    assert value(did, "holdfast_flush_commits_sum") == 3
    assert value(did, "holdfast_flush_seconds_count") == value(did, "holdfast_flush_commits_count")
    assert value(did, "holdfast_pick_seconds_count") >= 2


async def test_a_count_that_stopped_at_its_bound_says_so(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("bounded", store=stores.unopened())

    @app.task(name="wait", queue="default")
    async def wait() -> None: ...

    for _ in range(3):
        await wait.start()
    store = await app.store()
    monkeypatch.setattr(store, "tally", functools.partial(store.tally, 2))
    held = samples(await Metrics().render(store))
    await app.close()
    assert value(held, "holdfast_executions", status="runnable") == 2
    assert value(held, "holdfast_executions_capped", status="runnable") == 1
    assert value(held, "holdfast_executions_capped", status="failed") == 0
    assert value(held, "holdfast_executions_estimate", status="runnable") == 3
    assert not [name for name, _ in held if name == "holdfast_queue_estimate"]


def test_losses_are_counted() -> None:
    into = CollectorRegistry()
    meters = Meters(into)
    meters.lease_lost()
    meters.reaped(Reaped(("w1", "w2"), 5, (b"x",)))
    found = samples(generate_latest(into))
    assert value(found, "holdfast_lease_losses_total") == 1
    assert value(found, "holdfast_reaped_workers_total") == 2
    assert value(found, "holdfast_reaped_executions_total") == 5
    assert value(found, "holdfast_crash_stranded_total") == 1


def test_a_worker_process_serves_its_metrics_and_logs_json(tmp_path: Path) -> None:
    """In a real process: metrics of its own, and a line of JSON for a task that fails."""
    (tmp_path / "shop.py").write_text(
        "import logging\n"
        "from holdfast import App, RetryPolicy\n"
        "app = App('shop')\n"
        "@app.task(queue='default', retry=RetryPolicy(max_attempts=1))\n"
        "async def work():\n"
        "    logging.getLogger('shop').error('working')\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "holdfast.cli", "--database", "l.db"]
    started = (
        "import asyncio, shop\n"
        "async def main():\n"
        "    await shop.work.start()\n"
        "    await shop.app.close()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run(
        [sys.executable, "-c", started], cwd=tmp_path, check=True, env={"HOLDFAST_DATABASE": "l.db", "PATH": ""}
    )
    worker = subprocess.Popen(
        [*command, "worker", "shop:app", "--log-format", "json", "--metrics-port", str(port)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert worker.stderr is not None
        line = worker.stderr.readline()
        assert '"message":"working"' in line
        assert '"execution":"' in line
        assert '"attempt":1' in line
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert "holdfast_picked_total" in answer.read().decode()
    finally:
        worker.terminate()
        worker.communicate(timeout=60)
    assert worker.returncode == 0
