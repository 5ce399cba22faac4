"""One call, and one run: every call under a timeout, the whole within a budget, each result written down at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.catalogue import PEERS, POSTGRES
from benchmarks.peers.environments import Environment, reason
from benchmarks.peers.plan import Call, Plan
from benchmarks.peers.summary import is_noisy, summarise
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.postgres_launch import postgres_binaries

ROOT = Path(__file__).resolve().parents[2]
Record = dict[str, Any]
MORE_ROUNDS = 2


class Log:
    """What was measured so far, a line a call; a run that was cut short goes on from it."""

    def __init__(self, path: Path, digest: str, *, resume: bool) -> None:
        self._path = path
        self.records: dict[str, Record] = {}
        lines = path.read_text().splitlines() if resume and path.exists() else []
        if lines and json.loads(lines[0]).get("plan") == digest:
            for line in lines[1:]:
                with suppress(json.JSONDecodeError):  # the last line of a run that was killed
                    record = json.loads(line)
                    self.records[record["key"]] = record
            # What failed is tried again: the reason may be mended.
            self.records = {key: each for key, each in self.records.items() if "failed" not in each}
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"plan": digest}) + "\n")

    def add(self, record: Record) -> None:
        self.records[record["key"]] = record
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")


@dataclass
class Runner:
    """Runs calls on one server and one folder, each on an empty store."""

    server: PostgresServer
    folder: Path
    environments: Mapping[str, Environment]
    timeout_seconds: float
    count: int = 0

    def run(self, call: Call) -> Record:
        """Measured, or failed with the reason."""
        record: Record = {
            "key": call.key,
            "round": call.round,
            "workload": call.workload,
            "store": call.store,
            "system": call.contestant.label,
            "n": call.n,
            "repeats": call.repeats,
        }
        with self._store(call) as url:
            found = self._prepared(call, url) or self._measured(call, url)
        return {**record, **found}

    def _prepared(self, call: Call, url: str) -> Record:
        """Empty if the peer's schema is there."""
        peer = PEERS[call.contestant.peer] if call.contestant.peer else None
        if peer is None or not peer.prepare:
            return {}
        environment = self.environments[str(call.contestant.peer)]
        program, *rest = peer.prepare
        command = [str(environment.python.parent / program), *(part.format(url=url) for part in rest)]
        code, output = self._bounded(command)
        return {} if code == 0 else {"failed": f"its schema could not be made: {reason(output)}"}

    def _measured(self, call: Call, url: str) -> Record:
        peer = call.contestant.peer
        python = self.environments[peer].python if peer else Path(sys.executable)
        code, output = self._bounded(call.command(python, url))
        if code is None:
            return {"failed": f"took longer than {self.timeout_seconds:.0f} s"}
        lines = output.strip().splitlines()
        if code != 0 or not lines or not lines[-1].startswith("{"):
            return {"failed": f"ended with exit code {code}: {reason(output)}"}
        found: Record = json.loads(lines[-1])
        return found

    def _bounded(self, command: list[str]) -> tuple[int | None, str]:
        """Exit code and output; no code if it had to be killed. Its own worker processes go with it."""
        path = f"{os.environ.get('PATH', '')}{os.pathsep}{postgres_binaries()}"
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                output, errors = process.communicate(timeout=self.timeout_seconds)
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, output if process.returncode == 0 else errors or output

    @contextmanager
    def _store(self, call: Call) -> Iterator[str]:
        """The URL or file of an empty store, gone afterwards."""
        self.count += 1
        if call.store != POSTGRES:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                yield str(Path(folder) / "bench.db")
            return
        name = f"bench_{self.count}"
        self.server.create_database(name)
        try:
            yield self.server.url(name)
        finally:
            self.server.drop_database(name)


def run(
    plan: Plan, environments: Mapping[str, Environment], log: Log, *, timeout_seconds: float, budget_seconds: float
) -> bool:
    """Every call that is not in the log yet; whether all of them were made within the budget."""
    with PostgresServer(fsync=True) as server, tempfile.TemporaryDirectory(prefix="holdfast-peers-") as folder:
        through = Passage(Runner(server, Path(folder), environments, timeout_seconds), log, budget_seconds)
        if not through.all_of(list(plan.calls())):
            return False
        # Rounds that differ much: a median of more of them. The spread stays as it is, and so does its mark.
        for number in range(plan.rounds, plan.rounds + MORE_ROUNDS):
            noisy = {(r["workload"], r["store"], r["system"]) for r in summarise(log.records.values()) if is_noisy(r)}
            if not through.all_of(plan.round_of(number, noisy)):
                return False
    return True


class Passage:
    """Through lists of calls, within one budget."""

    def __init__(self, runner: Runner, log: Log, budget_seconds: float) -> None:
        self._runner = runner
        self._log = log
        self._budget_seconds = budget_seconds
        self._began = time.monotonic()
        self._failed: set[tuple[str, str, str]] = set()

    def all_of(self, calls: Sequence[Call]) -> bool:
        """Whether the budget was enough for all that are not in the log yet."""
        possible = [call for call in calls if self._possible(call)]
        for number, call in enumerate(possible, 1):
            # What failed once is not tried again: a timeout a round would eat the budget of all others.
            if call.key in self._log.records or call.case in self._failed:
                continue
            seconds = time.monotonic() - self._began
            if seconds > self._budget_seconds:
                print(
                    f"the budget of {self._budget_seconds:.0f} s is used up after {number - 1} of {len(possible)} calls"
                )
                return False
            what = f"{call.workload} on {call.store}: {call.contestant.label}, {call.n:,}"
            print(f"[{number}/{len(possible)}, {seconds:.0f} s] {what}", end=" ... ", flush=True)
            record = self._runner.run(call)
            self._log.add(record)
            if "failed" in record:
                self._failed.add(call.case)
            print(record.get("failed") or f"{record['units'] / record['seconds']:,.0f}/s", flush=True)
        return True

    def _possible(self, call: Call) -> bool:
        peer = call.contestant.peer
        return peer is None or not self._runner.environments[peer].failure
