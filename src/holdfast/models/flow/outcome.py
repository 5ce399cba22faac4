"""What an activity answered, as its GUID's record keeps it: decided once, followed at every delivery."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Raw

from holdfast.core.codec import encode_error
from holdfast.models.flow.activity import NodeKind
from holdfast.models.flow.graph import Graph, Node


class Outcome(NamedTuple):
    """A value or an error as JSON, and which of the edges with a condition are taken.

    Neither: its obligation is closed without its work, for the job is cancelled.
    """

    value: str | None = None
    error: str | None = None  # an ErrorRecord
    taken: tuple[str, ...] = ()  # names of targets, or keys of back edges

    @property
    def is_unhandled(self) -> bool:
        return self.error is not None and not self.taken

    def encode(self) -> str:
        taken = f',"taken":{msgspec.json.encode(self.taken).decode()}' if self.taken else ""
        if self.error is not None:
            return f'{{"error":{self.error}{taken}}}'
        return "{}" if self.value is None else f'{{"value":{self.value}{taken}}}'


class _Stored(msgspec.Struct):
    value: Raw = Raw(b"")
    error: Raw = Raw(b"")
    taken: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(_Stored).decode

ABANDONED = Outcome()


def read_outcome(text: str) -> Outcome:
    stored = _decode(text)
    return Outcome(bytes(stored.value).decode() or None, bytes(stored.error).decode() or None, stored.taken)


def succeeded(graph: Graph, node: Node, value: str) -> Outcome:
    """The conditions are asked here, once: a later delivery, or newer code, follows the same edges."""
    conditions = graph.conditions(node)
    if not conditions:
        return Outcome(value)
    read = node.result_codec.decode(value)
    return Outcome(value, None, tuple(key for key, when in conditions if when(read)))


def failed(graph: Graph, node: Node, error: BaseException, *, kind: str = "user") -> Outcome:
    """Every error edge that takes this kind of error is taken."""
    taken = tuple(
        target.name
        for target in graph.targets(node)
        if target.kind is NodeKind.ERROR and isinstance(error, target.catches)
    )
    return Outcome(None, encode_error(error, kind=kind), taken)
