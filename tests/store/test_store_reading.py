"""Reading: by id, prefix and filter, in pages, with children, inbox and history (DESIGN sections 4 and 5)."""

from __future__ import annotations

from operator import attrgetter

import pytest

from holdfast.core.identity import IdQuery, PromiseId
from holdfast.core.status import Status
from holdfast.models.workflow.fork import RETRY
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, SpawnExecutions
from holdfast.store.values import ExecutionFilter, ExecutionView, NewSignal, Shown
from holdfast.testing.hand import Hand, child_rows, done, fail, park, promise_of, row, strand, wait_children
from holdfast.testing.stores import Stores


async def everything(store: Store, where: ExecutionFilter, limit: int) -> list[ExecutionView]:
    views: list[ExecutionView] = []
    page = await store.browse(where, limit)
    while True:
        assert len(page.items) <= limit
        views += page.items
        if page.cursor is None:
            return views
        page = await store.browse(where, limit, page.cursor)


async def test_what_is_not_there_is_none(store: Store) -> None:
    assert await store.get(promise_of("nobody")) is None
    assert await store.children(promise_of("nobody")) == []
    assert await store.inbox(promise_of("nobody")) == []
    assert await store.history(promise_of("nobody")) == []


async def test_many_are_answered_in_order(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"), row("b"))
    keys = ["b", "nobody", "a", "b"]
    views = await store.get_many([promise_of(key) for key in keys])
    assert [view and view.promise for view in views] == [
        promise_of("b"),
        None,
        promise_of("a"),
        promise_of("b"),
    ]
    assert await store.get_many([]) == []


async def test_shown_are_what_was_published_and_what_publishes_no_more(hand: Hand, store: Store) -> None:
    await hand.insert(*map(row, ["quiet", "shows", "over", "stuck", "replaced"]))
    claims = {claim.promise: claim for claim in await hand.pick()}
    await hand.apply(claims[promise_of("shows")], AdvanceExecution(status=Status.EXECUTING, published='{"a": [1]}'))
    await hand.apply(claims[promise_of("over")], AdvanceExecution(status=Status.DONE, published='{"b":2}'))
    await hand.apply(claims[promise_of("stuck")], strand())
    await hand.apply(claims[promise_of("replaced")], AdvanceExecution(status=Status.FAILED, published='{"c":3}'))
    newest = PromiseId.from_bytes(promise_of("replaced")).successor(RETRY).to_bytes()
    await store.fork(row("replaced", promise=newest), None, replaces=promise_of("replaced"))
    asked = [*claims, newest, promise_of("nobody")]
    expected = [
        Shown(promise_of("shows"), Status.EXECUTING, '{"a": [1]}'),
        Shown(promise_of("over"), Status.DONE, '{"b":2}'),
        Shown(promise_of("stuck"), Status.STRANDED),
        Shown(promise_of("replaced"), Status.FAILED, '{"c":3}', newest),
        Shown(newest, Status.RUNNABLE, '{"c":3}'),
        Shown(promise_of("nobody"), None),
    ]
    by_promise = attrgetter("promise")
    assert sorted(await store.shown(asked), key=by_promise) == sorted(expected, key=by_promise)
    assert await store.shown([]) == []


async def test_get_and_get_many_agree(hand: Hand, store: Store) -> None:
    await hand.apply(await hand.take(row("a")), park("x", "y", wake_after=5))
    assert await store.get_many([promise_of("a")]) == [await store.get(promise_of("a"))]


# ---------------------------------------------------------------------- ids as people type them


def with_root(prefix: str, key: str) -> bytes:
    """An id whose root begins as given."""
    return PromiseId(bytes.fromhex(prefix + PromiseId.of("Order", key).root.hex()[len(prefix) :])).to_bytes()


async def found(store: Store, text: str, limit: int = 6) -> list[bytes]:
    return sorted(view.promise for view in await store.find(IdQuery.parse(text), limit))


async def test_an_execution_is_found_by_any_prefix_of_its_id(hand: Hand, store: Store) -> None:
    """DESIGN section 4: as with commits in git, odd numbers of digits included."""
    near = [with_root("abcd1", "a"), with_root("abcd2", "b"), with_root("abce", "c")]
    await hand.insert(*(row(str(n), promise=promise) for n, promise in enumerate(near)))
    assert await found(store, "abcd") == sorted(near[:2])
    assert await found(store, "abcd1") == [near[0]]
    assert await found(store, "ABCD2") == [near[1]]
    assert await found(store, PromiseId.from_bytes(near[2]).root.hex()) == [near[2]]
    assert await found(store, "abcf") == []


@pytest.mark.parametrize("prefix", ["ffff", "fffff", "0000", "00000"])
async def test_prefixes_at_the_ends_of_the_range_find_what_they_should(hand: Hand, store: Store, prefix: str) -> None:
    promise = with_root(prefix + "0", "a")
    await hand.insert(row("a", promise=promise), row("b", promise=with_root("8888", "b")))
    assert await found(store, prefix) == [promise]


async def test_a_name_narrows_the_search(hand: Hand, store: Store) -> None:
    mine, theirs = with_root("abcd", "a"), with_root("abcd", "b")
    await hand.insert(row("a", promise=mine), row("b", promise=theirs, name="Other"))
    assert await found(store, "Order/abcd") == [mine]
    assert await found(store, "Other/abcd") == [theirs]
    assert await found(store, "Third/abcd") == []


async def test_without_a_path_a_prefix_means_the_root(hand: Hand, store: Store) -> None:
    promise = with_root("abcd", "a")
    parent = await hand.take(row("a", promise=promise))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 3, queue="q")))
    assert await found(store, "abcd") == [promise]
    assert await found(store, "abcd.1") == [PromiseId.from_bytes(promise).child(1).to_bytes()]
    assert await found(store, "abcd.7") == []
    assert await found(store, "abcd.1.0") == []


