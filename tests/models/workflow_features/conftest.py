"""`rig`: an app with workflows on a guarded ledger with a virtual clock, on each kind of store."""

from tests.models.workflow.conftest import rig

__all__ = ["rig"]
