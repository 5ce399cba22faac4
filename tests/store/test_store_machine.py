"""Random histories against a model in plain Python: every rule of the seed at once, in any order.

Several workers, lost leases, stale claims, late and duplicated signals, barriers, partition keys, cancels and pauses
meet as nobody would think to write them down. `HOLDFAST_FUZZ=500` plays that many random ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.testing.store_machine import play_histories
from holdfast.testing.stores import Stores

EXAMPLES = {"sqlite": 25, "postgres": 12}  # a few seconds each


def test_random_histories_do_what_the_model_does(backend: str, make_stores: Callable[[str], Stores]) -> None:
    with asyncio.Runner() as runner:
        stores = make_stores(backend)
        runner.run(stores.open())
        try:
            play_histories(runner.run, [stores], with_model=True, examples=EXAMPLES[backend], steps=50)
        finally:
            runner.run(stores.close())
