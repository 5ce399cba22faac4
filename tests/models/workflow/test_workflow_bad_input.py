"""Bad input: typed errors at the call, with the remedy (issue 3)."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any, Never, NoReturn

import msgspec
import pytest

from holdfast import App, Context, Promise, RetryPolicy, Status, TaskFailed
from holdfast.core.errors import (
    CallNotAllowedError,
    ConfigurationError,
    DecodeError,
    DefinitionError,
    EncodeError,
    HoldfastError,
    InvalidArgumentError,
    PayloadError,
)
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.upkeep import StrandedSweep
from tests.models.workflow.kit import Rig

app = App("bad-input", store="unused.db")
untyped: Any = app


def test_a_workflow_is_a_coroutine_function() -> None:
    def plain(ctx: Context) -> int:
        return 1

    async def generator(ctx: Context) -> AsyncIterator[int]:
        yield 1

    for function in (plain, generator, 7):
        with pytest.raises(DefinitionError, match="async def"):
            untyped.workflow(function)


def test_a_workflow_takes_its_context_first() -> None:
    async def nothing() -> int:
        return 1

    with pytest.raises(DefinitionError, match="context first"):
        untyped.workflow(nothing)


@pytest.mark.parametrize("kind", ["*args", "**kwargs"])
def test_variable_arguments_are_refused(kind: str) -> None:
    async def many(ctx: Context, *args: int) -> int:
        return 1

    async def named(ctx: Context, **kwargs: int) -> int:
        return 1

    with pytest.raises(DefinitionError, match="use a list or a dict"):
        app.workflow(many if kind == "*args" else named)


def test_an_annotation_that_cannot_be_read_is_refused() -> None:
    async def work(ctx: Context, order: Unknown) -> int:  # type: ignore[name-defined]  # noqa: F821
        return 1

    with pytest.raises(DefinitionError, match="import the names they use, or define them, at the top of the module"):
        app.workflow(work)


def test_type_parameters_of_a_function_are_read_as_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`async def work[T](item: T)`, of Python 3.12: where annotations are texts, T is nowhere else."""

    async def work(ctx: Context, item: int) -> int:
        return item

    parameters = (typing.TypeVar("T"),)
    work.__type_params__ = parameters  # type: ignore[attr-defined]
    seen: list[Any] = []
    read = typing.get_type_hints
    monkeypatch.setattr(typing, "get_type_hints", lambda one, **how: seen.append(one) or read(one, **how))  # type: ignore[func-returns-value]
    app.workflow(name="generic")(work)
    assert seen[0].__type_params__ == parameters


def test_a_workflow_may_never_return() -> None:
    for number, annotation in enumerate((NoReturn, Never)):

        async def poll(ctx: Context) -> NoReturn:
            ctx.continue_as_new()

        poll.__annotations__["return"] = annotation
        assert app.workflow(name=f"poll{number}")(poll).signature.result.annotation is None


def test_a_task_is_a_function() -> None:
    class Thing:
        pass

    for bad in (Thing, 7):
        with pytest.raises(DefinitionError, match="takes a function"):
            untyped.task(bad)


def test_a_retry_is_a_policy_and_no_number() -> None:
    async def flaky(number: int) -> int:
        return number

    for declare in (untyped.task, untyped.batch):
        with pytest.raises(DefinitionError, match=r"retry of \S+ is a RetryPolicy\(max_attempts=\.\.\.\), not 3"):
            declare(flaky, retry=3)


