"""Flows and batches over HTTP: ledgers of a job, dead letters, counters of a run; hooks hear of dead letters."""

from __future__ import annotations

from tests.engine.rig import Rig
from tests.models.flow.test_flow_letters import stranded_at_ceiling
from tests.web.kit import client

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
