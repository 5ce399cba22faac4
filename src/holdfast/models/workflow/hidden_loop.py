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
from typing import Any, Final, NoReturn, cast

from msgspec import Struct

from holdfast.core.errors import ForeignAwaitError
from holdfast.models.workflow.divergence import line_of_caller


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
        f"the body used asyncio ({what}) at {line_of_caller()}; a workflow has no event loop: use ctx.sleep, "
        "ctx.all, ctx.any, ctx.join_set and timeouts of tasks and signals, or do it inside a task"
    )


HIDDEN_LOOP: Final = cast(AbstractEventLoop, _HiddenLoop())


_running_loop: Final = asyncio._get_running_loop
_set_running_loop: Final = asyncio._set_running_loop
_asyncgen_hooks: Final = sys.get_asyncgen_hooks
_set_asyncgen_hooks: Final = sys.set_asyncgen_hooks


class Outside(Struct, eq=False, gc=False):
    """What code on a thread finds while no body runs there. It is the same for as long as the loop runs."""

    loop: AbstractEventLoop | None
    first_iteration: Any  # the hooks of async generators
    finalizer: Any


def look_outside() -> Outside:
    return Outside(_running_loop(), *_asyncgen_hooks())


# Since Python 3.14 the current task is the thread's, not the loop's: it has to be hidden for itself.
if sys.version_info >= (3, 14):
    _swap_task: Any = asyncio.tasks._swap_current_task
else:
    _swap_task: Any = None


def hide(outside: Outside) -> asyncio.Task[Any] | None:
    """From now on code on this thread finds no loop and no task, and the loop is not told of its async generators.

    What `show` takes.
    """
    task = None if _swap_task is None or outside.loop is None else _swap_task(outside.loop, None)
    _set_running_loop(HIDDEN_LOOP)
    _set_asyncgen_hooks(None, None)
    return task


def show(outside: Outside, task: asyncio.Task[Any] | None) -> None:
    """The end of what `hide` began."""
    _set_asyncgen_hooks(outside.first_iteration, outside.finalizer)
    _set_running_loop(outside.loop)
    if task is not None:
        _swap_task(outside.loop, task)
