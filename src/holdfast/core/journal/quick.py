"""The events of a run that just calls, sleeps and awaits, written as text.

Nearly all events of most journals are these: ExecutionStarted; of each call InvokeScheduled, InvokeStarted,
InvokeCompleted with a value, ExecutionAwaiting, ExecutionResumed; of each sleep TimerScheduled and TimerFired with the
latter two; ExecutionCompleted. To make an object of each, check
it in general and encode it was most of what a step of a workflow cost.

Each function does what `Journal.append` does with the event of its name, where a look at the journal tells that every
check of that event passes: its condition says so in one line. Otherwise it makes the event and appends it, so that the
checks in `calls` and `control` alone decide what is refused. A property test holds the two ways against each other: the
same text, the same memory, the same refusals.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Raw

from holdfast.core.journal.book import CALL, ENDED, TIMER, Call, Waiting
from holdfast.core.journal.events import (
    NULL,
    ExecutionAwaiting,
    ExecutionCompleted,
    ExecutionResumed,
    ExecutionStarted,
    InvokeCompleted,
    InvokeKind,
    InvokeScheduled,
    InvokeStarted,
    Ok,
    TimerFired,
    TimerScheduled,
)
from holdfast.core.journal.fold import JournalStatus
from holdfast.core.journal.format import SEGMENT_HEAD
from holdfast.core.journal.journal import Journal
from holdfast.core.journal.stamp import Stamp

_RUNNING: Final = JournalStatus.RUNNING
_BLOCKED: Final = JournalStatus.BLOCKED
_COMPLETED: Final = JournalStatus.COMPLETED
_encode: Final = msgspec.json.Encoder().encode

_NUMBERS_MOST: Final = 4_096
_NUMBERS: Final = tuple(map(str, range(_NUMBERS_MOST + 5)))  # most journals are shorter than that


class CallText:
    """What every InvokeScheduled of one callee says alike, before and after its input."""

    __slots__ = ("function_name", "head", "kind", "retry_policy", "tail")

    def __init__(self, kind: InvokeKind, function_name: str, retry_policy: Raw) -> None:
        self.kind = kind
        self.function_name = function_name
        self.retry_policy = retry_policy
        name = _encode(function_name).decode()
        self.head = f'","kind":"{kind}","function_name":{name},"input":'
        policy = "" if retry_policy is NULL else f',"retry_policy":{bytes(retry_policy).decode()}'
        self.tail = f'"{policy},"v":1}}'


def begin(
    journal: Journal,
    stamp: Stamp,
    digest: str,
    text: str,
    parent: str | None,
    key: str | None,
    version: int,
    attributes: str | None = None,
) -> None:
    """ExecutionStarted."""
    if journal.status is not None or journal.is_open or journal.length:
        journal.append(
            ExecutionStarted(
                sequence=journal.length,
                timestamp=stamp.moment,
                component_digest=digest,
                input=Raw(text.encode()),
                parent_id=parent,
                idempotency_key=key,
                version=version,
                attributes=NULL if attributes is None else Raw(attributes.encode()),
            )
        )
        return
    journal.status = _RUNNING
    journal.is_open = True
    journal.length = 1
    rest = "" if version == 1 else f',"version":{version}'
    if attributes is not None:
        rest = f'{rest},"attributes":{attributes}'
    if key is not None:
        rest = f',"idempotency_key":{_encode(key).decode()}{rest}'
    if parent is not None:
        rest = f',"parent_id":{_encode(parent).decode()}{rest}'
    journal.pending.append(
        f'{{"event":"ExecutionStarted","sequence":0,"timestamp":"{stamp.text}",'
        f'"component_digest":{_encode(digest).decode()},"input":{text}{rest},"v":1}}'
    )


def schedule(journal: Journal, stamp: Stamp, callee: CallText, text: str, fingerprint: str) -> str:
    """InvokeScheduled of the next child; its id."""
    number, length = journal.next_child, journal.length
    promise_id = f".{number}"
    if journal.status is not _RUNNING:
        event = InvokeScheduled(
            sequence=length,
            timestamp=stamp.moment,
            promise_id=promise_id,
            kind=callee.kind,
            function_name=callee.function_name,
            input=Raw(text.encode()),
            fingerprint=fingerprint,
            retry_policy=callee.retry_policy,
        )
        journal.append(event)
        return promise_id
    journal.next_child = number + 1
    journal.flags.append(CALL)
    journal.words.append(0)
    journal.calls[promise_id] = Call(number)
    journal.length = length + 1
    journal.pending.append(
        f'{{"event":"InvokeScheduled","sequence":{length},"timestamp":"{stamp.text}","promise_id":"{promise_id}'
        f'{callee.head}{text},"fingerprint":"{fingerprint}{callee.tail}'
    )
    return promise_id


def start(journal: Journal, stamp: Stamp, promise_id: str, attempt: int) -> None:
    """InvokeStarted."""
    call, length = journal.calls.get(promise_id), journal.length
    if call is None or attempt != call.attempt + 1 or not journal.is_open:
        journal.append(InvokeStarted(sequence=length, timestamp=stamp.moment, promise_id=promise_id, attempt=attempt))
        return
    call.attempt = attempt
    call.running = True
    journal.length = length + 1
    journal.pending.append(
        f'{{"event":"InvokeStarted","sequence":{length},"timestamp":"{stamp.text}","promise_id":"{promise_id}",'
        f'"attempt":{attempt},"v":1}}'
    )


def complete(journal: Journal, stamp: Stamp, promise_id: str, attempt: int, value: bytes) -> None:
    """InvokeCompleted with a value."""
    call, length = journal.calls.get(promise_id), journal.length
    if call is None or not attempt or attempt != call.attempt or not journal.is_open:
        result = Ok(Raw(value))
        journal.append(
            InvokeCompleted(
                sequence=length, timestamp=stamp.moment, promise_id=promise_id, result=result, attempt=attempt
            )
        )
        return
    number = call.number
    journal.words[number] = hash(value)
    if journal.flags[number] == CALL:
        journal.flags[number] = ENDED
        journal.outstanding.discard(promise_id)
    else:
        journal.settle(promise_id, number)  # a member of a join set: there is one more to take
    del journal.calls[promise_id]
    journal.length = length + 1
    journal.pending.append(
        f'{{"event":"InvokeCompleted","sequence":{length},"timestamp":"{stamp.text}","promise_id":"{promise_id}",'
        f'"result":{{"outcome":"ok","value":{value.decode()}}},"attempt":{attempt},"v":1}}'
    )


def wait(journal: Journal, stamp: Stamp, waiting: Waiting) -> None:
    """ExecutionAwaiting."""
    ids, length = waiting.waiting_on, journal.length
    is_single = waiting.kind == "Single" and len(ids) == 1 and not waiting.signals and waiting.join_set_id is None
    if not (is_single and journal.status is _RUNNING and (ids[0] in journal.calls or _is_last_timer(journal, ids[0]))):
        journal.append(
            ExecutionAwaiting(
                sequence=length,
                timestamp=stamp.moment,
                waiting_on=ids,
                kind=waiting.kind,
                signals=waiting.signals,
                join_set_id=waiting.join_set_id,
            )
        )
        return
    promise_id = ids[0]
    journal.status = _BLOCKED
    journal.waiting = waiting
    journal.outstanding = {promise_id}
    journal.length = length + 1
    journal.pending.append(
        f'{{"event":"ExecutionAwaiting","sequence":{length},"timestamp":"{stamp.text}","waiting_on":["{promise_id}"],'
        '"kind":"Single","v":1}'
    )


def _is_last_timer(journal: Journal, promise_id: str) -> bool:
    """Whether this is a timer that has not fired, begun after everything else."""
    flags = journal.flags
    return bool(flags) and flags[-1] == TIMER and promise_id == f".{journal.next_child - 1}"


def sleep(
    journal: Journal, stamp: Stamp, promise_id: str, duration: timedelta, fire_at: Stamp, fingerprint: str
) -> None:
    """TimerScheduled."""
    number, length = journal.next_child, journal.length
    if journal.status is not _RUNNING or promise_id != f".{number}":
        journal.append(
            TimerScheduled(
                sequence=length,
                timestamp=stamp.moment,
                promise_id=promise_id,
                duration=duration,
                fire_at=fire_at.moment,
                fingerprint=fingerprint,
            )
        )
        return
    journal.next_child = number + 1
    journal.flags.append(TIMER)
    journal.words.append(0)
    journal.length = length + 1
    journal.pending.append(
        f'{{"event":"TimerScheduled","sequence":{length},"timestamp":"{stamp.text}","promise_id":"{promise_id}",'
        f'"duration":{_encode(duration).decode()},"fire_at":"{fire_at.text}",'
        f'"fingerprint":"{fingerprint}","v":1}}'
    )


def fire(journal: Journal, stamp: Stamp, promise_id: str) -> None:
    """TimerFired."""
    index, length = journal.find(promise_id), journal.length
    if index < 0 or journal.flags[index] != TIMER or not journal.is_open:
        journal.append(TimerFired(sequence=length, timestamp=stamp.moment, promise_id=promise_id))
        return
    journal.settle(promise_id, index)
    journal.length = length + 1
    journal.pending.append(
        f'{{"event":"TimerFired","sequence":{length},"timestamp":"{stamp.text}","promise_id":"{promise_id}","v":1}}'
    )


def resume(journal: Journal, stamp: Stamp) -> None:
    """ExecutionResumed."""
    length = journal.length
    if journal.status is not _BLOCKED or journal.waiting is None or journal.outstanding:
        journal.append(ExecutionResumed(sequence=length, timestamp=stamp.moment))
        return
    journal.status = _RUNNING
    journal.waiting = None
    journal.length = length + 1
    journal.pending.append(f'{{"event":"ExecutionResumed","sequence":{length},"timestamp":"{stamp.text}","v":1}}')


def ran(journal: Journal, begun: Stamp, stamp: Stamp, promise_id: str, value: bytes) -> None:
    """InvokeStarted at `begun`, InvokeCompleted with a value, ExecutionResumed: of a first attempt, awaited alone."""
    call, length, outstanding = journal.calls.get(promise_id), journal.length, journal.outstanding
    is_awaited = call is not None and journal.status is _BLOCKED and outstanding == {promise_id}
    if call is None or call.attempt or not is_awaited or journal.flags[call.number] != CALL:
        start(journal, begun, promise_id, 1)
        complete(journal, stamp, promise_id, 1, value)
        resume(journal, stamp)
        return
    number, text = call.number, stamp.text
    journal.words[number] = hash(value)
    journal.flags[number] = ENDED
    outstanding.clear()
    del journal.calls[promise_id]
    journal.status = _RUNNING
    journal.waiting = None
    journal.length = length + 3
    journal.pending.append(
        f'{{"event":"InvokeStarted","sequence":{length},"timestamp":"{begun.text}","promise_id":"{promise_id}",'
        f'"attempt":1,"v":1}},{{"event":"InvokeCompleted","sequence":{length + 1},"timestamp":"{text}",'
        f'"promise_id":"{promise_id}","result":{{"outcome":"ok","value":{value.decode()}}},"attempt":1,"v":1}},'
        f'{{"event":"ExecutionResumed","sequence":{length + 2},"timestamp":"{text}","v":1}}'
    )


def step(
    journal: Journal,
    begun: Stamp,
    stamp: Stamp,
    promise_id: str,
    value: bytes,
    callee: CallText,
    text: str,
    fingerprint: str,
    waiting: Waiting,
) -> str | None:
    """A first attempt that ended, awaited alone, `schedule` of the next call and `wait` for that one, in one piece.

    What `Journal.take_segment` gives then; InvokeStarted at `begun` is told with them unless it was before. None, and
    nothing is recorded, where not every check passes at a look.
    """
    call, outstanding = journal.calls.get(promise_id), journal.outstanding
    length, number = journal.length, journal.next_child
    (next_id,) = waiting.waiting_on
    is_awaited = journal.status is _BLOCKED and len(outstanding) == 1 and promise_id in outstanding
    if call is None or call.attempt > 1 or not is_awaited:
        return None
    if next_id != f".{number}" or waiting.kind != "Single" or waiting.signals or waiting.join_set_id is not None:
        return None
    ended = call.number
    if journal.flags[ended] != CALL:
        return None
    begin, now = "", stamp.text
    if call.attempt:
        length -= 1
        call.attempt, call.running = 0, False
    else:
        begin = (
            f'{{"event":"InvokeStarted","sequence":{length},"timestamp":"{begun.text}","promise_id":"{promise_id}",'
            '"attempt":1,"v":1},'
        )
    is_short = length < _NUMBERS_MOST
    second, third, fourth, fifth = (
        _NUMBERS[length + 1 : length + 5] if is_short else map(str, range(length + 1, length + 5))
    )
    journal.words[ended] = hash(value)
    journal.flags[ended] = ENDED
    journal.flags.append(CALL)
    journal.words.append(0)
    del journal.calls[promise_id]
    call.number = number
    journal.calls[next_id] = call
    journal.outstanding = {next_id}
    journal.waiting = waiting
    journal.next_child = number + 1
    journal.length = length + 5
    events = (
        f'{begin}{{"event":"InvokeCompleted","sequence":{second},"timestamp":"{now}",'
        f'"promise_id":"{promise_id}","result":{{"outcome":"ok","value":{value.decode()}}},"attempt":1,"v":1}},'
        f'{{"event":"ExecutionResumed","sequence":{third},"timestamp":"{now}","v":1}},'
        f'{{"event":"InvokeScheduled","sequence":{fourth},"timestamp":"{now}","promise_id":"{next_id}'
        f'{callee.head}{text},"fingerprint":"{fingerprint}{callee.tail},'
        f'{{"event":"ExecutionAwaiting","sequence":{fifth},"timestamp":"{now}","waiting_on":["{next_id}"],'
        '"kind":"Single","v":1}'
    )
    if journal.pending or journal.pending_patches:
        journal.pending.append(events)
        return journal.take_segment()
    journal.pending_first = length + 5
    return f"{SEGMENT_HEAD}{events}]}}"


def finish(journal: Journal, stamp: Stamp, result: str) -> None:
    """ExecutionCompleted."""
    length = journal.length
    if journal.status is not _RUNNING:
        journal.append(ExecutionCompleted(sequence=length, timestamp=stamp.moment, result=Raw(result.encode())))
        return
    journal.status = _COMPLETED
    journal.is_open = False
    journal.length = length + 1
    journal.pending.append(
        f'{{"event":"ExecutionCompleted","sequence":{length},"timestamp":"{stamp.text}","result":{result},"v":1}}'
    )
