"""What is aimed at, as a share of what the bare journal reaches in the same run: a reader can check it on any machine.

A share is a quotient of two speeds that were taken in one hour on one machine: the aim's and the bare journal's there.
Where the figure is a time, a speed is one over the time. A slow or busy disk holds up both, which brings the share
nearer to one; so how fast the bare journal was where an aim was set is kept beside the aim.
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

    def numbers(self, store: str, bare_speed: float) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Level:
    """A share, and the speed of the bare journal where and when it was set."""

    share: float
    bare_speed: float


def _rate(aim: float, *, bare: float) -> Level:
    return Level(aim / bare, bare)


def _time(aim: float, *, bare: float) -> Level:
    return Level(bare / aim, 1 / bare)


@dataclass(frozen=True)
class OfBare:
    """At least this share of the bare journal's speed."""

    sqlite: Level
    postgres: Level

    def on(self, store: str) -> Level:
        return self.postgres if store == POSTGRES else self.sqlite

    def reached(self, store: str, value: float, share: float) -> bool:
        return share >= self.on(store).share

    def shown(self, store: str) -> str:
        return f"{self.on(store).share:.1%}"

    def numbers(self, store: str, bare_speed: float) -> Mapping[str, float]:
        level = self.on(store)
        return {"aim_share": round(level.share, 3), "bare_of_reference": round(bare_speed / level.bare_speed, 3)}


@dataclass(frozen=True)
class AtMost:
    """A time, on any store and machine: for what people wait for, however fast a journal could be read."""

    seconds: float

    def reached(self, store: str, value: float, share: float) -> bool:
        return value <= self.seconds

    def shown(self, store: str) -> str:
        return f"{self.seconds * 1e3:.0f} ms"

    def numbers(self, store: str, bare_speed: float) -> Mapping[str, float]:
        return {"aim_seconds": self.seconds}


AIMS: Mapping[str, Aim] = {
    "w1": OfBare(sqlite=_rate(15_000, bare=43_000), postgres=_rate(10_000, bare=39_000)),
    "w2": OfBare(sqlite=_rate(40_000, bare=125_000), postgres=_rate(30_000, bare=103_000)),
    "w3": OfBare(sqlite=Level(0.75, 6_900), postgres=Level(0.75, 3_700)),
    "w4": OfBare(sqlite=_time(0.08, bare=0.019), postgres=_time(0.12, bare=0.026)),
    "w5": OfBare(sqlite=_time(0.5, bare=0.28), postgres=_time(1.0, bare=0.42)),
    "w6": OfBare(sqlite=_rate(150_000, bare=374_000), postgres=_rate(90_000, bare=229_000)),
    "w7": AtMost(seconds=0.020),
    "w8": OfBare(sqlite=_time(1.1, bare=1.02), postgres=_time(1.1, bare=1.02)),
}