async def test_a_search_is_bounded(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(n), promise=with_root("abcd", str(n))) for n in range(9)))
    assert len(await found(store, "abcd", limit=4)) == 4
    assert len(await found(store, "abcd")) == 6


# ---------------------------------------------------------------------- lists


async def test_the_newest_come_first(stores: Stores, hand: Hand) -> None:
    for key in "abc":
        await hand.insert(row(key))
        await stores.advance(1)
    views = await everything(stores.store, ExecutionFilter(), 10)
    assert [view.promise for view in views] == [promise_of(key) for key in "cba"]


@pytest.mark.parametrize("limit", [1, 3, 5, 10, 11])
async def test_pages_hold_everything_once(hand: Hand, store: Store, limit: int) -> None:
    """Rows of one instant included; a last page that is full as well."""
    await hand.insert(*(row(str(n)) for n in range(10)))
    views = await everything(store, ExecutionFilter(), limit)
    assert sorted(view.promise for view in views) == sorted(promise_of(str(n)) for n in range(10))
    assert len(views) == 10


async def test_what_is_started_while_paging_shifts_nothing(stores: Stores, hand: Hand) -> None:
    await hand.insert(*(row(str(n)) for n in range(6)))
    page = await stores.store.browse(ExecutionFilter(), 3)
    await stores.advance(1)
    await hand.insert(row("new"))
    rest = await stores.store.browse(ExecutionFilter(), 10, page.cursor)
    seen = [view.promise for view in [*page.items, *rest.items]]
    assert sorted(seen) == sorted(promise_of(str(n)) for n in range(6))


async def test_every_given_field_narrows(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"), row("b", queue="two"), row("c", kind="flow", queue="two"))
    await hand.insert(row("d", name="Other", queue="two"), row("e", kind="flow", name="Other", version=2))
    names = {promise_of("a"): "a", promise_of("b"): "b", promise_of("c"): "c"}
    names |= {promise_of("d", "Other"): "d", promise_of("e", "Other"): "e"}

    async def those(kind: str | None = None, name: str | None = None, queue: str | None = None) -> str:
        views = await everything(store, ExecutionFilter(kind=kind, name=name, queue=queue), 2)
        return "".join(sorted(names[view.promise] for view in views))

    assert await those() == "abcde"
    assert await those(kind="flow") == "ce"
    assert await those(name="Other") == "de"
    assert await those(queue="two") == "bcd"
    assert await those(kind="flow", queue="two") == "c"
    assert await those(kind="flow", queue="two", name="Other") == ""


async def test_lists_and_counts_go_by_status(hand: Hand, store: Store) -> None:
    await hand.apply(await hand.take(row("done")), done())
    await hand.apply(await hand.take(row("failed", queue="two"), queues=["two"]), fail())
    await hand.apply(await hand.take(row("parked")), park("go"))
    await hand.insert(row("r1"), row("r2", queue="two"))
    ended = ExecutionFilter(statuses=(Status.DONE, Status.FAILED))
    assert {view.promise for view in await everything(store, ended, 10)} == {promise_of("done"), promise_of("failed")}
    assert await store.count(ExecutionFilter()) == {
        Status.DONE: 1,
        Status.FAILED: 1,
        Status.AWAITING_SIGNAL: 1,
        Status.RUNNABLE: 2,
    }
    assert await store.count(ExecutionFilter(queue="two")) == {Status.FAILED: 1, Status.RUNNABLE: 1}
    assert await store.count(ended) == {Status.DONE: 1, Status.FAILED: 1}
    assert await store.count(ExecutionFilter(name="Nothing")) == {}


async def test_children_can_be_listed_by_their_parent(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 3, queue="q")))
    await hand.insert(row("stranger"))
    where = ExecutionFilter(parent=parent.promise)
    views = await everything(store, where, 2)
    assert {view.promise for view in views} == {child.promise for child in await store.children(parent.promise)}
    assert {view.parent for view in views} == {parent.promise}
    assert await store.count(where) == {Status.RUNNABLE: 3}
    assert await everything(store, ExecutionFilter(parent=promise_of("nobody")), 2) == []


async def test_an_inbox_is_read_in_the_order_of_delivery(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"))
    for n in range(5):
        await store.deliver([NewSignal(promise_of("a"), "s", str(n)), NewSignal(promise_of("a"), "t", str(n))])
    inbox = await store.inbox(promise_of("a"))
    assert [signal.payload for signal in inbox] == [str(n) for n in range(5) for _ in range(2)]
    assert [signal.id for signal in inbox] == sorted({signal.id for signal in inbox})
