"""A worker and the HTTP API in one process: start, watch live, signal; and a hook that hears of failures.

It prints:

    5 paid, shipped by Ann
    order failed
    "charge failed: ValueError: nothing to charge"
"""

from __future__ import annotations

import asyncio
import json

import httpx

from holdfast import App, Context, RetryPolicy
from holdfast.telemetry import HookEvent
from holdfast.web.server import serve

app = App("shop")
told: asyncio.Queue[str] = asyncio.Queue()


@app.task(name="charge", retry=RetryPolicy(max_attempts=1))
async def charge(amount: int) -> int:
    if amount < 0:
        raise ValueError("nothing to charge")
    return amount


@app.workflow(name="order")
async def order(ctx: Context, amount: int) -> str:
    paid = await charge(amount)
    driver = await ctx.signal("ship", str)
    return f"{paid} paid, shipped by {driver}"


@app.on("failed")
async def tell(event: HookEvent) -> None:
    await told.put(event.name)


async def watch(http: httpx.AsyncClient, id: str) -> str:
    """Follow an execution until it ends; a client that is cut off would send the last id as `Last-Event-ID`."""
    async with http.stream("GET", f"/executions/{id}/events") as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and '"event":"ExecutionAwaiting"' in line:
                await http.post(f"/executions/{id}/signals", json={"name": "ship", "payload": "Ann"})
            if line == "event: end":
                break
    return str((await http.get(f"/executions/{id}")).json()["result"])


async def main() -> None:
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with app, app.worker():
        serving = asyncio.ensure_future(serve(app, port=0, handle_signals=False, on_up=up.set_result))
        async with httpx.AsyncClient(base_url=f"{await up}api/v1", timeout=30) as http:
            good = await http.post("/executions", json={"name": "order", "input": {"amount": 5}})
            print(await watch(http, good.json()["id"]))
            await http.post("/executions", json={"name": "order", "input": {"amount": -1}})
            print(f"{await told.get()} failed")
            page = (await http.get("/executions", params={"status": "failed"})).json()
            print(json.dumps(page["executions"][0]["error"]["message"]))
        serving.cancel()
        await asyncio.wait([serving])


if __name__ == "__main__":
    asyncio.run(main())
