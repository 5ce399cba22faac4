"""The blocking facade: the same calls for programs without an event loop. It only drives the async ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from holdfast.core.durations import Duration
from holdfast.core.errors import ConfigurationError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.connection import Connection
from holdfast.models.handle import Collision, Handle
from holdfast.models.machine.definition import Machine, definition_of
from holdfast.models.machine.start import MachineStarter
from holdfast.store.values import Delivery, ExecutionView, Transition

T = TypeVar("T")
StateT = TypeVar("StateT")


class SyncHandle:
    """`Handle`, blocking."""

    def __init__(self, app: SyncApp, handle: Handle[Any]) -> None:
        self._app = app
        self.handle = handle

    @property
    def id(self) -> PromiseId:
        return self.handle.id

    @property
    def label(self) -> str:
        return self.handle.label

    def describe(self) -> ExecutionView:
        return self._app.run(self.handle.describe())

    def status(self) -> Status:
        return self._app.run(self.handle.status())

    def result(self, as_type: type[T] | None = None, *, timeout: Duration | None = None) -> Any:
        if as_type is None:
            return self._app.run(self.handle.result(timeout=timeout))
        return self._app.run(self.handle.result(as_type, timeout=timeout))

    def signal(self, name: str, payload: object = None, *, dedup_key: str | None = None) -> Delivery:
        return self._app.run(self.handle.signal(name, payload, dedup_key=dedup_key))

    def cancel(self, *, cascade: bool = False) -> Status:
        return self._app.run(self.handle.cancel(cascade=cascade))

    def pause(self) -> None:
        self._app.run(self.handle.pause())

    def resume(self) -> None:
        self._app.run(self.handle.resume())

    def history(self) -> Sequence[Transition]:
        return self._app.run(self.handle.history())


class SyncApp:
    """An event loop in a thread of its own; `run` blocks until a coroutine on it is done."""

    def __init__(self, connection: Connection, handle: Callable[..., Handle[Any]]) -> None:
        self._connection = connection
        self._handle = handle
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Any coroutine of this app's, to its end."""
        if self.is_closed:
            work.close()
            raise ConfigurationError("the app was closed; use `app.sync` again to open it anew")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, machine: type[Machine[StateT]] | MachineStarter[StateT], state: StateT) -> SyncHandle:
        return SyncHandle(self, self.run(_starter(machine).start(state)))

    def start_many(
        self, machine: type[Machine[StateT]] | MachineStarter[StateT], states: Iterable[StateT]
    ) -> list[SyncHandle | Collision]:
        started = self.run(_starter(machine).start_many(states))
        return [item if isinstance(item, Collision) else SyncHandle(self, item) for item in started]

    def handle(self, target: str | PromiseId, *, key: str | None = None) -> SyncHandle:
        return SyncHandle(self, self._handle(target, key=key))

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        if self.is_closed:
            return
        self.run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _starter(machine: type[Machine[StateT]] | MachineStarter[StateT]) -> MachineStarter[StateT]:
    return machine if isinstance(machine, MachineStarter) else definition_of(machine).starter()
