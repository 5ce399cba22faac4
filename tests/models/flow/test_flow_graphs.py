"""What graphs do: conditions, joins, cycles, hooks, error edges, sub-flows, completion tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import pytest

from holdfast import App, Flow, FlowJob, RetryPolicy, Status
from holdfast.core.codec import ErrorRecord
from holdfast.core.errors import ExecutionCancelledError, ExecutionFailedError, KeyConflictError
from holdfast.models.definitions import NamedStarter
from holdfast.models.flow.audit import audit_flows
from holdfast.models.flow.reading import JobState, read_job
from holdfast.models.handle import Handle
from holdfast.models.options import Options
from tests.engine.rig import Rig

ONCE = RetryPolicy(max_attempts=1)


@dataclass
class Order:
    amount: int


@dataclass
class Checked:
    ok: bool
    amount: int


def declare_order(app: App, ran: Counter[str]) -> Flow:
    """The example of the issue."""
    order = app.flow("order")

    @order.activity
    async def validate(o: Order) -> Checked:
        ran["validate"] += 1
        return Checked(o.amount > 0, o.amount)

    @order.activity(after=validate, when=lambda c: c.ok)
    async def charge(c: Checked) -> int:
        ran["charge"] += 1
        return c.amount * 10

    @order.activity(after=validate)
    def reserve(c: Checked) -> str:
        ran["reserve"] += 1
        return f"{c.amount} pieces"

    @order.join(after=[charge, reserve])
    async def ship(r: int, s: str) -> str:
        ran["ship"] += 1
        return f"{s} for {r}"

    @order.hook(after=ship, signal="delivered", timeout=timedelta(days=14))
    async def close(p: str, note: str) -> str:
        ran["close"] += 1
        return f"{p}, {note}"

    @order.on_complete
    async def report(job: FlowJob) -> None:
        ran[f"report {job.status.value}"] += 1

    return order


async def state_of(rig: Rig, handle: Handle[object]) -> JobState:
    found = await read_job(await rig.store(), handle.id.to_bytes())
    assert found is not None
    assert await audit_flows(await rig.store()) == []
    return found


async def test_the_example_of_the_issue(rig: Rig) -> None:
    ran: Counter[str] = Counter()
    order = declare_order(rig.app, ran)
    handle = await order.start(Order(3))
    await rig.run()
    assert await handle.status() is Status.DELEGATED
    state = await state_of(rig, handle)
    assert state.semaphore == 1
    assert [message.activity for message in state.messages] == ["close"]
    await handle.signal("delivered", "at the door")
    await rig.run()
    assert await handle.result() == "3 pieces for 30, at the door"
    assert ran == {"validate": 1, "charge": 1, "reserve": 1, "ship": 1, "close": 1, "report done": 1}
    state = await state_of(rig, handle)
    assert (state.semaphore, state.messages) == (0, [])
    # Section 18, digit for digit: one attempt of Leg1, its marker, the steps of Leg2, one entry.
    assert {found.activity: found.ledger for found in state.activities} == {
        "validate": "001111000000001",
        "charge": "001111000000001",
        "reserve": "001111000000001",
        "ship": "001111000000001",
        "close": "001111100000001",
    }
    closer = next(found for found in state.activities if found.activity == "close").entries[0]
    assert closer.ledger == "000111100000001"


async def test_an_edge_not_taken_ends_the_example_without_its_join(rig: Rig) -> None:
    """Ruling A10: no graph hangs on an edge not taken."""
    ran: Counter[str] = Counter()
    handle = await declare_order(rig.app, ran).start(Order(-1))
    await rig.run()
    assert await handle.result() is None
    assert ran == {"validate": 1, "reserve": 1, "report done": 1}
    (join,) = (await state_of(rig, handle)).joins
    assert (join.activity, join.arrived, join.skipped) == ("ship", ["reserve"], ["charge"])


async def test_a_signal_that_comes_first_waits_for_its_hook(rig: Rig) -> None:
    """Ruling A7: what wakes the hook is in the commit that parks it."""
    handle = await declare_order(rig.app, Counter()).start(Order(1))
    await handle.signal("delivered", "early", dedup_key="once")
    await rig.run()
    assert await handle.result() == "1 pieces for 10, early"


async def test_a_hook_that_waits_too_long_fails(rig: Rig) -> None:
    handle = await declare_order(rig.app, Counter()).start(Order(1))
    await rig.run()
    await rig.advance(15 * 24 * 3600)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="delivered"):
        await handle.result()


async def test_each_signal_goes_to_one_hook(rig: Rig) -> None:
    flow = rig.app.flow("two")

    @flow.activity
    async def begin(n: int) -> int:
        return n

    @flow.hook(after=begin, signal="go")
    async def first(n: int, word: str) -> str:
        return word

    @flow.hook(after=begin, signal="go")
    async def second(n: int, word: str) -> str:
        return word

    handle = await flow.start(1)
    await rig.run()
    await handle.signal("go", "a", dedup_key="1")
    await handle.signal("go", "again", dedup_key="1")  # ruling E12: known, though the job no longer has it
    await rig.run()
    assert (await state_of(rig, handle)).semaphore == 1
    await handle.signal("go", "b", dedup_key="2")
    await rig.run()
    assert sorted((await handle.result()).values()) == ["a", "b"]


async def test_an_optional_input_of_a_join_may_be_skipped(rig: Rig) -> None:
    flow = rig.app.flow("maybe")

    @flow.activity
    async def begin(n: int) -> int:
        return n

    @flow.activity(after=begin, when=lambda n: n > 0)
    async def extra(n: int) -> str:
        return "extra"

    @flow.activity(after=extra)
    async def behind(s: str) -> str:
        return s + "!"

    @flow.activity(after=begin)
    async def always(n: int) -> int:
        return n

    @flow.join(after=[behind, always], optional=[behind])
    async def both(b: str | None, n: int) -> str:
        return f"{b} {n}"

    with_it, without = await flow.start(1), await flow.start(0)
    await rig.run()
    assert await with_it.result() == "extra! 1"
    assert await without.result() == "None 0"


async def test_a_cycle_runs_until_its_condition_ends_it(rig: Rig) -> None:
    """Ruling A9: one Leg1, and an iteration a GUID; each iteration's descendants have a dimension of their own."""
    flow = rig.app.flow("pages")
    seen: list[int] = []

    @flow.activity
    async def fetch(page: int) -> int:
        return page + 1

    @flow.activity(after=fetch)
    async def store(page: int) -> int:
        seen.append(page)
        return page

    flow.repeat(after=store, to=fetch, when=lambda page: page < 12)
    handle = await flow.start(0)
    await rig.run()
    assert await handle.result() == 12
    assert seen == list(range(1, 13))
    state = await state_of(rig, handle)
    (head,) = [found for found in state.activities if found.activity == "fetch"]
    # Ruling A2: twelve GUIDs set each marker once, and carry nothing into the next digit.
    assert head.ledger == "001111000000012"
    assert [entry.ordinal for entry in head.entries] == list(range(1, 13))
    assert sorted(found.dimension for found in state.activities if found.activity == "store") == sorted(
        f"fetch={index}" for index in range(12)
    )


