"""Ids of operations, participants and calls: made from given time and randomness, checked against ruling C3."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from random import Random

from holdfast.core.clock import to_datetime

from .errors import InvalidIdError

ID_MAX_LENGTH = 200  # leaves room for the longest suffix within a file name of 255 bytes
_ALLOWED = re.compile(r"[A-Za-z0-9_.:-]+")
_TIMESTAMP = re.compile(r"(\d{8}T\d{2}:\d{2}:\d{2}\.\d{3})-")


def check_id(kind: str, value: str) -> str:
    """Return `value` if it is a sound id, which can name a file without leaving its folder (ruling C3)."""
    if (
        not _ALLOWED.fullmatch(value)
        or ".." in value
        or value.startswith(".")  # "." alone would name the backup folder itself
        or len(value) > ID_MAX_LENGTH
    ):
        raise InvalidIdError(
            f"{kind} {value[:80]!r} is not a valid id: use 1 to {ID_MAX_LENGTH} of A-Z a-z 0-9 _ . : - "
            "without '..' and not starting with '.'"
        )
    return value


def new_operation_id(now_us: int, participant_id: str, rng: Random) -> str:
    return operation_id_of(to_datetime(now_us), participant_id, rng.getrandbits(32))


def operation_id_of(moment: datetime, participant_id: str, chance: int) -> str:
    """`YYYYMMDDTHH:MM:SS.sss-{participantId}-{random}` (seed: Operation ID Format)."""
    stamp = f"{moment:%Y%m%dT%H:%M:%S}.{moment.microsecond // 1000:03d}"
    return check_id("operation id", f"{stamp}-{participant_id}-{chance:08x}")


def new_call_id(participant_id: str, number: int, rng: Random) -> str:
    """Ledger-managed, unique beside every other handle of the same participant id."""
    return f"call_{participant_id}_{number}_{rng.getrandbits(32):08x}"


def operation_id_time(operation_id: str) -> datetime | None:
    """The moment in an operation id, or None for an id that a user chose."""
    match = _TIMESTAMP.match(operation_id)
    if match is None:
        return None
    try:
        return datetime.strptime(match.group(1), "%Y%m%dT%H:%M:%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None
