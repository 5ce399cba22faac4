"""The operation file: the seed's fields, defaults for what is missing, and the legal changes of state."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.models.operation import lifecycle
from holdfast.models.operation.data import (
    FrameState,
    LedgerData,
    MalformedError,
    OperationState,
    StackFrame,
    decode,
    encode,
    format_time,
    parse_time,
)
from holdfast.models.operation.ids import check_id, new_call_id, new_operation_id, operation_id_time
from holdfast.operation import InvalidIdError, OperationEndedError, OperationError

EXAMPLE = """{
  "operationId": "20260122T12:00:00.000-cli-a1b2c3d4",
  "initiatorId": "cli",
  "startTime": "2026-01-22T12:00:00Z",
  "operationState": "running",
  "lastHeartbeat": "2026-01-22T12:00:00Z",
  "detectionTimestamp": null,
  "removalTimestamp": null,
  "aborted": false,
  "stack": [
    {
      "callId": "call_cli_1_a1b2",
      "participantId": "cli",
      "pid": 12345,
      "startTime": "2026-01-22T12:00:00Z",
      "lastHeartbeat": "2026-01-22T12:00:00Z",
      "state": "active",
      "failOnCrash": true,
      "description": "Main task",
      "resources": []
    }
  ],
  "tempResources": []
}
"""
EXAMPLE_ID = "20260122T12:00:00.000-cli-a1b2c3d4"

times = st.integers(0, 4_000_000_000_000_000)
texts = st.text(max_size=20)
frames = st.builds(
    StackFrame,
    call_id=st.text(min_size=1, max_size=20),
    participant_id=texts,
    pid=st.integers(0, 2**22),
    start_us=times,
    last_heartbeat_us=times,
    state=st.sampled_from(FrameState),
    fail_on_crash=st.booleans(),
    description=st.none() | st.text(min_size=1, max_size=20),
    resources=st.lists(texts, max_size=3).map(tuple),
    extra=st.dictionaries(st.sampled_from(["host", "language"]), st.integers(0, 9)),
)
ledgers = st.builds(
    LedgerData,
    operation_id=st.just("op"),
    initiator_id=texts,
    start_us=times,
    last_heartbeat_us=times,
    state=st.sampled_from(OperationState),
    detection_us=times,
    removal_us=times,
    aborted=st.booleans(),
    stack=st.lists(frames, max_size=5, unique_by=lambda frame: frame.call_id).map(tuple),
    temp_resources=st.lists(texts, max_size=3).map(tuple),
    failure_reason=st.none() | st.text(min_size=1, max_size=20),
    crashed_call_ids=st.lists(texts, max_size=3).map(tuple),
    extra=st.dictionaries(st.sampled_from(["region", "build"]), texts),
)


def test_the_seeds_example_comes_out_as_written() -> None:
    """Operation File Structure, field for field."""
    assert encode(decode(EXAMPLE.encode(), EXAMPLE_ID)).decode() == EXAMPLE


@given(ledgers)
def test_data_survives_the_file_and_unknown_fields_are_kept(data: LedgerData) -> None:
    assert decode(encode(data), "op") == data


def test_missing_fields_get_the_seeds_defaults() -> None:
    data = decode(b'{"stack": [{"callId": "c"}], "startTime": "2026-01-22T12:00:00Z"}', "op")
    assert data.state is OperationState.RUNNING
    assert not data.aborted
    assert (data.detection_us, data.removal_us, data.temp_resources) == (None, None, ())
    assert data.last_heartbeat_us == data.start_us
    [frame] = data.stack
    assert frame.state is FrameState.ACTIVE
    assert frame.fail_on_crash
    assert (frame.resources, frame.description) == ((), None)
    assert frame.last_heartbeat_us == data.start_us
    assert decode(b"{}", "op").stack == ()


def test_a_phase_without_its_timestamp_is_dated_by_the_last_beat() -> None:
    data = decode(b'{"operationState": "failed", "lastHeartbeat": "2026-01-22T12:00:00Z"}', "op")
    assert data.detection_us == data.removal_us == data.last_heartbeat_us


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"stack": {}}', b'{"stack": [3]}', b'{"stack": [{}]}',
        b'{"operationState": "happy"}', b'{"startTime": "yesterday"}', b'{"aborted": "no"}',
        b'{"operationId": "other"}', b'{"stack": [{"callId": "c", "pid": true}]}',
        b'{"stack": [{"callId": "c"}, {"callId": "c"}]}', b'{"tempResources": [1]}',
    ],
)  # fmt: skip
def test_what_is_no_operation_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedError):
        decode(content, "op")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_malformed(content: bytes) -> None:
    try:
        decode(content, "op")
    except MalformedError:
        return


@given(times)
def test_times_survive_to_the_microsecond(us: int) -> None:
    assert parse_time(format_time(us)) == us


@pytest.mark.parametrize("text", ["2026-01-22T12:00:00.000Z", "2026-01-22T13:00:00+01:00", "2026-01-22T12:00:00"])
def test_times_of_other_languages_are_understood(text: str) -> None:
    assert parse_time(text) == parse_time("2026-01-22T12:00:00Z")


def test_ids_have_the_seeds_format() -> None:
    """Operation ID Format."""
    operation_id = new_operation_id(parse_time("2026-01-22T14:30:45.123Z"), "cli", Random(1))
    assert operation_id.startswith("20260122T14:30:45.123-cli-")
    assert len(operation_id.rsplit("-", 1)[1]) == 8
    moment = operation_id_time(operation_id)
    assert moment is not None
    assert moment.isoformat() == "2026-01-22T14:30:45.123000+00:00"
    assert operation_id_time("nightly") is None
    assert new_call_id("cli", 1, Random(1)).startswith("call_cli_1_")


@pytest.mark.parametrize(
    "given_id",
    ["", ".", "..", "a/b", "../x", "a..b", "/etc", "a\\b", "a b", "a\n", "a\x00", "é", ".hidden", "x" * 201],
)
def test_ids_that_could_leave_the_folder_are_refused(given_id: str) -> None:
    """Ruling C3."""
    with pytest.raises(InvalidIdError):
        check_id("operation id", given_id)


# --- legal changes --------------------------------------------------------------------------------------

MARKER = StackFrame("marker", "me", 1, 0, 0)


@given(ledgers, st.sets(st.sampled_from(["a", "b"])), times)
def test_no_change_takes_an_operation_or_frame_where_the_tables_forbid(
    data: LedgerData, own: set[str], now_us: int
) -> None:
    """The tables of next states hold for every change from every state (Phases 1 to 4)."""
    own |= {frame.call_id for frame in data.stack[::2]}
    changes: list[Callable[[], LedgerData]] = [
        lambda: lifecycle.touch(data, own, now_us),
        lambda: lifecycle.mark_crashed(data, own),
        lambda: lifecycle.enter_cleanup(data, own, MARKER, now_us, "why"),
        lambda: lifecycle.coordinate(data, own, MARKER),
        lambda: lifecycle.mark_cleaned_up(data, own),
        lambda: lifecycle.remove_frames(data, now_us),
        lambda: lifecycle.complete(data, now_us),
        lambda: lifecycle.push_frame(data, MARKER),
    ]
    for change in changes:
        try:
            after = change()
        except OperationError:
            continue
        assert after.state is data.state or after.state in lifecycle.NEXT_STATES[data.state]
        for frame in after.stack:
            before = data.frame(frame.call_id)
            if before is not None and before.state is not frame.state:
                assert frame.state in lifecycle.NEXT_FRAME_STATES[before.state]


@given(ledgers, times)
def test_a_heartbeat_never_revives_a_crashed_frame(data: LedgerData, now_us: int) -> None:
    own = {frame.call_id for frame in data.stack}
    for before, after in zip(data.stack, lifecycle.touch(data, own, now_us).stack, strict=True):
        beats = before.state in lifecycle.BEATING
        assert after == (replace(before, last_heartbeat_us=now_us) if beats else before)


@given(ledgers, times)
def test_removing_frames_leaves_none_and_names_every_crashed_call(data: LedgerData, now_us: int) -> None:
    """Phase 3."""
    if data.state is not OperationState.CLEANUP:
        with pytest.raises(OperationEndedError):
            lifecycle.remove_frames(data, now_us)
        return
    after = lifecycle.remove_frames(data, now_us)
    assert (after.stack, after.temp_resources, after.removal_us) == ((), (), now_us)
    crashed = {frame.call_id for frame in data.stack if frame.state is FrameState.CRASHED}
    assert crashed <= set(after.crashed_call_ids)


def test_fields_are_the_seeds_camel_case() -> None:
    """So that other languages can join."""
    document = json.loads(encode(decode(EXAMPLE.encode(), EXAMPLE_ID)))
    assert list(document) == list(json.loads(EXAMPLE))
    assert list(document["stack"][0]) == list(json.loads(EXAMPLE)["stack"][0])
