"""Blocked workflows kept in memory, so that going on costs no replay. Bounded by count and by journal bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from holdfast.models.workflow.session import Session

Mark: TypeAlias = tuple[int, int]


class WarmSessions:
    """The least recently used is dropped; a session counts only at the mark it was left at.

    A mark is the revision of the row, and how many connections to the ledger had broken when its claim began. A
    failover may forget commits, and others then write another history up to the same revision.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._sessions: OrderedDict[bytes, tuple[Mark, Session]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def take(self, promise: bytes, mark: Mark) -> Session | None:
        """The session, if nothing was written to its row since; it belongs to the caller from here on."""
        found = self._sessions.pop(promise, None)
        if found is None:
            return None
        left_at, session = found
        self._bytes -= session.journal_bytes
        if left_at != mark:
            session.evict()
            return None
        return session

    def put(self, promise: bytes, mark: Mark, session: Session) -> None:
        if self._most == 0 or session.journal_bytes > self._most_bytes:
            session.evict()
            return
        displaced = self._sessions.pop(promise, None)  # of a claim that heard late that it was over
        if displaced is not None:
            self._bytes -= displaced[1].journal_bytes
            displaced[1].evict()
        self._sessions[promise] = (mark, session)
        self._bytes += session.journal_bytes
        while len(self._sessions) > self._most or self._bytes > self._most_bytes:
            _, (_, oldest) = self._sessions.popitem(last=False)
            self._bytes -= oldest.journal_bytes
            oldest.evict()

    def clear(self) -> None:
        """Drop all: a worker leaves, or a test wants every workflow replayed."""
        while self._sessions:
            _, (_, session) = self._sessions.popitem()
            session.evict()
        self._bytes = 0
