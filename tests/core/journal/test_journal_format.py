"""How events are written: readable JSON, in a version, one segment per commit (B14)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import Raw

from holdfast.core.errors import JournalFormatError
from holdfast.core.journal import Journal, Segment, decode_segment, encode_segment, validate_segments
from holdfast.core.journal import events as e
from tests.core.journal.examples import EXAMPLES
from tests.core.journal.script import NOW, ROOT, Script

DATA = Path(__file__).parent / "data"
STORED = sorted(DATA.glob("v*_*.json"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_journals_of_every_released_version_stay_readable_and_sound(path: Path) -> None:
    """B14: these files are never changed; a new version adds files."""
    segment = decode_segment(path.read_bytes())
    assert validate_segments(ROOT, [segment]) == []
    _, _, name = path.stem.partition("_")
    assert segment.events == [event for event, _ in EXAMPLES[name]]


@pytest.mark.parametrize("name", EXAMPLES)
def test_today_writes_what_is_stored_for_this_version(name: str) -> None:
    """B14: a change of the format that forgets the version fails here."""
    segment = Segment(events=[event for event, _ in EXAMPLES[name]])
    assert encode_segment(segment) == (DATA / f"v1_{name}.json").read_bytes().rstrip(b"\n")


def test_an_event_reads_well() -> None:
    script = Script().start().schedule(0).begin(0).retry(0).timer(1)
    lines = json.loads(encode_segment(Segment(events=script.events)))["events"]
    assert lines[1] == {
        "event": "InvokeScheduled",
        "sequence": 1,
        "timestamp": "2026-01-01T12:00:00.250000Z",
        "promise_id": ".0",
        "kind": "Function",
        "function_name": "task",
        "input": [1],
        "fingerprint": "f1",
        "v": 1,
    }
    assert lines[3]["error"] == {
        "kind": "user",
        "type": "ValueError",
        "message": "boom",
        "fields": {"code": 7},
        "traceback": None,
    }
    assert (lines[3]["retry_at"], lines[4]["duration"]) == ("2026-01-01T13:00:00.250000Z", "PT3600S")


def test_what_says_nothing_is_not_written() -> None:
    script = Script().start().timer(0).wait(0).fire(0).resume().time(1).finish()
    segment = Segment(events=script.events)
    text = encode_segment(segment).decode()
    left_out = ("patches", "signals", "parent_id", "idempotency_key", "version", "retry_policy", "fingerprint")
    assert [name for name in left_out if f'"{name}"' in text.replace('"fingerprint":"PT1H"', "")] == []
    assert decode_segment(text) == segment
    told = Segment(events=[e.ExecutionStarted(0, NOW, "d", Raw(b"1"), "root", "key", 2)], patches={"a": True})
    assert [name for name in left_out[2:5] if f'"{name}"' not in encode_segment(told).decode()] == []
    assert encode_segment(told).startswith(b'{"v":1,"patches":{"a":true},"events":[')


def test_every_event_carries_the_format_version() -> None:
    """B14."""
    document = json.loads((DATA / "v1_full.json").read_bytes())
    assert {document["v"], *(event["v"] for event in document["events"])} == {1}


def test_segments_add_up_to_the_journal_they_were_taken_from() -> None:
    script = Script().start().join_set(0).schedule(1).submit(0, 1).begin(1).complete(1).take(0, 1).finish()
    journal = Journal(ROOT)
    stored: list[str] = []
    for event in script.events:
        journal.append(event)
        if event.sequence % 3 == 0:
            journal.record_patch(f"patch-{event.sequence}", event.sequence == 3)
            stored.append(journal.take_segment())
    stored.append(journal.take_segment())
    assert (journal.pending, journal.pending_patches) == ([], {})
    segments = [decode_segment(text) for text in stored]
    assert [event for segment in segments for event in segment.events] == script.events
    loaded = Journal.load(ROOT, segments)
    assert (loaded.length, loaded.state, loaded.patches) == (journal.length, journal.state, journal.patches)
    assert loaded.patches == {"patch-0": False, "patch-3": True, "patch-6": False}
    assert loaded.pending == []


@pytest.mark.parametrize(
    "text",
    [
        b'{"v":2,"events":[]}',
        b'{"v":1,"events":[{"event":"ExecutionResumed","sequence":1,"timestamp":"2026-01-01T00:00:00Z","v":2}]}',
        b'{"v":1,"events":[{"event":"ExecutionMoved","sequence":1,"v":2}]}',
    ],
)
def test_a_newer_format_is_named_as_such(text: bytes) -> None:
    """B14: never read as something it is not."""
    with pytest.raises(JournalFormatError, match="format version 2, this Holdfast reads up to 1"):
        decode_segment(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b'{"v":1,"events":[',
        b'{"v":1}',
        b'{"v":0,"events":[]}',
        b'{"v":1,"patches":{"a":1},"events":[]}',
        b'{"v":1,"events":[{"event":"ExecutionMoved","sequence":1,"v":1}]}',
        b'{"v":1,"events":[{"event":"ExecutionResumed","sequence":1,"timestamp":"2026-01-01T00:00:00","v":1}]}',
        b'{"v":1,"events":[{"event":"ExecutionResumed","sequence":"1","timestamp":"2026-01-01T00:00:00Z","v":1}]}',
        b'{"v":1,"events":[{"event":"CancelRequested","sequence":1,"timestamp":"2026-01-01T00:00:00Z","reason":"\xff","v":1}]}',
        b'{"v":1,"events":[{"event":"ExecutionCompleted","sequence":1,"timestamp":"2026-01-01T00:00:00Z","result":'
        + b"[" * 100_000,
    ],
)
def test_a_damaged_segment_is_an_error_that_says_so(text: bytes) -> None:
    with pytest.raises(JournalFormatError, match="cannot be read"):
        decode_segment(text)
