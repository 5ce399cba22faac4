"""What a run's row says of its source, and how its items are cut into chunks."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Raw

CHUNK_ITEMS: Final = 1_000
CHUNK_BYTES: Final = 512 * 1024
CHUNK_FIRST: Final = 8
WINDOW_ITEMS: Final = 100_000
WINDOW_BYTES: Final = 64 * 1024 * 1024
JSON_SUFFIXES: Final = (".jsonl", ".ndjson")  # of files whose lines are JSON

Source = Literal["items", "feed", "file", "failed"]


class BatchSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a run's row.

    - `items`: all of them are here (a start by name, a call in a workflow)
    - `feed`: whoever started it sends them
    - `file`: the workers read a file of lines, or of JSON lines
    - `failed`: the failed items of another run (ruling D11)
    """

    source: Source = "items"
    items: Raw = Raw(b"[]")
    path: str = ""
    is_json: bool = False
    run: str = ""  # its whole id


_decode = msgspec.json.Decoder(BatchSpec).decode


def read_spec(state: str) -> BatchSpec:
    return _decode(state)


def write_spec(spec: BatchSpec) -> str:
    return msgspec.json.encode(spec).decode()


def chunk_items(first: int, most: int) -> int:
    """How many items the chunk that begins at `first` has: small ones first, so that a short run is shared too."""
    return min(most, max(CHUNK_FIRST, first // 8))
