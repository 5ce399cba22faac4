"""What can be set on a worker is checked when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InvalidArgumentError
from holdfast.engine.settings import WorkerSettings
from holdfast.store.values import Retention


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many", None])
@pytest.mark.parametrize(
    "name", ["concurrency", "threads", "max_crashes", "keep_steps", "flush_most", "retention_batch"]
)
def test_counts_are_whole_numbers_from_one(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} must be a whole number of at least 1"):
        WorkerSettings(**{name: value})


@pytest.mark.parametrize("value", [-1, 1.5, True, False, "many", None])
@pytest.mark.parametrize("name", ["warm_most", "warm_bytes"])
def test_what_stays_in_memory_may_be_nothing_but_not_less(name: str, value: Any) -> None:
    nothing: Any = {name: 0}
    assert getattr(WorkerSettings(**nothing), name) == 0
    with pytest.raises(InvalidArgumentError, match=f"{name} must be a whole number, 0 for none"):
        WorkerSettings(**{name: value})


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "soon", None])
@pytest.mark.parametrize("name", ["lease_seconds", "poll_seconds", "keep_seconds", "retention_every_seconds"])
def test_times_are_above_zero(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} must be above 0 seconds"):
        WorkerSettings(**{name: value})


@pytest.mark.parametrize("value", [-1, float("nan"), "soon"])
def test_a_drain_may_take_no_time_but_not_less(value: Any) -> None:
    assert WorkerSettings(drain_seconds=0).drain_seconds == 0
    with pytest.raises(InvalidArgumentError, match="drain_seconds must not be negative"):
        WorkerSettings(drain_seconds=value)


@pytest.mark.parametrize("queues", ["default", [], {}, [""], {"a": 0}, {"a": -3}, [3], {"a": True}, {"a": "2"}])
def test_queues_are_named_one_by_one(queues: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="queue"):
        WorkerSettings(queues=queues)


def test_a_mapping_gives_a_limit_to_a_queue() -> None:
    assert WorkerSettings(queues=["b", "a"]).queue_limits() == {"b": None, "a": None}
    assert WorkerSettings(queues={"b": 2, "a": None}).queue_limits() == {"b": 2, "a": None}


def test_rules_of_retention_can_be_added_later() -> None:
    rules = (Retention(age_seconds=60),)
    settings = WorkerSettings(concurrency=7)
    assert settings.with_retention(rules).retention == rules
    assert settings.with_retention(rules).concurrency == 7
    assert settings.retention == ()
