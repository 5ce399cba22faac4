"""Durable schedules: what is started when, and the loop that starts it.

- `ScheduleSpec`: a cron expression in a time zone, what it starts, and what to do about overlaps and missed ticks.
- `Schedules`: `app.schedules`, the client.
- `Scheduler`: the loop in every worker. The key of a start is schedule and tick, and moving a schedule on is one commit
  with the starts: so a tick starts one execution, with any number of workers and whatever crashes.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, Literal, TypedDict, Unpack, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from holdfast.core.clock import to_datetime
from holdfast.core.codec import Codec, codec_for
from holdfast.core.cron import Cron
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import DecodeError, HoldfastError, InvalidArgumentError, NotFoundError, StoreError
from holdfast.core.identity import PromiseId, check_name
from holdfast.core.searchable import is_text
from holdfast.engine.service import Service
from holdfast.models.batch.definition import Batch
from holdfast.models.connection import Connection
from holdfast.models.definitions import NamedStarter, Read, find_definition, named_row, unreadable
from holdfast.models.flow.flow import Flow
from holdfast.models.fresh_ids import fresh_id
from holdfast.models.handle import Handle
from holdfast.models.options import Options, check_queue
from holdfast.models.workflow.definition import Workflow
from holdfast.models.workflow.task import Task
from holdfast.store.base import Store
from holdfast.store.schedules import Schedule, Tick
from holdfast.store.values import Definition, NewExecution

log = logging.getLogger("holdfast.schedules")

Overlap = Literal["skip", "allow", "buffer_one"]
CatchUp = Literal["none", "latest", "all"]

LATE_SECONDS: Final = 60.0  # a tick that is later than this was missed
WINDOW_SECONDS: Final = 86_400.0
STARTS_A_PASS: Final = 100
POLL_SECONDS: Final = 5.0
# What a schedule that an import or another version brought can be wrong in; `make_spec` lets none of it pass.
_UNSOUND: Final = (HoldfastError, msgspec.DecodeError, ZoneInfoNotFoundError, ValueError, OverflowError, OSError)


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """As the ledger keeps it.

    - `overlap`: while the last one still runs, `skip` the tick, `allow` both, or `buffer_one` to be started after it.
    - `catch_up`: of ticks that nobody was there for start `none`, the `latest`, or `all`, within `window_seconds`.
    """

    cron: str
    definition: str
    timezone: str = "UTC"
    input: msgspec.Raw = msgspec.Raw(b"{}")
    queue: str | None = None
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    window_seconds: float = WINDOW_SECONDS

    def next_after(self, moment: datetime) -> datetime:
        following = Cron.parse(self.cron).next_after(moment, ZoneInfo(self.timezone))
        assert following is not None, "a cron expression that never comes was refused when it was parsed"
        return following

    def missed(self, first: datetime, now: datetime) -> tuple[list[datetime], datetime]:
        """The ticks from `first` to now that are to be started, oldest first; and the next one."""
        kept_seconds = LATE_SECONDS if self.catch_up == "none" else self.window_seconds
        oldest = max(first, now - timedelta(seconds=kept_seconds))
        ticks = Cron.parse(self.cron).between(oldest, now, ZoneInfo(self.timezone))
        if self.catch_up != "all":
            return list(deque(ticks, maxlen=1)), self.next_after(now)
        started = list(islice(ticks, STARTS_A_PASS))
        # Of more than one pass can start the rest comes with the next one.
        return started, self.next_after(started[-1] if len(started) == STARTS_A_PASS else now)


class ScheduleSettings(TypedDict, total=False):
    """What a schedule takes besides its name, its time and what it starts; as `make_spec`."""

    timezone: str
    args: Any
    queue: str | None
    overlap: Overlap
    catch_up: CatchUp
    window: Duration


def make_spec(
    cron: str,
    definition: str,
    *,
    timezone: str = "UTC",
    args: Mapping[str, Any] | Any = None,
    queue: str | None = None,
    overlap: Overlap = "skip",
    catch_up: CatchUp = "latest",
    window: Duration = WINDOW_SECONDS,
) -> ScheduleSpec:
    """A checked spec; `args` is what a start by name takes."""
    Cron.parse(cron)
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidArgumentError(f"{timezone!r} is no time zone; use a name such as 'Europe/Berlin'") from None
    for name, value, kinds in (("overlap", overlap, Overlap), ("catch_up", catch_up, CatchUp)):
        if value not in get_args(kinds):
            raise InvalidArgumentError(f"{name} is one of {', '.join(get_args(kinds))}, not {value!r}")
    return ScheduleSpec(
        cron=cron,
        definition=check_name(definition),
        timezone=timezone,
        input=msgspec.Raw(codec_for(Any).encode({} if args is None else args).encode()),
        queue=None if queue is None else check_queue(queue),
        overlap=overlap,
        catch_up=catch_up,
        window_seconds=seconds(window, name="window"),
    )


_spec = msgspec.json.Decoder(ScheduleSpec).decode


class Schedules:
    """`app.schedules`: what starts by the clock."""

    def __init__(self, connection: Connection, declared: Callable[[], Sequence[Definition]], read: Read) -> None:
        """`declared` and `read` are of the code at hand: see `NamedStarter`."""
        self._connection = connection
        self._declared = declared
        self._read = read

    async def create(self, name: str, cron: str, definition: str | Any, **settings: Unpack[ScheduleSettings]) -> None:
        """Create the schedule `name`, or change it. `definition` is what it starts, or the name of it.

        Settings: `timezone`, `args` (a mapping of arguments, a machine's state, `{"items": [...]}` of a batch),
        `queue`, `overlap`, `catch_up`, `window`. What the code at hand cannot read is refused. The next tick is the
        first after now; one whose time has not changed keeps its next tick.
        """
        check_name(name, "a schedule")
        spec = make_spec(cron, definition_name(definition), **settings)
        if isinstance(definition, str):
            await self._check_named(spec)
        else:
            check_args(definition, spec)
        await self.put(name, spec)

    async def _check_named(self, spec: ScheduleSpec) -> None:
        """By all that is known of what it starts; a worker may bring the rest later."""
        known = await (await self._connection.store()).definitions(spec.definition)
        known += [own for own in self._declared() if own.name == spec.definition]
        if known:
            newest = max(known, key=lambda definition: definition.version)
            value, limit = codec_for(Any).decode(bytes(spec.input)), self._connection.payload_limit
            try:
                self._read(named_row(newest, fresh_id(), value, Options(), None, limit))
            except DecodeError as error:
                raise unreadable(spec.definition, error) from error

    async def put(self, name: str, spec: ScheduleSpec) -> None:
        store = await self._connection.store()
        text, is_put = msgspec.json.encode(spec).decode(), False
        while not is_put:  # a worker that moves it on meanwhile has started a tick, which is not to come again
            next_at = spec.next_after(to_datetime(await store.now_us()))
            seen = next(iter(await store.schedules(name)), None)
            if seen is not None:
                with contextlib.suppress(msgspec.DecodeError):  # one that cannot be read is replaced as a whole
                    old = _spec(seen.spec)
                    if (old.cron, old.timezone) == (spec.cron, spec.timezone):
                        next_at = seen.next_at
            is_put = await store.put_schedule(name, text, next_at, seen=seen)

    async def list(self) -> Sequence[Schedule]:
        """All of them, by name, with their next and last tick."""
        return await (await self._connection.store()).schedules()

    async def pause(self, name: str) -> None:
        """No ticks until `resume`; those that pass meanwhile are missed ones."""
        await self._change(name, await (await self._store(name)).pause_schedule(name, True))

    async def resume(self, name: str) -> None:
        """Let it tick again; what it missed is caught up as `catch_up` says."""
        await self._change(name, await (await self._store(name)).pause_schedule(name, False))

    async def delete(self, name: str) -> None:
        """What it has started goes on."""
        await self._change(name, await (await self._store(name)).delete_schedule(name))

    async def trigger(self, name: str) -> Handle[Any]:
        """Start it once, now, whatever its overlap policy says."""
        found = await (await self._store(name)).schedules(name)
        await self._change(name, bool(found))
        try:
            spec = _spec(found[0].spec)
        except msgspec.DecodeError as error:
            raise InvalidArgumentError(
                f"the schedule {name!r} cannot be read by this release ({error}); create it anew, or delete it"
            ) from error
        options = Options(queue=spec.queue, attributes={"schedule": name})
        value = codec_for(Any).decode(bytes(spec.input))
        return await NamedStarter(self._connection, spec.definition, options, self._read).start(value)

    async def _store(self, name: str) -> Store:
        await self._change(name, is_text(name))  # what no store can hold is in none
        return await self._connection.store()

    async def _change(self, name: str, found: bool) -> None:
        if not found:
            raise NotFoundError(f"there is no schedule {name!r}; `holdfast schedules` lists them")


def definition_name(definition: str | Any) -> str:
    name = definition if isinstance(definition, str) else getattr(definition, "name", None)
    if name is None and isinstance(definition, type):
        name = getattr(getattr(definition, "__holdfast__", None), "name", None)
    if not isinstance(name, str):
        raise InvalidArgumentError(
            f"a schedule starts a workflow, a task, a machine, a flow or a batch, not {definition!r:.100}"
        )
    return name


def check_args(definition: Any, spec: ScheduleSpec) -> None:
    """A tick that could only be stranded is refused when it is declared."""
    codec, names = _reader_of(definition)
    if codec is None:
        return
    given = codec_for(Any).decode(bytes(spec.input))
    reason: object = None
    if names is not None and isinstance(given, dict) and (unknown := sorted(set(given) - set(names))):
        reason = f"it has no parameter {', '.join(unknown)}; its parameters are: {', '.join(names) or 'none'}"
    else:
        try:
            codec.decode(bytes(spec.input))
        except DecodeError as error:
            reason = error.__cause__ or error
    if reason is not None:
        shown = bytes(spec.input).decode()
        raise InvalidArgumentError(f"the args {shown:.100} of a schedule do not fit {spec.definition}: {reason}")


def _reader_of(definition: Any) -> tuple[Codec[Any] | None, Sequence[str] | None]:
    """What reads the input of a start, and the names of its parameters; of a flow without activities there is none."""
    if isinstance(definition, Workflow | Task) or (isinstance(definition, Flow) and definition.graph.entries):
        return definition.signature.codec, definition.signature.names
    if isinstance(definition, Batch):
        items = msgspec.defstruct("Input", [("items", list[definition.annotation])])
        return Codec(items, of=definition.name), ("items",)
    codec = getattr(getattr(definition, "__holdfast__", None), "codec", None)  # of a machine
    return (codec, None) if isinstance(codec, Codec) else (None, None)


class Scheduler(Service):
    """Every worker has one; those who come second find the tick taken."""

    name = "schedules"

    def __init__(self, connection: Connection, on_started: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._connection = connection
        self._on_started = on_started
        self._failed: dict[str, datetime] = {}  # by schedule: the tick that could not be started

    async def run_once(self) -> float | None:
        store = await self._connection.store()
        now = to_datetime(await store.now_us())
        soonest = POLL_SECONDS
        for schedule in await store.schedules():
            if schedule.paused:
                continue
            try:
                if schedule.next_at <= now or schedule.buffered_at is not None:
                    await self._tick(schedule, now)
            except StoreError:
                raise
            except _UNSOUND as error:
                self._note_failed(schedule, error)  # the others have their ticks all the same
                continue
            soonest = min(soonest, max(0.01, (schedule.next_at - now).total_seconds()))
        return soonest

    def _note_failed(self, schedule: Schedule, error: Exception) -> None:
        """Once a tick, which stays due: it is started, or is a missed one, when the cause is mended."""
        if self._failed.get(schedule.name) != schedule.next_at:
            self._failed[schedule.name] = schedule.next_at
            log.error("the schedule %s cannot start its tick of %s: %s", schedule.name, schedule.next_at, error)

    async def _tick(self, schedule: Schedule, now: datetime) -> None:
        store = await self._connection.store()
        spec = _spec(schedule.spec)
        ticks, next_at = spec.missed(schedule.next_at, now) if schedule.next_at <= now else ([], schedule.next_at)
        if schedule.buffered_at is not None:
            ticks = [schedule.buffered_at, *ticks]
        buffered: datetime | None = None
        if spec.overlap != "allow" and ticks:
            is_busy = await self._is_running(schedule.last)
            waiting = ticks if is_busy else ticks[1:]
            ticks = [] if is_busy else ticks[:1]
            if spec.overlap == "buffer_one" and waiting:
                buffered = waiting[0]
        if not ticks and (next_at, buffered) == (schedule.next_at, schedule.buffered_at):
            return
        rows = [await self._row(schedule.name, spec, tick) for tick in ticks]
        moved = Tick(
            name=schedule.name,
            seen_next_at=schedule.next_at,
            seen_buffered_at=schedule.buffered_at,
            seen_spec=schedule.spec,
            next_at=next_at,
            buffered_at=buffered,
            last_at=ticks[-1] if ticks else schedule.last_at,
            last=rows[-1].promise if rows else schedule.last,
        )
        if await store.tick(moved, rows) and rows:
            self._on_started()

    async def _row(self, name: str, spec: ScheduleSpec, tick: datetime) -> NewExecution:
        definition = await find_definition(self._connection, spec.definition)
        key = f"{name}@{tick.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}"
        options = Options(queue=spec.queue, attributes={"schedule": name})
        value = codec_for(Any).decode(bytes(spec.input))
        promise = PromiseId.of(spec.definition, key)
        return named_row(definition, promise, value, options, key, self._connection.payload_limit)

    async def _is_running(self, promise: bytes | None) -> bool:
        store = await self._connection.store()
        while promise is not None:
            view = await store.get(promise)
            if view is None or view.successor is None:
                return view is not None and not view.status.is_terminal
            promise = view.successor
        return False
