"""Workflows by hand: workers that live on the ledger's virtual clock, and journals in a form that can be compared.

- `Rig`: an app, its workers (warm or cold), the clock. `check_journals` validates every journal of the ledger.
- `events`, `lines`: a journal without timestamps; ids are written as `root.3`.
- `Gate`: holds tasks until a test lets them go.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast import App, Handle, PromiseId, Status
from holdfast.core.journal import decode_segment, validate_segments
from holdfast.core.journal.events import Event
from holdfast.core.journal.local_ids import events_of
from holdfast.engine.runner import Runner
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.models.workflow.runner import WorkflowRunner
from holdfast.store.base import Store
from holdfast.testing.audit import all_views
from holdfast.testing.clock import VirtualClock
from holdfast.testing.stores import Stores

LEASE_PASSED = 31.0
Facts = dict[str, Any]


class HandWorker(Worker):
    """Its clock is the ledger's, and its dice always show a half: nothing depends on how fast the machine is."""

    clock: VirtualClock

    async def open(self) -> None:
        await super().open()
        self.now = lambda: self.clock.now_us() / 1_000_000

    def random(self) -> float:
        return 0.5


class Gate:
    """Tasks that pass here wait until it is open; `reached` says that one came."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()


class Rig:
    """`worker` is made at its first use, after the test has declared its workflows."""

    def __init__(self, stores: Stores, *, store: Store | None = None, **app: Any) -> None:
        self.stores = stores
        self.app = App("test", store=store or stores.unopened(), **app)
        self._apps = [self.app]
        self.workers: list[HandWorker] = []

    def another_app(self, **app: Any) -> App:
        """The same program with other code, on the same ledger."""
        made = App("test", store=self.stores.unopened(), **app)
        self._apps.append(made)
        return made

    async def make_worker(self, app: App | None = None, *, warm_most: int | None = None, **settings: Any) -> HandWorker:
        """Another worker, open and idle: it works when told to. `warm_most=0` replays at every claim."""
        chosen = app or self.app
        runners: list[Runner] = chosen.runners()
        if warm_most is not None:
            runners = [
                WorkflowRunner(chosen._functions, warm_most=warm_most) if isinstance(runner, WorkflowRunner) else runner
                for runner in runners
            ]
        settings.setdefault("queues", sorted({"default", *chosen._functions.queues(), *chosen._machines.queues()}))
        results = await chosen._connection.results()
        worker = HandWorker(
            await chosen.store(),
            runners,
            WorkerSettings(**settings),
            lifespans=tuple(chosen._lifespans),
            on_ended=results.ended,
            release=chosen._release(),
        )
        worker.clock = self.stores.clock
        await worker.open()
        self.workers.append(worker)
        return worker

    async def worker(self) -> HandWorker:
        return self.workers[0] if self.workers else await self.make_worker()

    async def once(self) -> int:
        return await (await self.worker()).run_once()

    async def run(self) -> int:
        """Work until nothing is due."""
        return await (await self.worker()).run_until_idle()

    async def result(self, handle: Handle[Any]) -> Any:
        """Work, then the result, which must be there."""
        await self.run()
        view = await handle.describe()
        assert view.status.is_terminal or view.status is Status.STRANDED, f"it is {view.status} at {view.step!r}"
        return await handle.result()

    async def advance(self, seconds: float) -> None:
        """Move the ledger's time; the workers that live beat their hearts."""
        await self.stores.advance(seconds)
        for worker in self.workers:
            await worker.beat_once()

    def working(self, worker: HandWorker) -> asyncio.Task[int]:
        return asyncio.create_task(worker.run_until_idle())

    async def kill(self, worker: HandWorker, working: asyncio.Task[int] | None = None) -> None:
        """As if its process had been killed, and its lease had then run out."""
        self.workers.remove(worker)
        worker._committer._waiting.clear()
        await worker.abandon()
        if working is not None:
            await asyncio.gather(working, return_exceptions=True)
        await self.advance(LEASE_PASSED)
        await (await self.worker()).reap_once()

    async def stop(self, worker: HandWorker, drain_seconds: float | None = None) -> None:
        self.workers.remove(worker)
        await worker.stop(drain_seconds)

    def forget(self) -> None:
        """Evict every workflow from the memory of every worker."""
        for worker in self.workers:
            for runner in worker._all_runners:
                if isinstance(runner, WorkflowRunner):
                    runner.warm.clear()

    async def status(self, handle: Handle[Any]) -> Status:
        return (await handle.describe()).status

    # ------------------------------------------------------------------ journals

    async def events(self, target: Handle[Any] | PromiseId) -> list[Event]:
        promise = target if isinstance(target, PromiseId) else target.id
        segments = await self.stores.store.journal(promise.to_bytes())
        return [event for text in segments for event in events_of(str(promise), text)]

    async def facts(self, target: Handle[Any] | PromiseId) -> list[Facts]:
        """The journal, event for event, without what a person's clock says."""
        return [facts_of(event) for event in await self.events(target)]

    async def lines(self, target: Handle[Any] | PromiseId) -> list[str]:
        promise = target if isinstance(target, PromiseId) else target.id
        return [line_of(event, str(promise)) for event in await self.events(target)]

    async def until(self, target: Handle[Any] | PromiseId, event: str) -> None:
        """Let others run until the journal has such an event."""
        async with asyncio.timeout(20):
            while not any(line.startswith(event) for line in await self.lines(target)):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def check_journals(self) -> None:
        """Every journal of the ledger keeps every rule."""
        store = self.stores.store
        for view in await all_views(store):
            text = str(PromiseId.from_bytes(view.promise))
            segments = [decode_segment(segment) for segment in await store.journal(view.promise)]
            violations = validate_segments(text, segments)
            assert not violations, f"{view.name}: " + "; ".join(map(str, violations))
            assert view.journal_length == sum(len(segment.events) for segment in segments)

    async def close(self) -> None:
        for worker in self.workers:
            await worker.stop(0)
        for app in self._apps:
            await app.close()