async def test_cycles_may_be_nested(rig: Rig) -> None:
    flow = rig.app.flow("nested")
    ran: Counter[str] = Counter()

    @flow.activity
    async def outer(n: int) -> int:
        ran["outer"] += 1
        return n

    @flow.activity(after=outer)
    async def inner(n: int) -> int:
        ran["inner"] += 1
        return n + 1

    flow.repeat(after=inner, to=inner, when=lambda n: n % 3 != 0)
    flow.repeat(after=inner, to=outer, when=lambda n: n % 3 == 0 and n < 9)
    handle = await flow.start(0)
    await rig.run()
    assert ran == {"outer": 3, "inner": 9}
    assert await handle.result() == 9
    await state_of(rig, handle)


async def test_two_back_edges_of_one_iteration_are_two_iterations(rig: Rig) -> None:
    flow = rig.app.flow("twice")
    ran: Counter[str] = Counter()

    @flow.activity
    async def head(n: int) -> int:
        ran["head"] += 1
        return n + 1

    @flow.activity(after=head)
    async def left(n: int) -> int:
        return n

    @flow.activity(after=head)
    async def right(n: int) -> int:
        return n

    flow.repeat(after=left, to=head, when=lambda n: n < 3)
    flow.repeat(after=right, to=head, when=lambda n: n < 3)
    handle = await flow.start(0)
    await rig.run()
    assert await handle.status() is Status.DONE
    assert ran["head"] == 1 + 2 + 4
    await state_of(rig, handle)


async def test_joins_inside_a_cycle_meet_iteration_by_iteration(rig: Rig) -> None:
    flow = rig.app.flow("rounds")
    rounds: list[tuple[int, int]] = []

    @flow.activity
    async def head(n: int) -> int:
        return n + 1

    @flow.activity(after=head)
    async def left(n: int) -> int:
        return n * 10

    @flow.activity(after=head)
    async def right(n: int) -> int:
        return n * 100

    @flow.join(after=[left, right])
    async def meet(a: int, b: int) -> int:
        rounds.append((a, b))
        return a // 10

    flow.repeat(after=meet, to=head, when=lambda n: n < 4)
    handle = await flow.start(0)
    await rig.run()
    assert rounds == [(n * 10, n * 100) for n in range(1, 5)]
    await state_of(rig, handle)


