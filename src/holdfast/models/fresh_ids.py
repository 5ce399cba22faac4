"""Ids of what is started without a key: random, and near each other where they are made together.

The index of ids is a tree. Entirely random ones would each touch another page of it, and a start would cost the more
the larger the ledger has grown. So for a while all ids of a process share a region, which is a thousandth of the tree.
"""

from __future__ import annotations

import os
from itertools import count
from typing import Final

from holdfast.core.identity import REGIONS, PromiseId

_STAY: Final = 4_096  # ids in one region: many on each of its pages, and few enough for short ids to remain unlike
_STRIDE: Final = 619  # from region to region; odd, so that all of them have their turn
_SEED_BYTES: Final = 24

_numbers = count()  # its `next` is one step for all threads
_seed = b""


def fresh_id(name: str) -> PromiseId:
    """The id of one more execution of the definition `name`."""
    number = next(_numbers)
    region = (int.from_bytes(_seed[:4], "big") + number // _STAY * _STRIDE) % REGIONS
    return PromiseId.fresh(name, _seed + number.to_bytes(8, "big"), region)


def _take_seed() -> None:
    global _seed
    _seed = os.urandom(_SEED_BYTES)


_take_seed()
os.register_at_fork(after_in_child=_take_seed)  # two processes must never go on with one seed
