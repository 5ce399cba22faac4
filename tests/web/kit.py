"""A small shop behind the API: a workflow that waits, a machine with a history, a task that fails, a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette

from holdfast import App, Context, Done, Machine, Next, RetryPolicy, step
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.models.machine.context import MachineContext
from holdfast.testing.stores import Stores
from holdfast.web.security import Tokens

READ, OPERATE, ADMIN = "r" * 20, "o" * 20, "a" * 20
STUCK_SECONDS = 120
TOKENS = Tokens([("read", READ), ("operate", OPERATE), ("admin", ADMIN)])


@dataclass
class Box:
    number: int


class Shop:
    """Declares everything anew, so that each test has its own app."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.app = app = App("shop", store=stores.unopened())

        @app.task
        async def charge(amount: int) -> int:
            return amount

        @app.workflow
        async def order(ctx: Context, amount: int) -> int:
            paid = await charge(amount)
            await ctx.signal("ship", str)
            return paid

        @app.task(queue="default", retry=RetryPolicy(max_attempts=1))
        async def broken(reason: str) -> None:
            raise ValueError(reason)

        @app.machine(history=True)
        class Parcel(Machine[Box]):
            @step(initial=True)
            async def pack(self, ctx: MachineContext[Box]) -> Any:
                return Next(self.send, ctx.state)

            @step
            async def send(self, ctx: MachineContext[Box]) -> Any:
                return Done(ctx.state.number)

        app.schedule("0 6 * * *", name="daily", args={"amount": 1})(order)
        self.order, self.broken, self.parcel = order, broken, Parcel
        self._worker: Worker | None = None

    async def worker(self) -> Worker:
        if self._worker is None:
            self._worker = await self.app.make_worker(WorkerSettings())
            await self._worker.open()
        return self._worker

    async def work(self) -> None:
        async with asyncio.timeout(STUCK_SECONDS):  # an error that says where, instead of a run that never ends
            await (await self.worker()).run_until_idle()

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.stop(0)
        await self.app.close()


@asynccontextmanager
async def client(web: Starlette, token: str | None = None, host: str = "localhost") -> AsyncIterator[httpx.AsyncClient]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(web, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers) as made:
        yield made


def parse_events(text: bytes) -> list[dict[str, str]]:
    """The events of a stream, comments left out."""
    found = []
    for block in text.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "event" in fields:
            found.append(fields)
    return found
