"""Signals: delivery, parking, consumption (seed section 5; rulings E2, E3, E5, E12)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit, ConsumeSignals, DeliverSignal
from holdfast.store.values import Delivery, ExecutionClaim, NewSignal
from holdfast.testing.hand import Hand, done, go, keep, park, promise_of, replay, row, strand
from holdfast.testing.stores import Stores


async def send(store: Store, target: ExecutionClaim | str, *names: str) -> None:
    """Deliver signals that must arrive."""
    promise = promise_of(target) if isinstance(target, str) else target.promise
    answers = await store.deliver([NewSignal(promise, name, f'"{name}"') for name in names])
    assert answers == [Delivery.DELIVERED] * len(names)


async def inbox_names(store: Store, promise: bytes) -> list[str]:
    return [signal.name for signal in await store.inbox(promise)]


async def in_every_state(stores: Stores, hand: Hand, label: str) -> list[bytes]:
    """Targets of a signal "go", one in each state that it may meet."""
    states = (
        "waits",
        "waits-for-else",
        "paused",
        "executing",
        "runnable",
        "timed-out",
        "picked-late",
        "ended",
        "had-it",
    )
    promises = {state: promise_of(f"{label}-{state}") for state in states}
    for state in states[:-1]:
        claim = await hand.take(row(f"{label}-{state}"))
        match state:
            case "waits" | "paused":
                await hand.apply(claim, park("go"))
            case "waits-for-else":
                await hand.apply(claim, park("stop"))
            case "runnable":
                await hand.apply(claim, go(delay=60))
            case "timed-out" | "picked-late":
                await hand.apply(claim, park("go", wake_after=0))
                await stores.store.fire_timers(10)
                if state == "picked-late":
                    await hand.take()
                else:
                    await stores.store.pause(promises[state], True)
            case "ended":
                await hand.apply(claim, done())
            case _:
                assert state == "executing"
        if state == "paused":
            await stores.store.pause(promises[state], True)
    claim = await hand.take(row(f"{label}-had-it"))
    await stores.store.deliver([NewSignal(claim.promise, "go", "1", "k")])
    return [*promises.values(), promise_of(f"{label}-nobody")]


# ---------------------------------------------------------------------- delivery


async def test_many_signals_do_what_each_does_alone(stores: Stores, hand: Hand, store: Store) -> None:
    alone, together = await in_every_state(stores, hand, "a"), await in_every_state(stores, hand, "b")
    one_by_one = [(await store.deliver([NewSignal(promise, "go", "1", "k")]))[0] for promise in alone]
    assert await store.deliver([NewSignal(promise, "go", "1", "k") for promise in together]) == one_by_one
    assert [*one_by_one[:2], *one_by_one[-3:]] == ["delivered", "delivered", "ended", "duplicate", "unknown"]
    for one, other in zip(alone[:-1], together[:-1], strict=True):
        first, second = await hand.view(one), await hand.view(other)
        assert (first.status, first.awaits, first.wake_at) == (second.status, second.awaits, second.wake_at)
        assert (first.eligible_at, first.locked_by) == (second.eligible_at, second.locked_by)
        assert await inbox_names(store, one) == await inbox_names(store, other)


async def test_a_matching_signal_wakes_and_the_woken_step_sees_it(stores: Stores, hand: Hand) -> None:
    """Section 5: the row is there before the flip, so on wake-up the next step already sees it."""
    await hand.apply(await hand.take(row("a")), park("go", "stop", step="decide"))
    await stores.advance(4)
    await send(stores.store, "a", "stop")
    view = await hand.view("a")
    assert (view.status, view.eligible_at) == (Status.RUNNABLE, stores.clock.now)
    claim = await hand.take()
    assert claim.step == "decide"
    assert claim.awaits == ("go", "stop"), "awaits stay, to tell what was awaited from the rest"
    assert [(signal.name, signal.payload) for signal in claim.inbox] == [("stop", '"stop"')]


async def test_a_signal_of_another_name_stays_in_the_inbox_and_wakes_nobody(hand: Hand, store: Store) -> None:
    """Section 5: runnable only on a name match."""
    await hand.apply(await hand.take(row("a")), park("go"))
    await send(store, "a", "other", "go ", "GO")
    assert (await hand.view("a")).status is Status.AWAITING_SIGNAL
    await send(store, "a", "go")
    assert [signal.name for signal in (await hand.take()).inbox] == ["other", "go ", "GO", "go"]


async def test_a_signal_changes_nothing_of_a_row_that_does_not_wait(hand: Hand, store: Store) -> None:
    """Section 5: delivery sees the instance still executing, so the flip is a no-op but the row is inserted."""
    await hand.insert(row("executing"), row("runnable", delay=5))
    claim = await hand.take()
    before = [await hand.view("executing"), await hand.view("runnable")]
    await send(store, "executing", "go")
    await send(store, "runnable", "go")
    assert [await hand.view("executing"), await hand.view("runnable")] == before
    await hand.apply(claim, go())
    assert [signal.name for signal in (await hand.take()).inbox] == ["go"]


async def test_a_signal_to_a_stranded_execution_is_kept_for_its_return(hand: Hand, store: Store) -> None:
    await hand.apply(await hand.take(row("a")), strand())
    await send(store, "a", "go")
    await store.resume(promise_of("a"))
    assert [signal.name for signal in (await hand.take()).inbox] == ["go"]


async def test_a_signal_that_came_in_time_takes_the_deadline_away(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a")), park("go", wake_after=10))
    await send(stores.store, "a", "go")
    await stores.advance(20)
    assert (await stores.store.fire_timers(10)).fired == 0
    assert not (await hand.take()).timed_out


async def test_several_targets_in_one_call_answer_in_order(hand: Hand, store: Store) -> None:
    await hand.apply(await hand.take(row("ended")), done())
    await hand.apply(await hand.take(row("parked")), park("go"))
    await hand.insert(row("waiting"))
    targets = ["nobody", "parked", "ended", "waiting", "parked"]
    answers = await store.deliver([NewSignal(promise_of(target), "go", "1") for target in targets])
    assert answers == [
        Delivery.UNKNOWN,
        Delivery.DELIVERED,
        Delivery.ENDED,
        Delivery.DELIVERED,
        Delivery.DELIVERED,
    ]
    assert (await hand.view("parked")).status is Status.RUNNABLE
    assert await inbox_names(store, promise_of("parked")) == ["go", "go"]


async def test_nothing_to_deliver_is_nothing(store: Store) -> None:
    assert await store.deliver([]) == []


@pytest.mark.parametrize("ended", sorted(TERMINAL))
async def test_a_signal_to_an_ended_execution_is_refused(hand: Hand, store: Store, ended: Status) -> None:
    """E5: with a typed answer, not dropped."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, AdvanceExecution(status=ended))
    assert await store.deliver([NewSignal(claim.promise, "go", "1")]) == [Delivery.ENDED]
    assert await store.inbox(claim.promise) == []


