"""A desk: an app of workflows on a ledger, worked on in this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from holdfast import App
from holdfast.engine.settings import WorkerSettings
from tests.cli.programs import desk


class Desk:
    """Starts runs on a queue of its own, and works on them until there is nothing to do."""

    def __init__(self, database: str, queue: str) -> None:
        self.database = database
        self.queue = queue

    def run(self, work: Callable[[App], Awaitable[Any]]) -> Any:
        async def on_app() -> Any:
            async with desk.build(self.database) as app:
                return await work(app)

        return asyncio.run(on_app())

    def register(self) -> None:
        self.run(lambda app: app.register())

    def work(self) -> None:
        async def work(app: App) -> None:
            worker = await app.make_worker(WorkerSettings(queues=[self.queue]))
            await worker.open()
            await worker.run_until_idle()
            await worker.stop()

        self.run(work)

    def start(self, name: str, amount: int, **options: Any) -> str:
        """The id of a run that was worked on as far as it goes."""

        async def start(app: App) -> str:
            handle = await app.start_by_name(name, {"amount": amount}, queue=self.queue, **options)
            return str(handle.id)

        self.register()
        promise: str = self.run(start)
        self.work()
        return promise

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """A worker in a thread of its own, while the block runs."""
        done, ready = threading.Event(), threading.Event()

        async def work(app: App) -> None:
            async with app.worker(queues=[self.queue]):
                ready.set()
                await asyncio.to_thread(done.wait)

        thread = threading.Thread(target=lambda: self.run(work))
        thread.start()
        assert ready.wait(60)
        try:
            yield
        finally:
            done.set()
            thread.join()
