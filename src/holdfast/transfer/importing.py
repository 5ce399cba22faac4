"""Into a ledger: a whole file in one commit, or nothing of it.

The file is read twice: first every line is checked, and the rules of the audit are held against all of it; then it
is written. So what comes from a pipe is kept in a temporary file meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Final

from msgspec import Struct

from holdfast.core.errors import InvalidArgumentError, TransferError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.records import ExecutionRecord, Existing, OwnedRecord, Record, ScheduleRecord, id_bytes
from holdfast.transfer.format import Header, in_batches, read_header, read_records
from holdfast.verify.auditor import Auditor
from holdfast.verify.rules import Fault

_SHOWN: Final = 5


class Imported(Struct, frozen=True, kw_only=True):
    """What was written; `skipped` executions were there already."""

    executions: int
    skipped: int
    live: int


class Checked(Struct, frozen=True, kw_only=True):
    """What a file holds, and what is wrong with it."""

    header: Header
    executions: int
    live: int
    records: int
    faults: list[Fault]


def check(file: BinaryIO, source: str, progress: Callable[[int], None] | None = None) -> Checked:
    """Every line of a file, and all of them together; `TransferError` where it is no whole file."""
    file.seek(0)
    header = read_header(file.readline(), source)
    auditor, executions, live, count = Auditor(), 0, 0, 0
    ids: set[str] = set()
    for batch in in_batches(read_records(file, source)):
        for record in batch:
            _check_record(record, ids, source)
            if isinstance(record, ExecutionRecord):
                executions += 1
                live += not record.status.is_terminal
                record.handler = handler_of(record.kind, record.name, record.version)  # as it is written
        count += len(batch)
        auditor.take(batch)
        if progress is not None:
            progress(len(batch))
    return Checked(header=header, executions=executions, live=live, records=count, faults=auditor.finish())


def _check_record(record: Record, ids: set[str], source: str) -> None:
    if isinstance(record, ExecutionRecord):
        for promise in (record.id, record.parent, record.successor):
            _check_id(promise, source)
        if record.id in ids:
            raise TransferError(f"{source} has {PromiseId.parse(record.id).short} twice: export it again")
        if record.status is Status.EXECUTING or record.locked_by is not None or record.key_blocked:
            raise TransferError(f"{source} carries a lease of {PromiseId.parse(record.id).short}: export it again")
        ids.add(record.id)
    elif isinstance(record, OwnedRecord) and record.id not in ids:
        raise TransferError(f"{source} has something of {record.id[:12]}, which is not in it: export it again")
    elif isinstance(record, ScheduleRecord):
        _check_id(record.last, source)


def _check_id(text: str | None, source: str) -> None:
    try:
        if text is not None:
            id_bytes(text)
    except InvalidArgumentError as error:
        raise TransferError(f"{source} has an id that is none: {error}") from error


async def import_file(
    store: Store,
    file: BinaryIO,
    source: str,
    *,
    skip_existing: bool = False,
    replace: bool = False,
    paused: bool = False,
    damaged: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Write all of a file that is whole and sound; `paused` keeps what is live in it, and its schedules, from going on.

    `replace` takes the place of executions that are paused or cancelled here: so a run that was moved away comes back.
    `damaged` takes in what breaks the rules, too: to look at it.
    """
    checked = check(file, source, progress)
    if checked.faults and not damaged:
        told = "; ".join(str(fault) for fault in checked.faults[:_SHOWN])
        more = f" and {len(checked.faults) - _SHOWN} more" if len(checked.faults) > _SHOWN else ""
        raise TransferError(f"{source} breaks the rules, so nothing was imported: {told}{more}")
    file.seek(0)
    file.readline()
    records = read_records(file, source)
    written = await store.write_records(
        _told(in_batches(_paused(records) if paused else records), progress),
        skip_existing=skip_existing,
        replace=replace,
    )
    if written.existing is not None:
        raise TransferError(_in_the_way(written.existing))
    return Imported(executions=written.executions, skipped=written.skipped, live=checked.live)


def _told(batches: Iterable[Sequence[Record]], progress: Callable[[int], None] | None) -> Iterator[Sequence[Record]]:
    for batch in batches:
        yield batch
        if progress is not None:
            progress(len(batch))


def _paused(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        if isinstance(record, ScheduleRecord) or (
            isinstance(record, ExecutionRecord) and not record.status.is_terminal and not record.cancel_requested
        ):
            record.paused = True
        yield record


def _in_the_way(existing: Existing) -> str:
    if existing.unique:
        ours, theirs = (PromiseId.parse(promise).short for promise in existing.unique[0])
        return f"nothing was imported: {theirs} occupies the unique key of {ours} here. Wait for it, or cancel it"
    if existing.schedules:
        return (
            f"nothing was imported: the schedule {existing.schedules[0]!r} is here already. "
            "Delete it, or skip what exists (--skip-existing)"
        )
    shown = ", ".join(PromiseId.parse(promise).short for promise in existing.ids[:_SHOWN])
    more = f" and {len(existing.ids) - _SHOWN} more" if len(existing.ids) > _SHOWN else ""
    return (
        f"nothing was imported: {shown}{more} {'are' if existing.ids[1:] else 'is'} here already. Skip what exists "
        "(--skip-existing), or replace it (--replace): paused or cancelled, without a parent, and not further than the "
        "file says"
    )
