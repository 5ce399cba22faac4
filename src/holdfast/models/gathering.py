"""The results of many executions: as `asyncio.gather` of every `result()`, without a task and a read for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast.core.durations import Duration, format_duration, seconds
from holdfast.core.errors import HoldfastError, InvalidArgumentError
from holdfast.core.status import Status
from holdfast.models.connection import Connection
from holdfast.models.handle import Handle


async def gather_results(
    connection: Connection, handles: Sequence[Handle[Any]], *, timeout: Duration | None, return_exceptions: bool
) -> list[Any]:
    """In the order of the handles. The first failure is raised as soon as it is known, or takes its result's place."""
    for handle in handles:
        _check(connection, handle)
    results = await connection.results()
    limit = None if timeout is None else seconds(timeout, name="timeout")
    try:
        async with asyncio.timeout(limit):
            promises = [handle._promise or (await handle.resolve()).to_bytes() for handle in handles]
            endings = await results.wait_all(promises, until_failure=not return_exceptions)
    except TimeoutError:
        if limit is None:
            raise
        raise TimeoutError(
            f"not all of the {len(handles)} executions have ended within {format_duration(limit)}; they go on"
        ) from None
    if not return_exceptions:
        for promise, ending in endings.items():
            if ending.status is not Status.DONE:
                raise handles[promises.index(promise)]._failure_of(ending)
    found: list[Any] = []
    for handle, promise in zip(handles, promises, strict=True):
        ending = endings[promise]
        try:
            found.append(handle._result_of(ending) if ending.status is Status.DONE else handle._failure_of(ending))
        except HoldfastError as error:  # a result that cannot be read as what was declared
            if not return_exceptions:
                raise
            found.append(error)
    return found


def _check(connection: Connection, handle: Handle[Any]) -> None:
    if not isinstance(handle, Handle):
        raise InvalidArgumentError(
            f"{handle!r} is no handle; start_many gives a Collision in the place of what it did not start"
        )
    if not handle._is_of(connection):
        raise InvalidArgumentError(f"{handle!r} belongs to another app; each app waits for its own")
