"""An operation held for code that waits elsewhere: how a workflow owns one while its calls run.

A `Holding` is a task of this process's event loop. It creates the operation, opens a call of the owner, so that the
others learn of the owner's death as of any participant's, and waits for the verdict. It belongs to this process:
should the process die, whoever goes on with the owner uses `see_to_its_end`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from .call import Call
from .errors import (
    CallsPendingError,
    LedgerStorageError,
    OperationEndedError,
    OperationFailedError,
    OperationFailedInfo,
)
from .ledger import Ledger
from .operation import Operation

logger = logging.getLogger("holdfast.operation")

_HOLDINGS: Final[dict[str, Holding]] = {}


class Holding:
    """From creating the operation to its backup. `task` gives the failure, or None if it was completed."""

    def __init__(self, ledger: Ledger, operation_id: str, description: str | None) -> None:
        self.loop = asyncio.get_running_loop()
        self._ledger = ledger
        self._operation_id = operation_id
        self._description = description
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._verdict: asyncio.Future[str | None] = self.loop.create_future()
        self._is_told = asyncio.Event()
        _HOLDINGS[operation_id] = self
        self.task = asyncio.create_task(self._keep(), name=f"holdfast-holding-{operation_id}")

    async def wait_opened(self) -> None:
        """Wait until others can join; raises what kept the operation from being created."""
        await _first(self._opened, self.task)
        if not self._opened.done():
            self.task.result()

    def decide(self, reason: str | None) -> None:
        """The verdict, once: None completes the operation, a reason aborts it."""
        if not self._verdict.done():
            self._verdict.set_result(reason)

    async def ended(self) -> OperationFailedInfo | None:
        """Wait for the end; who waits may be cancelled, the cleanup goes on."""
        return await asyncio.shield(self.task)

    async def give_up(self, reason: str) -> None:
        """Abort; returns when the others can see it, and on a full disk after the grace: they will see a silent heart.
        The cleanup goes on beside the caller."""
        self.decide(reason)
        told = asyncio.ensure_future(self._is_told.wait())
        await _first(told, self.task, timeout_seconds=self._ledger.timing.stop_grace_ms / 1000)
        told.cancel()

    async def _keep(self) -> OperationFailedInfo | None:
        try:
            operation = await self._ledger.create_operation(
                operation_id=self._operation_id, description=self._description
            )
            call = await operation.start_call(description=f"owner: {self._description or self._operation_id}")
            self._opened.set_result(None)
            failed = asyncio.ensure_future(operation.wait_failed())
            await _first(failed, self._verdict)
            failed.cancel()
            failure = operation.failure or await self._carry_out(operation, call)
            self._is_told.set()
            await self._ledger.dispose()  # a cleanup that this process coordinates is finished first
            return failure
        except BaseException as error:
            # The process ends, or nothing could be created: nobody may wait here for the phases to pass.
            await self._ledger.dispose(finish_cleanup=isinstance(error, CallsPendingError))
            raise
        finally:
            _HOLDINGS.pop(self._operation_id, None)

    async def _carry_out(self, operation: Operation, call: Call[object]) -> OperationFailedInfo | None:
        reason = self._verdict.result()
        while True:
            try:
                if reason is not None:
                    await operation.abort(reason)
                    return operation.failure
                if not call.state.settled:
                    await call.end()
                await operation.complete()
                return None
            except OperationFailedError as error:
                return error.info
            except CallsPendingError as error:
                await operation.abort(str(error))  # its owner has gone on: nobody would complete it later
                raise
            except LedgerStorageError as error:  # a full disk is a pause
                logger.warning("operation %s could not be ended yet: %s", self._operation_id, error)
                await asyncio.sleep(self._ledger.timing.heartbeat_min_ms / 1000)


async def _first(*futures: asyncio.Future[Any], timeout_seconds: float | None = None) -> None:
    await asyncio.wait(futures, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)


def find_holding(operation_id: str) -> Holding | None:
    """The one in this process and on this event loop, if there is one."""
    found = _HOLDINGS.get(operation_id)
    return found if found is not None and found.loop is asyncio.get_running_loop() else None


async def see_to_its_end(ledger: Ledger, operation_id: str, reason: str) -> OperationFailedInfo | None:
    """For an operation whose holder is gone: None if it was completed in time, else it is failed and cleaned up."""
    try:
        operation = await ledger.take_over(operation_id, reason)
        # Also if another coordinates its cleanup: should that one be dead too, this process takes over (ruling C5).
        await operation.wait_over()
        return operation.failure
    except OperationEndedError:
        return None
    except OperationFailedError as error:
        return error.info
    finally:
        await ledger.dispose()
