"""The states of a chunk's items as the store keeps them: a byte each, and attempts only where there were any.

In the store an item of a dispatched chunk is DISPATCHED; to the worker's ledger it is UNSEEN until an owner takes it.
The two say the same (ruling D3: a dispatched item that nobody holds goes to an owner as it is), and whole stretches of
UNSEEN items are handed out in bulk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.core.errors import LedgerError
from holdfast.core.sequence import Segment, State
from holdfast.core.sequence.states import CANCEL, DISPATCHED, FAIL, SUCCESS, TERMINALS, UNSEEN

_UNSEEN_BYTE: Final = bytes((UNSEEN,))
_DISPATCHED_BYTE: Final = bytes((DISPATCHED,))
_STATE_BITS, _CLASS_BITS = 0x0F, 0xF0


def _state_of(byte: int) -> int:
    return UNSEEN if byte == DISPATCHED else byte & _STATE_BITS


def _outcome_of(byte: int) -> int:
    if byte & _STATE_BITS in TERMINALS:
        return byte
    return FAIL | byte & _CLASS_BITS if byte & _CLASS_BITS else 0


_STATES: Final = bytes(map(_state_of, range(256)))
_OUTCOMES: Final = bytes(map(_outcome_of, range(256)))
_LEGAL: Final = bytes(
    byte for byte in range(256) if DISPATCHED <= byte & _STATE_BITS <= CANCEL and byte >> 4 <= 4
)  # what a dispatched chunk may hold
_ready = msgspec.json.Decoder(dict[str, int]).decode


def pack(segment: Segment) -> tuple[bytes, bytes | None]:
    """States and attempts as the store keeps them."""
    size = len(segment.states)
    classes = int.from_bytes(segment.outcomes, "little") & int.from_bytes(bytes((_CLASS_BITS,)) * size, "little")
    states = segment.states.replace(_UNSEEN_BYTE, _DISPATCHED_BYTE)
    packed = (int.from_bytes(states, "little") | classes).to_bytes(size, "little")
    return packed, segment.attempts if any(segment.attempts) else None


def unpack(first: int, states: bytes, attempts: bytes | None) -> Segment:
    """A stored chunk as a segment for the ledger; `LedgerError` where it holds what no history can produce."""
    if strange := states.translate(None, _LEGAL):
        raise LedgerError(
            f"seq {first + states.index(strange[0])} is stored as {strange[0]:#04x}, which is no state of a dispatched "
            f"item; the chunk from seq {first} on is corrupt"
        )
    if attempts is not None and len(attempts) != 2 * len(states):
        raise LedgerError(f"the chunk from seq {first} on has {len(states)} items and {len(attempts) // 2} attempts")
    return Segment(first, states.translate(_STATES), states.translate(_OUTCOMES), attempts or bytes(2 * len(states)))


def write_ready(first: int, waiting: Mapping[int, int]) -> str | None:
    """When the items that wait for a retry may be tried, as a chunk keeps it: only of those few, by place."""
    if not waiting:
        return None
    return msgspec.json.encode({str(seq - first): waiting[seq] for seq in sorted(waiting)}).decode()


def read_ready(first: int, text: str | None) -> dict[int, int]:
    """The same, by seq."""
    if text is None:
        return {}
    try:
        return {first + int(place): ready_ms for place, ready_ms in _ready(text).items()}
    except ValueError as error:  # msgspec's too
        raise LedgerError(f"the chunk from seq {first} on has times of retries that cannot be read: {error}") from error


def state_at(states: bytes | None, place: int) -> tuple[State, int]:
    """An item's state and the class of its last failure, as stored."""
    if states is None:
        return State.UNSEEN, 0
    return State(states[place] & _STATE_BITS), states[place] >> 4


def attempts_at(attempts: bytes | None, place: int) -> int:
    return 0 if attempts is None else int.from_bytes(attempts[2 * place : 2 * place + 2], "little")


def cancelled(count: int) -> bytes:
    """A chunk that never was dispatched, cancelled as a whole (ruling D4)."""
    return bytes((CANCEL,)) * count


def count_states(states: bytes) -> dict[State, int]:
    """How many items are in each state, by a scan: for audits."""
    plain = states.translate(bytes(byte & _STATE_BITS for byte in range(256)))
    return {state: plain.count(state) for state in State}


def prefix_of(states: bytes) -> int:
    """So many items from the front are terminal."""
    for place, byte in enumerate(states):
        if not SUCCESS <= byte & _STATE_BITS <= CANCEL:
            return place
    return len(states)


def runs_of(places: list[int]) -> list[tuple[int, int]]:
    """Places as stretches [start, stop), in order."""
    if not places:
        return []
    places.sort()
    if places[-1] - places[0] == len(places) - 1 and len(set(places)) == len(places):
        return [(places[0], places[-1] + 1)]
    found: list[tuple[int, int]] = []
    start = before = places[0]
    for place in places[1:]:
        if place != before + 1:
            found.append((start, before + 1))
            start = place
        before = place
    found.append((start, before + 1))
    return found