async def test_a_signal_to_nobody_is_refused(store: Store) -> None:
    """E5."""
    assert await store.deliver([NewSignal(promise_of("nobody"), "go", "1", "key")]) == [Delivery.UNKNOWN]


async def test_a_payload_stays_the_text_it_was(hand: Hand, store: Store) -> None:
    payload = '{"b": 1, "a": "\\u0000", "n": 1e400, "ü": null}'
    claim = await hand.take(row("a"))
    await store.deliver([NewSignal(claim.promise, "Größe 'x'", payload)])
    (signal,) = await store.inbox(claim.promise)
    assert (signal.name, signal.payload) == ("Größe 'x'", payload)


# ---------------------------------------------------------------------- dedup keys


async def test_a_dedup_key_delivers_once(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"))
    signal = NewSignal(promise_of("a"), "go", "1", "key")
    assert await store.deliver([signal, signal]) == [Delivery.DELIVERED, Delivery.DUPLICATE]
    again = NewSignal(promise_of("a"), "other name", "2", "key")
    assert await store.deliver([again]) == [Delivery.DUPLICATE]
    assert [signal.payload for signal in await store.inbox(promise_of("a"))] == ["1"]


async def test_a_dedup_key_belongs_to_its_target(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"), row("b"))
    signals = [NewSignal(promise_of(key), "go", "1", "key") for key in "ab"]
    assert await store.deliver(signals) == [Delivery.DELIVERED] * 2


async def test_without_a_dedup_key_every_signal_arrives(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"))
    await send(store, "a", "go", "go", "go")
    assert await inbox_names(store, promise_of("a")) == ["go"] * 3


async def test_a_dedup_key_holds_after_its_signal_was_consumed(hand: Hand, store: Store) -> None:
    """E12: for the life of its target."""
    claim = await hand.take(row("a"))
    signal = NewSignal(claim.promise, "go", "1", "key")
    await store.deliver([signal])
    (received,) = await store.inbox(claim.promise)
    await hand.apply(claim, park("go"), ConsumeSignals((received.id,)))
    assert await store.deliver([signal]) == [Delivery.DUPLICATE]
    assert (await hand.view("a")).status is Status.AWAITING_SIGNAL, "a duplicate wakes nobody"
    assert await store.inbox(claim.promise) == []


async def test_a_consumed_key_holds_for_signals_sent_by_commits_too(hand: Hand, store: Store) -> None:
    """E12, for the senders inside a flush."""
    target = await hand.take(row("target"))
    signal = NewSignal(target.promise, "go", "1", "key")
    await store.deliver([signal])
    (received,) = await store.inbox(target.promise)
    await hand.apply(target, park("go"), ConsumeSignals((received.id,)))
    await hand.apply(await hand.take(row("sender")), done(), DeliverSignal(signal))
    assert (await hand.view("target")).status is Status.AWAITING_SIGNAL


async def test_one_dedup_key_from_two_processes_at_once_arrives_once(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("a"))
    other = await stores.another()
    signals = [NewSignal(promise_of("a"), "go", "1", f"key{n}") for n in range(20)]
    both = await asyncio.gather(stores.store.deliver(signals), other.deliver(signals[::-1]))
    assert sorted([*both[0], *both[1]]) == ["delivered"] * 20 + ["duplicate"] * 20
    assert len(await stores.store.inbox(promise_of("a"))) == 20


# ---------------------------------------------------------------------- parking


async def test_parking_on_a_signal_that_is_already_there_does_not_park(hand: Hand, store: Store) -> None:
    """Section 5, no lost wake-up: it commits as runnable at the next step."""
    claim = await hand.take(row("a"))
    await send(store, claim, "go")
    receipt = await hand.apply(claim, park("stop", "go", step="decide"))
    assert receipt.status is Status.RUNNABLE
    again = await hand.take()
    assert (again.step, again.awaits) == ("decide", ("stop", "go"))
    assert [signal.name for signal in again.inbox] == ["go"]


async def test_parking_that_did_not_park_has_no_deadline(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await send(stores.store, claim, "go")
    flushed = await hand.flush(Commit(claim, (park("go", wake_after=5),)))
    assert flushed.woke
    await stores.advance(10)
    assert (await stores.store.fire_timers(10)).fired == 0
    assert not (await hand.take()).timed_out


async def test_signals_of_other_names_do_not_keep_a_row_from_parking(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await send(store, claim, "other")
    assert (await hand.apply(claim, park("go"))).status is Status.AWAITING_SIGNAL


async def test_a_signal_consumed_by_the_parking_commit_does_not_count(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await send(store, claim, "go")
    (signal,) = await store.inbox(claim.promise)
    receipt = await hand.apply(claim, park("go"), ConsumeSignals((signal.id,)))
    assert receipt.status is Status.AWAITING_SIGNAL


async def test_a_pack_is_collected_by_awaiting_again(hand: Hand, store: Store) -> None:
    """Section 5, E3: re-await consumes nothing; the re-check passes over what this step has seen."""
    await hand.apply(await hand.take(row("a")), park("part", step="collect"))
    seen: tuple[int, ...] = ()
    for count in range(1, 4):
        await send(store, "a", "part")
        claim = await hand.take()
        seen = tuple(signal.id for signal in claim.inbox)
        assert len(seen) == count
        if count < 3:
            receipt = await hand.apply(claim, park("part", step="collect", ignore=seen))
            assert receipt.status is Status.AWAITING_SIGNAL, "it has seen all that is there"
    await hand.apply(claim, go(), ConsumeSignals(seen))
    assert await store.inbox(promise_of("a")) == []


async def test_a_signal_after_the_snapshot_keeps_a_pack_from_parking(hand: Hand, store: Store) -> None:
    """E3: only the ids this claim received are passed over."""
    await hand.apply(await hand.take(row("a")), park("part"))
    await send(store, "a", "part")
    claim = await hand.take()
    await send(store, "a", "part")
    seen = [signal.id for signal in claim.inbox]
    assert (await hand.apply(claim, park("part", ignore=seen))).status is Status.RUNNABLE


async def test_parking_elsewhere_on_a_signal_already_seen_does_not_hang(hand: Hand, store: Store) -> None:
    """E3: without passing over, a signal already in the inbox wakes the other step at once."""
    await hand.apply(await hand.take(row("a")), park("go"))
    await send(store, "a", "go")
    assert (await hand.apply(await hand.take(), park("go", step="elsewhere"))).status is Status.RUNNABLE


async def test_delivery_and_parking_at_once_always_end_runnable(stores: Stores, hand: Hand) -> None:
    """E2: every interleaving of deliver and park ends with the row flipped or already runnable."""
    other = await stores.another()
    await hand.insert(*(row(str(n)) for n in range(40)))
    claims = await hand.pick(40)
    parks = [hand.store.flush(hand.name, [Commit(claim, (park("go"),))]) for claim in claims]
    sends = [other.deliver([NewSignal(claim.promise, "go", "1")]) for claim in claims]
    await asyncio.gather(*(thing for pair in zip(parks, sends, strict=True) for thing in pair))
    views = await stores.store.get_many([claim.promise for claim in claims])
    assert {view.status for view in views if view} == {Status.RUNNABLE}


async def test_a_workflow_blocked_on_promises_is_woken_by_the_names_it_gave(hand: Hand, store: Store) -> None:
    """Ruling B10: a wait for a signal or a timer names the signal, so that a deliverer can match it."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, AdvanceExecution(status=Status.AWAITING_PROMISE, awaits=("go",), wake_after=60))
    await send(store, claim, "other")
    assert (await hand.view(claim)).status is Status.AWAITING_PROMISE
    await send(store, claim, "go")
    assert (await hand.view(claim)).status is Status.RUNNABLE


# ---------------------------------------------------------------------- consumption


async def test_progress_consumes_exactly_the_ids_it_received(hand: Hand, store: Store) -> None:
    """Section 5: by id, not by name; what the step never saw is not deleted."""
    await hand.apply(await hand.take(row("a")), park("go"))
    await send(store, "a", "other", "go")
    claim = await hand.take()
    await send(store, "a", "go")
    received = tuple(signal.id for signal in claim.inbox if signal.name == "go")
    await hand.apply(claim, go(), ConsumeSignals(received))
    assert await inbox_names(store, claim.promise) == ["other", "go"]


async def test_nothing_is_consumed_unasked(hand: Hand, store: Store) -> None:
    """Section 5: `await` itself deletes nothing; `:replay` consumes nothing."""
    claim = await hand.take(row("a"))
    await send(store, claim, "go")
    await hand.apply(claim, keep())
    await hand.apply(claim, replay(claim))
    await hand.apply(await hand.take(), park("stop"))
    assert await inbox_names(store, claim.promise) == ["go"]


async def test_an_inbox_is_consumed_by_its_owner_alone(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"), row("b"))
    first, second = await hand.pick()
    await send(store, second, "go")
    (theirs,) = await store.inbox(second.promise)
    await hand.apply(first, go(), ConsumeSignals((theirs.id, 10**12)))
    assert await store.inbox(second.promise) == [theirs]


async def test_signals_of_many_executions_are_consumed_in_one_flush(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(n)) for n in range(10)))
    for n in range(10):
        await send(store, str(n), "x", "y")
    claims = await hand.pick()
    await hand.flush(*(Commit(claim, (go(), ConsumeSignals((claim.inbox[0].id,)))) for claim in claims))
    for claim in claims:
        assert await inbox_names(store, claim.promise) == ["y"]