def facts_of(event: Event) -> Facts:
    facts: Facts = msgspec.json.decode(msgspec.json.encode(event))
    for name in ("timestamp", "v", "component_digest", "fingerprint", "retry_policy"):
        facts.pop(name, None)
    if "error" in facts:
        facts["error"].pop("traceback", None)
    if isinstance(facts.get("result"), dict) and isinstance(facts["result"].get("error"), dict):
        facts["result"]["error"].pop("traceback", None)
    return facts


def line_of(event: Event, root: str) -> str:
    """`InvokeStarted root.1 attempt=1`: what the seed's examples show of an event."""
    facts = facts_of(event)
    shown = [facts["event"]]
    shown += [facts[name].replace(root, "root") for name in ("join_set_id", "promise_id") if name in facts]
    if "function_name" in facts:
        shown.append(facts["function_name"].rpartition(".")[2])
    shown += [facts[name] for name in ("signal_name", "reason") if name in facts]
    if "waiting_on" in facts:
        shown.append("[" + ", ".join(pid.replace(root, "root") for pid in facts["waiting_on"]) + "]")
        signals = [signal["signal_name"] for signal in facts.get("signals", ())]
        shown.append(f"Signal({signals[0]})" if facts["kind"] == "Signal" else facts["kind"])
    if "result" in facts:
        shown.append(_result(facts["result"]))
    if facts["event"] == "ExecutionFailed":
        shown.append(f"{facts['error']['kind']}:{facts['error']['type'].rpartition('.')[2]}")
    for name, label in (("attempt", "attempt"), ("failed_attempt", "attempt"), ("delivery_id", "delivery_id")):
        if name in facts:
            shown.append(f"{label}={facts[name]}")
    return " ".join(shown)


def _result(result: Any) -> str:
    if isinstance(result, dict) and result.get("outcome") == "ok":
        return f"Ok({msgspec.json.encode(result['value']).decode()})"
    if isinstance(result, dict) and result.get("outcome") == "error":
        return f"Err({result['error']['kind']}:{result['error']['type'].rpartition('.')[2]})"
    return f"Ok({msgspec.json.encode(result).decode()})"
