"""What must hold of any ledger at any moment: the audit of `holdfast verify`, for tests.

`audit` returns the faults it finds, as sentences. A ledger that passes can still be wrong; one that fails is.
"""

from __future__ import annotations

from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.verify.auditor import audit as audit_ledger

_PAGE = 500


async def all_views(store: Store) -> list[ExecutionView]:
    """Every execution, oldest first."""
    views: list[ExecutionView] = []
    cursor: str | None = None
    while True:
        page = await store.browse(ExecutionFilter(), _PAGE, cursor)
        views += page.items
        cursor = page.cursor
        if cursor is None:
            return views[::-1]


async def audit(store: Store, *, models: bool = False) -> list[str]:
    """The faults of the whole ledger; an empty list if it is sound.

    `models`: also by the rules of what models write. Tests that write journals and handlers of their own leave it out.
    """
    faults, _ = await audit_ledger(store, models=models)
    return [str(fault) for fault in faults]
