"""Waking who is idle: ears of this process at once, other processes by a datagram.

An ear hears every commit of its process. While it is armed, its socket's address stands in `listeners`, and whoever
commits in another process sends it one byte a topic. A datagram that is lost, or a system without unix sockets, costs a
poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import stat
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from holdfast.core.clock import MICROSECONDS, Clock
from holdfast.core.errors import HoldfastError
from holdfast.store.base import ARMED_SECONDS
from holdfast.store.sqlite.rows import after
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Topic

_BYTE: Final = {Topic.WORK: b"w", Topic.ENDED: b"e", Topic.PUBLISHED: b"p"}
_TOPIC: Final = {byte[0]: topic for topic, byte in _BYTE.items()}
_FORGOTTEN_SECONDS: Final = 60.0  # rows of listeners that died are deleted so long after they ran out

# Every open ear of this process, by file: stores of several threads on one file hear each other.
_ears: dict[str, set[SqliteEar]] = {}
_ears_guard = threading.Lock()


def _forget_ears() -> None:
    """In a forked process: who listens in its parent is another process now, and is told by a datagram."""
    global _ears_guard
    _ears_guard = threading.Lock()
    _ears.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_ears)


class SqliteEar:
    """One listener on one event loop."""

    def __init__(
        self,
        file: str,
        hear: Callable[[Topic], None],
        write: Callable[[Callable[[Tx], None]], Awaitable[None]],
        clock: Clock,
        knocked: Callable[[], None],
    ) -> None:
        """`knocked` hears of each letter that tells of work: the commit itself may be still to come (`announce`)."""
        self._file = file
        self._knocked = knocked
        self._hear = hear
        self._write = write
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._pending: set[Topic] = set()
        self._armed_until: dict[Topic, int] = {}
        self.id = secrets.token_hex(8)
        self._socket, self.address = _bind(self.id)
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._receive)
        with _ears_guard:
            _ears.setdefault(file, set()).add(self)

    async def arm(self, topic: Topic) -> None:
        """Announce the socket; nothing is written while more than half of the last announcement is left."""
        left_us = self._armed_until.get(topic, 0) - self._clock.now_us()
        if self.address is not None and left_us <= ARMED_SECONDS * MICROSECONDS / 2:
            address = self.address
            await self._write(lambda tx: self._announce(tx, topic, address))

    def _announce(self, tx: Tx, topic: Topic, address: str) -> None:
        until = after(tx.now, ARMED_SECONDS)
        tx.db.execute(SQL["listener_arm"], (self.id, topic.value, address, until))
        dead = tx.db.execute(SQL["listener_forget"], (after(tx.now, -_FORGOTTEN_SECONDS),)).fetchall()
        for (left_behind,) in dead:
            _unlink(left_behind)
        self._armed_until[topic] = until

    @property
    def is_deaf(self) -> bool:
        """Its loop was closed, and it was not."""
        return self._loop.is_closed()

    def drop(self) -> None:
        with _ears_guard:
            ears = _ears.get(self._file, set())
            ears.discard(self)
            if not ears:
                _ears.pop(self._file, None)
        if self._socket is not None and self.address is not None:
            if not self.is_deaf:
                self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            _unlink(self.address)

    async def close(self) -> None:
        self.drop()
        if self._armed_until:
            self._armed_until.clear()
            with contextlib.suppress(HoldfastError):  # the row expires by itself
                await self._write(self._remove)

    def _remove(self, tx: Tx) -> None:
        tx.db.execute(SQL["listener_remove"], (self.id,))

    def ring(self, topics: tuple[Topic, ...]) -> None:
        """Called by whoever committed, on any thread."""
        if threading.get_ident() == self._thread:
            self._hear_all(topics)
            return
        fresh = [topic for topic in topics if topic not in self._pending]
        if fresh:
            self._pending.update(fresh)
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody listens
                self._loop.call_soon_threadsafe(self._ring_here, fresh)

    def _ring_here(self, topics: list[Topic]) -> None:
        self._pending.difference_update(topics)
        self._hear_all(topics)

    def _hear_all(self, topics: Iterable[Topic]) -> None:
        """A listener's error is the listener's: whoever committed must not take it for its own."""
        for topic in topics:
            try:
                self._hear(topic)
            except Exception as error:
                self._loop.call_exception_handler({"message": "a listener of the store failed", "exception": error})

    def _receive(self) -> None:
        """One letter; the loop calls again while there are more."""
        if self._socket is not None:
            try:
                (byte,) = self._socket.recv(1)
            except (BlockingIOError, ValueError):  # there is none, or an empty one
                return
            if byte in _TOPIC:
                if _TOPIC[byte] is Topic.WORK:
                    self._knocked()
                self._hear_all((_TOPIC[byte],))


def drop_deaf_ears(file: str) -> None:
    with _ears_guard:
        deaf = [ear for ear in _ears.get(file, ()) if ear.is_deaf]
    for ear in deaf:
        ear.drop()


class Announcer:
    """Tells every listener on one file of a commit."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._socket = _socket()

    def announce(self, tx: Tx, may_knock: bool) -> Callable[[], None]:
        """Read inside the transaction who listens; the answer is called once it is committed.

        Who waits in another process for work queues for the lock to look for it, and finds what is committed by then.
        So it may be told before: it wakes up while this one waits for the disk. Who hears of anything else only reads.
        """
        due = ((Topic.WORK, tx.work), (Topic.ENDED, tx.ended), (Topic.PUBLISHED, tx.published))
        topics = tuple(topic for topic, is_due in due if is_due)
        with _ears_guard:
            here = list(_ears.get(self._file, ()))
        known = {ear.id for ear in here}
        letters = []
        if self._socket is not None:
            for topic in topics:
                found = tx.db.execute(SQL["listener_addresses"], (topic.value, tx.now)).fetchall()
                addressed = [(_BYTE[topic], address) for ear_id, address in found if ear_id not in known]
                if topic is Topic.WORK and may_knock and not tx.stirred:
                    self._send(addressed)
                else:
                    letters += addressed
        return lambda: self._tell(here, topics, letters)

    def _tell(self, here: list[SqliteEar], topics: tuple[Topic, ...], letters: list[tuple[bytes, str]]) -> None:
        for ear in here:
            ear.ring(topics)
        self._send(letters)

    def _send(self, letters: list[tuple[bytes, str]]) -> None:
        for letter, address in letters:
            if self._socket is not None:
                with contextlib.suppress(OSError):  # gone, or it has not read the last ones yet
                    self._socket.sendto(letter, address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _socket() -> socket.socket | None:
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        return None
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


def _bind(ear_id: str) -> tuple[socket.socket | None, str | None]:
    """A socket under a short path: the system allows about a hundred bytes."""
    made = _socket()
    if made is None:
        return None, None
    try:
        address = os.path.join(tempfile.gettempdir(), f"holdfast-{ear_id}.sock")
        made.bind(address)
        os.chmod(address, 0o600)
    except OSError:  # there is no folder that is writable, or its path is too long: polling remains
        made.close()
        return None, None
    return made, address


def _unlink(address: str) -> None:
    """Remove a listener's socket; anything that is none stays."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.lstat(address).st_mode):
            os.unlink(address)
