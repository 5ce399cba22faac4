"""The processes that computations run in.

- `StepProcesses`: what a worker has of them, as one or more of `Pool`. They end with their worker, whatever ends it.
  Work in them can be heard of while it goes on (heartbeats), over one pipe of a pool.
- `say`: for work in there. `refuse_in_import`: for who must not begin while such a process imports the program.
- `Unsendable`: an error that pickle cannot carry. Sent as it is, it would break the pool, and everybody's work in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from holdfast.core.error_record import decode_error, encode_error, keep_origin, rebuild_error, record_error
from holdfast.core.errors import ConfigurationError
from holdfast.engine.stop_signals import let_go_of, standard_terminals, stop_signals
from holdfast.engine.threads import contain

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Lock

T = TypeVar("T")

Heard: TypeAlias = Callable[[str | None], None]
Said: TypeAlias = str | bool | None  # what the work says, or one of these two
_BEGUN: Final = True
_OVER: Final = False


def refuse_in_import() -> None:
    """Each of them imports the program that has them: what works while it is imported would never begin with a task."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigurationError(
            "this program starts a worker while one of the processes for its tasks imports it: put what it runs under "
            '`if __name__ == "__main__":`'
        )


class StepProcesses:
    """All of a worker. There are never more calls than processes, so that each begins at once.

    A pool takes no more calls once a process of it died, or once a call in it was given up (by a timeout, a cancel),
    which goes on: hung work would take one process after the other. It ends with the last of its other calls.
    """

    def __init__(self) -> None:
        self._count = os.cpu_count() or 1
        self._free = asyncio.Semaphore(self._count)
        self._pools: list[Pool] = []  # the last takes calls

    async def call(self, begun: Callable[[], None], heard: Heard, work: Callable[..., T], *arguments: Any) -> T:
        """What the work returns or raises, after all that it said.

        `begun` is called when a process begins with it; `heard` in another thread.
        """
        async with self._free:
            if not self._pools or not self._pools[-1].takes_calls:
                for pool in self._pools:
                    pool.stop_if_over()  # one whose process died while nobody called
                self._pools = [pool for pool in self._pools if not pool.is_stopped] + [Pool(self._count)]
            return await self._pools[-1].call(begun, heard, work, *arguments)

    def stop(self) -> None:
        """What is at work in them was given back, so nobody waits for it; and Python would, at its end."""
        for pool in self._pools:
            pool.stop()
        self._pools = []


class _Process(SpawnProcess):
    def terminate(self) -> None:
        """A pool with a dead process terminates the others and waits for them, in Python 3.13 and later with the lock
        that `submit` and `shutdown` want; and they do not heed SIGTERM."""
        self.kill()


class _Spawning(SpawnContext):
    """Not forked: a forked child would inherit the event loop's connections."""

    Process = _Process


