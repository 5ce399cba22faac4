"""A call that a workflow made and that has no result yet."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from holdfast.core.journal.events import Ok
from holdfast.models.workflow.callee import Callee, CallSettings


class Settled(Struct, frozen=True, gc=False):
    sequence: int
    held: Any

    @property
    def value(self) -> Any:
        """Result of a call, Raw payload of a signal, FIRED."""
        held = self.held
        return Ok(Raw(held)) if type(held) is bytes else held  # as the lane leaves it: few ask for it once more


class OpenCall(Struct, eq=False, gc=False):
    """A call without a result."""

    promise_id: str  # local, as in the journal
    function_name: str
    input: str
    # As it was scheduled: a task that has got, or lost, its queue since must neither hang nor run twice.
    is_remote: bool
    callee: Callee | None = None  # once the body has asked for it
    arguments: Any = None  # the input as it was read back when it was written, for the first attempt
    attempt: int = 0
    first_started_us: int = 0
    retry_at_us: int | None = None
    started: bool = False  # an attempt is recorded as in flight
    value: Any = UNSET  # the result as it was read back when it was written
    key: str | None = None  # as in `CallSettings`


settings_of = msgspec.json.Decoder(CallSettings).decode
