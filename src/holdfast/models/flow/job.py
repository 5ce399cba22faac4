"""A job as its completion task sees it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core.codec import ErrorRecord, codec_for
from holdfast.core.status import Status
from holdfast.models.flow.activity import Activity


class FlowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has nothing left to do, as its completion task sees it."""

    id: str
    flow: str
    status: Status
    error: ErrorRecord | None
    answers: dict[str, Raw]  # of activities that ran, as JSON; of one that ran several times, the last

    @property
    def results(self) -> dict[str, Any]:
        """What each activity answered, as plain data."""
        return {name: codec_for(Any).decode(bytes(answer)) for name, answer in self.answers.items()}

    def result_of(self, activity: Activity[..., Any]) -> Any:
        """What an activity answered, as it is annotated; None if it did not run."""
        found = self.answers.get(activity.name)
        return None if found is None else activity.result_codec.decode(bytes(found))