@pytest.mark.parametrize("kind", ["task", "transaction", "workflow", "batch"])
def test_a_setting_that_does_not_exist_is_named_with_those_that_do(kind: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^@app.{kind} has no setting 'prio'; .* are .*, priority, "):
        getattr(untyped, kind)(prio=1)


@pytest.mark.parametrize("kind", ["task", "transaction", "workflow", "batch"])
@pytest.mark.parametrize("setting", ["payload_limit", "make_starter", "function"])
def test_so_is_what_only_the_app_gives(kind: str, setting: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^@app.{kind} has no setting '{setting}'; .* are .*, priority, "):
        getattr(untyped, kind)(**{setting: 1})


def test_a_setting_that_transactions_cannot_have_is_not_offered() -> None:
    with pytest.raises(InvalidArgumentError, match=r"name, priority, queue, raises, retry, timeout$"):
        untyped.transaction(prio=1)
    with pytest.raises(DefinitionError, match="it runs exactly once"):
        untyped.transaction(effects="at_most_once")(lambda connection: None)


@pytest.mark.parametrize("declare", [untyped.task, untyped.transaction, untyped.workflow])
def test_raises_takes_one_class_or_several_and_says_what_it_takes(declare: Any) -> None:
    async def body(ctx: Any) -> None: ...

    for number, (given, kept) in enumerate(
        [
            (ValueError, (ValueError,)),
            ((ValueError, KeyError), (ValueError, KeyError)),
            ([ValueError], (ValueError,)),
            ((), ()),
        ]
    ):
        assert declare(body, raises=given, name=f"good{declare.__name__}{number}").raises == kept
    for bad in ("ValueError", ("ValueError",), None, 3, ValueError("x"), (ValueError, int)):
        with pytest.raises(DefinitionError, match=r"raises of \S+body holds .*raises=\(ValueError, KeyError\)"):
            declare(body, raises=bad)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"effects": "sometimes"}, "at_least_once"),
        ({"executor": "process"}, "event loop"),
        ({"executor": "elsewhere"}, "'thread' or 'process'"),
        ({"timeout": -1}, "timeout"),
        ({"heartbeat_timeout": "soon"}, "heartbeat_timeout"),
        ({"queue": ""}, "queue"),
        ({"priority": 10**9}, "priority"),
        ({"name": ""}, "name"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_settings_of_a_task_are_found_where_they_are_written(settings: dict[str, Any], message: str) -> None:
    async def work() -> int:
        return 1

    with pytest.raises(HoldfastError, match=message):
        App("settings", store="unused.db").task(**settings)(work)


def test_a_process_task_must_be_importable() -> None:
    def work() -> int:
        return 1

    with pytest.raises(DefinitionError, match="importable"):
        app.task(executor="process")(work)


def test_a_name_is_declared_once() -> None:
    twice = App("twice", store="unused.db")

    async def work(ctx: Context) -> None:
        return None

    twice.workflow(name="work")(work)
    with pytest.raises(DefinitionError, match="declared twice"):
        twice.workflow(name="work")(work)
    twice.workflow(name="work", version=2)(work)


async def test_wrong_arguments_are_found_at_the_start_and_at_the_call(rig: Rig) -> None:
    @rig.app.task
    async def add(first: int, second: int = 1) -> int:
        return first + second

    @rig.app.workflow
    async def work(ctx: Context, number: int) -> list[str]:
        seen = []
        for arguments in ((), (1, 2, 3)):
            try:
                await add(*arguments)
            except InvalidArgumentError as error:
                seen.append(str(error))
        return seen

    with pytest.raises(InvalidArgumentError, match="cannot be called like this"):
        await work.start()  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match="cannot be called like this"):
        await work.start(1, other=2)  # type: ignore[call-arg]
    seen = await rig.result(await work.start(1))
    assert len(seen) == 2
    assert all("cannot be called like this" in line for line in seen)


async def test_an_argument_that_does_not_fit_is_named_with_the_function_it_is_for(rig: Rig) -> None:
    @rig.app.task(name="add")
    async def add(first: int, second: int = 1) -> int:
        return first + second

    @rig.app.workflow(name="work")
    async def work(ctx: Context, number: int) -> str:
        with pytest.raises(EncodeError) as caught:
            await add(1, second="two")  # type: ignore[arg-type]
        return str(caught.value)

    with pytest.raises(
        EncodeError, match=r"the input of work does not fit its parameters: .*`int`.* \(at \$\.number\)"
    ):
        await work.start("one")  # type: ignore[arg-type]
    told = await rig.result(await work.start(1))
    assert told.startswith("the input of add does not fit its parameters: ")
    assert "(at $.second)" in told
    with pytest.raises(DecodeError, match=r"the stored input of work does not fit its parameters at \$\.number"):
        work.signature.decode('{"number":"one"}')


async def test_arguments_that_no_longer_decode_strand_the_run(rig: Rig) -> None:
    """The code changed under it; the right code can go on."""

    def declare(target: App, annotation: Any) -> Any:
        async def work(ctx: Context, number: Any) -> Any:
            return number

        work.__annotations__["number"] = annotation
        return target.workflow(name="work")(work)

    handle = await declare(rig.app, str).start("seven")
    new_app = rig.another_app()
    declare(new_app, int)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert await rig.status(handle) is Status.STRANDED
    await handle.resume()
    await (await rig.make_worker(rig.app)).run_until_idle()
    assert await handle.result() == "seven"


