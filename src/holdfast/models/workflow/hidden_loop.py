"""What asyncio finds instead of the engine's event loop while a body runs.

The body is driven by hand, in the engine's own asyncio task. `asyncio.timeout`, `create_task` and their like would
act on that task without ever yielding. So the running loop is replaced by this one, whose every use is an error that
names the line. Hiding the loop alone would not do: `gather` and `Future` would find it as the thread's current loop.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import AbstractEventLoop
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, NoReturn, cast

from holdfast.core.errors import ForeignAwaitError


class _HiddenLoop:
    """No method of a loop works; even looking a task up by it does not."""

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_: Any) -> NoReturn:
        coroutine.close()  # or Python would complain that it was never awaited
        raise _foreign("create_task")

    def __getattr__(self, name: str) -> NoReturn:
        raise _foreign(name)

    def __hash__(self) -> int:
        raise _foreign("current_task")


def _foreign(what: str) -> ForeignAwaitError:
    return ForeignAwaitError(
        f"the body used asyncio ({what}) at {_line()}; a workflow has no event loop of its own: use ctx.sleep, "
        "ctx.all, ctx.any, ctx.join_set and timeouts of tasks and signals, or do it inside a task"
    )


def _line() -> str:
    """The innermost line that is neither asyncio's nor ours."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename.replace("\\", "/")
        if "/asyncio/" not in name and frame.f_code.co_filename != __file__:
            return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "its body"


_HIDDEN_LOOP: Final = cast(AbstractEventLoop, _HiddenLoop())


class Hidden:
    """While in it, code on this thread finds no loop, and the loop is not told of its async generators."""

    __slots__ = ("_hooks", "_loop")

    def __enter__(self) -> None:
        self._loop = asyncio._get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(_HIDDEN_LOOP)
        sys.set_asyncgen_hooks(None, None)

    def __exit__(self, *_: object) -> None:
        sys.set_asyncgen_hooks(*self._hooks)
        asyncio._set_running_loop(self._loop)
