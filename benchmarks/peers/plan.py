"""Which calls make up a run, in which order: rounds outside, workloads inside, systems alternating within each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import CONTESTANTS, HOLDFAST, POSTGRES, SQLITE, WORKLOADS, Contestant

QUICK_SHARE = 50
QUICK_LEAST = 10
QUICK_SAYS = "A quick run: these figures are no measurement."


@dataclass(frozen=True)
class Call:
    """One round of one workload for one contestant on one store."""

    round: int
    workload: str
    store: str
    contestant: Contestant
    n: int
    repeats: int = 1

    @property
    def key(self) -> str:
        return f"{self.round}/{self.workload}/{self.store}/{self.contestant.label}/{self.n}"

    @property
    def case(self) -> tuple[str, str, str]:
        return self.workload, self.store, self.contestant.label

    def command(self, python: Path, url: str) -> list[str]:
        return self.contestant.command(python, self.workload, self.store, url, self.n, self.repeats)


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    rounds: int
    workloads: Sequence[str]
    stores: Sequence[str]
    peers: Sequence[str]
    quick: bool = False

    def contestants(self) -> list[Contestant]:
        """Holdfast is always among them: without it there is nothing to compare."""
        return [each for each in CONTESTANTS if each is HOLDFAST or each.peer in self.peers]

    def size(self, contestant: Contestant, workload: str) -> int:
        whole = contestant.sizes[workload]
        return min(whole, max(QUICK_LEAST, whole // QUICK_SHARE)) if self.quick else whole

    def calls(self) -> Iterator[Call]:
        for number in range(self.rounds):
            yield from self.round(number)

    def round(self, number: int) -> Iterator[Call]:
        """Every second round runs the systems the other way round, so that none is always the first."""
        for workload in self.workloads:
            for store in self.stores:
                able = [c for c in self.contestants() if store in c.stores and workload in c.sizes]
                for contestant in reversed(able) if number % 2 else able:
                    repeats = 1 if self.quick else contestant.repeats.get(workload, 1)
                    yield Call(number, workload, store, contestant, self.size(contestant, workload), repeats)

    def round_of(self, number: int, cases: Set[tuple[str, str, str]]) -> list[Call]:
        """A further round of some workloads, stores and systems, each beside Holdfast."""
        beside = {(workload, store, HOLDFAST.label) for workload, store, _ in cases}
        return [call for call in self.round(number) if call.case in cases | beside]

    def digest(self, versions: Mapping[str, Any], code: str = "") -> str:
        """Two runs with the same digest measure the same thing, so that one may go on with the other's results."""
        whole = [[call.key, call.command(Path("python"), "url")] for call in self.calls()]
        return hashlib.sha256(json.dumps([whole, versions, code], sort_keys=True).encode()).hexdigest()[:16]


def named(given: str | None, known: Sequence[str], what: str) -> list[str]:
    """A list as people write it, `w1,w2`; everything if nothing is given."""
    if given is None:
        return list(known)
    asked = [part.strip() for part in given.split(",") if part.strip()]
    unknown = [part for part in asked if part not in known]
    if unknown or not asked:
        raise SystemExit(f"unknown {what}: {', '.join(unknown) or 'none given'}; there are {', '.join(known)}")
    return [each for each in known if each in asked]


def every_workload() -> list[str]:
    return list(WORKLOADS)


def every_store() -> list[str]:
    return [POSTGRES, SQLITE]
