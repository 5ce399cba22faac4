"""The shapes of what commands answer with `--json`, where they are not those of `views`.

Field names are never changed; docs/reference/cli.md lists them, and tests parse every command's answer by these types.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.journal.events import Event
from holdfast.core.status import Status
from holdfast.verify.rules import Fault
from holdfast.views.shapes import Summary, TransitionLine


class Named(Struct, frozen=True, kw_only=True):
    """An execution, by its whole id and as people see it."""

    id: str
    label: str


class Started(Named, frozen=True, kw_only=True):
    """`start`, `wait`, `retry`, `fork`. `existing` is of `start`, `delivery` of its signal, the rest of an end."""

    status: Status
    existing: bool | UnsetType = UNSET
    delivery: Literal["delivered", "duplicate"] | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Signalled(Named, frozen=True, kw_only=True):
    """`signal`."""

    signal: str
    delivery: Literal["delivered", "duplicate"]


class Cancelled(Named, frozen=True, kw_only=True):
    """`cancel`."""

    status: Status


class Paused(Named, frozen=True, kw_only=True):
    """`pause`, `resume`."""

    status: Status
    paused: bool


class PastOf(Named, frozen=True, kw_only=True):
    """`history`: `transitions` of a machine, `events` of a workflow; the other one is empty."""

    kind: str
    transitions: list[TransitionLine]
    events: list[Event]


class TailLine(Struct, frozen=True, kw_only=True):
    """`tail`, one a line: exactly one of the last four is there, as `what` says."""

    what: Literal["event", "transition", "status", "end"]
    id: str
    label: str
    event: Event | UnsetType = UNSET
    transition: TransitionLine | UnsetType = UNSET
    execution: Summary | UnsetType = UNSET
    status: Status | UnsetType = UNSET


class Deleted(Struct, frozen=True, kw_only=True):
    """`gc`."""

    deleted: int


class Migrated(Struct, frozen=True, kw_only=True):
    """`migrate`."""

    database: str
    migrated: bool


class Verified(Struct, frozen=True, kw_only=True):
    """`verify`. `looked_at` counts records by kind."""

    sound: bool
    faults: list[Fault]
    looked_at: dict[str, int]


class ExportAnswer(Struct, frozen=True, kw_only=True):
    """`export --output FILE`."""

    file: str
    executions: int
    live: int
    records: int
    paused: int
    stay_paused: int


class ImportAnswer(Struct, frozen=True, kw_only=True):
    """`import`."""

    executions: int
    skipped: int
    live: int


class CheckLine(Struct, frozen=True, kw_only=True):
    """One line of `doctor`."""

    name: str
    level: Literal["ok", "warn", "bad"]
    found: str
    advice: str | None = None


class Diagnosis(Struct, frozen=True, kw_only=True):
    """`doctor`."""

    healthy: bool
    version: str
    database: str
    at: datetime
    checks: list[CheckLine]


class ReplayLine(Struct, frozen=True, kw_only=True):
    """One run of `check`."""

    id: str
    label: str
    status: Status
    verdict: Literal["replays", "patched", "stranded", "fails"]
    detail: str | None


class Replays(Struct, frozen=True, kw_only=True):
    """`check`."""

    replays: int
    patched: int
    stranded: int
    fails: int
    runs: list[ReplayLine]
