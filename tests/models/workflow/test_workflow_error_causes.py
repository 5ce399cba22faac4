"""What an error was raised from is kept with it: of a run, of a call, and of the run that the call was."""

from __future__ import annotations

import pytest

from holdfast import Context, RetryPolicy, TaskFailed
from tests.models.workflow.kit import Rig

ONCE = RetryPolicy(max_attempts=1)


async def test_a_failed_run_tells_what_its_error_was_raised_from(rig: Rig) -> None:
    @rig.app.task(name="charge", retry=ONCE)
    async def charge() -> None:
        raise ValueError("declined")

    @rig.app.workflow
    async def checkout(ctx: Context) -> None:
        try:
            await charge()
        except TaskFailed as error:
            raise RuntimeError("no sale") from error

    handle = await checkout.start()
    await rig.run()
    error = await handle.error()
    assert error is not None
    assert error.causes == ("holdfast.core.errors.TaskFailed: charge failed: ValueError: declined",)


@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_the_caller_and_the_journal_know_the_causes_of_a_failed_call(rig: Rig, queue: str | None) -> None:
    @rig.app.task(queue=queue, retry=ONCE)
    async def charge() -> None:
        try:
            raise KeyError("card")
        except KeyError as error:
            raise ValueError("declined") from error

    @rig.app.workflow
    async def checkout(ctx: Context) -> None:
        await charge()

    handle = await checkout.start()
    await rig.run()
    ends = [facts for facts in await rig.facts(handle) if facts["event"] == "InvokeCompleted"]
    assert ends[0]["result"]["error"]["fields"]["causes"] == ["KeyError: 'card'"]
