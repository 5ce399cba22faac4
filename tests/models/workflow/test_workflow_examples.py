"""The three example sequences of the journal's design come out of the real engine, event for event (ruling B12)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Context, RetryPolicy
from tests.models.workflow.kit import Rig


@dataclass
class User:
    id: int
    email: str


@dataclass
class Approval:
    approved: bool


async def test_the_full_example_comes_out_event_for_event(rig: Rig) -> None:
    """Its two join-set tasks are on queues of their own (B12); one fails once."""
    failures = ["the server is away"]

    @rig.app.task(queue="users")
    async def fetch_user(id: int) -> User:
        return User(id, "a@b.c")

    @rig.app.task(queue="mail", retry=RetryPolicy(initial_delay=5, jitter=0))
    async def send_email(to: str) -> str:
        if failures:
            raise ConnectionError(failures.pop())
        return "mailed"

    @rig.app.task(queue="sms")
    async def send_sms(to: str) -> str:
        return "sent"

    @rig.app.workflow
    async def greet(ctx: Context) -> list[str]:
        ctx.random()
        user = await fetch_user(42)
        async with ctx.join_set() as jobs:
            jobs.submit(send_email, user.email)
            jobs.submit(send_sms, user.email)
            return [(await jobs.next()).result(), (await jobs.next()).result()]

    handle = await greet.start()
    caller = await rig.make_worker(queues=["default"])
    users, mail, sms = [await rig.make_worker(queues=[name]) for name in ("users", "mail", "sms")]
    for worker in (caller, users, caller, sms, caller, mail):
        assert await worker.run_once() == 1
    await rig.advance(5)
    assert await mail.run_once() == 1
    assert await caller.run_once() == 1
    assert await handle.result() == ["sent", "mailed"]
    assert await rig.lines(handle) == [
        "ExecutionStarted",
        "RandomGenerated root.0",
        "InvokeScheduled root.1 fetch_user",
        "ExecutionAwaiting [root.1] Single",
        "InvokeStarted root.1 attempt=1",
        'InvokeCompleted root.1 Ok({"id":42,"email":"a@b.c"}) attempt=1',
        "ExecutionResumed",
        "JoinSetCreated root.2",
        "InvokeScheduled root.3 send_email",
        "JoinSetSubmitted root.2 root.3",
        "InvokeScheduled root.4 send_sms",
        "JoinSetSubmitted root.2 root.4",
        "ExecutionAwaiting [root.3, root.4] Any",
        "InvokeStarted root.4 attempt=1",
        'InvokeCompleted root.4 Ok("sent") attempt=1',
        "ExecutionResumed",
        'JoinSetAwaited root.2 root.4 Ok("sent")',
        "ExecutionAwaiting [root.3] Any",
        "InvokeStarted root.3 attempt=1",
        "InvokeRetrying root.3 attempt=1",
        "InvokeStarted root.3 attempt=2",
        'InvokeCompleted root.3 Ok("mailed") attempt=2',
        "ExecutionResumed",
        'JoinSetAwaited root.2 root.3 Ok("mailed")',
        'ExecutionCompleted Ok(["sent","mailed"])',
    ]


async def test_the_buffered_signal_example_comes_out_event_for_event(rig: Rig) -> None:
    """The signal arrives while the workflow runs, and is consumed without blocking (ruling B7)."""
    approved = Approval(True)

    @rig.app.task
    async def create_order(item: str) -> str:
        await handle.signal("user_approval", approved)
        await (await rig.worker())._watcher.run_once()  # as the worker's own loop does when it hears of it
        return "order"

    @rig.app.workflow
    async def order(ctx: Context) -> Approval:
        await create_order("book")
        return await ctx.signal("user_approval", Approval)

    handle = await order.start()
    assert await rig.result(handle) == approved
    assert await rig.lines(handle) == [
        "ExecutionStarted",
        "InvokeScheduled root.0 create_order",
        "ExecutionAwaiting [root.0] Single",
        "InvokeStarted root.0 attempt=1",
        'InvokeCompleted root.0 Ok("order") attempt=1',
        "ExecutionResumed",
        "SignalDelivered user_approval delivery_id=1",
        "SignalReceived root.1 user_approval delivery_id=1",
        'ExecutionCompleted Ok({"approved":true})',
    ]


async def test_the_blocking_signal_example_comes_out_event_for_event(rig: Rig) -> None:
    @rig.app.task
    async def create_order(item: str) -> str:
        return "order"

    @rig.app.workflow
    async def order(ctx: Context) -> Approval:
        await create_order("book")
        return await ctx.signal("user_approval", Approval)

    handle = await order.start()
    await rig.run()
    await handle.signal("user_approval", Approval(True))
    assert await rig.result(handle) == Approval(True)
    assert await rig.lines(handle) == [
        "ExecutionStarted",
        "InvokeScheduled root.0 create_order",
        "ExecutionAwaiting [root.0] Single",
        "InvokeStarted root.0 attempt=1",
        'InvokeCompleted root.0 Ok("order") attempt=1',
        "ExecutionResumed",
        "ExecutionAwaiting [root.1] Signal(user_approval)",
        "SignalDelivered user_approval delivery_id=1",
        "SignalReceived root.1 user_approval delivery_id=1",
        "ExecutionResumed",
        'ExecutionCompleted Ok({"approved":true})',
    ]
