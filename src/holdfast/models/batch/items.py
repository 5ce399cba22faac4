"""Items as people read them: their outcome, value, error and attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from holdfast.core.codec import Codec, codec_for
from holdfast.core.error_record import record_error, type_name
from holdfast.core.errors import PayloadError
from holdfast.core.sequence import FailClass, State
from holdfast.models.batch.packing import attempts_at, state_at
from holdfast.store.batches import ChunkView

R = TypeVar("R", covariant=True)

MESSAGE_MAX_CHARS: Final = 500
Outcome = Literal["success", "skip", "fail", "cancel"]

_OUTCOMES: Final[dict[State, Outcome]] = {
    State.TERMINAL_SUCCESS: "success",
    State.TERMINAL_SKIP: "skip",
    State.TERMINAL_FAIL: "fail",
    State.TERMINAL_CANCEL: "cancel",
}


class Note(Struct, frozen=True, omit_defaults=True):
    """Why an item failed or was skipped, as its chunk keeps it."""

    message: str = ""
    type: str = ""  # of the exception; empty: it was skipped


class BatchItem(Struct, Generic[R], frozen=True):
    """A terminal item. `value` is there with `results=True`, and in a sink; `input` of failed items alone."""

    seq: int
    outcome: Outcome
    value: R | None = None
    error: str | None = None  # of a failed one: type and message
    reason: str | None = None  # of a skipped one
    attempts: int = 1
    fail_class: str | None = None  # permanent, retryable, lease_expired, timeout
    input: Any = None


_NULL: Final = Raw(b"null")
_notes = msgspec.json.Decoder(dict[str, Note]).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_inputs = msgspec.json.Decoder(dict[str, Raw]).decode


class Unreadable:
    """Stands for an input that does not fit today's annotation."""

    def __init__(self, error: PayloadError) -> None:
        self.error = error


def read_input(codec: Codec[Any], raw: Raw) -> Any:
    try:
        return codec.decode(bytes(raw))
    except PayloadError as error:
        return Unreadable(error)


def note_error(error: BaseException) -> Note:
    text = text_of(error)
    if isinstance(error, BaseExceptionGroup):  # its own message only counts what it holds
        text = text_of(f"{text}: {'; '.join(record_error(error).causes)}")
    return Note(text, type_name(type(error)))


def text_of(value: object) -> str:
    """As a message that can be written down, whatever user code made of it."""
    try:
        text = str(value)
    except Exception:  # its own method is user code
        text = "(it has no message that can be read)"
    return text[:MESSAGE_MAX_CHARS].encode("utf-8", "replace").decode()


def read_notes(text: str | None) -> dict[int, Note]:
    return {} if text is None else {int(place): note for place, note in _notes(text).items()}


def write_notes(notes: dict[int, Note]) -> str | None:
    return msgspec.json.encode({str(place): note for place, note in notes.items()}).decode() if notes else None


def read_results(text: str | None, count: int) -> list[Raw | None]:
    return [None] * count if text is None else list(_raws(text))


def write_results(results: list[Raw | None]) -> str | None:
    return msgspec.json.encode(results).decode() if any(result is not None for result in results) else None


def keep_inputs(inputs: str | None, states: bytes) -> str | None:
    """Of a chunk that has ended, the inputs of its failed items: for those who look, and for another run."""
    failed = [place for place, byte in enumerate(states) if byte & 0x0F == State.TERMINAL_FAIL]
    if not failed or inputs is None:
        return None
    raws = _raws(inputs)
    return msgspec.json.encode({str(place): raws[place] for place in failed}).decode()


def has_all_inputs(chunk: ChunkView) -> bool:
    """Until the mark that says that a chunk is done with: it leaves those of failed items alone, as an object."""
    return chunk.inputs is not None and chunk.inputs.startswith("[")


def kept_inputs(chunk: ChunkView) -> dict[int, Raw]:
    """The inputs of the failed items of a chunk, whether or not the others are still there."""
    if chunk.inputs is None or not chunk.failed:
        return {}
    if has_all_inputs(chunk):
        raws, states = _raws(chunk.inputs), chunk.states or b""
        return {place: raws[place] for place, byte in enumerate(states) if byte & 0x0F == State.TERMINAL_FAIL}
    return {int(place): raw for place, raw in _inputs(chunk.inputs).items()}


def items_of(chunk: ChunkView, start: int, stop: int, result: object = Any) -> Iterator[BatchItem[Any]]:
    """The terminal items of [start, stop) that this chunk holds, in seq order."""
    if chunk.first >= stop:
        return  # it was read along with others, and may not even be dispatched
    assert chunk.states is not None, "a chunk is read with its states, and has them once it was dispatched"
    notes = read_notes(chunk.notes)
    results = read_results(chunk.results, chunk.count) if chunk.results is not None else None
    inputs = kept_inputs(chunk)
    decode = codec_for(result).decode
    for seq in range(max(start, chunk.first), min(stop, chunk.stop)):
        place = seq - chunk.first
        state, fail_class = state_at(chunk.states, place)
        outcome = _OUTCOMES.get(state)
        if outcome is None:
            continue
        note = notes.get(place)
        raw = results[place] if results is not None else None
        yield BatchItem(
            seq=seq,
            outcome=outcome,
            value=None if raw is None or outcome != "success" or raw == _NULL else decode(bytes(raw)),
            error=None if note is None or outcome != "fail" else f"{note.type}: {note.message}",
            reason=None if note is None or outcome != "skip" else note.message,
            attempts=attempts_at(chunk.attempts, place) + 1,
            fail_class=FailClass(fail_class).name.lower() if outcome == "fail" and fail_class else None,
            input=None if place not in inputs else codec_for(Any).decode(bytes(inputs[place])),
        )
