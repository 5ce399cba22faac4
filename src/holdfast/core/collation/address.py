"""Where in a job a message belongs: dimensions of cycles, and GUIDs that follow from what they answer.

- `Dimension`: which iteration of which cycle something descends from (section 15).
- `leg1_guid`, `response_guid`: the same message has the same GUID, however often it is made.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NewType

from msgspec import Struct

from holdfast.core.errors import InvalidArgumentError, LedgerError

Guid = NewType("Guid", bytes)

GUID_BYTES = 16
_BEGUN: Final = hashlib.blake2b(digest_size=GUID_BYTES, person=b"holdfast-guid")  # a copy costs half of a new one
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*", re.ASCII)
_ENTRY = re.compile(rf"({_NAME.pattern})=(0|[1-9][0-9]*)", re.ASCII)


class Dimension(Struct, frozen=True, order=True, gc=False):
    """A path of (activity, dimensional index), outermost cycle first; empty outside all cycles.

    Only activities that can be entered more than once add an entry. So two branches of one iteration share
    their dimension however long they are, and a join finds both; different iterations never meet.
    """

    path: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return ",".join([f"{activity}={index}" for activity, index in self.path]) if self.path else ""

    @classmethod
    def parse(cls, text: str) -> Dimension:
        """The inverse of `str`, for example of `fetch=2,page=0`."""
        dimension = _OUTSIDE
        for entry in text.split(",") if text else ():
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise LedgerError(f"{text!r} is no dimension: 'activity=index' is expected, not {entry!r}")
            dimension = dimension.descend(match[1], int(match[2]))
        return dimension

    def descend(self, activity: str, index: int) -> Dimension:
        """The dimension of what `activity`'s entry of this index spawns."""
        if _NAME.fullmatch(activity) is None or index < 0:
            raise InvalidArgumentError(f"{activity!r} with index {index} cannot be part of a dimension")
        if self.index_of(activity) is not None:
            raise LedgerError(
                f"dimension {self} is already inside {activity!r}; use outside({activity!r}) for a back edge"
            )
        return Dimension((*self.path, (activity, index)))

    def outside(self, activity: str) -> Dimension:
        """`activity`'s own dimension, seen from inside its cycle: where a back edge leads (ruling A9)."""
        for position, (name, _) in enumerate(self.path):
            if name == activity:
                return Dimension(self.path[:position])
        return self

    def index_of(self, activity: str) -> int | None:
        """Which iteration of `activity` this lies in; None outside its cycle."""
        return next((index for name, index in self.path if name == activity), None)

    def contains(self, other: Dimension) -> bool:
        """Whether `other` is this dimension or descends from it."""
        return other.path[: len(self.path)] == self.path


_OUTSIDE: Final = Dimension()


def leg1_guid(job: bytes, activity: str, dimension: Dimension) -> Guid:
    """The GUID of an activity instance's only Leg1 message."""
    return _guid(b"leg1", job, activity.encode(), str(dimension).encode())


def response_guid(job: bytes, activity: str, dimension: Dimension, iteration: int) -> Guid:
    """The GUID under which the answer to one work request enters Leg2 (ruling A9).

    `iteration` numbers the instance's work requests: 0 is Leg1's, each back edge takes the next number in
    its own Step 2, so that two back edges of one iteration do not share a GUID.
    """
    if iteration < 0:
        raise InvalidArgumentError(f"iteration {iteration} of activity {activity!r} is negative")
    return _guid(b"leg2", job, activity.encode(), str(dimension).encode(), b"%d" % iteration)


def _guid(*parts: bytes) -> Guid:
    # The length goes first, or ("ab", "c") and ("a", "bc") would be one message.
    hashed = _BEGUN.copy()
    hashed.update(b"".join([len(part).to_bytes(8, "big") + part for part in parts]))
    return Guid(hashed.digest())
