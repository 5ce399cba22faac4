"""How a body is stopped from outside, and which body runs on this thread just now."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.models.workflow.session import Session


class Cancelled(BaseException):
    """Raised at the await where a cancel reaches the body. Clean-up in `finally` may still use durable calls."""


class Evicted(BaseException):
    """Raised by every durable call while an idle body is dropped from memory (ruling B16)."""


class ContinueAsNew(BaseException):
    """Raised by `ctx.continue_as_new`: the run ends here and goes on as a new one with this input."""

    def __init__(self, text: str) -> None:
        super().__init__("continue as new")
        self.text = text  # the input as canonical JSON


class Diverged(BaseException):
    """The body asked for something else than the journal holds, or cannot read what it holds; the session has why."""


class _Current(threading.local):
    """Which body runs on this thread just now; not a context variable, which would leak into tasks."""

    session: Session | None = None


CURRENT: Final = _Current()
