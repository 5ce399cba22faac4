"""Logs that say which execution they belong to.

- `LogContext`: an observer; lets records know the execution that is worked on (`app.observe(LogContext())`).
- `ExecutionLogFilter`: gives every record `execution`, `execution_name`, `attempt` and `call`, or None.
- `JsonFormatter`: a JSON object a line; `TextFormatter`: a line for people.
- `configure_logging`: filter and formatter, on the root logger; what `holdfast worker --log-format json` does.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TextIO

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.workflow.current import CURRENT_CALL
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Effect
from holdfast.store.values import ExecutionClaim, NewExecution, Reaped, Receipt

LogFormat = Literal["text", "json"]

TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s:%(of)s %(message)s"
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS: Final = ("execution", "execution_name", "attempt", "call")


class _Working(NamedTuple):
    promise: bytes
    name: str
    attempt: int


_WORKING: Final[ContextVar[_Working | None]] = ContextVar("holdfast_working", default=None)


class LogContext:
    """Implements `engine.observer.Observer`: remembers, for whoever logs, what is worked on. It does nothing else."""

    def attach(self, store: Store) -> None:
        """Nothing is read."""

    def enter(self, claim: ExecutionClaim) -> None:
        _WORKING.set(_Working(claim.promise, claim.name, claim.attempt + 1))

    def stamped(self, rows: Sequence[NewExecution]) -> Sequence[NewExecution]:
        return rows

    def stamped_effects(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        return effects

    def picked(self, claims: int, seconds: float) -> None: ...

    def flushed(self, commits: int, seconds: float) -> None: ...

    def advanced(self, claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None: ...

    def ended(self, promise: bytes, kind: str, name: str, status: Status) -> None: ...

    def retried(self, kind: str, name: str) -> None: ...

    def lease_lost(self) -> None: ...

    def reaped(self, reaped: Reaped) -> None: ...

    async def stop(self) -> None: ...


class ExecutionLogFilter(logging.Filter):
    """Lets every record pass, with what it belongs to. Inside a task `call` is the id of the call."""

    def filter(self, record: logging.LogRecord) -> bool:
        call, working = CURRENT_CALL.get(), _WORKING.get()
        record.execution = getattr(record, "execution", None)  # `ctx.log` says it itself
        record.execution_name = record.attempt = record.call = None
        if working is not None:
            record.execution = str(PromiseId.from_bytes(working.promise))
            record.execution_name, record.attempt = working.name, working.attempt
        if call is not None:
            record.execution, record.attempt, record.call = call.execution, call.attempt, call.promise
        return True


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, what it belongs to, the error, and the record's extras."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in _OURS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = self.formatException(record.exc_info)
            line["error"] = {"type": type(error).__qualname__, "message": _said(str, error), "traceback": text}
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in _OURS:
                line.setdefault(name, value)  # an extra does not forge what a line says of itself
        try:
            return msgspec.json.encode(line, enc_hook=repr).decode()
        except Exception:  # half a surrogate, as names of files have them; a value that holds itself, or raises
            return json.dumps({name: _plain(value) for name, value in line.items()})


class TextFormatter(logging.Formatter):
    """One line, with the execution that it belongs to: `checkout/4f7a9c21`."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record.of = _label(record)
        return super().format(record)


def _label(record: logging.LogRecord) -> str:
    execution = getattr(record, "execution", None)
    if not isinstance(execution, str):
        return ""
    name = getattr(record, "execution_name", None) or getattr(record, "workflow", None)
    try:
        promise = PromiseId.parse(execution)
    except HoldfastError:  # an extra of somebody else's
        return ""
    return f" {promise.label(name) if isinstance(name, str) else promise.short}:"


def _plain(value: object) -> object:
    try:
        return json.loads(json.dumps(value, default=repr, allow_nan=False))
    except Exception:
        return _said(repr, value)


def _said(say: Callable[[object], str], value: object) -> str:
    """What it says of itself, if it can."""
    try:
        return say(value)
    except Exception as error:
        return f"<{type(value).__qualname__} that raises {type(error).__qualname__}>"


def configure_logging(log_format: LogFormat, level: int = logging.WARNING, stream: TextIO | None = None) -> None:
    """Log to standard error, as text or as JSON."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.addFilter(ExecutionLogFilter())
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
