"""Ears on a file: what they write, what they leave behind, and what they do without a socket."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from pathlib import Path

import pytest

from holdfast.core.crashpoints import set_hook
from holdfast.store.base import ARMED_SECONDS
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.writer import KNOCK_CHANGES_MOST
from holdfast.store.values import Topic
from holdfast.testing.hand import Hand, done, row
from holdfast.testing.stores import Stores


@pytest.fixture
def sqlite(stores: Stores) -> SqliteStore:
    assert isinstance(stores.store, SqliteStore)
    return stores.store


async def listeners(sqlite: SqliteStore) -> list[tuple[str, str, int]]:
    return await sqlite._read(lambda db: db.execute("select topic, address, expires_at from listeners").fetchall())


async def test_another_store_of_this_process_is_heard_without_arming(stores: Stores, sqlite: SqliteStore) -> None:
    heard: list[Topic] = []
    ear = await sqlite.open_ear(heard.append)
    other = await stores.another()
    await other.insert([row("a")])
    assert heard == [Topic.WORK]
    await ear.close()
    await other.insert([row("b")])
    assert heard == [Topic.WORK]


async def test_arming_again_writes_only_when_half_the_time_is_gone(stores: Stores, sqlite: SqliteStore) -> None:
    """A worker that is idle between any two jobs must not pay a commit for it each time."""
    ear = await sqlite.open_ear(lambda _: None)
    await ear.arm(Topic.WORK)
    first = await listeners(sqlite)
    await stores.advance(ARMED_SECONDS * 0.4)
    await ear.arm(Topic.WORK)
    assert await listeners(sqlite) == first
    await stores.advance(ARMED_SECONDS * 0.2)
    await ear.arm(Topic.WORK)
    ((topic, address, expires_at),) = await listeners(sqlite)
    assert (topic, address) == first[0][:2]
    assert expires_at == stores.clock.now_us() + ARMED_SECONDS * 1_000_000
    await ear.close()


async def test_a_closed_ear_leaves_no_row_and_no_socket(sqlite: SqliteStore) -> None:
    ear = await sqlite.open_ear(lambda _: None)
    await ear.arm(Topic.WORK)
    await ear.arm(Topic.ENDED)
    ((_, address, _), (_, same, _)) = await listeners(sqlite)
    assert address == same
    assert os.path.exists(address)  # noqa: ASYNC240 - a look at one name
    await ear.close()
    assert await listeners(sqlite) == []
    assert not os.path.exists(address)  # noqa: ASYNC240 - a look at one name


async def test_the_dead_are_forgotten_by_whoever_arms_next(stores: Stores, sqlite: SqliteStore, tmp_path: Path) -> None:
    """A killed process leaves its row and its socket behind."""
    note = tmp_path / "note"
    note.write_text("no socket")
    with tempfile.TemporaryDirectory() as folder:
        left_behind = str(Path(folder) / "left")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
            killed.bind(left_behind)
        long_ago = stores.clock.now_us() - 120_000_000
        dead = [("a", "work", left_behind, long_ago), ("b", "work", str(note), long_ago)]
        await sqlite._write(None, lambda tx: tx.db.executemany("insert into listeners values (?, ?, ?, ?)", dead))
        ear = await sqlite.open_ear(lambda _: None)
        await ear.arm(Topic.WORK)
        assert [address for _, address, _ in await listeners(sqlite)] == [ear.address]
        assert os.listdir(folder) == []
    assert os.listdir(tmp_path).count("note") == 1
    await ear.close()


async def test_a_listener_that_never_reads_holds_nobody_up(stores: Stores, sqlite: SqliteStore) -> None:
    """Its socket's queue is full after a few datagrams; the commits go on."""
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with tempfile.TemporaryDirectory() as folder, deaf:
        address = str(Path(folder) / "deaf")
        deaf.bind(address)
        until = stores.clock.now_us() + 10_000_000
        await sqlite._write(
            None, lambda tx: tx.db.execute("insert into listeners values ('x', 'work', ?, ?)", (address, until))
        )
        for n in range(50):
            assert [one.created for one in await sqlite.insert([row(str(n))])] == [True]
        assert deaf.recv(16) == b"w"


@pytest.mark.parametrize(
    ("many", "topic", "before"), [(1, "work", b"w"), (1, "ended", b""), (KNOCK_CHANGES_MOST + 1, "work", b"")]
)
async def test_who_waits_for_work_in_another_process_wakes_up_while_a_small_commit_is_made(
    stores: Stores, sqlite: SqliteStore, hand: Hand, many: int, topic: str, before: bytes
) -> None:
    """It queues for the lock to look for it; who waits for an end only reads, and would find nothing yet."""
    claim = await hand.take(row("ends"))
    told: dict[str, bytes] = {}
    letters = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with tempfile.TemporaryDirectory() as folder, letters:
        address = str(Path(folder) / "listens")
        letters.bind(address)
        letters.setblocking(False)
        until = stores.clock.now_us() + 10_000_000
        other = ("x", topic, address, until)
        await sqlite._write(None, lambda tx: tx.db.execute("insert into listeners values (?, ?, ?, ?)", other))

        def look(point: str) -> None:
            try:
                told[point] = letters.recv(16)
            except BlockingIOError:
                told[point] = b""

        set_hook(look)
        try:
            if topic == "work":
                await sqlite.insert([row(str(n)) for n in range(many)])
            else:
                await hand.apply(claim, done())
        finally:
            set_hook(None)
        look("told")
    kind = "insert" if topic == "work" else "flush"
    assert told[f"{kind}.before"] == before
    assert told["told"] == (b"" if before else topic[:1].encode())


@pytest.mark.parametrize("folder", ["too long", "none"])
async def test_without_a_socket_an_ear_still_hears_its_own_process(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    """In a container with a read-only file system no folder for temporary files may be found at all."""
    if folder == "none":
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "missing")])
    else:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 40)))
    heard: list[Topic] = []
    ear = await sqlite.open_ear(heard.append)
    assert ear.address is None
    await ear.arm(Topic.WORK)
    assert await listeners(sqlite) == []
    await sqlite.insert([row("a")])
    assert heard == [Topic.WORK]
    await ear.close()


async def test_a_listener_that_fails_does_not_fail_the_commit(sqlite: SqliteStore) -> None:
    def fail(_: Topic) -> None:
        raise ValueError("in the listener")

    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    ear = await sqlite.open_ear(fail)
    assert [one.created for one in await sqlite.insert([row("a")])] == [True]
    assert told == ["in the listener"]
    loop.set_exception_handler(None)
    await ear.close()


async def test_an_ear_closes_where_nothing_can_be_written(sqlite: SqliteStore) -> None:
    """A worker that stops has more to close; the row expires by itself."""
    ear = await sqlite.open_ear(lambda _: None)
    await ear.arm(Topic.WORK)
    aside = sqlite._path.rename(sqlite._path.with_suffix(".aside"))
    await ear.close()
    aside.rename(sqlite._path)
    assert len(await listeners(sqlite)) == 1
