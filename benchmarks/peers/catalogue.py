"""The workloads, and who is put to them: versions, sizes and settings of every system. Data, and the command it makes.

Each system runs at the fastest setting we found, mostly one that its documentation advises; the notes say which. All
get the same sizes, DBOS less in four. What is over in a fraction of a second is done several times a round.
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

SIZES: Mapping[str, int] = {
    **dict.fromkeys(("w1", "w1_jobs", "w1_each", "w9", "w9_jobs"), 2_000),
    **dict.fromkeys(("w3", "w4", "w7", "w8", "w8_jobs"), 1_000),
    "w2": 300,
    "w5": 200,
    "w6": 20_000,
}


def sizes(*workloads: str) -> dict[str, int]:
    return {name: SIZES[name] for name in workloads}


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
    repeats: Mapping[str, int] = field(default_factory=dict)  # how often a round does the size, where not once
    settings_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # beyond `settings`, by workload or store
    note: str = ""

    def command(self, python: Path, workload: str, store: str, url: str, n: int, repeats: int = 1) -> list[str]:
        """The call of its driver for one round."""
        driver = PEERS[self.peer].driver if self.peer else "holdfast_driver"
        more = (*self.settings_on.get(store, ()), *self.settings_on.get(workload, ()))
        asked = [workload, "--url", self.address(store, url), "--n", str(n), "--repeats", str(repeats)]
        return [str(python), "-m", f"benchmarks.peers.drivers.{driver}", *asked, *self.settings, *more]

    def address(self, store: str, url: str) -> str:
        """The URL as this system writes it."""
        if self.peer != "dbos":
            return url
        return f"sqlite:///{url}" if store == SQLITE else url.replace("postgresql://", "postgresql+psycopg://")


SHORT = ("w1", "w1_jobs", "w2", "w9", "w9_jobs")  # Holdfast does them in a fifth of a second; so does PgQueuer
FEWER = {"w1": 1_000, "w1_each": 1_000, "w2": 150, "w6": 5_000, "w9": 1_000}  # of DBOS, or a round took half a minute

HOLDFAST = Contestant(
    "Holdfast",
    None,
    (POSTGRES, SQLITE),
    dict(SIZES),
    ("--in-flight", "200"),
    {**dict.fromkeys(SHORT, 5), "w6": 3},
    # As the guide to workers advises for work that takes no time: more at a time, so that more share a commit.
    dict.fromkeys(SHORT, ("--in-flight", "800")),
    "200 in flight, 800 in w1, w2 and w9; uvloop; bulk is started in two batches of up to 2,000 at once; in worker "
    "processes of their own (w5, w7, w9, jobs) garbage is collected seldom, as `holdfast worker` does; w1_each: 200 "
    "producers in one process; w7 without the wait for the lease",
)

CONTESTANTS: tuple[Contestant, ...] = (
    HOLDFAST,
    Contestant(
        "DBOS",
        "dbos",
        (POSTGRES, SQLITE),
        sizes("w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9")
        | {name: FEWER[name] for name in ("w1", "w2", "w6", "w9")},
        ("--in-flight", "100"),
        # Its listener on SQLite polls, once a second unless told otherwise; so do its queues.
        settings_on={
            SQLITE: ("--poll-seconds", "0.01"),
            "w5": ("--poll-seconds", "0.001"),
            "w9": ("--poll-seconds", "0.1"),
        },
        note="asynchronous workflows, 100 in flight (w8: all); bulk is enqueued in one transaction; its listener on "
        "SQLite polls every 10 ms instead of 1 s, in w5 every ms, the least it takes; its queue every 100 ms",
    ),
    Contestant(
        "DBOS, 4 in flight",
        "dbos",
        (POSTGRES, SQLITE),
        {name: FEWER[name] for name in ("w1", "w1_each", "w2")},
        ("--in-flight", "4"),
        note="synchronous workflows in four threads, where it peaks; w1_each: these four are its producers",
    ),
    Contestant(
        "Absurd",
        "absurd",
        (POSTGRES,),
        sizes("w1", "w1_each", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9"),
        ("--in-flight", "100", "--poll-seconds", "0.01"),
        settings_on={"w5": ("--poll-seconds", "0.001")},
        note="100 in flight; polls every 10 ms instead of 250, in w5 every ms; bulk is spawned pipelined in one "
        "transaction; w1_each: one producer; w7 without the wait for the lease",
    ),
    Contestant(
        "Procrastinate",
        "procrastinate",
        (POSTGRES,),
        sizes("w1_jobs", "w1_each", "w5", "w6", "w8_jobs", "w9_jobs"),
        ("--in-flight", "100", "--poll-seconds", "0.05"),
        note="a job queue: no steps; 100 in flight; polls every 50 ms instead of 5 s, beside its notifications; a pool "
        "of ten; bulk is deferred in two batches of up to 2,000 at once; w1_each: ten producers",
    ),
    Contestant(
        "PgQueuer",
        "pgqueuer",
        (POSTGRES,),
        sizes("w1_jobs", "w1_each", "w5", "w6", "w8_jobs", "w9_jobs"),
        ("--batch", "100"),
        {"w1_jobs": 5, "w6": 3, "w9_jobs": 5},
        note="a job queue: no steps; asyncpg, uvloop, a pool of eight, autovacuum as it advises; 100 jobs a fetch; "
        "bulk is enqueued in two batches of up to 2,000 at once; w1_each: eight producers",
    ),
    Contestant(
        "PgQueuer, 500 a fetch",
        "pgqueuer",
        (POSTGRES,),
        sizes("w1_jobs", "w9_jobs"),
        ("--batch", "500"),
        {"w1_jobs": 5, "w9_jobs": 5},
        note="the same with 500 jobs a fetch",
    ),
)