async def test_a_task_whose_input_no_longer_decodes_is_stranded_and_fails_nobody(rig: Rig) -> None:
    """In a rolling deploy: its caller waits for the code that can read it."""

    def declare(target: App, annotation: Any) -> Any:
        async def book(seat: Any) -> str:
            return f"seat {seat}"

        book.__annotations__["seat"] = annotation
        task = target.task(name="book", queue="bookings")(book)
        task.digest = f"release for {annotation.__name__}"

        @target.workflow(name="work")
        async def work(ctx: Context) -> str:
            try:
                return str(await task("7a"))
            except TaskFailed:
                return "undone"

        return work

    handle = await declare(rig.app, str).start()
    old = await rig.make_worker()
    await old.run_once()
    new_app = rig.another_app()
    declare(new_app, int)
    await (await rig.make_worker(new_app)).run_until_idle()
    (call,) = await rig.stores.store.children(handle.id.to_bytes())
    assert (call.status, call.attempt) == (Status.STRANDED, 0)
    assert "the stored input of book does not fit its parameters at $.seat" in (call.error or "")
    worker = await rig.app.make_worker(WorkerSettings(queues=["bookings"]))
    (sweep,) = [service for service in worker._services if service.name == "stranded"]
    await sweep.run_once()
    await old.run_until_idle()
    assert await handle.result() == "seat 7a"


@pytest.mark.parametrize("kind", ["workflow", "task"])
async def test_code_whose_types_alone_are_mended_tries_what_was_stranded(rig: Rig, kind: str) -> None:
    """The code of the function is the same; what it reads is not."""

    def declare(target: App, *more: Any) -> Any:
        async def book(order: Any) -> int:
            return int(order.number)

        async def booked(ctx: Context, order: Any) -> int:
            return int(order.number)

        function: Any = book if kind == "task" else booked
        function.__annotations__["order"] = msgspec.defstruct("Order", [("number", int), *more])
        return (target.task if kind == "task" else target.workflow)(name="book")(function)

    first = declare(rig.app)
    handle = await first.start(first.signature.annotations["order"](7))
    new_app, mended_app = rig.another_app(), rig.another_app()
    declare(new_app, ("size", int))
    await (await rig.make_worker(new_app)).run_until_idle()
    assert await rig.status(handle) is Status.STRANDED
    mended = declare(mended_app, ("size", int, 1))
    await StrandedSweep(rig.stores.store, ["default"], [mended.handler], mended_app._release()).run_once()
    await (await rig.make_worker(mended_app)).run_until_idle()
    assert await handle.result(timeout=0) == 7


async def test_a_result_that_no_longer_decodes_strands_the_run_and_is_not_caught(rig: Rig) -> None:
    """The call went well: a body that catches errors must not undo what it did."""

    def declare(target: App, annotation: Any) -> Any:
        async def book() -> Any:
            return "seven"

        book.__annotations__["return"] = annotation
        task = target.task(name="book", queue="bookings")(book)

        @target.workflow(name="work")
        async def work(ctx: Context) -> str:
            try:
                return f"booked {await task()}"
            except Exception as error:
                return f"undone: {error}"

        return work

    handle = await declare(rig.app, str).start()
    await (await rig.make_worker(queues=["default"])).run_until_idle()
    await (await rig.make_worker(queues=["bookings"])).run_until_idle()
    new_app = rig.another_app()
    declare(new_app, int)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert await rig.status(handle) is Status.STRANDED
    error = await handle.error()
    assert error is not None
    assert "the result of book cannot be read: stored JSON does not fit int at $" in error.message
    await handle.resume()
    await rig.run()
    assert await handle.result() == "booked seven"


async def test_a_result_that_cannot_be_written_fails_once(rig: Rig) -> None:
    """Not encodable, or too large: trying again would not help."""
    small = Rig(rig.stores, payload_limit=1000)
    ran: list[str] = []

    @small.app.task
    async def produce(how: str) -> Any:
        ran.append(how)
        return "x" * 2000 if how == "large" else object()

    @small.app.workflow
    async def work(ctx: Context) -> list[str]:
        seen = []
        for how in ("large", "strange"):
            try:
                await produce(how)
            except TaskFailed as error:
                seen.append(str(error))
        return seen

    @small.app.workflow
    async def large(ctx: Context) -> str:
        return "x" * 2000

    handle = await work.start()
    failed = await large.start()
    await small.run()
    for _ in range(20):
        await small.advance(600)
        await small.run()
    seen = await handle.result()
    assert "1,000" in seen[0]
    assert ran == ["large", "strange"]
    assert await small.status(failed) is Status.FAILED
    error = await failed.error()
    assert error is not None
    assert "1,000" in error.message
    await small.close()


async def test_an_argument_that_is_too_large_is_found_at_the_call(rig: Rig) -> None:
    small = Rig(rig.stores, payload_limit=1000)

    @small.app.task
    async def swallow(text: str) -> None:
        return None

    @small.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await swallow("x" * 2000)
        except PayloadError as error:
            return str(error)
        return "no error"

    told = await small.result(await work.start())
    assert "the input of " in told
    assert "swallow takes 2,0" in told
    assert "1,000" in told
    await small.close()


async def test_what_invoke_refuses(rig: Rig) -> None:
    """A function that is not registered, a class, a value: nothing of it is called."""
    called: list[str] = []

    async def plain() -> None:
        called.append("plain")

    @rig.app.workflow
    async def work(ctx: Context) -> list[str]:
        seen = []
        for bad in (plain, dict, 7, None):
            try:
                await ctx.invoke(bad)  # type: ignore[call-overload]
            except InvalidArgumentError as error:
                seen.append(str(error))
        return seen

    seen = await rig.result(await work.start())
    assert len(seen) == 4
    assert all("@app.task" in line for line in seen)
    assert called == []


async def test_a_workflow_is_not_called_outside_a_body(rig: Rig) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> None:
        return None

    with pytest.raises(CallNotAllowedError, match="start it with"):
        await work()


async def test_a_context_and_its_promises_belong_to_their_body(rig: Rig) -> None:
    """Used from a task, from another body or after the end, they say so and record nothing."""
    leaked: list[tuple[Context, Promise[int]]] = []
    seen: list[str] = []

    @rig.app.task
    async def add(number: int) -> int:
        for ctx, promise in leaked:
            recorded = (ctx.now, ctx.random, ctx.uuid, partial(ctx.sleep, 1), ctx.join_set, partial(ctx.patched, "new"))
            kept = (partial(ctx.publish, "name", 1), partial(ctx.set_attributes, name=1))
            for use in (*recorded, *kept):
                try:
                    use()
                except CallNotAllowedError as error:
                    seen.append(str(error))
            try:
                await promise
            except CallNotAllowedError as error:
                seen.append(str(error))
        return number

    @rig.app.workflow
    async def leak(ctx: Context) -> int:
        promise = ctx.invoke(add, 1)
        leaked.append((ctx, promise))
        await promise
        return await add(2)

    handle = await leak.start()
    assert await rig.result(handle) == 2
    assert len(seen) == 18
    assert len([line for line in await rig.lines(handle) if "Scheduled" in line]) == 2


async def test_a_promise_of_another_run_is_no_promise_of_this_one(rig: Rig) -> None:
    """Its number here is that of another operation, so combinations and join sets refuse it."""
    leaked: list[Any] = []
    seen: list[str] = []

    @rig.app.task
    async def add(number: int) -> int:
        return number

    @rig.app.workflow
    async def leak(ctx: Context) -> int:
        leaked.extend((add(1), ctx.signal("go")))
        return await leaked[0] + await leaked[1]  # type: ignore[no-any-return]

    @rig.app.workflow
    async def borrow(ctx: Context) -> int:
        own = add(3)
        uses = [partial(use, own, promise) for use in (ctx.all, ctx.any) for promise in leaked]
        for use in (*uses, partial(ctx.join_set().submit, leaked[0])):
            try:
                use()
            except CallNotAllowedError as error:
                seen.append(str(error))
        return await own

    first = await leak.start()
    await rig.run()
    assert await rig.result(await borrow.start()) == 3
    assert len(seen) == 5
    assert all("belongs to the workflow that made it" in line for line in seen)
    await first.signal("go", 4)
    assert await rig.result(first) == 5


@pytest.mark.parametrize("duration", [-1, "soon", None, float("nan"), timedelta(seconds=-1)], ids=str)
async def test_a_sleep_of_no_length_is_refused(rig: Rig, duration: Any) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await ctx.sleep(duration)
        except InvalidArgumentError as error:
            return str(error)
        return "no error"

    assert "duration of sleep" in await rig.result(await work.start())


@pytest.mark.parametrize("name", ["", None, 7, "half \ud800", "nul \0"], ids=ascii)
async def test_a_signal_a_patch_and_a_published_value_have_names(rig: Rig, name: Any) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> int:
        refused = 0
        for use in (lambda: ctx.patched(name), lambda: ctx.publish(name, 1), lambda: ctx.signal(name)):
            try:
                use()
            except InvalidArgumentError:
                refused += 1
        return refused

    assert await rig.result(await work.start()) == 3


def test_an_app_without_definitions_cannot_work() -> None:
    with pytest.raises(ConfigurationError, match="declares nothing"):
        App("empty", store="unused.db").runners()


async def test_a_workflow_that_raises_fails_with_the_error_and_its_line(rig: Rig) -> None:
    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def broken() -> None:
        raise ValueError("deep down")

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await broken()

    handle = await work.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    error = await handle.error()
    assert error is not None
    assert "deep down" in error.message
    assert (await rig.lines(handle))[-1] == "ExecutionFailed user:TaskFailed"
