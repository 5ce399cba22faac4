"""Reading the shapes from a store; every function is one or a few indexed reads.

An execution is named as people type it: see `finding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from holdfast.core.clock import to_datetime
from holdfast.core.identity import PromiseId
from holdfast.core.journal.local_ids import events_of
from holdfast.core.status import Status
from holdfast.models.workflow.progress import read_progress
from holdfast.store.base import Store
from holdfast.store.sampling import Sample
from holdfast.store.values import ExecutionFilter, QueueStats
from holdfast.store.watching import Tally
from holdfast.views import ledger_shapes, shapes
from holdfast.views.finding import find, newest

PAGE_MAX = 1_000
LOOKED_AT = 50_000  # rows for one page, of what no index finds: some hundredths of a second


async def executions(
    store: Store,
    where: ExecutionFilter | None = None,
    after: str | None = None,
    limit: int = 50,
    *,
    before: datetime | None = None,
) -> shapes.ExecutionPage:
    """A page of executions, newest first; `after` is the cursor of the page before, `before` when the first began.

    It may be short although a cursor leads on: so many rows are looked through for it, and no more.
    """
    if after is None and before is not None:
        after = await store.cursor_before(before)
    page = await store.browse(where or ExecutionFilter(), min(limit, PAGE_MAX), after, look_at=LOOKED_AT)
    return shapes.ExecutionPage(executions=[shapes.summary(view) for view in page.items], cursor=page.cursor)


async def filter_of(
    store: Store,
    *,
    kind: str | None = None,
    name: str | None = None,
    queue: str | None = None,
    statuses: Sequence[str | Status] = (),
    parent: str | None = None,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> ExecutionFilter:
    """A filter from what people type; the parent may be a prefix of an id."""
    return ExecutionFilter(
        kind=kind,
        name=name,
        queue=queue,
        statuses=tuple(map(Status, statuses)),
        parent=None if parent is None else (await find(store, parent)).promise,
        attributes=attributes or None,
    )


async def execution(store: Store, text: str | PromiseId, *, children_most: int | None = None) -> shapes.Details:
    """One execution with its inbox and its children: all of them, or the newest `children_most`."""
    view = await find(store, text)
    if children_most is None:
        found = await store.children(view.promise)
    else:
        found = (await store.browse(ExecutionFilter(parent=view.promise), children_most)).items[::-1]
    inbox, last = await store.inbox(view.promise), await newest(store, view)
    return shapes.details(view, inbox, found, last, await read_progress(store, view))


async def journal(store: Store, text: str | PromiseId) -> shapes.Journal:
    """The events of a workflow; of everything else there are none."""
    view = await find(store, text)
    found = str(shapes.id_of(view))
    events = [event for body in await store.journal(view.promise) for event in events_of(found, body)]
    return shapes.Journal(id=found, label=shapes.label_of(view), events=events)


async def history(store: Store, text: str | PromiseId) -> shapes.History:
    view = await find(store, text)
    lines = [shapes.transition(line) for line in await store.history(view.promise)]
    return shapes.History(id=str(shapes.id_of(view)), label=shapes.label_of(view), transitions=lines)


async def children(store: Store, text: str | PromiseId) -> list[shapes.Summary]:
    """In the order they were spawned."""
    view = await find(store, text)
    return [shapes.summary(child) for child in await store.children(view.promise)]


async def inbox(store: Store, text: str | PromiseId) -> list[shapes.InboxSignal]:
    """What was delivered and not read yet, oldest first."""
    view = await find(store, text)
    return [shapes.signal(signal) for signal in await store.inbox(view.promise)]


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T")
NamedT = TypeVar("NamedT", bound=Named)


def page_by(key: Callable[[T], str], found: Iterable[T], after: str | None, limit: int) -> tuple[list[T], str | None]:
    """Those whose key is after this one, in their order, and the cursor of the next page; None at the end."""
    rest = sorted((one for one in found if after is None or key(one) > after), key=key)
    return rest[:limit], key(rest[limit - 1]) if len(rest) > limit else None


def page_by_name(found: Iterable[NamedT], after: str | None, limit: int) -> tuple[list[NamedT], str | None]:
    return page_by(lambda one: one.name, found, after, limit)


async def queues(store: Store, after: str = "", limit: int | None = None) -> list[ledger_shapes.Queue]:
    found = await store.queues(after, limit)
    sample = await _sample_if(store, found)
    return [ledger_shapes.queue(stats, sample) for stats in found]


async def _sample_if(store: Store, counts: Sequence[Tally | QueueStats]) -> Sample | None:
    """Rows for an estimate, if one of these was not counted to its end."""
    return await store.sample() if any(one.capped for one in counts) else None


async def overview(store: Store, *, bucket_seconds: float = 60.0, buckets: int = 60) -> ledger_shapes.Overview:
    """The ledger at a glance: counts by status, queues, workers, and what ended in the last hour by minute."""
    found = await store.workers()
    tallies, stats = await store.tally(), await store.queues()
    sample = await _sample_if(store, [*tallies, *stats])
    return ledger_shapes.Overview(
        at=to_datetime(await store.now_us()),
        statuses=[ledger_shapes.status_count(tally, sample) for tally in tallies],
        queues=[ledger_shapes.queue(queue, sample) for queue in stats],
        workers=sum(not worker.is_expired for worker in found),
        workers_expired=sum(worker.is_expired for worker in found),
        pace=await store.pace(bucket_seconds, buckets),
    )


async def workers(store: Store) -> list[ledger_shapes.Worker]:
    return [ledger_shapes.worker(info) for info in await store.workers()]


async def schedules(store: Store) -> list[ledger_shapes.Schedule]:
    return [ledger_shapes.schedule(found) for found in await store.schedules()]


async def definitions(store: Store) -> list[ledger_shapes.DefinitionLine]:
    """By name and version."""
    return [ledger_shapes.definition(found) for found in await store.definitions()]
