"""Ids of what is started without a key (DESIGN section 4): never alike, and near each other for a while."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core.identity import REGIONS, PromiseId
from holdfast.models.fresh_ids import _STAY, fresh_id, fresh_ids


def region_of(promise: PromiseId) -> int:
    return int.from_bytes(promise.to_bytes()[:2], "big") >> 6


def test_ids_made_together_share_a_region_and_then_move_on() -> None:
    regions = [region_of(fresh_id()) for _ in range(4 * _STAY)]
    moves = [at for at in range(1, len(regions)) if regions[at] != regions[at - 1]]
    assert len(moves) in (3, 4)
    assert all(later - sooner == _STAY for sooner, later in itertools.pairwise(moves))
    assert all(0 <= region < REGIONS for region in regions)


def test_no_two_are_alike_whoever_makes_them() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [fresh_id() for _ in range(2_000)], range(8)))
    assert len({promise for several in made for promise in several}) == 16_000


def test_short_ids_of_one_region_are_hardly_ever_alike() -> None:
    """Of the eight digits that people see, two and a half say the region."""
    shorts = [fresh_id().short for _ in range(_STAY)]
    assert len(set(shorts)) > 0.99 * _STAY


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the child does nothing that could hang
def test_a_forked_process_does_not_go_on_with_its_parents_ids() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover (another process)
        os.write(writing, b"".join(fresh_id().to_bytes() for _ in range(10)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    ours = {fresh_id().to_bytes() for _ in range(10)}
    assert len(theirs) == 320
    assert not ours & {theirs[at : at + 32] for at in range(0, 320, 32)}


def test_many_at_once_are_like_one_after_the_other() -> None:
    """In their own order, unlike, and not all of them in one region."""
    made = fresh_ids(3 * _STAY + 5)
    assert len(set(made)) == 3 * _STAY + 5
    assert made == sorted(made)
    promises = [PromiseId.from_bytes(raw) for raw in made]
    assert len({region_of(promise) for promise in promises}) in (3, 4)
    assert len({promise.short for promise in promises}) > 0.99 * len(made)
    assert fresh_ids(0) == []
