"""A process that forks while it has connections: they stay its own, and the child opens others."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, os, sys
from holdfast.core.errors import ConfigurationError
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import Topic
from holdfast.testing.hand import Hand, done, promise_of, row

store, heard = PostgresStore(sys.argv[1], schema=sys.argv[2]), asyncio.Event()
loop = asyncio.new_event_loop()

async def transact(key):
    async def look(connection):
        return await connection.fetchval("select 1")

    hand = await Hand(store).start()
    assert (await store.transact(hand.name, await hand.take(row(key)), look, lambda found: [done(str(found))])).applied

async def before():
    global ear
    await store.open()
    await transact("before")
    ear = await store.open_ear(lambda topic: heard.set())
    await ear.arm(Topic.WORK)
    heard.clear()

async def use_it():
    try:
        await store.insert([row("through the parent")])
    except ConfigurationError as error:
        assert "open the store here" in str(error)
    else:
        raise AssertionError("it was let through")

async def open_it():
    await store.open()
    await transact("in the child")
    await store.close()

def collect():
    store._connections._idle.clear()
    store._ears.clear()
    gc.collect()

def use():
    asyncio.run(use_it())

def reopen():
    asyncio.run(open_it())

async def after():
    async with asyncio.timeout(30):
        await store.insert([row("after")])
        found = [name for name in ("through the parent", "in the child", "after") if await store.get(promise_of(name))]
        assert store.losses == 0
        if "in the child" in found:
            await heard.wait()
        await ear.close()
        await store.close()
    print(*found, sep=", ")

loop.run_until_complete(before())
child = os.fork()
if not child:
    {does}()
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
loop.run_until_complete(after())
"""


@pytest.mark.parametrize(
    ("does", "found"), [("collect", "after"), ("use", "after"), ("reopen", "in the child, after"), ("exit", "after")]
)
def test_what_a_forked_process_does_is_nothing_to_its_parent(
    postgres_url: str, schema: str, does: str, found: str
) -> None:
    program = [sys.executable, "-W", "ignore::ResourceWarning", "-c", PROGRAM.replace("{does}", does)]
    ran = subprocess.run([*program, postgres_url, schema], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout.strip(), ran.returncode) == (found, 0), ran.stderr
