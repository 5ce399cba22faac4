"""What grows, through which sizes, and what is measured meanwhile: the five plots as data."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import growth_work as work


@dataclass(frozen=True)
class Measure:
    """Something whose cost is looked at while `x` grows; `flat` if it should not."""

    label: str
    cost: Callable[[str, int], Coroutine[Any, Any, float]]
    flat: bool = True
    unit: str = "ms"


@dataclass(frozen=True)
class Dimension:
    """What grows, through which sizes. `filled`: sizes are of the ledger itself, which is loaded up to them."""

    title: str
    axis: str
    sizes: Sequence[int]
    quick_sizes: Sequence[int]
    measures: Mapping[str, Measure]
    filled: bool = False

    def narrowed(self, wanted: Set[str]) -> Dimension:
        """The same with some of its measures alone."""
        return replace(self, measures={name: each for name, each in self.measures.items() if name in wanted})


LABELS = {"w8": "w8, beyond its second"}


def _of(name: str, n: int, quick_n: int) -> Callable[[bool], Measure]:
    cost = work.enqueue if name == "w6" else work.workload(name)

    def measure(quick: bool) -> Measure:
        return Measure(LABELS.get(name, name), lambda url, _: cost(url, quick_n if quick else n))

    return measure


FINISHED = (10_000, 1_000_000, 5_000_000)
WORKLOADS_ON_A_FULL_LEDGER = {
    "w1": _of("w1", 10_000, 20),
    "w2": _of("w2", 1_500, 5),
    "w3": _of("w3", 500, 10),
    "w4": _of("w4", 1_000, 10),
    "w5": _of("w5", 50, 4),
    "w6": _of("w6", 40_000, 50),
    "w7": _of("w7", 500, 10),
    "w8": _of("w8", 500, 5),
    "w9": _of("w9", 10_000, 20),
}


def _payload_count(payload_bytes: int, quick: bool) -> int:
    return 3 if quick else 200 if payload_bytes < 100_000 else 20


def dimensions(quick: bool, most_finished: int | None = None) -> dict[str, Dimension]:
    """The five plots, with the sizes of a quick look or of a measurement."""
    finished = [size for size in FINISHED if most_finished is None or size <= most_finished]
    drained = 40 if quick else 20_000
    return {
        "finished": Dimension(
            "Cost with finished executions in the ledger",
            "finished executions in the ledger",
            finished,
            (100, 2_000, 5_000),
            {name: make(quick) for name, make in WORKLOADS_ON_A_FULL_LEDGER.items()},
            filled=True,
        ),
        "processes": Dimension(
            "Cost of draining a queue by several worker processes",
            "worker processes",
            (1, 2, 4),
            (1, 2),
            {"w9": Measure("w9, a workflow", lambda url, count: work.drain(url, drained, count))},
        ),
        "history": Dimension(
            "Cost with the length of a history",
            "events in the history of one workflow",
            (10, 1_000, 10_000),
            (10, 50),
            {
                "step": Measure("a step", work.step_in_history),
                "signal": Measure("a signal to a workflow in memory", work.signal_to_history),
                "replay": Measure("a signal to one that must be replayed", work.replay_of_history, flat=False),
            },
        ),
        "width": Dimension(
            "Cost with the width of a join set",
            "members of one join set",
            (10, 100, 1_000, 10_000),
            (10, 50),
            {"result": Measure("a result that comes alone", work.result_of_set)},
        ),
        "payload": Dimension(
            "Cost with the size of a payload",
            "bytes of payload",
            (100, 10_000, 500_000),
            (100, 10_000),
            {
                "carry": Measure(
                    "a workflow that hands it to a task",
                    lambda url, count: work.carry_payload(url, _payload_count(count, quick), count),
                    flat=False,
                ),
                "beside": Measure(
                    "a step of a workflow that was started with it",
                    lambda url, count: work.step_beside_payload(url, 2 if quick else 10, count),
                ),
            },
        ),
    }
