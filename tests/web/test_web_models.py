"""Flows and batches over HTTP: ledgers of a job, dead letters, counters of a run; hooks hear of dead letters."""

from __future__ import annotations

from tests.engine.rig import Rig
from tests.models.flow.test_flow_letters import stranded_at_ceiling
from tests.web.kit import client

from holdfast import Context, RetryPolicy
from holdfast.models.hooks import HookEvent, HookRunner, function_hook
from holdfast.web.server import build

API = "/api/v1"


async def test_a_dead_letter_is_listed_told_to_hooks_and_dropped(rig: Rig) -> None:
    told: list[HookEvent] = []
    runner = HookRunner(rig.app._connection, function_hook("dead_lettered", told.append, "h"))
    await runner.run_once()
    handle = await stranded_at_ceiling(rig)
    await rig.advance(1)
    while not told:
        await runner.run_once()
    async with client(build(rig.app, dashboard=False)) as http:
        (letter,) = (await http.get(f"{API}/dead-letters", params={"flow": "letters"})).json()["letters"]
        assert (letter["job"], letter["activity"], letter["can_retry"]) == (str(handle.id), "second", False)
        assert [event.id for event in told] == [letter["id"]]
        refused = await http.post(f"{API}/dead-letters/{letter['id']}/retry")
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:holdfast:problem:refused")
        job = (await http.get(f"{API}/executions/{handle.id}/flow")).json()
        assert (job["semaphore"], job["activities"][-1]["leg2_entries"]) == (1, 99_999_999)
        assert (await http.post(f"{API}/dead-letters/{letter['id']}/drop")).status_code == 200
        assert (await http.get(f"{API}/dead-letters")).json() == {"letters": [], "cursor": None}
        assert (await http.get(f"{API}/executions/{handle.id}/batch")).status_code == 404
    await rig.run()


async def test_a_run_of_a_batch_shows_its_counters(rig: Rig) -> None:
    @rig.app.batch(chunk=4)
    async def double(n: int) -> int:
        return 2 * n

    run = await double.start(range(10))
    await rig.run()
    async with client(build(rig.app, dashboard=False)) as http:
        found = (await http.get(f"{API}/executions/{run.id}/batch")).json()
        assert (found["taken"], found["succeeded"], found["committed"], found["head"]) == (10, 10, 10, None)
        assert (await http.get(f"{API}/executions/{run.id}/flow")).status_code == 404


async def test_the_failed_items_of_a_batch_are_listed_and_run_again(rig: Rig) -> None:
    is_broken = True

    @rig.app.batch(chunk=4, retry=RetryPolicy(max_attempts=1))
    async def half(n: int) -> int:
        if is_broken and n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    @rig.app.workflow
    async def other(ctx: Context) -> None: ...

    run = await half.start(range(10))
    async with client(build(rig.app, dashboard=False)) as http:
        path = f"{API}/executions/{run.id}/batch"
        early = await http.post(f"{path}/retry-failed")
        assert (early.status_code, early.json()["type"]) == (409, "urn:holdfast:problem:refused")
        await rig.run()
        page = (await http.get(f"{path}/failed", params={"limit": 2})).json()
        assert ([item["seq"] for item in page["items"]], page["more"]) == ([1, 3], True)
        assert (page["items"][0]["input"], page["items"][0]["attempts"]) == (1, 1)
        assert page["items"][0]["error"].endswith("1 is odd")
        rest = (await http.get(f"{path}/failed", params={"after": 3})).json()
        assert ([item["seq"] for item in rest["items"]], rest["more"]) == ([5, 7, 9], False)
        is_broken = False
        again = await http.post(f"{path}/retry-failed")
        assert again.status_code == 201
        assert (await http.post(f"{path}/retry-failed")).json() == again.json(), "it is one run, however often asked"
        await rig.run()
        found = (await http.get(f"{API}/executions/{again.json()['id']}/batch")).json()
        assert (found["taken"], found["succeeded"]) == (5, 5)
        handle = await other.start()
        assert (await http.get(f"{API}/executions/{handle.id}/batch/failed")).status_code == 404
        assert (await http.post(f"{API}/executions/{handle.id}/batch/retry-failed")).status_code == 404
        await handle.cancel(force=True)
