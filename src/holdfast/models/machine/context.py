"""What a step sees: its state, its inbox, the children of the barrier just released."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from holdfast.core.codec import ErrorRecord, codec_for, decode_error
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.handle import new_signal
from holdfast.store.effects import DeliverSignal
from holdfast.store.values import ExecutionClaim, ExecutionView, Signal

StateT = TypeVar("StateT")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReceivedSignal:
    """A signal in the inbox. `payload` is plain JSON; `decode` gives it a type."""

    id: int
    name: str
    json: str

    @property
    def payload(self) -> Any:
        """What was sent, as plain JSON values."""
        return codec_for(Any).decode(self.json)

    def decode(self, as_type: type[T]) -> T:
        """What was sent, checked against a type."""
        return cast(T, codec_for(as_type).decode(self.json, signal=self.name))


@dataclass(frozen=True, slots=True)
class ChildResult:
    """A child of the barrier that was just released: it has ended, unless a quorum or a deadline let it run on."""

    view: ExecutionView

    @property
    def id(self) -> PromiseId:
        """The child's id."""
        return PromiseId.from_bytes(self.view.promise)

    @property
    def machine(self) -> str:
        """The name of its machine."""
        return self.view.name

    @property
    def status(self) -> Status:
        """How it ended, or where it stands if the barrier opened before."""
        return self.view.status

    @property
    def is_done(self) -> bool:
        """Whether it ended well."""
        return self.view.status is Status.DONE

    @property
    def error(self) -> ErrorRecord | None:
        """What it failed with, or None."""
        return None if self.view.error is None else decode_error(self.view.error)

    @property
    def result(self) -> Any:
        """Plain JSON; None unless it is done."""
        return None if self.view.result is None else codec_for(Any).decode(self.view.result)

    def result_as(self, as_type: type[T]) -> T:
        """Its result, checked against a type."""
        return cast(T, codec_for(as_type).decode(self.view.result or "null"))

    def state_as(self, as_type: type[T]) -> T:
        """Its last state, checked against a type."""
        return cast(T, codec_for(as_type).decode(self.view.state))


class MachineContext(Generic[StateT]):
    """One run of one step. Nothing here outlives it: what must last goes into the state that the step returns."""

    __slots__ = ("__dict__", "_claim", "_payload_limit", "_sent", "children", "state")

    def __init__(
        self,
        claim: ExecutionClaim,
        state: StateT,
        children: tuple[ChildResult, ...],
        payload_limit: int,
    ) -> None:
        self._claim = claim
        self._payload_limit = payload_limit
        self._sent: list[DeliverSignal] = []
        self.state = state
        self.children = children

    @property
    def id(self) -> PromiseId:
        """The id of this execution."""
        return PromiseId.from_bytes(self._claim.promise)

    @property
    def machine(self) -> str:
        """The name of this machine."""
        return self._claim.name

    @property
    def version(self) -> int:
        """Its version."""
        return self._claim.version

    @property
    def step(self) -> str:
        """The name of this step."""
        return self._claim.step

    @property
    def attempt(self) -> int:
        """How often this step was tried before: 0 the first time."""
        return self._claim.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step of this execution, for the outside world; a retry has new ones."""
        claim = self._claim
        # A replay moves revision and attempt, a crash moves attempt and crashes: what is left began with the step.
        return f"{self.id}:{claim.step}:{claim.revision - claim.attempt + claim.crashes}"

    @cached_property
    def inbox(self) -> tuple[ReceivedSignal, ...]:
        """Every signal that has arrived and was not consumed, in order of delivery (the seed's `ctx.all`)."""
        return tuple(_received(signal) for signal in self._claim.inbox)

    @cached_property
    def awaited(self) -> tuple[ReceivedSignal, ...]:
        """Those whose names this step was waiting for. Going on from it consumes exactly these."""
        names = self._claim.awaits
        if not names:
            return ()
        return tuple(_received(signal) for signal in self._claim.inbox if signal.name in names)

    @property
    def timed_out(self) -> bool:
        """Woken by the deadline, and no awaited signal has come since it parked.

        A step that collects a pack finds in `awaited` what it had got by then.
        """
        return self._claim.timed_out

    def signal(self, target: PromiseId, name: str, payload: object = None, *, dedup_key: str | None = None) -> None:
        """Send a signal in the commit of this step's outcome: it is sent exactly when the step counts."""
        self._sent.append(DeliverSignal(new_signal(target.to_bytes(), name, payload, dedup_key, self._payload_limit)))


def _received(signal: Signal) -> ReceivedSignal:
    return ReceivedSignal(signal.id, signal.name, signal.payload)
