"""Errors that point at a line of the body: code that diverged from its journal, and code that left the rails."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Coroutine, Mapping
from types import CodeType, FrameType
from typing import Any

from msgspec import Raw

from holdfast.core.errors import ForeignAwaitError
from holdfast.core.journal import Operation
from holdfast.models.workflow.control_flow import CURRENT

INPUT_SHOWN_CHARS = 200
_OURS = __file__.replace("\\", "/").removesuffix("models/workflow/divergence.py")
_ASYNCIO = asyncio.__file__.replace("\\", "/").removesuffix("__init__.py")
_REMEDY = (
    "Nothing was recorded. Run the code that wrote the journal, or guard the change with ctx.patched(...), "
    "then resume the execution"
)


def describe(
    execution_id: str,
    asked: tuple[Operation | None, str],
    recorded: Operation | None,
    body: Coroutine[Any, Any, Any] | None,
    inputs: Mapping[int, Raw],
) -> str:
    """The two sides, one above the other, and the line of code. `asked` is with its input, if it is a call."""
    number = recorded.promise_id.rpartition(".")[2] if recorded is not None else ""
    known = bytes(inputs.get(int(number), b"")).decode() if number.isdecimal() else ""
    return (
        f"the code of {execution_id[:8]} has changed: it no longer does what its journal says.\n"
        f"  journal: {_side(recorded, 'nothing more', known)}\n"
        f"  code:    {_side(asked[0], 'the end of the function', asked[1])}\n"
        f"  at:      {innermost_line(body)}\n{_REMEDY}"
    )


def _side(operation: Operation | None, nothing: str, text: str) -> str:
    if operation is None:
        return nothing
    if not operation.promise_id:
        return operation.kind
    number = operation.promise_id.rpartition(".")[2]
    name = f" {operation.name}" if operation.name else ""
    shown = f" {text[:INPUT_SHOWN_CHARS]}" if text else ""
    mark = f" [{operation.fingerprint}]" if operation.fingerprint else ""
    return f"#{number} {operation.kind}{name}{shown}{mark}"


def innermost_line(body: Coroutine[Any, Any, Any] | None) -> str:
    """Where the body stands: the innermost frame of the coroutines it awaits, `file:line in function`."""
    if body is not None and body.cr_running:  # type: ignore[attr-defined]
        return line_of_caller()
    frame: FrameType | None = None
    awaited: Any = body
    while awaited is not None:
        found = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if found is not None and not _is_of_asyncio(found.f_code.co_filename):
            frame = found
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        if awaited is not None and not hasattr(awaited, "cr_frame"):
            break
    if frame is None:
        return "its end"
    code: CodeType = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def line_of_caller() -> str:
    """The innermost line on the stack that is neither asyncio's nor ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not _is_of_asyncio(name) and not name.replace("\\", "/").startswith(_OURS):
            return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "its body"


def refuse_in_body(what: str) -> None:
    """What works on the ledger from outside would be done again by every replay of a body."""
    if CURRENT.session is not None:
        raise ForeignAwaitError(
            f"the body used {what} at {line_of_caller()}; a workflow starts, signals and reads nothing from outside: "
            "call the task or workflow itself, which is durable, or do it inside a task"
        )


def foreign_await(body: Coroutine[Any, Any, Any], awaited: object) -> ForeignAwaitError:
    return ForeignAwaitError(
        f"the body awaited {type(awaited).__module__}.{type(awaited).__qualname__} at {innermost_line(body)}; "
        "a workflow may await only durable calls: put I/O into a task, and use ctx.sleep, ctx.all and ctx.any"
    )


def explain_asyncio(error: BaseException) -> BaseException:
    """asyncio finds no loop inside a body; say what that means instead of what it looks like."""
    if not isinstance(error, RuntimeError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    user = [frame for frame in frames if not _is_of_asyncio(frame.filename)]
    is_its_own = bool(frames) and frames[-1] not in user  # "Timeout should be used inside a task", and its like
    if not is_its_own and "event loop" not in str(error):
        return error
    where = f"{user[-1].filename}:{user[-1].lineno} in {user[-1].name}" if user else "the body"
    explained = ForeignAwaitError(
        f"the body used asyncio at {where}; a workflow has no event loop of its own: use ctx.sleep, ctx.all, ctx.any, "
        "ctx.join_set and timeouts of tasks and signals, or do it inside a task"
    )
    explained.__cause__ = error
    return explained


def _is_of_asyncio(filename: str) -> bool:
    return filename.replace("\\", "/").startswith(_ASYNCIO)
