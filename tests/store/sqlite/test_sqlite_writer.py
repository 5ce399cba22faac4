"""The one writer: inline or in its thread, never both at once; and what a transaction that breaks leaves behind."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path
from time import monotonic

import pytest
from tests.store.test_store_steps import EVENTS, step, walked

from holdfast.core.crashpoints import set_hook
from holdfast.core.errors import StoreError, StoreUnavailableError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import WouldStall
from holdfast.store.effects import Commit
from holdfast.store.sqlite import SqliteStore, control, ledger_file, picking, writer
from holdfast.store.sqlite.lock import WriterLock
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import QueueRoom, QueueSettings, Retention
from holdfast.testing.hand import HANDLER, Hand, done, fail, keep, promise_of, row
from holdfast.testing.stores import Stores


class Crash(BaseException):
    """What a crash point raises here: nothing may take it for an error it knows."""


@pytest.fixture
def sqlite(stores: Stores) -> SqliteStore:
    assert isinstance(stores.store, SqliteStore)
    return stores.store


async def begin_slow_write(
    store: SqliteStore, work: Callable[[Tx], object] = lambda _: None
) -> tuple[asyncio.Future[object], threading.Event]:
    """A write that the writer thread is in the middle of, until the event is set."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> object:
        begun.set()
        assert go_on.wait(10)
        return work(tx)

    writing = asyncio.ensure_future(store._write(None, slow))
    await asyncio.to_thread(begun.wait, 10)
    return writing, go_on


async def test_a_commit_on_the_callers_thread_is_the_same_commit(sqlite: SqliteStore, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    flushed = sqlite.flush_now(hand.name, [Commit(claim, (keep("second"),))])
    assert [(one.applied, one.status) for one in flushed.receipts] == [(True, Status.EXECUTING)]
    view = await sqlite.get(promise_of("a"))
    assert view is not None
    assert (view.step, view.revision) == ("second", 1)


async def test_no_inline_commit_while_the_writer_thread_is_busy(sqlite: SqliteStore) -> None:
    before = sqlite.commits_inline
    writing, go_on = await begin_slow_write(sqlite, lambda _: 7)
    during = sqlite.commits_inline
    go_on.set()
    assert await writing == 7
    assert (before, during, sqlite.commits_inline) == (True, False, True)


async def test_slow_commits_go_to_the_thread_and_quick_ones_come_back(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(step: float) -> None:
        moments = itertools.count()
        monkeypatch.setattr(writer, "perf_counter", lambda: next(moments) * step)

    timed(0.005)
    for n in range(3):
        await sqlite.insert([row(f"slow{n}")])
    assert not sqlite.commits_inline
    timed(0.00001)
    for n in range(50):
        await sqlite.insert([row(f"quick{n}")])
    assert sqlite.commits_inline


async def test_a_commit_of_many_rows_may_take_longer(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.count()
    monkeypatch.setattr(writer, "perf_counter", lambda: next(moments) * 0.004)
    for n in range(5):
        await sqlite.insert([row(f"{n}-{m}") for m in range(1_000)])
    assert sqlite.commits_inline


async def test_a_small_write_waits_for_the_thread_and_then_stays_out_of_it(sqlite: SqliteStore) -> None:
    """Or a flush behind a pick, and a pick behind that flush, would keep the thread busy for ever."""
    ran_in: list[int] = []
    slow_write, go_on = await begin_slow_write(sqlite)
    small = asyncio.ensure_future(sqlite._write(None, lambda _: ran_in.append(threading.get_ident()), is_small=True))
    await asyncio.sleep(0)
    assert not ran_in
    go_on.set()
    await asyncio.gather(slow_write, small)
    assert ran_in == [threading.get_ident()]


async def test_a_small_write_that_waited_for_a_store_that_closed_is_refused(stores: Stores) -> None:
    other = stores.store.sibling()
    assert isinstance(other, SqliteStore)
    await other.open()
    slow_write, go_on = await begin_slow_write(other)
    small = asyncio.ensure_future(other.insert([row("late")]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(other.close())
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(StoreError, match="not open"):
        await small
    await asyncio.gather(slow_write, closing)


async def test_others_run_after_a_write_but_not_between_a_pick_and_what_it_gives(
    sqlite: SqliteStore, hand: Hand
) -> None:
    """A worker begins what it has picked, and others run then."""
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "one")
    await sqlite.insert([row("a")])
    assert turns == ["one"]
    asyncio.get_running_loop().call_soon(turns.append, "two")
    assert len(await hand.pick()) == 1
    assert turns == ["one"]


@pytest.mark.parametrize("holder", ["another program", "another process"])
async def test_the_loop_turns_while_another_writes(sqlite: SqliteStore, hand: Hand, holder: str) -> None:
    """Or whatever else runs on it would stand still for as long as a write may wait."""
    claim = await hand.take(row("a"))
    other = sqlite3.connect(sqlite._path, isolation_level=None)
    lock = WriterLock(sqlite._path, 10)
    if holder == "another program":
        other.execute("begin immediate")
    else:
        lock.acquire()
    with pytest.raises(WouldStall):
        sqlite.flush_now(hand.name, [Commit(claim, (done(),))])
    sqlite._opened()._stall = 0.0
    inserting = asyncio.ensure_future(hand.insert(row("b")))
    asyncio.get_running_loop().call_later(0.05, other.close)  # which the loop does only if it turns
    asyncio.get_running_loop().call_later(0.05, lock.close)
    await inserting
    assert not sqlite.commits_inline, "the next are left to the thread, until commits are quick again"
    await hand.apply(claim, done())


@pytest.mark.parametrize("holder", ["another program", "another process", "a write of this process"])
async def test_a_step_waits_for_nobody_on_the_loops_thread(sqlite: SqliteStore, hand: Hand, holder: str) -> None:
    claim = await walked(hand)
    other = sqlite3.connect(sqlite._path, isolation_level=None)
    lock = WriterLock(sqlite._path, 10)
    go_on, slow_write = threading.Event(), None
    if holder == "another program":
        other.execute("begin immediate")
    elif holder == "another process":
        lock.acquire()
    else:
        slow_write, go_on = await begin_slow_write(sqlite)
    assert sqlite.step_now(hand.name, claim, *step(3 * EVENTS)) == 0
    other.close()
    lock.close()
    go_on.set()
    if slow_write is not None:
        await slow_write
    sqlite._opened()._stall = 0.0
    assert sqlite.step_now(hand.name, claim, *step(3 * EVENTS))


async def test_slow_steps_go_to_the_thread(sqlite: SqliteStore, hand: Hand) -> None:
    claim = await walked(hand)
    sqlite._opened()._stall = 1.0
    assert sqlite.step_now(hand.name, claim, *step(3 * EVENTS)) == 0
    await hand.apply(claim, *step(3 * EVENTS))


async def test_no_step_is_written_into_a_file_that_is_gone(
    sqlite: SqliteStore, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen within the moment that a commit may take, in which nobody would see it either."""
    claim = await walked(hand)
    aside = tmp_path / "aside.db"
    sqlite._path.rename(aside)
    now = monotonic() + ledger_file.FRESH_SECONDS
    monkeypatch.setattr(ledger_file, "monotonic", lambda: now)
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        sqlite.step_now(hand.name, claim, *step(3 * EVENTS))
    aside.rename(sqlite._path)
    assert sqlite.step_now(hand.name, claim, *step(3 * EVENTS))


@pytest.mark.parametrize(("point", "applied"), [("flush.before", False), ("flush.after", True)])
async def test_a_crash_of_a_step_leaves_all_of_it_or_nothing(
    sqlite: SqliteStore, hand: Hand, point: str, applied: bool
) -> None:
    claim = await walked(hand)

    def crash(reached: str) -> None:
        if reached == point:
            raise Crash(point)

    set_hook(crash)
    try:
        with pytest.raises(Crash):
            sqlite.step_now(hand.name, claim, *step(3 * EVENTS))
    finally:
        set_hook(None)
    assert len(await sqlite.journal(claim.promise)) == 3 + applied
    assert bool(sqlite.step_now(hand.name, claim, *step(3 * EVENTS))) is not applied


async def test_a_write_that_is_cancelled_before_its_turn_keeps_no_other_out(sqlite: SqliteStore) -> None:
    slow_write, go_on = await begin_slow_write(sqlite)
    behind = asyncio.ensure_future(sqlite._write(None, lambda _: None))
    await asyncio.sleep(0)
    behind.cancel()
    go_on.set()
    await asyncio.wait((slow_write, behind))
    assert sqlite.commits_inline


async def test_threads_switch_more_often_while_many_rows_are_written(sqlite: SqliteStore) -> None:
    usual = sys.getswitchinterval()
    seen: list[float] = []
    set_hook(lambda _: seen.append(sys.getswitchinterval()))
    try:
        some, more = ([row(f"{part}-{n}") for n in range(300)] for part in "ab")
        await asyncio.gather(sqlite.insert(some), sqlite.insert(more))
        await sqlite.insert([row("one")])
    finally:
        set_hook(None)
    assert len(seen) == 6
    assert all(seconds < usual for seconds in seen[:4])
    assert [*seen[4:], sys.getswitchinterval()] == [usual] * 3


async def test_a_transaction_that_writes_nothing_says_nothing_of_commits(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count()
    monkeypatch.setattr(writer, "perf_counter", lambda: next(moments))
    await sqlite._write(None, lambda tx: tx.db.execute("select 1").fetchone())
    assert sqlite.commits_inline


async def test_cancelling_the_caller_does_not_undo_a_write(sqlite: SqliteStore) -> None:
    writing, go_on = await begin_slow_write(
        sqlite, lambda tx: tx.db.execute("insert into queues (name) values ('made')")
    )
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    go_on.set()
    await sqlite._write(None, lambda _: None)  # waits for its turn in the writer thread
    assert [stats.settings.name for stats in await sqlite.queues()] == ["made"]


@pytest.mark.parametrize("inline", [False, True])
async def test_a_crash_before_the_commit_leaves_nothing(sqlite: SqliteStore, hand: Hand, inline: bool) -> None:
    claim = await hand.take(row("a"))
    before = await sqlite.get(promise_of("a"))
    with pytest.raises(Crash):
        await _flush_and_crash(sqlite, hand, Commit(claim, (done(),)), "flush.before", inline)
    assert await sqlite.get(promise_of("a")) == before
    assert (await hand.apply(claim, done())).applied


@pytest.mark.parametrize("inline", [False, True])
async def test_a_crash_after_the_commit_leaves_all_of_it(sqlite: SqliteStore, hand: Hand, inline: bool) -> None:
    claim = await hand.take(row("a"))
    with pytest.raises(Crash):
        await _flush_and_crash(sqlite, hand, Commit(claim, (done(),)), "flush.after", inline)
    view = await sqlite.get(promise_of("a"))
    assert view is not None
    assert view.status is Status.DONE
    assert not (await hand.commit(claim, done())).applied


async def _flush_and_crash(sqlite: SqliteStore, hand: Hand, commit: Commit, point: str, inline: bool) -> None:
    def crash(reached: str) -> None:
        if reached == point:
            raise Crash(point)

    set_hook(crash)
    try:
        if inline:
            sqlite.flush_now(hand.name, [commit])
        else:
            await sqlite.flush(hand.name, [commit])
    finally:
        set_hook(None)


NORMAL, FULL = 1, 2


async def _levels(sqlite: SqliteStore, act: Callable[[], Awaitable[object]], crash_at: str = "") -> dict[str, int]:
    """What `synchronous` was when each commit was about to be made."""
    found: dict[str, int] = {}

    def look(reached: str) -> None:
        found[reached] = sqlite._opened().db.execute("pragma synchronous").fetchone()[0]
        if reached == crash_at:
            raise Crash(reached)

    set_hook(look)
    try:
        await act()
    finally:
        set_hook(None)
    return {point: level for point, level in found.items() if point.endswith(".before")}


async def test_a_lease_does_not_wait_for_the_disk_but_every_outcome_does(sqlite: SqliteStore, hand: Hand) -> None:
    """The log is synced as a whole: an outcome takes the lease that it rests on along."""

    async def pick_and_end() -> None:
        (claim,) = await hand.pick(1)
        await hand.apply(claim, done())

    await sqlite.insert([row("a")])
    assert await _levels(sqlite, pick_and_end) == {"pick.before": NORMAL, "flush.before": FULL}


async def test_a_lease_that_spends_of_a_rate_waits_for_the_disk(sqlite: SqliteStore, hand: Hand) -> None:
    """Else a machine that goes down would give back what was spent."""
    await sqlite.configure_queue(QueueSettings(name="default", rate=2.0))
    await sqlite.insert([row("a")])
    for _ in range(2):  # the first such pick begins as one that need not
        assert await _levels(sqlite, lambda: hand.pick(1)) == {"pick.before": FULL}
    assert (await hand.view("a")).status is Status.EXECUTING
    await sqlite.configure_queue(QueueSettings(name="default"))
    await hand.pick(1)
    assert await _levels(sqlite, lambda: hand.pick(1)) == {"pick.before": NORMAL}


async def test_a_rate_of_another_queue_keeps_no_lease_waiting(sqlite: SqliteStore, hand: Hand) -> None:
    await sqlite.configure_queue(QueueSettings(name="other", rate=2.0))
    await sqlite.insert([row("a")])
    assert await _levels(sqlite, lambda: hand.pick(1)) == {"pick.before": NORMAL}


async def test_after_a_lease_that_failed_outcomes_wait(sqlite: SqliteStore, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await sqlite.insert([row("b")])
    with pytest.raises(Crash):
        await _levels(sqlite, lambda: hand.pick(1), crash_at="pick.before")
    assert await _levels(sqlite, lambda: hand.apply(claim, done())) == {"flush.before": FULL}


async def test_a_connection_that_is_opened_again_waits_for_the_disk_unless_told_otherwise(
    sqlite: SqliteStore, hand: Hand
) -> None:
    claim = await hand.take(row("a"))
    assert sqlite._opened().pause(1)
    sqlite._opened().resume()
    assert await _levels(sqlite, lambda: hand.pick(1)) == {"pick.before": NORMAL}
    assert sqlite._opened().pause(1)
    sqlite._opened().resume()
    assert await _levels(sqlite, lambda: hand.apply(claim, done())) == {"flush.before": FULL}


async def test_a_long_line_behind_a_held_key_is_blocked_in_bounded_transactions(
    sqlite: SqliteStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ruling E9: the row behind the line is picked in the same call; other writers get in between."""
    monkeypatch.setattr(picking, "BLOCKED_MAX", 10)
    await sqlite.insert([row(str(n), partition_key="hot") for n in range(35)] + [row("free")])
    commits: list[str] = []
    set_hook(commits.append)
    picked = await sqlite.pick(hand.name, [QueueRoom("default", 5)], [HANDLER], 5)
    set_hook(None)
    assert [claim.promise for claim in picked.claims] == [promise_of("0"), promise_of("free")]
    assert commits.count("pick.after") == 4
    again = await sqlite.pick(hand.name, [QueueRoom("default", 5)], [HANDLER], 5)
    assert again.claims == []


async def test_the_number_of_a_purged_row_is_never_given_again(stores: Stores, sqlite: SqliteStore, hand: Hand) -> None:
    """A child that outlives its parent must not take a stranger for it (ruling E10)."""
    first = await hand.take(row("a"))
    await hand.apply(first, done())
    await stores.advance(1)
    assert await sqlite.purge(Retention(age_seconds=0), 10) == 1
    second = await hand.take(row("b"))
    assert second.row > first.row


async def test_a_scope_without_runnable_never_occupies_its_key(sqlite: SqliteStore, hand: Hand) -> None:
    """Ruling E14: a row that came into its scope later could meet another there and abort the whole pick."""
    rows = [row(key, unique_key=b"k", unique_scope=("executing",)) for key in "ab"]
    assert [one.created for one in await sqlite.insert(rows)] == [True, True]
    assert len(await hand.pick()) == 2


async def test_nothing_is_written_into_a_file_that_is_gone(sqlite: SqliteStore, hand: Hand, tmp_path: Path) -> None:
    """SQLite goes on in the old file, which nobody can find any more: a commit there would be lost."""
    claim = await hand.take(row("a"))
    path, aside = sqlite._path, tmp_path / "aside.db"
    path.rename(aside)
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        await hand.insert(row("b"))
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        sqlite.flush_now(hand.name, [Commit(claim, (done(),))])
    shutil.copyfile(aside, path)
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        await sqlite.beat(hand.name, 30)
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):  # it would be read as it was, for ever
        await sqlite.get(promise_of("a"))
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        await sqlite.endings([promise_of("a")])
    aside.replace(path)
    await hand.apply(claim, done())


async def test_nothing_is_written_into_a_log_that_is_gone(sqlite: SqliteStore, hand: Hand, tmp_path: Path) -> None:
    log, aside = sqlite._path.with_name(f"{sqlite._path.name}-wal"), tmp_path / "aside"
    log.rename(aside)
    with pytest.raises(StoreUnavailableError, match="-wal was deleted or replaced"):
        await hand.insert(row("a"))
    aside.rename(log)
    await hand.insert(row("a"))


async def test_nothing_is_written_beside_a_log_that_was_replaced(
    sqlite: SqliteStore, hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen within a moment: a look at each commit would cost as much as the commit."""
    await hand.insert(row("a"))
    log, aside = sqlite._path.with_name(f"{sqlite._path.name}-wal"), tmp_path / "aside"
    log.rename(aside)
    shutil.copyfile(aside, log)
    monkeypatch.setattr(ledger_file, "monotonic", lambda: inf)
    with pytest.raises(StoreUnavailableError, match="-wal was deleted or replaced"):
        await hand.insert(row("b"))
    aside.replace(log)


async def test_nothing_is_written_where_the_folder_cannot_be_looked_into(
    sqlite: SqliteStore, hand: Hand, tmp_path: Path
) -> None:
    """A volume that was taken away leaves whatever was below it."""
    folder, aside = sqlite._path.parent, tmp_path.parent / f"{tmp_path.name}-aside"
    folder.rename(aside)
    folder.touch()
    try:
        with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
            await hand.insert(row("a"))
    finally:
        folder.unlink()
        aside.rename(folder)
    await hand.insert(row("a"))


@pytest.mark.parametrize("has_ended", [False, True], ids=["goes on", "has ended"])
async def test_what_is_retried_while_retention_looks_is_kept(
    stores: Stores, sqlite: SqliteStore, hand: Hand, has_ended: bool
) -> None:
    """Its id and its key stand for the run that goes on."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, fail())
    await hand.insert(row("b"))
    await hand.apply(await hand.take(), done())
    await stores.advance(60)
    rule = Retention(age_seconds=1)
    now = stores.clock.now_us()
    found = await sqlite._read(lambda db: control.purgeable(db, now, rule, 10))
    again = PromiseId.from_bytes(claim.promise).successor("retry").to_bytes()
    await sqlite.fork(row("a", promise=again), None, replaces=claim.promise)
    if has_ended:
        await hand.beat()
        await hand.apply(await hand.take(), done())
    assert await sqlite._write("purge", lambda tx: control.purge(tx, found, now, rule)) == 1
    assert await sqlite.get(claim.promise) is not None
