"""Six graphs for proofs: linear, diamond, join with an edge not taken, cycle, hook, error. All on one app."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdfast import App, Flow, FlowJob, RetryPolicy
from holdfast.core.codec import ErrorRecord
from holdfast.models.flow.activity import Activity

ONCE = RetryPolicy(max_attempts=1)


@dataclass
class Six:
    """The flows by name, and how often what ran."""

    app: App
    ran: Counter[str] = field(default_factory=Counter)
    flows: dict[str, Flow] = field(default_factory=dict)

    def flow(self, name: str) -> Flow:
        made = self.flows[name] = self.app.flow(name)

        @made.on_complete
        async def complete(job: FlowJob) -> None:
            self.ran[f"complete {job.status.value}"] += 1

        return made


def six_graphs(app: App) -> Six:
    six = Six(app)
    _linear(six)
    _diamond(six)
    _join(six)
    _cycle(six)
    _hook(six)
    _error(six)
    return six


def _numbered(six: Six, flow: Flow, name: str, after: Activity[..., int] | None = None) -> Activity[..., int]:
    async def add(n: int) -> int:
        six.ran[name] += 1
        return n + 1

    add.__name__ = name
    return flow.activity(after=after)(add)


def _linear(six: Six) -> None:
    flow = six.flow("linear")
    _numbered(six, flow, "third", _numbered(six, flow, "second", _numbered(six, flow, "first")))


def _diamond(six: Six) -> None:
    flow = six.flow("diamond")
    top = _numbered(six, flow, "top")
    left, right = _numbered(six, flow, "left", top), _numbered(six, flow, "right", top)

    @flow.join(after=[left, right])
    async def bottom(a: int, b: int) -> int:
        six.ran["bottom"] += 1
        return a + b


def _join(six: Six) -> None:
    """One of its joins is skipped, the other has an optional input that is."""
    flow = six.flow("join")
    top = _numbered(six, flow, "top")

    @flow.activity(after=top, when=lambda n: n < 0)
    async def untaken(n: int) -> int:
        six.ran["untaken"] += 1
        return n

    taken = _numbered(six, flow, "taken", top)

    @flow.join(after=[untaken, taken])
    async def skipped(a: int, b: int) -> int:
        six.ran["skipped"] += 1
        return a + b

    @flow.join(after=[skipped, taken], optional=[skipped])
    async def last(a: int | None, b: int) -> int:
        six.ran["last"] += 1
        return b


def _cycle(six: Six) -> None:
    flow = six.flow("cycle")
    head = _numbered(six, flow, "head")
    body = _numbered(six, flow, "body", head)
    flow.repeat(after=body, to=head, when=lambda n: n < 3)


def _hook(six: Six) -> None:
    flow = six.flow("hook")
    first = _numbered(six, flow, "first")

    @flow.hook(after=first, signal="go")
    async def waiting(n: int, by: int) -> int:
        six.ran["waiting"] += 1
        return n + by


def _error(six: Six) -> None:
    flow = six.flow("error")
    first = _numbered(six, flow, "first")

    @flow.activity(after=first, retry=ONCE)
    async def bad(n: int) -> int:
        six.ran["bad"] += 1
        raise ValueError("bad")

    @flow.error(after=bad, catches=ValueError)
    async def handled(error: ErrorRecord) -> int:
        six.ran["handled"] += 1
        return 1

    @flow.activity(after=first, retry=ONCE)
    async def worse(n: int) -> int:
        six.ran["worse"] += 1
        raise KeyError("worse")


# What each runs, by name; what a crash may repeat is user code alone.
RUNS = {
    "linear": {"first", "second", "third", "complete done"},
    "diamond": {"top", "left", "right", "bottom", "complete done"},
    "join": {"top", "taken", "last", "complete done"},
    "cycle": {"head", "body", "complete done"},
    "hook": {"first", "waiting", "complete done"},
    "error": {"first", "bad", "handled", "worse", "complete failed"},
}
RESULTS = {"linear": 3, "diamond": 4, "join": 2, "cycle": 4, "hook": 8, "error": None}
