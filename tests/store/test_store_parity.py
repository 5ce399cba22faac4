"""The two stores are one: the same history gives the same answers and the same rows, column by column."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.testing.store_machine import play_histories
from holdfast.testing.stores import Stores


def test_sqlite_and_postgresql_agree_on_every_history(make_stores: Callable[[str], Stores]) -> None:
    with asyncio.Runner() as runner:
        both = [make_stores("sqlite"), make_stores("postgres")]
        try:
            for stores in both:
                runner.run(stores.open())
            play_histories(runner.run, both, with_model=False, examples=8, steps=50)
        finally:
            for stores in both:
                runner.run(stores.close())
