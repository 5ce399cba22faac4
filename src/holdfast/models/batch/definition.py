"""What `@app.batch` makes of a function: its settings, checked where they are written, and what a workflow calls."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack

import msgspec
from msgspec import Raw, Struct

from holdfast.core.codec import Codec, codec_for, fingerprint
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import CallNotAllowedError, ConfigurationError, DefinitionError, InvalidArgumentError
from holdfast.core.identity import PromiseId, check_name
from holdfast.core.journal.events import InvokeKind, Ok, Result
from holdfast.core.journal.quick import CallText
from holdfast.core.retry import RetryPolicy
from holdfast.core.sequence import FailClass, RetryGuard
from holdfast.core.sequence.columns import MAX_LEASE_MS
from holdfast.core.sequence.states import MAX_ATTEMPTS
from holdfast.models.batch.spec import CHUNK_ITEMS, WINDOW_BYTES, WINDOW_ITEMS
from holdfast.models.code import code_digest
from holdfast.models.options import Options, StartOptions, check_priority, check_queue
from holdfast.models.starting import new_row
from holdfast.models.workflow.callee import CallSettings
from holdfast.models.workflow.control_flow import CURRENT
from holdfast.models.workflow.failures import exception_of
from holdfast.models.workflow.promise import CallPromise
from holdfast.models.workflow.signature import Signature
from holdfast.store.base import handler_of
from holdfast.store.values import NewExecution

if TYPE_CHECKING:
    from holdfast.models.batch.run import BatchRun
    from holdfast.models.batch.start import BatchStarter

T = TypeVar("T")
R = TypeVar("R", covariant=True)

KIND: Final = "batch"
CHUNK_KIND: Final = "chunk"
LEASE_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 10.0


class Skip(Exception):  # noqa: N818  (what an item says, no error)
    """Raise it in a batch's function: this item is done with, and it is neither a success nor a failure."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class BatchResult(Struct, frozen=True, kw_only=True):
    """What a run has come to: how many items ended how. A failed item does not fail the run."""

    total: int
    succeeded: int
    skipped: int
    failed: int
    cancelled: int
    retries: int


class Batch(Generic[T, R]):
    """One function over many items. `fn` is the plain function; called in a workflow's body, it runs over a list."""

    invoke_kind: InvokeKind = "Function"
    is_remote = True

    def __init__(
        self,
        function: Callable[..., Awaitable[R] | R],
        *,
        make_starter: Callable[[Any], BatchStarter[T, R]],
        payload_limit: int,
        name: str | None = None,
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        lease: Duration = LEASE_SECONDS,
        concurrency: int = 64,
        results: bool = False,
        sink: Callable[..., Any] | None = None,
        transactional: bool = False,
        chunk: int = CHUNK_ITEMS,
        window: int = WINDOW_ITEMS,
        window_bytes: int = WINDOW_BYTES,
        cancel_grace: Duration = GRACE_SECONDS,
    ) -> None:
        if not callable(function) or inspect.isclass(function):
            raise DefinitionError(f"@app.batch takes a function, not {function!r}")
        self.fn = function
        self.name = check_name(function.__qualname__.replace(".<locals>", "") if name is None else name)
        self.version = _count(version, "version", self.name, most=2**31 - 1)
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(function, self.name)
        self.resources = self.signature.resources
        if len(self.signature.names) != 1:
            raise DefinitionError(
                f"the batch {self.name} must take one parameter, the item, besides resources; it takes "
                f"{', '.join(self.signature.names) or 'none'}"
            )
        (self.annotation,) = self.signature.annotations.values()
        self.codec: Codec[Any] = codec_for(self.annotation)
        self.list_codec: Codec[Any] = codec_for(list[self.annotation])  # type: ignore[name-defined]
        self.result: Codec[Any] = self.signature.result
        self.queue = check_queue(queue)
        self.priority = check_priority(priority)
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise DefinitionError(f"retry of {self.name} is a RetryPolicy(max_attempts=...), not {retry!r:.60}")
        self.retry = retry or RetryPolicy()
        self.guard = self._make_guard()
        self.timeout_seconds = None if timeout is None else seconds(timeout, name="timeout")
        self.lease_seconds = seconds(lease, name="lease")
        if self.timeout_seconds == 0 or not 0.001 <= self.lease_seconds <= MAX_LEASE_MS / 1000:
            raise DefinitionError(f"lease and timeout of {self.name} are above 0 s, and a lease is at most 12 days")
        self.concurrency = _count(concurrency, "concurrency", self.name)
        self.chunk = _count(chunk, "chunk", self.name, most=1_000_000)
        self.window = _count(window, "window", self.name)
        self.window_bytes = _count(window_bytes, "window_bytes", self.name)
        self.grace_seconds = seconds(cancel_grace, name="cancel_grace")
        self.sink = sink
        self.is_transactional = transactional
        if sink is not None and not callable(sink):
            raise DefinitionError(f"the sink of {self.name} is a function that takes a list of items, not {sink!r}")
        if transactional and sink is None:
            raise DefinitionError(f"{self.name} is transactional=True and has no sink to be it")
        self.keeps_results = results
        self.handler = handler_of(KIND, self.name, self.version)
        self.chunk_handler = handler_of(CHUNK_KIND, self.name, self.version)
        self.digest = code_digest(function, self.signature.shape)
        self.payload_limit = payload_limit
        self._make_starter = make_starter
        self.settings = CallSettings(queue=self.queue).text()
        self.call_text = CallText(self.invoke_kind, self.name, self.settings)
        self.__name__ = getattr(function, "__name__", self.name)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def _make_guard(self) -> RetryGuard:
        policy = self.retry
        if policy.max_elapsed is not None:
            raise DefinitionError(
                f"the batch {self.name} has a retry policy with max_elapsed; a ledger of bytes keeps no begin of each "
                "item: use max_attempts"
            )
        if policy.max_attempts is not None and policy.max_attempts > MAX_ATTEMPTS:
            raise DefinitionError(f"max_attempts of {self.name} is over {MAX_ATTEMPTS}, what 16 bits an item count")
        classes = {FailClass.RETRYABLE, FailClass.LEASE_EXPIRED}
        if self.is_retryable(TimeoutError()):
            classes.add(FailClass.TIMEOUT)
        return RetryGuard(max_attempts=policy.max_attempts or MAX_ATTEMPTS, retryable=frozenset(classes))

    def is_retryable(self, error: BaseException) -> bool:
        return isinstance(error, self.retry.retry_on) and not isinstance(error, self.retry.no_retry_on)

    @property
    def needs_results(self) -> bool:
        """Whether values are written at all: to be kept, or for the sink."""
        return self.keeps_results or self.sink is not None

    # ------------------------------------------------------------------ starting

    def options(self, **options: Unpack[StartOptions]) -> BatchStarter[T, R]:
        """How to start it: `key`, `queue`, `priority`, `delay`, `at`, `unique`, `attributes`, `deadline`."""
        return self._make_starter(self).options(**options)

    async def start(self, source: Iterable[T] | AsyncIterable[T] | PathLike[str]) -> BatchRun[R]:
        """Start a run over the items of an iterable, an async iterable, or a file of lines (.jsonl: of JSON)."""
        return await self._make_starter(self).start(source)

    # ------------------------------------------------------------------ as a callee

    def __call__(self, items: Sequence[T]) -> Awaitable[BatchResult]:
        """In a workflow's body: run over these items as a child, and give what it has come to."""
        session = CURRENT.session
        if session is None:
            raise CallNotAllowedError(
                f"{self.name} is a batch: start it with `await {self.name}.start(items)`; "
                f"for one item alone call `{self.name}.fn`"
            )
        return CallPromise(session, session.invoke(self, self.encode_items(items)), self)

    def encode_items(self, items: Sequence[T]) -> str:
        """As the state of a run that has its items with it."""
        if isinstance(items, str | bytes):
            raise InvalidArgumentError(f"{self.name} runs over a list of items, not over one text")
        return f'{{"items":{self.list_codec.encode(list(items), max_bytes=self.payload_limit)}}}'

    def rewrite(self, recorded: str) -> str:
        items = msgspec.json.decode(recorded, type=dict[str, Raw])["items"]
        return f'{{"items":{self.list_codec.rewrite(bytes(items).decode())}}}'

    def open_result(self, result: Result) -> Any:
        if isinstance(result, Ok):
            return codec_for(BatchResult).decode(bytes(result.value))
        raise exception_of(result.error, (), self.name)

    def row(
        self, promise: PromiseId, text: str, options: Options, key: str | None, *, mark: str | None = None
    ) -> NewExecution:
        """`mark` stands for the input where the row does not hold it: another one under the same key is a conflict."""
        mark = fingerprint(mark or text)
        return new_row(self, KIND, promise, text, mark, options, key, value=text, cleans_up=True)

    def first_state(self, text: str) -> str:
        return text

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        row = self.row(promise, text, Options(), None)
        return msgspec.structs.replace(row, reports=True)


class BatchRegistry:
    """The batches an app knows."""

    def __init__(self) -> None:
        self.by_handler: dict[int, Batch[Any, Any]] = {}
        self.by_chunk_handler: dict[int, Batch[Any, Any]] = {}

    def add(self, batch: Batch[Any, Any]) -> None:
        if batch.handler in self.by_handler:
            raise DefinitionError(f"the batch {batch.name} is declared twice; give one of them another name or version")
        self.by_handler[batch.handler] = batch
        self.by_chunk_handler[batch.chunk_handler] = batch

    def find(self, name: str) -> Batch[Any, Any]:
        """By name; of several versions the newest."""
        named = [batch for batch in self.by_handler.values() if batch.name == name]
        if not named:
            known = ", ".join(sorted({batch.name for batch in self.by_handler.values()})) or "none"
            raise ConfigurationError(f"there is no batch {name!r} here; known are: {known}")
        return max(named, key=lambda batch: batch.version)

    def queues(self) -> set[str]:
        return {batch.queue for batch in self.by_handler.values()}


def _count(value: object, name: str, of: str, *, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        limit = "" if most is None else f", at most {most}"
        raise DefinitionError(f"{name} of {of} is a whole number of at least 1{limit}, not {value!r}")
    return value
