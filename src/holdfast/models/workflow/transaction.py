"""Transactions: tasks that write through the ledger's own connection, so that they take effect exactly once.

What they wrote and the record that they are done commit together. The fence is checked in the same transaction before
any of the code runs. On PostgreSQL they are `async def` and get an asyncpg connection; on SQLite `def`, and get the
sqlite3 connection of the writer, in its thread: nobody else writes meanwhile, so keep them short.

A `timeout` cancels the one and interrupts the statement of the other. Python code that blocks can be neither: what it
wrote is rolled back when it returns.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

from holdfast.core.errors import CallNotAllowedError, DefinitionError
from holdfast.engine.runner import Engine
from holdfast.models.workflow.attempts import NOT_OWN, AttemptTimedOut
from holdfast.models.workflow.current import CURRENT_CALL, Current
from holdfast.models.workflow.task import Task

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class WrongStoreError(DefinitionError):
    """A transaction whose form does not fit the store that it was to run on."""


class Transaction(Task[P, R], Generic[P, R]):
    """Its first parameter is the connection."""

    skipped = 1

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        for name in ("effects", "executor", "heartbeat_timeout"):
            if settings.get(name) is not None:
                raise DefinitionError(
                    f"a transaction takes no {name}: it runs exactly once, on the ledger's connection"
                )
        super().__init__(function, **settings)
        self.is_plain = False
        if self.resources:
            raise DefinitionError(f"{self.name} is a transaction: what is to commit with it goes over its connection")

    async def _run_plainly(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        raise CallNotAllowedError(f"{self.name} is a transaction: call it in a workflow, or start it with start()")

    def work(self, text: str, call: Current, engine: Engine) -> Callable[[Any], Any]:
        """The code to run with the connection; its answer is the encoded result."""
        encode, limit = self.signature.result.encode, self.payload_limit
        is_async = not engine.store.commits_in_thread
        if is_async != self.is_async:
            wanted = "an `async def` (it gets an asyncpg connection)" if is_async else "a `def` (sqlite3, in a thread)"
            raise WrongStoreError(f"the transaction {self.name} must be {wanted} to run on {engine.store.url}")
        arguments = self.signature.decode(text)
        function = self.call

        async def run_async(connection: Any) -> str:
            token = CURRENT_CALL.set(call)
            deadline = asyncio.timeout(self.timeout_seconds)
            try:
                async with deadline:
                    value = await function(connection, *arguments)
                if (due := deadline.when()) is not None and asyncio.get_running_loop().time() >= due:
                    raise self._timed_out()  # it blocked the loop, or did not heed its cancel
                return encode(value, max_bytes=limit)
            except BaseException as error:
                if isinstance(error, Exception) and deadline.expired():
                    raise self._timed_out() from error
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                raise self._own(error)  # noqa: B904  (it has its cause)
            finally:
                CURRENT_CALL.reset(token)

        token = CURRENT_CALL.set(call)
        context = contextvars.copy_context()
        CURRENT_CALL.reset(token)

        def run(connection: Any) -> str:
            try:
                with self._in_time(connection):
                    return encode(context.run(function, connection, *arguments), max_bytes=limit)
            except BaseException as error:
                raise self._own(error)  # noqa: B904  (it has its cause)

        return run_async if is_async else run

    @contextmanager
    def _in_time(self, connection: Any) -> Iterator[None]:
        """Around code on a lent connection: past the deadline no statement of it goes on, and it does not end well."""
        if self.timeout_seconds is None:
            yield
            return
        due, is_late = monotonic() + self.timeout_seconds, False

        def look() -> bool:
            nonlocal is_late
            is_late = monotonic() >= due
            return is_late

        connection.interrupt_when(look)
        try:
            yield
        except Exception as error:
            if is_late:
                raise self._timed_out() from error
            raise
        if monotonic() >= due:
            raise self._timed_out()

    def _timed_out(self) -> AttemptTimedOut:
        return AttemptTimedOut(f"{self.name} took longer than {self.timeout_seconds:g} s")

    def _own(self, error: BaseException) -> BaseException:
        """What it raised, as a failure of its own: the engine would take a cancel for one of its worker's."""
        if isinstance(error, (Exception, *NOT_OWN)):
            return error
        failure = RuntimeError(f"{self.name} raised {type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure
