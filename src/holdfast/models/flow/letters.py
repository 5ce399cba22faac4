"""Dead letters: messages that the protocol itself cannot process (ruling A6).

Their job is stranded and their obligation open, until somebody retries them or drops them.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.core.codec import ErrorRecord, decode_error
from holdfast.core.error_record import type_name
from holdfast.core.errors import InvalidArgumentError, LedgerCeilingError, NotFoundError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.connection import Connection
from holdfast.models.flow.message import job_of, peek_message
from holdfast.store.base import Store
from holdfast.store.flows import MESSAGE
from holdfast.store.values import ExecutionFilter, ExecutionView

_CEILING = type_name(LedgerCeilingError)


class DeadLetter(Struct, frozen=True, kw_only=True):
    """`can_retry` is false of a full counter: it can only be dropped."""

    id: PromiseId
    job: PromiseId
    flow: str
    activity: str
    dimension: str
    step: str
    error: ErrorRecord | None
    since: datetime
    can_retry: bool


class LetterPage(Struct, frozen=True):
    """Newest first; `cursor` continues after the last one, None at the end."""

    items: list[DeadLetter]
    cursor: str | None = None


class DeadLetters:
    """`app.dead_letters`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, flow: str | None = None, limit: int = 100, cursor: str | None = None) -> LetterPage:
        return await list_letters(await self._connection.store(), flow=flow, limit=limit, cursor=cursor)

    async def retry(self, letter: str | PromiseId) -> None:
        """Put it back to work with the GUID that it has; its job goes on if it has no other."""
        await retry_letter(await self._connection.store(), letter)

    async def drop(self, letter: str | PromiseId) -> None:
        """Close its obligation without its work: its job fails once nothing else is open."""
        await drop_letter(await self._connection.store(), letter)


async def list_letters(
    store: Store, *, flow: str | None = None, limit: int = 100, cursor: str | None = None
) -> LetterPage:
    where = ExecutionFilter(kind=MESSAGE, name=flow, statuses=(Status.STRANDED,))
    page = await store.browse(where, limit, cursor)
    return LetterPage([_letter(view) for view in page.items], page.cursor)


async def retry_letter(store: Store, letter: str | PromiseId) -> None:
    found = await _find(store, letter)
    if not found.can_retry:
        raise InvalidArgumentError(
            f"{found.id} of {found.flow}.{found.activity} has met a ceiling: {found.error}. It can only be dropped"
        )
    if not await store.retry_letter(found.id.to_bytes()):
        raise _unknown(found.id)


async def drop_letter(store: Store, letter: str | PromiseId) -> None:
    found = await _find(store, letter)
    if not await store.drop_letter(found.id.to_bytes()):
        raise _unknown(found.id)


async def _find(store: Store, letter: str | PromiseId) -> DeadLetter:
    promise = letter if isinstance(letter, PromiseId) else PromiseId.parse(letter)
    view = await store.get(promise.to_bytes())
    if view is None or view.kind != MESSAGE or view.status is not Status.STRANDED:
        raise _unknown(promise)
    return _letter(view)


def _unknown(promise: PromiseId) -> NotFoundError:
    return NotFoundError(f"{promise} is no dead letter (any more); list them to see which there are")


def _letter(view: ExecutionView) -> DeadLetter:
    error = None if view.error is None else decode_error(view.error)
    message = peek_message(view.state)
    return DeadLetter(
        id=PromiseId.from_bytes(view.promise),
        job=PromiseId.from_bytes(job_of(view.promise)),
        flow=view.name,
        activity=message.activity,
        dimension=message.dimension,
        step=view.step,
        error=error,
        since=view.updated_at,
        can_retry=error is None or error.type != _CEILING,
    )
