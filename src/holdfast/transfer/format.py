"""The file: a header, one record a line (store/records.py), and an end that says how many there were.

A file without its end was cut off; a file of a newer format is refused. What a lease holder had is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core.errors import TransferError
from holdfast.store.records import BATCH, Record

FORMAT: Final = 1


class Header(Struct, frozen=True, kw_only=True, tag_field="record", tag="holdfast"):
    """The first line. `at` is the time of the ledger that it comes from."""

    format: int
    version: str
    at: datetime
    paused: bool = False  # what is live in it was paused where it comes from


class End(Struct, frozen=True, kw_only=True, tag_field="record", tag="end"):
    """The last line."""

    records: int


class _AnyHeader(Struct):
    record: str = ""
    format: int = 0


Line: TypeAlias = Header | Record | End

_LINE: Final[msgspec.json.Decoder[Line]] = msgspec.json.Decoder(Line)
_PROBE: Final = msgspec.json.Decoder(_AnyHeader)
_ENCODER: Final = msgspec.json.Encoder()


def line_of(value: Line) -> bytes:
    return _ENCODER.encode(value) + b"\n"


def read_header(line: bytes, source: str) -> Header:
    """What the first line says; `TransferError` if it is of no such file, or of a newer one."""
    try:
        probe = _PROBE.decode(line)
    except (msgspec.DecodeError, UnicodeError):
        probe = _AnyHeader()
    if probe.record != "holdfast":
        raise TransferError(f"{source} is no export of Holdfast: its first line says nothing of it")
    if probe.format > FORMAT:
        raise TransferError(
            f"{source} has format {probe.format}, this Holdfast reads up to {FORMAT}: upgrade Holdfast here"
        )
    header = _decode(line, source, 1)
    if not isinstance(header, Header):
        raise TransferError(f"{source} is no export of Holdfast: its first line is another record")
    return header


def read_records(lines: Iterable[bytes], source: str) -> Iterator[Record]:
    """Every record after the header; `TransferError` names the line that is wrong, or says that the end is missing."""
    count = 0
    for number, line in enumerate(lines, 2):
        value = _decode(line, source, number)
        if isinstance(value, End):
            if value.records != count:
                raise TransferError(f"{source} has {count} records and should have {value.records}: export it again")
            if next(iter(lines), None) is not None:
                raise TransferError(
                    f"{source} goes on after its end, at line {number + 1}: import one export at a time"
                )
            return
        if isinstance(value, Header):
            raise TransferError(f"{source} has a second header, at line {number}: import one export at a time")
        count += 1
        yield value
    raise TransferError(f"{source} was cut off after {count} records: its end is missing. Export it again")


def _decode(line: bytes, source: str, number: int) -> Line:
    try:
        return _LINE.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise TransferError(f"line {number} of {source} is no record: {error}") from error


def in_batches(records: Iterable[Record]) -> Iterator[Sequence[Record]]:
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
