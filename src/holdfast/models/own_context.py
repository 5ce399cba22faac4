"""User code on the event loop, in a context of its own: what it sets there reaches neither the engine nor the next."""

from __future__ import annotations

import contextvars
from collections.abc import Coroutine, Generator
from typing import Any, Final

_NOT_BEGUN: Final = object()


class InContext:
    """Runs a coroutine in this task, but in a context of its own.

    A task for each piece of user code would do the same, and cost a turn of the loop each. `awaited` is what it
    waits for, if it has begun.
    """

    __slots__ = ("_awaited", "_context", "_running")

    def __init__(
        self, context: contextvars.Context, running: Coroutine[Any, Any, Any], awaited: Any = _NOT_BEGUN
    ) -> None:
        self._context = context
        self._running = running
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        run, running, awaited = self._context.run, self._running, self._awaited
        advance, value = running.send, None
        while True:
            if awaited is _NOT_BEGUN:
                try:
                    awaited = run(advance, value)
                except StopIteration as end:
                    return end.value
            try:
                advance, value = running.send, (yield awaited)
            except GeneratorExit:
                run(running.close)
                raise
            except BaseException as error:
                advance, value = running.throw, error
            awaited = _NOT_BEGUN
