"""Extends the worker's lease, from a thread and a connection of its own.

So that a busy event loop or a long flush never costs a lease. One row a worker is beaten, whatever it holds. And that
thread can see an event loop that stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.engine.standstill import Standstill
from holdfast.store.base import Store
from holdfast.store.own_thread import in_own_thread

log = logging.getLogger("holdfast.engine")

BEATS_A_LEASE = 4
LAST_BEAT_SECONDS = 1.0  # what a worker that leaves waits for a beat that is under way


class Heartbeat:
    """`on_lost` is called on the worker's loop with the id whose lease was reaped."""

    def __init__(
        self,
        store: Store,
        worker_id: Callable[[], str],
        lease_seconds: float,
        on_lost: Callable[[str], None],
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._lease_seconds = lease_seconds
        self._on_lost = on_lost
        self._worker_loop = asyncio.get_running_loop()
        self._standstill = Standstill()
        self._thread: threading.Thread | None = None
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._beating: asyncio.Task[None] | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()

    async def run_once(self, store: Store | None = None) -> bool:
        """Beat once; whether the lease still stands."""
        worker = self._worker_id()
        alive = await (store or self._store).beat(worker, self._lease_seconds)
        if not alive:
            self._worker_loop.call_soon_threadsafe(self._on_lost, worker)
        return alive

    async def start(self) -> None:
        if self._thread is None:
            self._ready.clear()
            self._thread = threading.Thread(target=self._run, name="holdfast-heartbeat", daemon=True)
            self._thread.start()  # not waited for: the first beat is far away

    async def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            await in_own_thread(self._end, thread)

    def _end(self, thread: threading.Thread) -> None:
        self._ready.wait()  # it may just have been started
        if self._thread_loop is not None and self._stopping is not None and self._beating is not None:
            with contextlib.suppress(RuntimeError):  # the thread may have ended by itself
                self._thread_loop.call_soon_threadsafe(self._stopping.set)
                thread.join(LAST_BEAT_SECONDS)
                # A server that fell silent answers in its own time.
                self._thread_loop.call_soon_threadsafe(self._beating.cancel)
        thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._beat_until_stopped())
        except asyncio.CancelledError:
            return
        except Exception:
            log.exception("the heartbeat ended; this worker's lease will run out")
        finally:
            self._ready.set()

    async def _beat_until_stopped(self) -> None:
        self._thread_loop = asyncio.get_running_loop()
        self._beating = asyncio.current_task()
        self._stopping = asyncio.Event()
        self._ready.set()
        store = self._store.sibling()
        is_open = in_trouble = False
        pause = self._lease_seconds / BEATS_A_LEASE  # to register was a beat
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)
                if self._stopping.is_set():
                    return
                pause = self._lease_seconds / BEATS_A_LEASE
                self._standstill.look()
                try:
                    if not is_open:
                        await store.open()
                        is_open = True
                    await self.run_once(store)
                    in_trouble = False
                except (StoreUnavailableError, ConfigurationError) as error:  # the worker itself was let in
                    if not in_trouble:
                        log.warning("the heartbeat could not reach the store, trying again: %s", error)
                    in_trouble = True
                    pause = min(pause, 0.5)
                except Exception:
                    log.exception("a heartbeat failed; the next one is tried")
                    pause = min(pause, 0.5)
        finally:
            if is_open:
                await store.close()
