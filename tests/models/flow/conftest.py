"""`rig`: an app on a guarded ledger with a virtual clock, on each kind of store."""

from tests.engine.rig import no_hang, rig

__all__ = ["no_hang", "rig"]
