"""The batch effects of a flush, in its transaction, after the call whose fence they ride on.

Executions are locked before rows of `batches`, and those in the order of their ids: so no two commits can deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import LedgerError
from holdfast.store.batches import (
    BATCH_EFFECTS,
    BatchEffect,
    CommitItems,
    DispatchChunks,
    MarkItems,
    TakeIn,
)
from holdfast.store.effects import Commit
from holdfast.store.values import Receipt

if TYPE_CHECKING:
    from holdfast.store.postgres.connections import Connection

_ORDER: dict[type, int] = {TakeIn: 0, DispatchChunks: 1, MarkItems: 2, CommitItems: 3}


def has_batch_effects(commits: Sequence[Commit]) -> bool:
    return any(
        isinstance(effect, BATCH_EFFECTS) for commit in commits if len(commit.effects) > 1 for effect in commit.effects
    )


async def apply_batch_effects(
    connection: Connection, sql: Mapping[str, str], commits: Sequence[Commit], receipts: Sequence[Receipt]
) -> None:
    found: list[tuple[int, BatchEffect]] = []
    for commit, receipt in zip(commits, receipts, strict=True):
        if receipt.applied:
            found += [
                (_run_of(commit, effect), effect) for effect in commit.effects if isinstance(effect, BATCH_EFFECTS)
            ]
    found.sort(key=lambda entry: (entry[0], _ORDER[type(entry[1])]))
    runs = sorted({run for run, _ in found})
    if len(runs) > 1:
        await connection.fetch(sql["batch_lock"], runs)
    marks = [_mark(run, effect) for run, effect in found if isinstance(effect, MarkItems)]
    for run, effect in found:
        if isinstance(effect, TakeIn):
            await take(connection, sql, run, effect)
        elif isinstance(effect, DispatchChunks):
            await connection.execute(sql["batch_dispatch"], run, effect.firsts)
    if len(marks) == 1:
        await connection.execute(sql["batch_mark"], *marks[0])
    elif marks:
        await connection.executemany(sql["batch_mark"], marks)
    for run, effect in found:
        if isinstance(effect, CommitItems):
            await _commit(connection, sql, run, effect)


def _run_of(commit: Commit, effect: BatchEffect) -> int:
    claim = commit.claim
    if isinstance(effect, MarkItems) and not effect.own_run:
        assert claim.parent_row is not None, "items are marked by a chunk of a run, or by the run"
        return claim.parent_row
    return claim.row


def _mark(run: int, mark: MarkItems) -> tuple[object, ...]:
    changed = mark.changed
    return (
        run,
        mark.first,
        mark.states,
        mark.attempts,
        mark.prefix,
        changed.ended,
        changed.failed,
        mark.notes,
        mark.results,
        mark.is_final,
        mark.inputs,
        changed.dispatched,
        changed.in_flight,
        changed.succeeded,
        changed.skipped,
        changed.cancelled,
        changed.retries,
        mark.ready_ms,
    )


async def take(connection: Connection, sql: Mapping[str, str], run: int, taken: TakeIn) -> None:
    chunks = taken.chunks
    await connection.execute(sql["batch_create"], run)
    count, size = sum(chunk.count for chunk in chunks), sum(chunk.size for chunk in chunks)
    await connection.execute(
        sql["batch_take"],
        count,
        size,
        taken.progress,
        taken.closes,
        taken.latches,
        taken.digest,
        taken.expected,
        run,
    )
    if chunks:
        await connection.execute(
            sql["batch_chunk_insert"],
            run,
            [chunk.first for chunk in chunks],
            [chunk.count for chunk in chunks],
            [chunk.size for chunk in chunks],
            [chunk.inputs for chunk in chunks],
        )


async def _commit(connection: Connection, sql: Mapping[str, str], run: int, commit: CommitItems) -> None:
    if await connection.fetchval(sql["batch_commit"], commit.stop, run, commit.start) is None:
        raise LedgerError(f"the lane of a batch is not at seq {commit.start}: nothing was committed")
    if commit.clear:
        await connection.execute(sql["batch_clear"], run, commit.clear)
