"""Random lives on a virtual clock: participants are killed, stopped, resumed, short of disk, with clocks that are off.

Every version of the file that anyone writes is kept, in order, and checked against the tables of `lifecycle`.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from holdfast.models.operation.data import FrameState, LedgerData, OperationState
from holdfast.models.operation.lifecycle import BEATING, NEXT_FRAME_STATES, NEXT_STATES
from holdfast.operation import Operation, OperationError

from .kit import SEED_TIMING, SimProcess, Told, assert_failed_and_backed_up, disk_full, in_backup, run_virtual, until


class Life:
    """One participant: what was done to it, and what it was told."""

    def __init__(self, process: SimProcess, operation: Operation) -> None:
        self.process = process
        self.operation = operation
        self.told: list[Told] = []
        self.killed = False
        self.disturbed = False  # stopped or short of disk for a while: others may take it for dead
        self.contained = False


def check_history(history: list[LedgerData], undisturbed: set[str]) -> None:
    for before, after in pairwise(history):
        assert after.state is before.state or after.state in NEXT_STATES[before.state]
        assert before.detection_us in (None, after.detection_us)
        assert before.removal_us in (None, after.removal_us)
        assert not before.aborted or after.aborted
        for frame in after.stack:
            old = before.frame(frame.call_id)
            if old is None:
                continue
            assert frame.state is old.state or frame.state in NEXT_FRAME_STATES[old.state]
            if old.state not in BEATING and frame.state is old.state:
                assert frame.last_heartbeat_us == old.last_heartbeat_us
    for data in history:
        if data.state is OperationState.CLEANUP:
            coordinators = {f.participant_id for f in data.stack if f.state is FrameState.CLEANING_UP}
            assert len(coordinators) == 1
        for frame in data.stack:
            if frame.participant_id in undisturbed:
                assert frame.state is not FrameState.CRASHED, f"{frame.participant_id} was alive all the time"


async def disturb(rng: Random, lives: list[Life], base: Path) -> None:
    """A few minutes of trouble. The first participant is left in peace: somebody must be left to clean up."""
    for _ in range(rng.randint(1, 6)):
        await asyncio.sleep(rng.uniform(0, 12))
        life = rng.choice(lives[1:])
        if life.killed:
            continue
        match rng.choice(["kill", "stop", "long stop", "disk", "call", "end"]):
            case "kill":
                life.process.kill()
                life.killed = True
            case "stop" | "long stop" as kind:
                life.disturbed = True
                life.process.stop()
                await asyncio.sleep(rng.uniform(1, 9) if kind == "stop" else rng.uniform(15, 60))
                life.process.resume()
            case "disk":
                life.disturbed = True
                life.process.fs.fail = lambda number, step, path: disk_full(path) if step == "write" else None
                await asyncio.sleep(rng.uniform(1, 30))
                life.process.fs.fail = lambda number, step, path: None
            case "call":
                await start_call(life, rng)
            case "end":
                await end_calls(life)


async def start_call(life: Life, rng: Random) -> None:
    told = Told()
    contained = rng.random() < 0.3
    try:
        await life.operation.start_call(told.callback(), fail_on_crash=not contained)
    except OperationError:
        return  # it has failed in the meantime
    life.told.append(told)
    life.contained = life.contained or contained


async def end_calls(life: Life) -> None:
    for call in list(life.operation._book.open.values()):
        try:
            await call.end()  # type: ignore[union-attr]  # this simulation spawns none
        except OperationError:
            continue
        life.told = [told for told in life.told if told.completions == []]


@pytest.mark.parametrize("seed", range(40))
def test_any_trouble_ends_in_backup_with_everything_cleaned_up_once(tmp_path: Path, seed: int) -> None:
    """Rulings C5, C9, C10 and the seed's Cleanup Mechanism, for lives nobody thought of."""
    base = tmp_path / "ledger"
    rng = Random(seed)
    history: list[LedgerData] = []

    async def main() -> None:
        lives: list[Life] = []
        for number in range(rng.randint(2, 6)):
            offset = rng.choice([0, 0, 0, -100, 100, rng.uniform(-3600, 3600)])
            process = SimProcess(base, f"p{number}", seed * 10 + number, offset)
            process.fs.on_record = history.append
            opening = (
                process.ledger.join_operation("op") if lives else process.ledger.create_operation(operation_id="op")
            )
            lives.append(Life(process, await opening))
            await start_call(lives[-1], rng)
        await disturb(rng, lives, base)
        await asyncio.sleep(60)
        first = lives[0]
        if first.operation.failure is None:  # whatever happened was contained: the operation goes on
            assert not any(life.killed and not life.contained and life.told for life in lives)
            await first.operation.abort("the end of the simulation")
        await until(lambda: in_backup(base, "op"))
        await asyncio.sleep(60)
        for life in lives:
            if not life.killed:
                assert life.operation.is_over
                assert life.operation.failure is not None
                assert [told.cleanup for told in life.told] == [1] * len(life.told)
                await life.process.ledger.dispose()

        undisturbed = {life.process.name for life in lives if not life.killed and not life.disturbed}
        assert lives[0].process.name in undisturbed
        check_history(history, undisturbed)

    run_virtual(main)
    assert_failed_and_backed_up(base, "op", SEED_TIMING, clocks_agree=False)