async def test_an_activity_is_tried_again_by_its_policy(rig: Rig) -> None:
    flow = rig.app.flow("flaky")
    tries: Counter[str] = Counter()

    @flow.activity(retry=RetryPolicy(max_attempts=3, initial_delay=1, jitter=0))
    async def flaky(n: int) -> int:
        tries["flaky"] += 1
        if tries["flaky"] < 3:
            raise ConnectionError("not yet")
        return n

    handle = await flow.start(7)
    for _ in range(3):
        await rig.run()
        await rig.advance(5)
    assert await handle.result() == 7
    assert tries["flaky"] == 3


async def test_an_unhandled_failure_fails_the_job_and_the_others_go_on(rig: Rig) -> None:
    """Ruling A8: the failed activity closes its own obligation; the semaphore reaches 0 once."""
    flow = rig.app.flow("fails")
    ran: Counter[str] = Counter()

    @flow.activity
    async def begin(n: int) -> int:
        return n

    @flow.activity(after=begin, retry=ONCE)
    async def bad(n: int) -> int:
        raise ValueError("no such thing")

    @flow.activity(after=bad)
    async def never(n: int) -> int:
        ran["never"] += 1
        return n

    @flow.activity(after=begin)
    async def good(n: int) -> int:
        ran["good"] += 1
        return n

    @flow.on_complete
    async def report(job: FlowJob) -> None:
        ran[f"report {job.status.value} {job.error}"] += 1

    handle = await flow.start(1)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="no such thing"):
        await handle.result()
    assert ran == {"good": 1, "report failed ValueError: no such thing": 1}
    await state_of(rig, handle)


async def test_an_error_edge_takes_what_it_catches(rig: Rig) -> None:
    flow = rig.app.flow("caught")

    @flow.activity(retry=ONCE)
    async def risky(n: int) -> int:
        if n == 0:
            raise KeyError("zero")
        if n < 0:
            raise ValueError("negative")
        return n

    @flow.error(after=risky, catches=KeyError)
    async def sorry(error: ErrorRecord) -> str:
        return error.type

    @flow.activity(after=sorry)
    async def tell(kind: str) -> str:
        return f"told of {kind}"

    good, handled, other = await flow.start(1), await flow.start(0), await flow.start(-1)
    await rig.run()
    assert await good.result() == 1
    assert await handled.status() is Status.DONE
    told = next(found for found in (await state_of(rig, handled)).activities if found.activity == "tell")
    assert bytes(told.entries[0].value) == b'"told of KeyError"'
    with pytest.raises(ExecutionFailedError, match="negative"):
        await other.result()


async def test_a_condition_that_raises_is_a_failure_of_its_activity(rig: Rig) -> None:
    flow = rig.app.flow("condition")

    @flow.activity(retry=ONCE)
    async def begin(n: int) -> int:
        return n

    @flow.activity(after=begin, when=lambda n: 1 // n > 0)
    async def then(n: int) -> int:
        return n

    handle = await flow.start(0)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="ZeroDivisionError"):
        await handle.result()


async def test_a_sub_flow_is_an_activity(rig: Rig) -> None:
    inner = rig.app.flow("inner")

    @inner.activity(retry=ONCE)
    async def work(n: int) -> int:
        if n > 10:
            raise OverflowError("too much")
        return n * 2

    outer = rig.app.flow("outer")

    @outer.activity
    async def begin(n: int) -> int:
        return n + 1

    sub = outer.subflow(inner, after=begin)

    @outer.activity(after=sub)
    async def finish(n: int | None) -> str:
        return f"got {n}"

    @outer.error(after=sub)
    async def failed(error: ErrorRecord) -> str:
        return error.message

    good, bad = await outer.start(1), await outer.start(10)
    await rig.run()
    assert await good.result() == "got 4"
    assert await bad.status() is Status.DONE
    assert await bad.result() is None
    await state_of(rig, good)


async def test_sub_flows_follow_each_other(rig: Rig) -> None:
    """Also where one message's row is the next one's: each waits for its own job."""
    inner = rig.app.flow("step")

    @inner.activity
    async def add(n: int) -> int:
        return n + 1

    outer = rig.app.flow("steps")

    @outer.activity
    async def begin(n: int) -> int:
        return n

    first = outer.subflow(inner, after=begin, name="one")
    second = outer.subflow(inner, after=first, name="two")

    @outer.activity(after=second)
    async def end(n: int | None) -> int:
        return n or 0

    handle = await outer.start(1)
    await rig.run()
    assert await handle.result() == 3
    await state_of(rig, handle)


