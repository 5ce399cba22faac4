"""How events are written: one segment of JSON per commit.

`Segment` holds the events of one commit and the answers that `patched(id)` gave in it (ruling B18), if there were any.
The segment and each event carry the format version (ruling B14). Version 1 is the first; when there is a second, the
reading of the first stays here, and stored examples of every version are tests. Ids are local to the journal, and
fields that have their defaults are left out (`events`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from holdfast.core.errors import JournalFormatError
from holdfast.core.journal.events import FORMAT_VERSION, Event, version


class Segment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one commit adds to a journal."""

    v: Literal[1] = field(default_factory=version)
    patches: dict[str, bool] = {}
    events: list[Event]


class _VersionedEvent(Struct):
    v: int = FORMAT_VERSION


class _AnySegment(Struct):
    """Just enough of a segment of any version to tell which one it is."""

    v: int = FORMAT_VERSION
    events: list[_VersionedEvent] = []


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Segment)
_probe: Final = msgspec.json.Decoder(_AnySegment)
SEGMENT_HEAD: Final = f'{{"v":{FORMAT_VERSION},"events":['
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_segment(segment: Segment) -> bytes:
    """The JSON text of a segment, in one call."""
    return _encoder.encode(segment)


def join_segment(patches: dict[str, bool], events: Sequence[Event | str]) -> str:
    """The same text as `encode_segment` gives, of events some of which are written already."""
    if not patches:
        try:
            return f"{SEGMENT_HEAD}{','.join(events)}]}}"  # type: ignore[arg-type]  # nearly always all of them are text
        except TypeError:
            pass
    written = [event if type(event) is str else _encoder.encode(event).decode() for event in events]
    noted = f'"patches":{_encoder.encode(patches).decode()},' if patches else ""
    return f'{{"v":{FORMAT_VERSION},{noted}"events":[{",".join(written)}]}}'


def decode_segment(text: bytes | str) -> Segment:
    """The segment that this JSON text holds."""
    try:
        return _decoder.decode(text)
    except _UNREADABLE as error:
        newest = _newest_version(text)
        if newest > FORMAT_VERSION:
            raise JournalFormatError(
                f"a journal segment has format version {newest}, this Holdfast reads up to {FORMAT_VERSION}: "
                "run the version that wrote it, or a newer one"
            ) from error
        raise JournalFormatError(
            f"a journal segment cannot be read: {error}. It was altered or cut off; restore it from a backup"
        ) from error


def _newest_version(text: bytes | str) -> int:
    try:
        probe = _probe.decode(text)
    except _UNREADABLE:
        return 0
    return max(probe.v, *(event.v for event in probe.events), 0)
