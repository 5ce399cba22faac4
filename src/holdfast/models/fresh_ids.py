"""Ids of what is started without a key: random, and near each other where they are made together.

The index of ids is a tree. Entirely random ones would each touch another page of it, and a start would cost the more
the larger the ledger has grown. So for a while all ids of a process share a region, which is a thousandth of the tree.
"""

from __future__ import annotations

import os
from itertools import count, islice
from random import Random
from typing import Final

from holdfast.core.identity import FRESH_BITS, REGIONS, ROOT_BYTES, PromiseId

_STAY: Final = 4_096  # ids in one region: many on each of its pages, and few enough for short ids to remain unlike
_STRIDE: Final = 619  # from region to region; odd, so that all of them have their turn

_numbers = count()  # its `next` is one step for all threads
_random: Final = Random()  # seeded by the system; each call is one step for all threads
_first_region: Final = _random.randrange(REGIONS)
os.register_at_fork(after_in_child=_random.seed)  # two processes must never go on with one seed


def fresh_id() -> PromiseId:
    """The id of one more execution."""
    return PromiseId.fresh(_random.getrandbits(FRESH_BITS), _region(next(_numbers)))


def fresh_ids(wanted: int) -> list[bytes]:
    """Those of so many, in their own order: that is the order in which a store inserts them."""
    made: list[bytes] = []
    while (left := wanted - len(made)) > 0:
        *_, last = islice(_numbers, min(left, _STAY))
        made += PromiseId.fresh_many(_random.randbytes(ROOT_BYTES * min(left, _STAY)), _region(last))
    return sorted(made)


def _region(number: int) -> int:
    return (_first_region + number // _STAY * _STRIDE) % REGIONS
