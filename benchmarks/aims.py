"""What is aimed at, as a share of what the bare journal reaches in the same run: a reader can check it on any machine.

A share is a quotient of two speeds that were taken in one hour on one machine: the aim's and the bare journal's there.
Where the figure is a time, less is faster, and the quotient is turned around.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

POSTGRES, SQLITE = "postgres", "sqlite"


class Aim(Protocol):
    """Something to reach on a store, given the figure in its own unit and its share of the bare one."""

    def reached(self, store: str, value: float, share: float) -> bool: ...

    def shown(self, store: str) -> str: ...

    def numbers(self, store: str) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class OfBare:
    """At least this share of the bare journal's speed."""

    sqlite: float
    postgres: float

    def on(self, store: str) -> float:
        return self.postgres if store == POSTGRES else self.sqlite

    def reached(self, store: str, value: float, share: float) -> bool:
        return share >= self.on(store)

    def shown(self, store: str) -> str:
        return f"{self.on(store):.1%}"

    def numbers(self, store: str) -> Mapping[str, float]:
        return {"aim_share": round(self.on(store), 3)}


@dataclass(frozen=True)
class AtMost:
    """A time, on any store and machine: for what people wait for, however fast a journal could be read."""

    seconds: float

    def reached(self, store: str, value: float, share: float) -> bool:
        return value <= self.seconds

    def shown(self, store: str) -> str:
        return f"{self.seconds * 1e3:.0f} ms"

    def numbers(self, store: str) -> Mapping[str, float]:
        return {"aim_seconds": self.seconds}


AIMS: Mapping[str, Aim] = {
    "w1": OfBare(sqlite=15_000 / 43_000, postgres=10_000 / 39_000),
    "w2": OfBare(sqlite=40_000 / 125_000, postgres=30_000 / 103_000),
    "w3": OfBare(sqlite=0.75, postgres=0.75),
    "w4": OfBare(sqlite=0.019 / 0.08, postgres=0.026 / 0.12),
    "w5": OfBare(sqlite=0.28 / 0.5, postgres=0.42 / 1),
    "w6": OfBare(sqlite=150_000 / 374_000, postgres=90_000 / 229_000),
    "w7": AtMost(seconds=0.020),
    "w8": OfBare(sqlite=1.02 / 1.1, postgres=1.02 / 1.1),
}
