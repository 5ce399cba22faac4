"""Join sets: several calls at once, their results in the order in which they came."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import CallNotAllowedError, InvalidArgumentError
from holdfast.models.workflow.callee import is_callee
from holdfast.models.workflow.members import Members
from holdfast.models.workflow.promise import CallPromise, Completed, Wait, forbid_elsewhere
from holdfast.models.workflow.session import Session

P = ParamSpec("P")
T = TypeVar("T")


class JoinSet(Generic[T]):
    """Made by `ctx.join_set()`. Nothing can be submitted after the first result was taken (JS-2).

    Leaving its block waits for the rest; with `cancel_rest=True`, or when the block raises, the rest is cancelled.
    """

    def __init__(self, session: Session, cancel_rest: bool) -> None:
        self._session = session
        self._cancel_rest = cancel_rest
        self._unwatched: list[str] = []  # submitted since it was last waited for
        self._is_closed = False
        self._members: Members = session.begin_join_set()

    @property
    def id(self) -> str:
        """The same in every replay; a promise's, but it cannot be awaited."""
        return self._session.journal.execution_id + self._members.id

    def __len__(self) -> int:
        """How many results are left to take."""
        return len(self._members.left)

    @overload
    def submit(self, call: Awaitable[T], /) -> CallPromise[T]: ...
    @overload
    def submit(self, call: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> CallPromise[T]: ...
    def submit(self, call: Any, /, *args: Any, **kwargs: Any) -> CallPromise[T]:
        """Begin a call as a member; or take one that was begun before."""
        self._session.must_be_current()
        if self._is_closed:
            raise CallNotAllowedError(
                "a result was taken from this join set, so it takes no more calls (JS-2): submit all of them before "
                "the first next(), or open another ctx.join_set() for what comes later"
            )
        promise = call if isinstance(call, CallPromise) or not is_callee(call) else call(*args, **kwargs)
        if not isinstance(promise, CallPromise):
            raise InvalidArgumentError(
                f"a join set takes tasks, workflows and calls of them, not {call!r:.100}: write submit(task, "
                "argument), without `await`; what is no call, as a sleep, goes beside it with next(timeout=...)"
            )
        if promise._session is not self._session:  # its number means another call here
            raise forbid_elsewhere("this promise")
        owner = self._session.submitted.get(promise.local_id)
        if owner is not None:
            raise CallNotAllowedError(
                f"{promise.name} was submitted to a join set before, and a call has one owner (JS-7): take its result "
                "from that one, or await the call itself; to run it once more, submit another call of it"
            )
        self._session.submit(self._members, promise.local_id, promise)
        self._unwatched.append(promise.local_id)
        return promise

    def next(self, *, timeout: Duration | None = None) -> _Next[T]:
        """The next result, as it comes: `Completed`, whose `result()` gives the value or raises.

        `TimeoutError` after `timeout`: nothing is taken, and the calls go on.
        """
        return _Next(self, None if timeout is None else seconds(timeout, name="timeout"))

    async def first(self, count: int) -> list[Completed[T]]:
        """The first `count` that succeeded; raises the last failure if so many cannot be had any more."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidArgumentError(
                f"first() takes how many results are wanted, a whole number from 0, not {count!r}"
            )
        if count > len(self):
            raise CallNotAllowedError(
                f"{count} results are wanted of a join set in which {len(self)} are left to take: submit more "
                "calls, or ask for less"
            )
        found: list[Completed[T]] = []
        while len(found) < count:
            done = await self.next()
            if done.failed and len(self) < count - len(found):
                done.result()
            if not done.failed:
                found.append(done)
        return found

    def __aiter__(self) -> AsyncIterator[Completed[T]]:
        return _Iterator(self)

    async def __aenter__(self) -> JoinSet[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or self._cancel_rest:
            if self._session.is_evicting:
                return
            self._session.to_cancel += tuple(self._members.left)
            return
        while self._members.left:
            await self.next()


class _Iterator(Generic[T]):
    """Not a generator: one that is dropped in the middle would be finished by the engine's loop, outside the body."""

    __slots__ = ("_join_set",)

    def __init__(self, join_set: JoinSet[T]) -> None:
        self._join_set = join_set

    def __aiter__(self) -> _Iterator[T]:
        return self

    async def __anext__(self) -> Completed[T]:
        if not len(self._join_set):
            raise StopAsyncIteration
        return await self._join_set.next()


class _Next(Generic[T]):
    __slots__ = ("_join_set", "_timeout_seconds")

    def __init__(self, join_set: JoinSet[T], timeout_seconds: float | None) -> None:
        self._join_set = join_set
        self._timeout_seconds = timeout_seconds

    def __await__(self) -> Generator[Wait, None, Completed[T]]:
        join_set = self._join_set
        session, members = join_set._session, join_set._members
        session.must_be_current()
        if not members.left:
            raise CallNotAllowedError(
                "this join set has no result left to take (JS-6): call next() once for each call that was submitted, "
                "while len(jobs) is not 0, or take them with `async for`"
            )
        if join_set._unwatched:
            session.note_watched(join_set._unwatched)
            join_set._unwatched = []
        if self._timeout_seconds is not None:
            yield from self._await_until(session, members, self._timeout_seconds)
        elif not session.has_member(members):
            yield from self._await(session, members.wait())
        join_set._is_closed = True
        promise = session.take_member(members)
        promise._settle()
        return Completed(promise)

    def _await(self, session: Session, wait: Wait) -> Generator[Wait, None, None]:
        if not session.is_ready(wait.kind, wait.waiting_on, (), wait.join_set_id):
            yield wait

    def _await_until(self, session: Session, members: Members, limit: float) -> Generator[Wait, None, None]:
        """B8: a timer is no member; it stands beside the set, and whichever the journal has first, wins."""
        timer = session.begin_timer(limit)
        yield from self._await(session, members.wait(timer))
        if session.is_before(timer, members):
            raise TimeoutError(f"no call of the join set ended within {limit:g} s")
