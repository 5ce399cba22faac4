"""The two log files of an operation: their levels, lifecycle events and line format. Pure text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from .data import format_time

INDENT = "    "


class LogLevel(IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Event(Enum):
    """Lifecycle events; the last three go beyond the seed's table."""

    OPERATION_CREATED = "OPERATION_CREATED"
    PARTICIPANT_JOINED = "PARTICIPANT_JOINED"
    CALL_STARTED = "CALL_STARTED"
    CALL_SPAWNED = "CALL_SPAWNED"
    CALL_COMPLETED = "CALL_COMPLETED"
    CALL_ENDED = "CALL_ENDED"
    CALL_FAILED = "CALL_FAILED"
    CRASH_DETECTED = "CRASH_DETECTED"
    CLEANUP_STARTED = "CLEANUP_STARTED"
    OPERATION_FAILED = "OPERATION_FAILED"
    OPERATION_COMPLETED = "OPERATION_COMPLETED"
    PARTICIPANT_LEFT = "PARTICIPANT_LEFT"
    OPERATION_ABORTED = "OPERATION_ABORTED"
    CLEANED_UP = "CLEANED_UP"


@dataclass(frozen=True, slots=True)
class LogEntry:
    at_us: int
    participant_id: str
    level: LogLevel
    text: str
    depth: int = 0

    def render(self) -> bytes:
        """One timestamped line for each line of the text, so that no message can forge another's line."""
        head = f"{format_time(self.at_us)} {self.level.name:<7} [{self.participant_id}] {INDENT * self.depth}"
        lines = self.text.splitlines() or [""]
        return "".join(f"{head}{line}\n" for line in lines).encode("utf-8", "backslashreplace")
