"""Random legal histories, made by a small model of their own, and the seed's invariants read literally.

`Player` knows what the seed and the rulings allow next and does something of it; it shares nothing with the code
under test. `broken_invariants` looks at all earlier events for every event, as the tables of the seed are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from hypothesis import strategies as st
from msgspec import Raw

from holdfast.core.journal import events as e
from holdfast.core.journal.events import Err, Event, Result
from tests.core.journal.script import BOOM, Script, ok

NAMES = ("go", "on")
TERMINAL = (e.ExecutionCompleted, e.ExecutionFailed, e.ExecutionCancelled)


class Player:
    """Plays one legal move at a time."""

    def __init__(self) -> None:
        self.script = Script().start()
        self.status = "Running"
        self.next_child = 0
        self.attempts: dict[int, int] = {}
        self.in_flight: set[int] = set()
        self.results: dict[int, Result] = {}
        self.timers: set[int] = set()
        self.signals: dict[int, str] = {}
        self.settled: set[int] = set()
        self.buffered: dict[str, list[tuple[int, str]]] = {name: [] for name in NAMES}
        self.delivered = dict.fromkeys(NAMES, 0)
        self.join_sets: dict[int, set[int]] = {}
        self.closed: set[int] = set()
        self.owned: set[int] = set()
        self.wait: tuple[str, set[int]] | None = None
        self.waited_set: int | None = None

    @property
    def calls(self) -> list[int]:
        return sorted(number for number in self.attempts if number not in self.results)

    def move(self, random: Random) -> None:
        if self.status != "Ended":
            random.choice(list(self.moves()))(random)

    def moves(self) -> Iterator[Callable[[Random], None]]:
        """Outcomes at any time, operations in Running and Cancelling, waits in Running (ruling B2)."""
        yield self.deliver
        if self.calls:
            yield from (self.begin, self.begin, self.complete)
        if self.in_flight:
            yield self.retry
        if self.timers:
            yield self.fire
        if any(self.buffered[name] for name in self.signals.values()):
            yield self.receive_awaited
        if self.status != "Blocked":
            yield from (self.schedule, self.schedule, self.take_value, self.set_timer, self.create)
            yield self.end
            if self.submittable():
                yield from (self.submit, self.submit)
            if self.takeable():
                yield from (self.take, self.take)
            if any(self.buffered.values()):
                yield self.receive_buffered
        if self.status == "Running":
            yield from (self.block, self.block)
            if any(self.join_sets.values()):
                yield from (self.block_on_set, self.block_on_set)
        if self.status == "Blocked" and self.is_satisfied():
            yield from (self.resume, self.resume, self.resume)
        if self.status in ("Running", "Blocked"):
            yield self.cancel

    def child(self) -> int:
        self.next_child += 1
        return self.next_child - 1

    def schedule(self, random: Random) -> None:
        number = self.child()
        self.attempts[number] = 0
        self.script.schedule(number)

    def begin(self, random: Random) -> None:
        number = random.choice(self.calls)
        self.attempts[number] += 1
        self.in_flight.add(number)
        self.script.begin(number, self.attempts[number])

    def complete(self, random: Random) -> None:
        number = random.choice(self.calls)
        if not self.attempts[number]:
            return
        result: Result = Err(BOOM) if random.random() < 0.2 else ok(str(random.randrange(100)))
        self.results[number] = result
        self.in_flight.discard(number)
        self.settled.add(number)
        self.script.complete(number, self.attempts[number], result)

    def retry(self, random: Random) -> None:
        number = random.choice(sorted(self.in_flight))
        self.in_flight.discard(number)
        self.script.retry(number, self.attempts[number])

    def take_value(self, random: Random) -> None:
        random.choice((self.script.random, self.script.time))(self.child())

    def set_timer(self, random: Random) -> None:
        number = self.child()
        self.timers.add(number)
        self.script.timer(number)

    def fire(self, random: Random) -> None:
        number = random.choice(sorted(self.timers))
        self.timers.discard(number)
        self.settled.add(number)
        self.script.fire(number)

    def deliver(self, random: Random) -> None:
        name = random.choice(NAMES)
        self.delivered[name] += random.choice((1, 1, 1, 3))
        payload = str(random.randrange(100))
        self.buffered[name].append((self.delivered[name], payload))
        self.script.deliver(name, self.delivered[name], payload)

    def receive_awaited(self, random: Random) -> None:
        number = random.choice([n for n, name in sorted(self.signals.items()) if self.buffered[name]])
        self.receive(number, self.signals.pop(number))

    def receive_buffered(self, random: Random) -> None:
        self.receive(self.child(), random.choice([name for name in NAMES if self.buffered[name]]))

    def receive(self, number: int, name: str) -> None:
        self.settled.add(number)
        self.script.receive(number, name, *self.buffered[name].pop(0))

    def create(self, random: Random) -> None:
        number = self.child()
        self.join_sets[number] = set()
        self.script.join_set(number)

    def submittable(self) -> list[tuple[int, int]]:
        free = sorted(set(self.attempts) - self.owned)
        return [(js, number) for js in self.join_sets if js not in self.closed for number in free]

    def submit(self, random: Random) -> None:
        join_set, number = random.choice(self.submittable())
        self.join_sets[join_set].add(number)
        self.owned.add(number)
        self.script.submit(join_set, number)

    def takeable(self) -> list[tuple[int, int]]:
        return [(js, n) for js, members in self.join_sets.items() for n in sorted(members & set(self.results))]

    def take(self, random: Random) -> None:
        join_set, number = random.choice(self.takeable())
        self.join_sets[join_set].discard(number)
        self.closed.add(join_set)
        self.script.take(join_set, number, self.results[number])

    def block(self, random: Random) -> None:
        known = sorted({*self.attempts, *self.timers, *self.signals, *self.settled})
        chosen = set(random.sample(known, random.randrange(min(len(known), 4) + 1)))
        signals = {number: self.signals[number] for number in sorted(chosen) if number in self.signals}
        for _ in range(random.choice((0, 0, 1, 2)) if chosen else 1):
            signals[self.child()] = random.choice(NAMES)
        self.signals.update(signals)
        numbers = list(chosen | set(signals))
        random.shuffle(numbers)
        kind = random.choice(("Any", "All"))
        if len(numbers) == 1:
            kind = "Signal" if signals else random.choice(("Single", "Any", "All"))
        self.wait, self.waited_set = (kind, set(numbers)), None
        self.status = "Blocked"
        self.script.wait(*numbers, kind=kind, signals=dict(signals))  # type: ignore[arg-type]

    def block_on_set(self, random: Random) -> None:
        join_set = random.choice([join_set for join_set, members in self.join_sets.items() if members])
        known = sorted({*self.attempts, *self.timers, *self.settled})
        numbers = random.sample(known, random.choice((0, 0, 1, min(len(known), 3))))
        self.wait, self.waited_set = ("Any", set(numbers)), join_set
        self.status = "Blocked"
        self.script.wait_set(join_set, *numbers)

    def is_satisfied(self) -> bool:
        assert self.wait is not None
        if self.waited_set is not None and self.join_sets[self.waited_set] & set(self.results):
            return True
        kind, numbers = self.wait
        return bool(numbers & self.settled) if kind == "Any" else numbers <= self.settled

    def resume(self, random: Random) -> None:
        self.status = "Running"
        self.script.resume()

    def cancel(self, random: Random) -> None:
        self.status = "Cancelling"
        self.script.cancel()

    def end(self, random: Random) -> None:
        if random.random() < 0.8:  # Long histories are worth more than short ones.
            return
        ends = [self.script.finish, self.script.fail]
        if self.status == "Cancelling":
            ends.append(self.script.cancelled)
        self.status = "Ended"
        random.choice(ends)()


@st.composite
def histories(draw: st.DrawFn, moves: int = 0) -> list[Event]:
    """A legal history of up to some eighty events; `moves` is the least number of moves to try."""
    player = Player()
    for seed in draw(st.lists(st.integers(0, 2**16), min_size=moves, max_size=80)):
        player.move(Random(seed))
    return player.script.events


def broken_invariants(events: list[Event]) -> list[tuple[int, str]]:
    """Position and id of every invariant of the seed that an event breaks, by the letter."""
    return [(place, rule) for place in range(len(events)) for rule in sorted(_broken_at(events, place))]


def _broken_at(events: list[Event], place: int) -> Iterator[str]:
    before, event = events[:place], events[place]

    def seen(kind: type[Event], **fields: object) -> int:
        return sum(
            type(other) is kind and all(getattr(other, name) == value for name, value in fields.items())
            for other in before
        )

    if event.sequence != place:
        yield "S-1"
    if place == 0 and not isinstance(event, e.ExecutionStarted):
        yield "S-2"
    if any(isinstance(other, TERMINAL) for other in before):
        yield "S-4"
        if isinstance(event, TERMINAL):
            yield "S-3"
    match event:
        case e.ExecutionCancelled() if not seen(e.CancelRequested):
            yield "S-5"
        case e.InvokeStarted(promise_id=pid):
            if not seen(e.InvokeScheduled, promise_id=pid):
                yield "SE-1"
            if seen(e.InvokeCompleted, promise_id=pid):
                yield "SE-4"
        case e.InvokeCompleted(promise_id=pid) if not seen(e.InvokeStarted, promise_id=pid):
            yield "SE-2"
        case e.InvokeRetrying(promise_id=pid, failed_attempt=attempt):
            # Of a completed call no attempts are remembered: SE-4 speaks for both.
            if seen(e.InvokeCompleted, promise_id=pid):
                yield "SE-4"
            elif not seen(e.InvokeStarted, promise_id=pid, attempt=attempt):
                yield "SE-3"
        case e.TimerFired(promise_id=pid) if not seen(e.TimerScheduled, promise_id=pid):
            yield "CF-1"
        case e.SignalReceived(signal_name=name, delivery_id=number, payload=payload):
            if not seen(e.SignalDelivered, signal_name=name, delivery_id=number, payload=payload):
                yield "CF-2"
            if seen(e.SignalReceived, signal_name=name, delivery_id=number):
                yield "CF-3"
        case e.ExecutionAwaiting(kind="Signal", waiting_on=waiting_on, signals=signals):
            if [wait.promise_id for wait in signals] != list(waiting_on) or len(waiting_on) != 1:
                yield "CF-4"
        case e.JoinSetSubmitted(join_set_id=join_set, promise_id=pid):
            if not seen(e.JoinSetCreated, join_set_id=join_set):
                yield "JS-1"
            if seen(e.JoinSetAwaited, join_set_id=join_set):
                yield "JS-2"
            if seen(e.JoinSetSubmitted, promise_id=pid):
                yield "JS-7"
        case e.JoinSetAwaited(join_set_id=join_set, promise_id=pid):
            if not seen(e.JoinSetSubmitted, join_set_id=join_set, promise_id=pid):
                yield "JS-3"
            if not seen(e.InvokeCompleted, promise_id=pid):
                yield "JS-4"
            if seen(e.JoinSetAwaited, join_set_id=join_set, promise_id=pid):
                yield "JS-5"
            if seen(e.JoinSetAwaited, join_set_id=join_set) >= seen(e.JoinSetSubmitted, join_set_id=join_set):
                yield "JS-6"
        case _:
            pass


FOREIGN = "other.0"
OTHER_JSON = Raw(b'"tampered"')
