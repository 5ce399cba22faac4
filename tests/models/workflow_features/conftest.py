"""`rig`: an app with workflows on a guarded ledger with a virtual clock, on each kind of store."""

from tests.models.workflow.conftest import rig
from tests.store.conftest import hand

__all__ = ["hand", "rig"]
