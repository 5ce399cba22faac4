"""The routes of the API, one module a topic; `ROUTES` is all of them."""

from __future__ import annotations

from typing import Final

from holdfast.web.api import events, executions, ledger, models, queues, schedules, steering
from holdfast.web.table import Route

ROUTES: Final[tuple[Route, ...]] = (
    *executions.ROUTES,
    *steering.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *models.ROUTES,
    *ledger.ROUTES,
    *events.ROUTES,
)
