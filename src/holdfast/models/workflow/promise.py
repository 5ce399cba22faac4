"""What a workflow's body may await: promises of calls and timers, signals, and combinations of them.

Each `__await__` asks the session whether the journal has the answer; if not, it yields a `Wait` to the driver, and
nothing else is ever yielded. A call takes its number in the journal when it is made, a signal when it is awaited.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from msgspec import UNSET, UnsetType

from holdfast.core.errors import CallNotAllowedError, DecodeError, InvalidArgumentError
from holdfast.core.journal.book import Waiting as Wait
from holdfast.core.journal.events import AwaitKind, Ok, Result
from holdfast.models.workflow.control_flow import CURRENT

if TYPE_CHECKING:
    from holdfast.models.workflow.session import Session

T = TypeVar("T", covariant=True)

UNNUMBERED: Final = "?"  # how the ids begin by which clean-up waits for signals


class Promise(ABC, Generic[T]):
    """A durable operation that was begun. Awaiting it twice gives the same answer."""

    __slots__ = ("_outcome", "_session", "local_id")

    def __init__(self, session: Session, local_id: str) -> None:
        self._session = session
        self.local_id = local_id  # as in the journal
        self._outcome: Any = UNSET

    @property
    def id(self) -> str:
        """The same in every replay: the id of the execution that began it, and its number there."""
        return self._session.journal.execution_id + self.local_id

    def __await__(self) -> Generator[Wait, None, T]:
        session = self._session
        session.must_be_current()
        if self._outcome is UNSET:
            if not session.is_ready_alone(self.local_id):
                yield Wait("Single", (self.local_id,))
            self._settle()
        return self._value()

    def _settle(self) -> None:
        if self._outcome is UNSET:
            self._outcome = self._session.take(self.local_id)

    @abstractmethod
    def _value(self) -> T:
        """What awaiting it gives, once it is settled."""


class TimerPromise(Promise[None]):
    """Settled when the timer fires."""

    __slots__ = ()

    def _value(self) -> None:
        return None


class CallPromise(Promise[T]):
    """Settled when the call has a result, good or bad."""

    __slots__ = ("_call", "_decoded")

    def __init__(self, session: Session, local_id: str, call: Any) -> None:
        self._session = session
        self.local_id = local_id
        self._outcome: Any = UNSET
        self._call = call  # a Callee: decodes results and rebuilds errors
        self._decoded: Any = UNSET

    def __await__(self) -> Generator[Wait, None, T]:
        """As any promise; in one piece, since this is what bodies await most."""
        session, promise_id = self._session, self.local_id
        if CURRENT.session is not session or session.is_evicting:
            session.must_be_current()
        if self._decoded is UNSET:
            if self._outcome is UNSET and not session.is_ready_alone(promise_id):
                yield Wait("Single", (promise_id,))
                answered = session.answered
                if answered is not None and answered[0].promise_id == promise_id:
                    self._decoded = answered[3]
                    return self._decoded  # type: ignore[no-any-return]
            self._settle()
            return self._value()
        return self._decoded  # type: ignore[no-any-return]

    def _settle(self) -> None:
        if self._outcome is UNSET and self._decoded is UNSET:
            session, promise_id = self._session, self.local_id
            self._outcome = session.settled[promise_id].value
            self._decoded = session.fresh.pop(promise_id, UNSET)

    def _value(self) -> T:
        if self._decoded is UNSET:
            try:
                self._decoded = self._call.open_result(self._outcome)
            except DecodeError as error:
                if isinstance(self._outcome, Ok):  # else it is what the call raised
                    self._session.cannot_read(self.name, error)
                raise
        return self._decoded  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        return self._call.name  # type: ignore[no-any-return]


class SignalPromise(Generic[T]):
    """The next signal of a name. It has no number before it is awaited."""

    __slots__ = ("_decode", "_session", "_timeout_seconds", "_timer", "_value", "local_id", "name")

    def __init__(self, session: Session, name: str, decode: Any, timeout_seconds: float | None) -> None:
        self._session = session
        self.name = name
        self._decode = decode
        self._timeout_seconds = timeout_seconds
        self._timer: str | None = None
        self._value: Any = UNSET
        self.local_id: str | None = None

    @property
    def id(self) -> str | None:
        """As of any promise, once it is awaited; in clean-up after a cancel, once it has come."""
        local_id = self.local_id
        is_numbered = local_id is not None and not local_id.startswith(UNNUMBERED)
        return f"{self._session.journal.execution_id}{local_id}" if is_numbered else None

    def __await__(self) -> Generator[Wait, None, T]:
        session = self._session
        session.must_be_current()
        if self._value is UNSET:
            if self._timeout_seconds is None:
                yield from self._await_plain(session)
            else:
                yield from self._await_until(session, self._timeout_seconds)
        return self._value  # type: ignore[no-any-return]

    def _await_plain(self, session: Session) -> Generator[Wait, None, None]:
        waits = session.begin_signals((self,))
        if not session.is_ready("Signal", (self._id(),), waits):
            yield Wait("Signal", (self._id(),), waits)
        self._settle()

    def _await_until(self, session: Session, seconds: float) -> Generator[Wait, None, None]:
        """B10: waits for any of the signal's promise and a timer's; whichever the journal has first, wins."""
        if self.local_id is None:
            self._timer = session.begin_signal_timer(self, seconds)
        if self._timer is not None:
            waits = session.begin_signals((self,), is_any=True, beside=(self._timer,))
            both = (self._id(), self._timer)
            if not session.is_ready("Any", both, waits):
                yield Wait("Any", both, waits)
            if session.first_of(both) == self._timer:
                raise TimeoutError(f"no signal {self.name!r} came within {seconds:g} s")
        self._settle()

    def _id(self) -> str:
        assert self.local_id is not None
        return self.local_id

    def _settle(self) -> None:
        if self._value is UNSET:
            self.local_id = self._session.received.get(self._id(), self._id())
            try:
                self._value = self._decode(self._session.take(self._id()))
            except DecodeError as error:
                raise DecodeError(
                    f"{error}. A retry reads it again: with code that takes it; or fork the run at the event before it "
                    "came, and have another sent"
                ) from error


class Completed(Generic[T]):
    """A promise that has its answer: `result()` gives it, or raises what the call raised."""

    __slots__ = ("_value", "promise")

    def __init__(self, promise: Promise[T] | SignalPromise[T]) -> None:
        self.promise = promise

    def result(self) -> T:
        """The value; or raises what the call raised."""
        promise = self.promise
        if isinstance(promise, SignalPromise):
            return promise._value  # type: ignore[no-any-return]
        return promise._value()

    @property
    def failed(self) -> bool:
        """Whether `result()` would raise."""
        try:
            self.result()
        except Exception:
            return True
        return False


class Combination(Generic[T]):
    """All or any of several promises and signals."""

    __slots__ = ("_kind", "_members", "_session")

    def __init__(self, session: Session, kind: AwaitKind, members: tuple[Any, ...]) -> None:
        if not members:
            raise InvalidArgumentError(
                f"ctx.{kind.lower()}() needs something to wait for: give it promises; a list of them that may be empty "
                "is asked for that before"
            )
        for member in members:
            if not isinstance(member, Promise | SignalPromise):
                raise InvalidArgumentError(
                    f"ctx.{kind.lower()}() takes promises and signals, not {member!r:.100}: give it what calling a "
                    "task, ctx.invoke(), ctx.sleep() or ctx.signal() gives, not awaited; a list as *promises"
                )
            if member._session is not session:  # its number means another operation here
                raise forbid_elsewhere("this promise")
            if isinstance(member, SignalPromise) and member._timeout_seconds is not None:
                raise InvalidArgumentError(
                    f"the signal {member.name!r} has a timeout of its own; put ctx.sleep(...) beside it in ctx.any()"
                )
        if len({id(member) for member in members}) != len(members):
            raise InvalidArgumentError(
                f"ctx.{kind.lower()}() got the same promise twice: give each once; to run a task twice, call it twice"
            )
        self._session = session
        self._kind: AwaitKind = kind
        self._members = members

    def __await__(self) -> Generator[Wait, None, T]:
        session = self._session
        session.must_be_current()
        open_signals = [m for m in self._members if isinstance(m, SignalPromise) and m._value is UNSET]
        numbered = [member.local_id for member in self._members if member.local_id is not None]
        signals = session.begin_signals(open_signals, is_any=self._kind == "Any", beside=numbered)
        ids = tuple(member.local_id for member in self._members)
        session.note_watched(ids)
        if not session.is_ready(self._kind, ids, signals):
            yield Wait(self._kind, ids, signals)
        if self._kind == "All":
            return cast(T, [self._settled(member).result() for member in self._members])
        winner = session.first_of(ids)
        return cast(T, self._settled(self._members[ids.index(winner)]))

    def _settled(self, member: Any) -> Completed[Any]:
        member._settle()
        return Completed(member)


def forbid_elsewhere(what: str) -> CallNotAllowedError:
    return CallNotAllowedError(
        f"{what} belongs to the workflow that made it and can be awaited only in its body, while it runs"
    )


__all__ = [
    "CallPromise",
    "Combination",
    "Completed",
    "Promise",
    "Result",
    "SignalPromise",
    "TimerPromise",
    "UnsetType",
    "Wait",
]