class Pool(ProcessPoolExecutor):
    """Some of them, and the pipe that they speak into."""

    def __init__(self, count: int) -> None:
        context = _Spawning()
        self._reader, self._writer = context.Pipe(duplex=False)
        self._heard: dict[int, Callable[[Said], None]] = {}
        self._is_deaf = False  # nothing more can come over the pipe
        self._is_spent = False  # somebody gave up a call that goes on
        self.is_stopped = False
        self._numbers = itertools.count()
        super().__init__(count, context, _settle_in, (self._writer, context.Lock()))
        threading.Thread(target=self._listen, name="holdfast-processes", daemon=True).start()

    @property
    def takes_calls(self) -> bool:
        return not (self._is_spent or self.is_stopped or getattr(self, "_broken", False))

    async def call(self, begun: Callable[[], None], heard: Heard, work: Callable[..., T], *arguments: Any) -> T:
        loop, number, all_heard = asyncio.get_running_loop(), next(self._numbers), asyncio.Event()

        def hear(said: Said) -> None:
            if isinstance(said, bool):
                loop.call_soon_threadsafe(all_heard.set if said is _OVER else begin)
            else:
                heard(said)

        def begin() -> None:
            if not working.done():
                begun()

        self._heard[number] = hear
        try:
            submitted = self.submit(_within, number, work, *arguments)
            self._watch_processes()
            working = asyncio.wrap_future(submitted)
            try:
                await asyncio.wait([working])
            finally:
                self._is_spent = self._is_spent or not (submitted.cancel() or submitted.done())
                working.cancel()  # if it is not done, nobody asks for what becomes of it
            if not isinstance(working.exception(), BrokenExecutor) and not self._is_deaf:
                await all_heard.wait()
            return working.result()
        except Unsendable as sent:
            raise sent.rebuilt() from sent.__cause__
        finally:
            del self._heard[number]
            self.stop_if_over()

    def stop_if_over(self) -> None:
        if not self._heard and not self.takes_calls:
            self.stop()

    def stop(self) -> None:
        if self.is_stopped:
            return
        self.is_stopped = True
        processes = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        self._writer.close()  # so that the pipe ends with the last process

    def _watch_processes(self) -> None:
        """`submit` wakes the thread that sees processes die before it adds one: nobody would see that one die."""
        with self._shutdown_lock:
            if self._executor_manager_thread_wakeup is not None:
                self._executor_manager_thread_wakeup.wakeup()

    def _listen(self) -> None:
        with self._reader, contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                number, said = pickle.loads(self._reader.recv_bytes())
                self._tell(number, said)
        self._is_deaf = True
        for number in list(self._heard):
            self._tell(number, _OVER)

    def _tell(self, number: int, said: Said) -> None:
        hear = self._heard.get(number)
        if hear is not None:
            with contextlib.suppress(RuntimeError):  # the loop of its caller is closed
                hear(said)


class Unsendable(Exception):  # noqa: N818  (it stands for another error, and is never seen by users)
    """Its class, if that can be sent, and its record."""

    def __init__(self, cls: type[BaseException] | None, record: str) -> None:
        super().__init__(cls, record)
        self.cls = cls
        self.record = record

    def rebuilt(self) -> BaseException:
        record = decode_error(self.record)
        with contextlib.suppress(Exception):  # a `__new__` of the user's may refuse
            if self.cls is not None:
                return keep_origin(rebuild_error(record, self.cls), record)
        return keep_origin(RuntimeError(str(record)), record)


# ---------------------------------------------------------------------- in the process

_pipe: tuple[Connection, Lock] | None = None
_number: int | None = None


def say(said: Said) -> None:
    """Be heard by whoever waits for the work that this is part of."""
    assert _pipe is not None
    connection, lock = _pipe
    with lock:
        connection.send_bytes(pickle.dumps((_number, said)))


def _settle_in(writer: Connection, lock: Lock) -> None:
    global _pipe
    _pipe = writer, lock
    # Ctrl-C in a terminal, its end, and a supervisor's SIGTERM to a whole group go to all processes of a worker: it
    # lets what is at work finish. A handler, since programs that the work runs would inherit that SIGTERM is ignored.
    terminals = standard_terminals()
    for number in stop_signals():
        signal.signal(number, lambda *_: let_go_of(terminals))  # the worker ends them when its time to drain is over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker that was killed could not stop them; each has the writing end, so none would see the pipe end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _within(number: int, work: Callable[..., T], *arguments: Any) -> T:
    global _number
    _number = number
    say(_BEGUN)
    try:
        return contain(work, *arguments)
    except BaseException as error:
        raise _sendable(error)  # noqa: B904  (the error itself, or what stands for it)
    finally:
        say(_OVER)


def _sendable(error: BaseException) -> BaseException:
    if isinstance(error, KeyboardInterrupt):
        return RuntimeError(f"the task raised KeyboardInterrupt: {error}")
    with contextlib.suppress(Exception):  # all of it may be code of the user's
        keep_origin(error, record_error(error))
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    cls: type[BaseException] | None = type(error)
    try:
        pickle.dumps(cls)
    except Exception:
        cls = None
    sent = Unsendable(cls, encode_error(error))
    sent.__traceback__ = error.__traceback__
    return sent