async def test_a_workflow_awaits_a_flow(rig: Rig) -> None:
    flow = rig.app.flow("called")

    @flow.activity(retry=ONCE)
    async def double(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return n * 2

    @rig.app.workflow
    async def caller(ctx: object, n: int) -> int:
        first = await flow(n)
        second = await flow(first)
        assert isinstance(second, int)
        return second

    good, bad = await caller.start(3), await caller.start(-1)
    await rig.run()
    assert await good.result() == 12
    with pytest.raises(ExecutionFailedError, match="negative"):
        await bad.result()


async def test_a_cancelled_job_closes_without_running_user_code(rig: Rig) -> None:
    """Ruling A11: a parked hook hears of it too, and the closing GUID's Step 3 writes `cancelled`."""
    ran: Counter[str] = Counter()
    order = declare_order(rig.app, ran)
    parked = await order.start(Order(1))
    await rig.run()
    queued = await order.start(Order(2))
    await rig.once()  # it has begun; its entry waits
    await parked.cancel()
    await queued.cancel()
    fresh = await order.start(Order(3))
    await fresh.cancel()
    before = Counter(ran)
    await rig.run()
    for handle in (parked, queued, fresh):
        with pytest.raises(ExecutionCancelledError):
            await handle.result()
    assert ran - before == {"report cancelled": 3}
    assert (await state_of(rig, queued)).semaphore == 0


async def test_a_deadline_cancels_a_parked_job(rig: Rig) -> None:
    handle = await declare_order(rig.app, Counter()).options(deadline=60).start(Order(1))
    await rig.run()
    await rig.advance(61)
    await rig.run()
    assert await handle.status() is Status.CANCELLED


async def test_a_paused_job_waits_with_its_messages(rig: Rig) -> None:
    ran: Counter[str] = Counter()
    handle = await declare_order(rig.app, ran).start(Order(1))
    await rig.once()
    await handle.pause()
    await rig.run()
    assert ran == {}
    await handle.resume()
    await rig.run()
    assert ran["ship"] == 1


async def test_a_pause_does_not_hold_up_a_job_that_is_being_cancelled(rig: Rig) -> None:
    """Nor what it published after it was asked: a cancel goes before a pause, whichever came first."""
    handle = await declare_order(rig.app, Counter()).start(Order(1))
    await handle.cancel()
    await rig.once()
    await handle.pause()
    await rig.run()
    assert await handle.status() is Status.CANCELLED


async def test_a_key_is_one_job(rig: Rig) -> None:
    order = declare_order(rig.app, Counter())
    first = await order.options(key="order-17", queue="default", priority=3).start(Order(1))
    again = await order.options(key="order-17").start(Order(1))
    assert first.id == again.id
    with pytest.raises(KeyConflictError):
        await order.options(key="order-17").start(Order(2))
    await rig.run()
    assert await rig.app.handle("order", key="order-17").status() is Status.DELEGATED


async def test_a_job_is_started_by_name(rig: Rig) -> None:
    declare_order(rig.app, Counter())
    await rig.worker()
    handle = await rig.app.start_by_name("order", {"o": {"amount": -1}})
    wrong = await NamedStarter(rig.app._connection, "order", Options()).start({"o": {"weight": 1}})  # without the code
    await rig.run()
    assert await handle.result() is None
    assert await wrong.status() is Status.FAILED


async def test_a_completion_task_that_fails_is_tried_again(rig: Rig) -> None:
    flow = rig.app.flow("completion")
    tries: Counter[str] = Counter()

    @flow.activity
    async def only(n: int) -> int:
        tries["only"] += 1
        return n

    @flow.on_complete(retry=RetryPolicy(max_attempts=2, initial_delay=1, jitter=0))
    async def report(job: FlowJob) -> None:
        tries["report"] += 1
        assert job.results == {"only": 5}
        assert job.result_of(only) == 5
        if tries["report"] == 1:
            raise ConnectionError("mail is down")

    handle = await flow.start(5)
    await rig.run()
    await rig.advance(2)
    await rig.run()
    assert await handle.result() == 5
    assert tries == {"only": 1, "report": 2}
    await state_of(rig, handle)


async def test_activities_of_other_queues_wait_for_their_workers(rig: Rig) -> None:
    flow = rig.app.flow("queues")
    ran: list[str] = []

    @flow.activity
    async def here(n: int) -> int:
        ran.append("here")
        return n

    @flow.activity(after=here, queue="gpu")
    async def there(n: int) -> int:
        ran.append("there")
        return n

    @flow.activity(after=there)
    async def back(n: int) -> int:
        ran.append("back")
        return n

    handle = await flow.start(1)
    await rig.run()
    assert ran == ["here"]
    other = await rig.make_worker(queues=["gpu"])
    await other.run_until_idle()
    assert ran == ["here", "there"]
    await rig.run()
    assert await handle.result() == 1
