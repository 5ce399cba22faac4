"""The workloads, and who is put to them: versions, sizes and settings of every system. Data, and the command it makes.

Each peer runs at the best setting its documentation names. Sizes are such that a round takes a few seconds at most;
where the figure is a time (w4, w7, w8), all systems get the same size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

POSTGRES, SQLITE = "postgres", "sqlite"


class Figure(StrEnum):
    """What is compared: a rate (more is better), or a time (less is)."""

    RATE = "rate"
    SECONDS = "seconds"
    P50_MS = "p50_ms"


@dataclass(frozen=True)
class Workload:
    """What is done, and the unit of its figure."""

    title: str
    unit: str
    figure: Figure = Figure.RATE


WORKLOADS: Mapping[str, Workload] = {
    "w1": Workload("one-step workflows, started in bulk", "a second"),
    "w1_jobs": Workload("plain jobs, started in bulk", "a second"),
    "w1_each": Workload("one-step workflows or jobs, a call each", "a second"),
    "w2": Workload("ten-step workflows", "steps a second"),
    "w3": Workload("one workflow of 1,000 steps in sequence", "steps a second"),
    "w4": Workload("1,000 children and their join", "s", Figure.SECONDS),
    "w5": Workload("a message to a waiting workflow or worker", "ms, median", Figure.P50_MS),
    "w6": Workload("enqueueing in bulk", "a second"),
    "w7": Workload("recovery of 1,000 steps after a kill", "s", Figure.SECONDS),
    "w8": Workload("1,000 sleepers of one second", "s", Figure.SECONDS),
    "w8_jobs": Workload("1,000 plain jobs delayed by one second", "s", Figure.SECONDS),
    "w9": Workload("one-step workflows drained by two processes", "a second"),
    "w9_jobs": Workload("plain jobs drained by two processes", "a second"),
}

SAME_FOR_ALL = {"w3": 1_000, "w4": 1_000, "w5": 100, "w7": 1_000, "w8": 1_000}


@dataclass(frozen=True)
class Peer:
    """Another system: what is installed for it, and where its driver is."""

    package: str
    requirements: tuple[str, ...]
    driver: str
    # Run before each call on an empty PostgreSQL database; `{url}` is replaced.
    prepare: tuple[str, ...] = ()


PEERS: Mapping[str, Peer] = {
    "dbos": Peer("dbos", ("dbos==3.3.0", "psycopg[binary]==3.3.8", "sqlalchemy==2.1.8"), "dbos_driver"),
    "absurd": Peer(
        "absurd-sdk",
        ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.8"),
        "absurd_driver",
        prepare=("absurdctl", "init", "-d", "{url}"),  # the schema comes with its command line tool
    ),
    "procrastinate": Peer(
        "procrastinate",
        ("procrastinate==3.10.0", "psycopg[binary]==3.3.8", "psycopg-pool==3.3.3"),
        "procrastinate_driver",
    ),
    "pgqueuer": Peer("pgqueuer", ("pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"), "pgqueuer_driver"),
}


@dataclass(frozen=True)
class Contestant:
    """One row of the table: a system (a peer, or Holdfast where `peer` is None) at one setting."""

    label: str
    peer: str | None
    stores: tuple[str, ...]
    sizes: Mapping[str, int]
    settings: tuple[str, ...] = ()
    settings_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # beyond `settings`, by workload or store
    note: str = ""

    def command(self, python: Path, workload: str, store: str, url: str, n: int) -> list[str]:
        """The call of its driver for one round."""
        driver = PEERS[self.peer].driver if self.peer else "holdfast_driver"
        more = (*self.settings_on.get(store, ()), *self.settings_on.get(workload, ()))
        asked = [workload, "--url", self.address(store, url), "--n", str(n)]
        return [str(python), "-m", f"benchmarks.peers.drivers.{driver}", *asked, *self.settings, *more]

    def address(self, store: str, url: str) -> str:
        """The URL as this system writes it."""
        if self.peer != "dbos":
            return url
        return f"sqlite:///{url}" if store == SQLITE else url.replace("postgresql://", "postgresql+psycopg://")


HOLDFAST = Contestant(
    "Holdfast",
    None,
    (POSTGRES, SQLITE),
    {"w1": 10_000, "w1_jobs": 10_000, "w1_each": 2_000, "w2": 1_000, **SAME_FOR_ALL, "w6": 50_000}
    | {"w8_jobs": 1_000, "w9": 10_000, "w9_jobs": 10_000},
    ("--in-flight", "200"),
    # As the guide to workers advises for work that takes no time: more at a time, so that more share a commit.
    dict.fromkeys(("w1", "w1_jobs", "w2", "w9", "w9_jobs"), ("--in-flight", "800")),
)

CONTESTANTS: tuple[Contestant, ...] = (
    HOLDFAST,
    Contestant(
        "DBOS",
        "dbos",
        (POSTGRES, SQLITE),
        {"w1": 400, "w2": 80, **SAME_FOR_ALL, "w6": 1_000, "w9": 400},
        ("--in-flight", "100"),
        # Its listener on SQLite polls, once a second unless told otherwise; so do its queues.
        {SQLITE: ("--poll-seconds", "0.01"), "w9": ("--poll-seconds", "0.1")},
        "asynchronous workflows, 100 in flight",
    ),
    Contestant(
        "DBOS, 4 in flight",
        "dbos",
        (POSTGRES, SQLITE),
        {"w1": 400, "w1_each": 400, "w2": 80},
        ("--in-flight", "4"),
        note="synchronous workflows in four threads, where it peaks",
    ),
    Contestant(
        "Absurd",
        "absurd",
        (POSTGRES,),
        {"w1": 1_000, "w1_each": 1_000, "w2": 200, **SAME_FOR_ALL, "w6": 5_000, "w9": 1_000},
        ("--in-flight", "100", "--poll-seconds", "0.01"),
        note="polls every 10 ms instead of 250; w6 pipelined; w7 without the wait for the lease",
    ),
    Contestant(
        "Procrastinate",
        "procrastinate",
        (POSTGRES,),
        {"w1_jobs": 1_000, "w1_each": 500, "w5": 100, "w6": 20_000, "w8_jobs": 1_000, "w9_jobs": 1_000},
        ("--in-flight", "100", "--poll-seconds", "0.05"),
        note="a job queue: no steps; polls every 50 ms instead of 5 s, beside its notifications",
    ),
    Contestant(
        "PgQueuer",
        "pgqueuer",
        (POSTGRES,),
        {"w1_jobs": 10_000, "w1_each": 1_000, "w5": 100, "w6": 50_000, "w8_jobs": 1_000, "w9_jobs": 10_000},
        ("--batch", "100"),
        note="a job queue: no steps; asyncpg, uvloop, batches of 100, autovacuum as it advises",
    ),
)
