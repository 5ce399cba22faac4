"""User code and the ledger in one transaction, and starts inside a transaction of the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from holdfast.core.crashpoints import reach
from holdfast.core.errors import ConfigurationError
from holdfast.store.effects import Commit, Effect
from holdfast.store.postgres.batch_effects import apply_batch_effects, has_batch_effects
from holdfast.store.postgres.connections import Connections
from holdfast.store.postgres.driver import DriverConnection
from holdfast.store.postgres.flush import Call, build_call
from holdfast.store.postgres.work import Work
from holdfast.store.values import ExecutionClaim, Flushed, Inserted, NewExecution, Receipt, refusal

TRANSACTIONS_MOST = 4


class _WorkFailed(Exception):  # noqa: N818
    """Carries what user code raised past the store's own translation of errors."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Fenced(Exception):  # noqa: N818
    """The claim is not this worker's: nothing of its transaction is to stay."""


class _Refused(Exception):  # noqa: N818
    """What it was to heed: the transaction ends before its code has run."""

    def __init__(self, *, cancel_requested: bool) -> None:
        self.cancel_requested = cancel_requested


class Transacting(Work):
    _apart: Connections | None = None  # user code may take its time: it must not use up the connections of others

    async def transact(
        self,
        worker: str,
        claim: ExecutionClaim,
        work: Callable[[Any], Any],
        effects_of: Callable[[Any], Sequence[Effect]],
        *,
        heeds_cancel: bool = False,
        heeds_pause: bool = False,
    ) -> Receipt:
        if self._apart is None:
            self._apart = Connections(self._address, TRANSACTIONS_MOST, flushes=0, is_at_work=True)
        try:
            async with self._apart.any("run a transaction") as connection:
                assert isinstance(connection, DriverConnection), "as every connection of a store's"
                try:
                    heeds = heeds_cancel, heeds_pause
                    call, flushed = await self._transact(connection, worker, claim, work, effects_of, heeds)
                except _WorkFailed:
                    if connection.codecs:  # the next one to use it would be surprised
                        self._apart.cut(connection)
                    raise
                except asyncpg.InterfaceError as error:
                    if not connection.is_closed():
                        raise
                    # The driver only says that it cannot roll back.
                    raise asyncpg.ConnectionDoesNotExistError(
                        "the connection was lost while user code had it: the server ended it, or the code takes longer "
                        "than idle_in_transaction_session_timeout or transaction_timeout allows"
                    ) from error
        except _WorkFailed as failed:
            raise failed.error from None
        except _Fenced:
            return Receipt(False)
        except _Refused as refused:
            return refusal(cancel_requested=refused.cancel_requested)
        reach("flush.after")
        (receipt,) = flushed.receipts
        receipt.at_us = flushed.at_us
        self._tell_of(call, flushed)
        return receipt

    async def _transact(
        self,
        connection: DriverConnection,
        worker: str,
        claim: ExecutionClaim,
        work: Callable[[Any], Awaitable[Any]],
        effects_of: Callable[[Any], Sequence[Effect]],
        heeds: tuple[bool, bool],
    ) -> tuple[Call, Flushed]:
        # Said here, because code that had the connection before may have reset the session (connections.py).
        async with connection.transaction(isolation="read_committed"):
            # The fence comes first, and its lock is kept: nobody can take the row over while user code runs.
            fence = (claim.row, worker, claim.epoch, claim.revision)
            held = await connection.fetchrow(self._sql["transact_fence"], *fence)
            if held is None:
                raise _Fenced
            cancel_requested, paused = heeds[0] and held[0], heeds[1] and held[1]
            if cancel_requested or paused:
                raise _Refused(cancel_requested=cancel_requested)
            try:
                await connection.execute(self._sql["transact_lend"])
                effects = tuple(effects_of(await work(connection)))
                await connection.execute(self._sql["transact_take_back"])
            except (asyncio.CancelledError, Exception) as error:
                raise _WorkFailed(error) from error
            if connection.codecs:
                await connection.forget_codecs()  # what is written below would be encoded by them
            commits = [Commit(claim, effects)]
            call = build_call(commits)
            flushed = await self._flush_call(connection, worker, call)
            if not flushed.receipts[0].applied:  # a step was under way: it only locks its row, and the fence missed it
                raise _Fenced
            if has_batch_effects(commits):
                await apply_batch_effects(connection, self._sql, commits, flushed.receipts)
            reach("flush.before")
        return call, flushed

    async def insert_with(self, connection: Any, rows: Sequence[NewExecution]) -> list[Inserted]:
        if not hasattr(connection, "fetch") or not hasattr(connection, "is_in_transaction"):
            raise ConfigurationError(
                f"a start in your own transaction on PostgreSQL takes an asyncpg connection, not {connection!r:.100}; "
                f"other drivers call the SQL function {self._schema}.start"
            )
        if not connection.is_in_transaction():
            raise ConfigurationError("the connection given to a start is in no transaction: begin one first")
        return await self._insert_chunk(connection, rows, "_yours")

    def _leave_to_parent(self) -> None:
        if self._connections.is_inherited:
            self._apart = None
        super()._leave_to_parent()

    async def close(self) -> None:
        if self._apart is not None:
            await self._apart.close()
            self._apart = None
        await super().close()
