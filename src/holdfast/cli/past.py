"""What happened to an execution: `history`, all of it at once, and `tail`, as it comes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from holdfast.cli.answers import PastOf, TailLine
from holdfast.cli.ids import id_argument
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import STATUS_STYLES, Cell, Grid, Value, exact
from holdfast.core.codec import decode_error
from holdfast.core.durations import format_duration
from holdfast.core.journal import events as e
from holdfast.core.journal.local_ids import events_of
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView
from holdfast.views import shapes

POLL_SECONDS: Final = (0.05, 0.5)  # the first look after news, and the longest pause between two
VALUE_CHARS: Final = 80


@click.command("history")
@id_argument
@shared
def history_command(call: Invocation, execution: str) -> None:
    """Show the journal of a workflow, event by event, or every committed step of a machine with `history=True`."""

    async def read(ledger: Ledger) -> tuple[PastOf, datetime]:
        view = await (await ledger.find(execution)).describe()
        transitions = [shapes.transition(line) for line in await ledger.store.history(view.promise)]
        segments = await ledger.store.journal(view.promise) if view.journal_length else []
        found = str(shapes.id_of(view))
        past = PastOf(
            id=found,
            label=shapes.label_of(view),
            kind=view.kind,
            transitions=transitions,
            events=[event for body in segments for event in events_of(found, body)],
        )
        return past, ledger.now

    past, now = call.run(read)
    if call.as_json:
        call.out.json(past)
    elif past.kind == "workflow":
        rows: list[list[Value]] = [
            [
                event.sequence,
                exact(event.timestamp),
                Cell(_name(event), _style(event)),
                said(event, past.id, _most(call)),
            ]
            for event in past.events
        ]
        empty = f"{past.label} has no journal yet: no worker has begun it"
        call.out.grid(Grid(("EVENT", "AT", "WHAT", "OF"), rows, frozenset({"EVENT"})), now=now, empty=empty)
    else:
        rows = [
            [line.revision, exact(line.at), line.step, line.attempt, line.outcome, line.next_step, _error(line.error)]
            for line in past.transitions
        ]
        columns = ("REVISION", "AT", "STEP", "ATTEMPT", "OUTCOME", "NEXT", "ERROR")
        why = "nothing is committed yet, or its machine was not declared with history=True"
        empty = f"{past.label} has no history: {why}"
        call.out.grid(Grid(columns, rows, frozenset({"REVISION", "ATTEMPT"})), now=now, empty=empty)


@click.command("tail")
@id_argument
@click.option("--new", is_flag=True, help="Only what happens from now on.")
@shared
def tail_command(call: Invocation, execution: str, new: bool) -> None:
    """Follow an execution until it has ended: events of a workflow, steps of a machine, and its status.

    With --json, one JSON document a line. Ctrl-C stops looking; the execution goes on.
    """

    async def follow(ledger: Ledger) -> None:
        view = await (await ledger.find(execution)).describe()
        async for line in tail(ledger.store, view, new=new):
            if call.as_json:
                sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            else:
                _print(call, line)
            sys.stdout.flush()

    call.run(follow)


async def tail(store: Store, view: ExecutionView, *, new: bool = False) -> AsyncIterator[TailLine]:
    """What happens to an execution, and to the runs that go on in its place, until the last of them has ended."""
    sequence, revision, standing = -1, -1, ""
    if new:
        sequence, revision = view.journal_length - 1, view.revision
    pause = POLL_SECONDS[0]
    while True:
        is_news = False
        names: dict[str, Any] = {"id": str(shapes.id_of(view)), "label": shapes.label_of(view)}
        if view.journal_length > sequence + 1:
            for body in await store.journal_since(view.promise, sequence + 1):
                for event in events_of(names["id"], body):
                    if event.sequence > sequence:
                        sequence, is_news = event.sequence, True
                        yield TailLine(what="event", event=event, **names)
        if view.revision > revision and view.kind == "machine":
            for line in await store.history_since(view.promise, revision):
                revision, is_news = line.revision, True
                yield TailLine(what="transition", transition=shapes.transition(line), **names)
        now_standing = _standing(view)
        if now_standing != standing:
            standing, is_news = now_standing, True
            yield TailLine(what="status", execution=shapes.summary(view), **names)
        if view.status.is_terminal and view.journal_length <= sequence + 1:
            following = None if view.successor is None else await store.get(view.successor)
            if following is None:
                yield TailLine(what="end", status=view.status, **names)
                return
            view, sequence, revision, standing = following, -1, -1, ""
            continue
        pause = POLL_SECONDS[0] if is_news else min(POLL_SECONDS[1], pause * 1.5)
        await asyncio.sleep(pause)
        found = await store.get(view.promise)
        if found is None:  # retention took it
            return
        view = found


def _standing(view: ExecutionView) -> str:
    """Changes when something of the row does that people see."""
    return f"{view.status} {view.paused} {view.cancel_requested} {view.step} {view.attempt} {view.locked_by}"


# ---------------------------------------------------------------------- how it looks


def _print(call: Invocation, line: TailLine) -> None:
    if isinstance(line.event, e.JournalEvent):
        call.out.line(
            f"{exact(line.event.timestamp)}  {_name(line.event)}  {said(line.event, line.id, _most(call))}".rstrip()
        )
    elif isinstance(line.transition, shapes.TransitionLine):
        step = line.transition
        error = "" if step.error is None else f"  {decode_error(bytes(step.error).decode())}"
        onward = f" -> {step.next_step}" if step.next_step else ""
        call.out.line(f"{exact(step.at)}  {step.step}: {step.outcome}{onward}{error}", "red" if error else "")
    elif isinstance(line.execution, shapes.Summary):
        found = line.execution
        notes = [
            note for note, is_so in (("paused", found.paused), ("cancel requested", found.cancel_requested)) if is_so
        ]
        at = f" at {found.step}" if found.step else ""
        tail = f" ({', '.join(notes)})" if notes else ""
        call.out.line(f"{exact(found.updated_at)}  is {found.status}{at}{tail}", STATUS_STYLES[found.status])
    elif isinstance(line.status, Status):
        call.out.line(f"{line.label} has ended as {line.status}", STATUS_STYLES[line.status])


def _name(event: e.Event) -> str:
    return type(event).__name__


def _style(event: e.Event) -> str:
    if isinstance(event, (e.ExecutionFailed, e.InvokeRetrying)):
        return "red"
    if isinstance(event, e.InvokeCompleted):
        return "red" if isinstance(event.result, e.Err) else "green"
    return "bold" if isinstance(event, (e.ExecutionStarted, e.ExecutionCompleted, e.ExecutionCancelled)) else ""


def _most(call: Invocation) -> int | None:
    """How much of a value is shown: in a pipe, all of it."""
    return VALUE_CHARS if call.out.is_terminal else None


def said(event: e.Event, execution: str, most: int | None = VALUE_CHARS) -> str:
    """An event in a few words; numbers are those of the operations of this execution."""

    def value(raw: msgspec.Raw) -> str:
        text = bytes(raw).decode()
        return text if most is None or len(text) <= most else text[: most - 3] + "..."

    def number(promise_id: str) -> str:
        return promise_id.removeprefix(f"{execution}.")

    match event:
        case e.ExecutionStarted():
            return value(event.input)
        case e.ExecutionCompleted():
            return value(event.result)
        case e.ExecutionFailed():
            return _failure(event.error)
        case e.CancelRequested() | e.ExecutionCancelled():
            return event.reason
        case e.InvokeScheduled():
            return f"{number(event.promise_id)} {event.function_name} {value(event.input)}"
        case e.InvokeStarted():
            return f"{number(event.promise_id)} attempt {event.attempt}"
        case e.InvokeCompleted():
            result = event.result
            end = _failure(result.error) if isinstance(result, e.Err) else value(result.value)
            return f"{number(event.promise_id)} {end}"
        case e.InvokeRetrying():
            return f"{number(event.promise_id)} again at {exact(event.retry_at)}: {_failure(event.error)}"
        case e.RandomGenerated():
            return f"{number(event.promise_id)} {value(event.value)}"
        case e.TimeRecorded():
            return f"{number(event.promise_id)} {exact(event.time)}"
        case e.TimerScheduled():
            length = format_duration(event.duration.total_seconds())
            return f"{number(event.promise_id)} {length}, until {exact(event.fire_at)}"
        case e.TimerFired():
            return number(event.promise_id)
        case e.SignalDelivered():
            return f"{event.signal_name} {value(event.payload)}"
        case e.SignalReceived():
            return f"{number(event.promise_id)} {event.signal_name} {value(event.payload)}"
        case e.ExecutionAwaiting():
            names = {wait.promise_id: wait.signal_name for wait in event.signals}
            waits = [f"{number(one)} ({names[one]})" if one in names else number(one) for one in event.waiting_on]
            if event.join_set_id is None:
                return f"{event.kind.lower()} of {', '.join(waits)}"
            return ", or ".join((f"any of the results left of join set {number(event.join_set_id)}", *waits))
        case e.JoinSetCreated():
            return number(event.join_set_id)
        case e.JoinSetSubmitted() | e.JoinSetAwaited():
            return f"{number(event.promise_id)} of {number(event.join_set_id)}"
    return ""


def _failure(failure: e.Failure) -> str:
    return f"{failure.type}: {failure.message}"


def _error(raw: msgspec.Raw | None) -> Value:
    return None if raw is None else Cell(str(decode_error(bytes(raw).decode())), "red")
