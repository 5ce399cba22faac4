"""The workloads w1 to w8 as a bare journal does them: the same records, the same waits, and nothing of an engine.

A shape does `n` of something on a journal, under ids that begin with a tag of its own, and says what that took.
`beside` makes of a shape what stands beside a workload: a sample on the store that the workload is measured on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count

from benchmarks.bare_journal import Journal, Record, opened
from benchmarks.environment import Round

IN_FLIGHT = 100
ENQUEUED_A_COMMIT = 1_000
PAUSE_SECONDS = 0.005
SLEEP_SECONDS = 1.0
SAMPLE_SECONDS = 0.25
WARM_RUNS, WARM_STEPS = 4_000, 2

Shape = Callable[[Journal, str, int], Awaitable[Round]]


def beside(shape: Shape) -> Callable[[str, int], Awaitable[Round]]:
    """A sample: the shape again and again on a warm journal for a while, and of these the median."""

    async def sample(url: str, n: int) -> Round:
        async with opened(url) as journal:
            # A log file that still grows makes every commit wait for the file's length too; this takes it past that.
            await workflows(WARM_STEPS)(journal, "warm", WARM_RUNS)
            rounds: list[Round] = []
            began = time.perf_counter()
            for number in count():
                rounds.append(await shape(journal, f"bare-journal-round-{number:05}", n))  # as wide as ids are
                if time.perf_counter() - began >= SAMPLE_SECONDS:
                    break
        return sorted(rounds, key=lambda each: each.seconds)[len(rounds) // 2]

    return sample


async def _run(journal: Journal, run_id: str, steps: int) -> None:
    """A start, then a record a step; the last one is committed together with the end."""
    await journal.append(Record(run_id, 0, "start", {"k": steps}))
    for number in range(1, steps):
        await journal.append(Record(run_id, number, "step", number))
    await journal.append(Record(run_id, steps, "step", steps), Record(run_id, steps + 1, "done", steps))


def workflows(steps: int) -> Shape:
    """w1 and w2: `n` runs of so many steps, a hundred of them in flight."""

    async def shape(journal: Journal, tag: str, n: int) -> Round:
        places = asyncio.Semaphore(IN_FLIGHT)

        async def one(run_id: str) -> None:
            async with places:
                await _run(journal, run_id, steps)

        began = time.perf_counter()
        await asyncio.gather(*(one(f"{tag}-{number}") for number in range(n)))
        return Round(n * steps, time.perf_counter() - began)

    return shape


async def sequence(journal: Journal, tag: str, n: int) -> Round:
    """w3: one run of `n` steps."""
    began = time.perf_counter()
    await _run(journal, tag, n)
    return Round(n, time.perf_counter() - began)


async def fan_out(journal: Journal, tag: str, n: int) -> Round:
    """w4: a parent that records its children, the children as runs of one step, and the parent's end."""
    began = time.perf_counter()
    await journal.append(Record(tag, 0, "start"))
    children = [asyncio.ensure_future(_run(journal, f"{tag}.{number}", 1)) for number in range(n)]
    await journal.append(*(Record(tag, number, "child") for number in range(1, n + 1)))
    await asyncio.gather(*children)
    ends = [Record(tag, number, "child_done") for number in range(n + 1, 2 * n + 1)]
    await journal.append(*ends, Record(tag, 2 * n + 1, "done"))
    return Round(n, time.perf_counter() - began)


async def signals(journal: Journal, tag: str, n: int) -> Round:
    """w5: a message is committed and wakes its receiver, which commits that it took it.

    What is timed ends where the receiver has the message, as it is of workflows; after a pause, as messages come.
    """
    took: list[float] = []

    async def receive(box: asyncio.Future[int], sent_at: float) -> None:
        number = await box
        took.append(time.perf_counter() - sent_at)
        await journal.append(Record(tag, 2 * number + 1, "recv", number))

    for number in range(n):
        await asyncio.sleep(PAUSE_SECONDS)
        box: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        sent_at = time.perf_counter()
        receiver = asyncio.ensure_future(receive(box, sent_at))
        await asyncio.sleep(0)  # it waits before the message is sent
        await journal.append(Record(tag, 2 * number, "msg", number))
        box.set_result(number)
        await receiver
    return Round(n, sum(took), latencies_ms=[seconds * 1e3 for seconds in took])


async def starts(journal: Journal, tag: str, n: int) -> Round:
    """w6: starts, a thousand a commit, one commit after the other."""
    began = time.perf_counter()
    for first in range(0, n, ENQUEUED_A_COMMIT):
        numbers = range(min(ENQUEUED_A_COMMIT, n - first))
        await journal.append(*(Record(f"{tag}-{first + number}", 0, "start", {"i": number}) for number in numbers))
    return Round(n, time.perf_counter() - began)


async def recovery(journal: Journal, tag: str, n: int) -> Round:
    """w7: the history of a run of `n` steps is read, and every step of it looked at; how it came there is not timed."""
    await journal.append(*(Record(tag, number, "step", number) for number in range(1, n + 1)))
    began = time.perf_counter()
    found = {record.seq: record.value for record in await journal.log.read(tag)}
    for number in range(1, n + 1):
        assert found[number] == number
    return Round(n, time.perf_counter() - began)


async def sleepers(journal: Journal, tag: str, n: int) -> Round:
    """w8: `n` runs that record a timer, sleep for a second in memory, and record that they woke."""

    async def one(run_id: str) -> None:
        await journal.append(Record(run_id, 0, "start"), Record(run_id, 1, "timer"))
        await asyncio.sleep(SLEEP_SECONDS)
        await journal.append(Record(run_id, 2, "fired"), Record(run_id, 3, "done"))

    began = time.perf_counter()
    await asyncio.gather(*(one(f"{tag}-{number}") for number in range(n)))
    return Round(n, time.perf_counter() - began)
