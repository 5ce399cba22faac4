"""Starting and signalling from a process that does not have the code; starts that come with a signal."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast import App, Await, Collision, Context, Done, Machine, MachineContext, Outcome, Status, step
from holdfast.core.codec import DEFAULT_MAX_BYTES
from holdfast.core.errors import (
    EncodeError,
    InvalidArgumentError,
    KeyConflictError,
    NotFoundError,
    PayloadTooLargeError,
    SignalRefusedError,
)
from holdfast.store.values import Delivery, ExecutionFilter, NewExecution
from holdfast.telemetry.logs import LogContext
from holdfast.testing.stores import PostgresStores
from tests.models.workflow.kit import Rig


def declare(rig: Rig) -> None:
    @rig.app.workflow(name="checkout")
    async def checkout(ctx: Context, order: int, city: str = "Ulm") -> str:
        return f"{order} {city} {await ctx.signal('ok', str)}"

    @rig.app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number


async def test_a_process_without_the_code_starts_and_signals_by_name(rig: Rig) -> None:
    declare(rig)
    await rig.app.register()
    far = rig.another_app()
    handle = await far.start_by_name("checkout", {"city": "Bonn", "order": 7}, key="o7")
    await far.handle("checkout", key="o7").signal("ok", "yes")
    assert await rig.result(handle) == "7 Bonn yes"
    assert await rig.result(await far.start_by_name("double", {"number": 4})) == 8
    assert (await far.start_by_name("checkout", {"order": 7, "city": "Bonn"}, key="o7")).id == handle.id
    with pytest.raises(KeyConflictError):
        await far.start_by_name("checkout", {"order": 8}, key="o7")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("checkout", {"order": "seven"}, r"at \$.order: Expected `int`, got `str`"),
        ("checkout", {"city": "Bonn"}, "Object missing required field `order`"),
        ("double", {"number": [4]}, r"at \$.number: Expected `int`, got `array`"),
        ("Door", "open", r"at \$: Expected `int`, got `str`"),
        ("visit", {"guest": 3}, r"at \$.guest: Expected `str`, got `int`"),
    ],
)
async def test_a_process_with_the_code_starts_nothing_by_name_that_it_could_not_read(
    rig: Rig, name: str, value: Any, fault: str
) -> None:
    declare(rig)

    @rig.app.machine(name="Door")
    class Door(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    @rig.app.flow("visit").activity
    async def enter(guest: str) -> None: ...

    await rig.app.register()
    with pytest.raises(InvalidArgumentError, match=f"{name} cannot be started with this.*{fault}"):
        await rig.app.start_by_name(name, value)
    far = await rig.another_app().start_by_name(name, value, key="k")
    assert await far.status() is Status.RUNNABLE, "who has no code cannot know"
    assert (await rig.app.start_by_name(name, value, key="k")).id == far.id, "a key finds what it has started"


async def test_an_app_that_was_named_for_its_code_must_have_the_version_that_is_started(rig: Rig) -> None:
    old, client = rig.another_app(), rig.another_app()
    for app, version in ((rig.app, 2), (old, 1)):

        @app.workflow(name="job", version=version)
        async def job(ctx: Context) -> None: ...

        @app.batch(name="rows")
        async def rows(item: int) -> None: ...

    await rig.app.register()
    said = "does not declare job in version 2, which is the newest in this ledger, but in version 1: name the app"
    with pytest.raises(InvalidArgumentError, match=said):
        await client._start_or_find("job", {}, old)
    await client._start_or_find("job", {}, rig.app)
    await client._start_or_find("rows", {"items": [1]}, old)


async def test_by_name_and_by_code_the_same_key_is_the_same_execution(rig: Rig) -> None:
    @rig.app.workflow(name="pair")
    async def pair(ctx: Context, zeta: int, alpha: int) -> int:
        return zeta - alpha

    await rig.app.register()
    by_name = await rig.another_app().start_by_name("pair", {"alpha": 1, "zeta": 5}, key="k")
    by_code = await pair.options(key="k").start(5, 1)
    assert by_name.id == by_code.id
    assert await rig.result(by_code) == 4


async def test_by_name_a_number_is_the_same_whatever_it_is_written_as(rig: Rig) -> None:
    """Plain JSON has 3 where code writes 3.0 for a float."""

    @rig.app.workflow(name="weigh")
    async def weigh(ctx: Context, weights: list[float]) -> None: ...

    @rig.app.task(name="lift")
    async def lift(weight: float) -> None: ...

    await rig.app.register()
    weighed, lifted = await weigh.options(key="k").start([3, 0.5]), await lift.options(key="k").start(3)
    assert (await rig.app.start_by_name("weigh", {"weights": [3, 0.5]}, key="k")).id == weighed.id
    assert (await rig.app.start_by_name("lift", {"weight": 3}, key="k")).id == lifted.id
    for name, other in (("weigh", {"weights": [3, True]}), ("weigh", {"weights": [3]}), ("lift", {"weight": 4})):
        with pytest.raises(KeyConflictError):
            await rig.app.start_by_name(name, other, key="k")


@pytest.mark.parametrize("parameter", ["number", "input"])
@pytest.mark.parametrize("today", ["workflow", "task"])
async def test_a_key_of_what_was_of_another_kind_is_a_conflict(rig: Rig, today: str, parameter: str) -> None:
    """Their rows keep their input differently."""

    def declare_job(app: App, kind: str) -> Any:
        scope: dict[str, Any] = {}
        context = "ctx, " if kind == "workflow" else ""
        exec(f"async def job({context}{parameter}: int) -> None: ...", scope)
        return getattr(app, kind)(name="job")(scope["job"])

    far = rig.another_app()
    before = declare_job(rig.app, "task" if today == "workflow" else "workflow")
    after = declare_job(far, today)
    handle = await before.options(key="k").start(7)
    await far.register()
    with pytest.raises(KeyConflictError):
        await after.options(key="k").start(8)
    assert await after.options(key="k").start_many([8]) == [Collision(handle.id, "input")]
    with pytest.raises(KeyConflictError):
        await rig.another_app().start_by_name("job", {parameter: 8}, key="k")


@pytest.mark.parametrize("kind", ["workflow", "task"])
async def test_a_key_outlives_a_new_field_with_a_default(rig: Rig, kind: str) -> None:
    """B6, B17: the caller tries again after a deploy, with what it had."""

    def declare_job(app: App, order_class: type) -> Any:
        async def job(order: Any) -> int:
            return int(order.id)

        async def run(ctx: Context, order: Any) -> int:
            return int(order.id)

        function: Any = job if kind == "task" else run
        function.__annotations__["order"] = order_class
        return app.task(name="job")(function) if kind == "task" else app.workflow(name="job")(function)

    old_order = make_dataclass("Order", [("id", int)])
    before = declare_job(rig.app, old_order)
    new_order = make_dataclass("Order", [("id", int), ("note", str, "")])
    after = declare_job(rig.another_app(), new_order)
    handle = await before.options(key="k").start(old_order(7))
    assert (await after.options(key="k").start(new_order(7))).id == handle.id
    assert [again.id for again in await after.options(key="k").start_many([new_order(7)])] == [handle.id]
    with pytest.raises(KeyConflictError):
        await after.options(key="k").start(new_order(7, "gift"))
    (collision,) = await after.options(key="k").start_many([new_order(8)])
    assert isinstance(collision, Collision)
    assert await rig.result(handle) == 7


async def test_a_machine_is_started_by_name_at_its_first_step(rig: Rig) -> None:
    @dataclass
    class Box:
        weight: int

    @rig.app.machine(name="Parcel")
    class Parcel(Machine[Box]):
        @step(initial=True)
        async def weigh(self, ctx: object) -> Outcome:
            return Done("weighed")

    await rig.app.register()
    assert await rig.result(await rig.another_app().start_by_name("Parcel", {"weight": 3})) == "weighed"


async def test_what_is_not_known_is_refused_with_what_is(rig: Rig) -> None:
    declare(rig)
    await rig.app.register()
    await rig.app.register()  # nothing has changed: nothing is written
    far = rig.another_app()
    with pytest.raises(NotFoundError, match="no worker"):
        await far.start_by_name("chekout", {})
    with pytest.raises(InvalidArgumentError, match="no parameter ordr; its parameters are: order, city"):
        await far.start_by_name("checkout", {"ordr": 1})
    with pytest.raises(InvalidArgumentError, match="mapping"):
        await far.start_by_name("checkout", [1])
    with pytest.raises(EncodeError, match=r"the input of checkout .* nan has no JSON form.* \(at \$\.order\)"):
        await far.start_by_name("checkout", {"city": "Ulm", "order": math.nan})


async def test_the_limit_of_a_start_by_name_is_that_of_all_its_arguments(rig: Rig) -> None:
    declare(rig)
    await rig.app.register()
    far = rig.another_app(payload_limit=1_000)
    with pytest.raises(PayloadTooLargeError, match=r"the input of checkout takes 1,2\d\d bytes"):
        await far.start_by_name("checkout", {"order": "x" * 600, "city": "y" * 600})


async def test_a_raised_limit_holds_for_a_start_by_name_too(rig: Rig) -> None:
    declare(rig)
    await rig.app.register()
    city, far = "x" * (DEFAULT_MAX_BYTES + 1), rig.another_app(payload_limit=2 * DEFAULT_MAX_BYTES)
    handle = await far.start_by_name("checkout", {"order": 7, "city": city})
    assert city in (await handle.describe()).state


@pytest.mark.parametrize("value", [{}, {"items": None}, {"items": {"a": 1}}], ids=str)
async def test_a_batch_is_not_started_by_name_without_a_list_of_items(rig: Rig, value: dict[str, Any]) -> None:
    """Nothing but a run of no items, or a stranded one, could come of it."""

    @rig.app.batch(name="rows")
    async def rows(item: int) -> None:
        return None

    await rig.app.register()
    with pytest.raises(InvalidArgumentError, match=r'rows is a batch: start it by name with \{"items": \[...\]\}'):
        await rig.another_app().start_by_name("rows", value)


async def test_the_newest_version_is_started(rig: Rig) -> None:
    for version in (1, 2):

        @rig.app.workflow(name="w", version=version)
        async def body(ctx: Context, version: int = version) -> int:
            return ctx.info.version

    await rig.app.register()
    assert await rig.result(await rig.another_app().start_by_name("w")) == 2


async def test_a_signal_starts_what_is_not_there_and_finds_what_is(rig: Rig) -> None:
    @rig.app.workflow
    async def cart(ctx: Context, owner: str) -> list[str]:
        return [owner, await ctx.signal("item", str), await ctx.signal("item", str)]

    starter = cart.options(key="c1")
    first = await starter.signal_with_start("item", "pen", "ann")
    again = await starter.signal_with_start("item", "ink", "bob")
    assert first.id == again.id
    assert await rig.result(first) == ["ann", "pen", "ink"]
    with pytest.raises(SignalRefusedError):
        await starter.signal_with_start("item", "pad", "ann")
    with pytest.raises(InvalidArgumentError, match="key"):
        await cart.options().signal_with_start("item", "pad", "ann")


async def test_a_signal_that_starts_is_sent_again_without_harm_and_seen_by_observers(rig: Rig) -> None:
    class Stamps(LogContext):
        def stamped(self, rows: Sequence[NewExecution]) -> Sequence[NewExecution]:
            return [msgspec.structs.replace(row, attributes='{"stamped":true}') for row in rows]

    @rig.app.workflow
    async def cart(ctx: Context) -> list[str]:
        return [await ctx.signal("item", str), await ctx.signal("item", str)]

    rig.app.observe(Stamps())
    for item, event in (("pen", "e1"), ("pen", "e1"), ("ink", "e2"), ("pen", "e1")):
        handle = await cart.options(key="c1", dedup_key=event).signal_with_start("item", item)
    assert (await handle.describe()).attributes == '{"stamped":true}'
    assert await rig.result(handle) == ["pen", "ink"]
    with pytest.raises(InvalidArgumentError, match="dedup_key is that of a signal"):
        await cart.options(dedup_key="e1").start()


async def test_a_signal_starts_by_name_what_is_not_there_and_finds_what_is(rig: Rig) -> None:
    """As a webhook does, in a process without the code; types are not checked there."""

    @rig.app.workflow(name="cart")
    async def cart(ctx: Context, owner: str) -> list[str]:
        return [owner, await ctx.signal("item", str), await ctx.signal("item", str)]

    await rig.app.register()
    web = rig.another_app()
    ids = set()
    for item, event in (("pen", "e1"), ("pen", "e1"), ("ink", "e2")):
        handle = await web.signal_with_start_by_name(
            "cart", "item", item, {"owner": "ann"}, key="c1", queue="default", dedup_key=event
        )
        ids.add(handle.id)
    assert len(ids) == 1
    assert await rig.result(handle) == ["ann", "pen", "ink"]
    by_code = await cart.options(key="c2").signal_with_start("item", "cup", "eve")
    found = await web._signal_with_start("cart", "item", "pot", {"owner": "bob"}, key="c2")
    assert (found.handle.id, found.existing, found.delivery) == (by_code.id, True, Delivery.DELIVERED)
    assert await rig.result(by_code) == ["eve", "cup", "pot"]
    with pytest.raises(SignalRefusedError):
        await web.signal_with_start_by_name("cart", "item", "pad", {"owner": "ann"}, key="c1")
    assert len((await rig.stores.store.browse(ExecutionFilter(), 10)).items) == 2


async def test_a_signal_that_starts_by_name_is_checked_before_anything_is_written(rig: Rig) -> None:
    declare(rig)

    @rig.app.batch(name="rows")
    async def rows(item: int) -> None:
        return None

    await rig.app.register()
    web = rig.another_app()
    wrong: list[tuple[Any, str, dict[str, Any]]] = [
        ({"order": 7, "town": "Rome"}, "no parameter town", {"key": "k"}),
        ({"order": 7}, "by its key", {}),
        ({"order": 7}, "not in the transaction", {"key": "k", "connection": object()}),
    ]
    for value, why, options in wrong:
        with pytest.raises(InvalidArgumentError, match=why):
            await web.signal_with_start_by_name("checkout", "go", None, value, **options)
    with pytest.raises(InvalidArgumentError, match="checkout cannot be started with this"):
        await rig.app.signal_with_start_by_name("checkout", "go", None, {"order": "seven"}, key="k")
    with pytest.raises(InvalidArgumentError, match="no name of a signal"):
        await web.signal_with_start_by_name("checkout", "", None, {"order": 7}, key="k")
    for name, value in (("double", {"number": 1}), ("rows", {"items": [1]})):
        with pytest.raises(InvalidArgumentError, match="reads no signals"):
            await web.signal_with_start_by_name(name, "go", None, value, key="k")
    with pytest.raises(NotFoundError, match=r"definition 'nobody'"):
        await web.signal_with_start_by_name("nobody", "go", key="k")
    assert (await rig.stores.store.browse(ExecutionFilter(), 10)).items == []


async def test_a_machine_is_started_by_name_with_a_signal(rig: Rig) -> None:
    @rig.app.machine(name="Door")
    class Door(Machine[int]):
        @step(initial=True)
        async def wait(self, ctx: MachineContext[int]) -> Outcome:
            return Await("knock", self.open, ctx.state)

        @step
        async def open(self, ctx: MachineContext[int]) -> Outcome:
            return Done([ctx.state, *(signal.decode(str) for signal in ctx.awaited)])

    await rig.app.register()
    handle = await rig.another_app().signal_with_start_by_name("Door", "knock", "twice", 7, key="front")
    assert await rig.result(handle) == [7, "twice"]


async def test_a_signal_by_name_reaches_the_run_that_went_on(rig: Rig) -> None:
    @rig.app.workflow(name="loop")
    async def loop(ctx: Context, again: bool = True) -> str:
        if again:
            ctx.continue_as_new(False)
        return await ctx.signal("stop", str)

    await rig.app.register()
    web = rig.another_app()
    handle = await web.start_by_name("loop", key="k")
    await rig.run()
    found = await web._signal_with_start("loop", "stop", "now", key="k")
    assert (found.handle.id, found.existing, found.delivery) == (handle.id, True, Delivery.DELIVERED)
    assert await rig.result(handle) == "now"


async def test_a_signal_does_not_start_in_the_transaction_of_its_caller(rig: Rig) -> None:
    """It would be committed though the caller rolls back."""

    @rig.app.workflow
    async def cart(ctx: Context) -> None:
        return None

    with pytest.raises(InvalidArgumentError, match="not in the transaction"):
        await cart.options(key="k", connection=object()).signal_with_start("item", "pen")
    assert (await rig.stores.store.browse(ExecutionFilter(), 10)).items == []


async def test_any_driver_starts_by_name_in_its_own_transaction(rig: Rig) -> None:
    """The SQL function is PostgreSQL's; on SQLite any process can open the file, and starts with the library."""
    declare(rig)
    await rig.app.register()
    if not isinstance(rig.stores, PostgresStores):
        handle = await rig.another_app().start_by_name("double", {"number": 21}, key="k")
        assert await rig.result(handle) == 42
        return
    schema = rig.stores.schema
    connection = await asyncpg.connect(rig.stores.url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        lost = await connection.fetchval(f"select {schema}.start('double', '{{\"number\": 1}}')")
        await transaction.rollback()
        kept = await connection.fetchval(f"select {schema}.start('double', '{{\"number\": 21}}', 'k')")
        again = await connection.fetchval(f"select {schema}.start('double', '{{ \"number\":21 }}', 'k')")
        assert kept == again
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.fetchval(f"select {schema}.start('double', '{{\"number\": 22}}', 'k')")
        with pytest.raises(asyncpg.UndefinedObjectError):
            await connection.fetchval(f"select {schema}.start('nobody')")
    finally:
        await connection.close()
    await rig.another_app().start_by_name("double", {"number": 21}, key="k")
    by_code = next(task for task in rig.app._functions.every() if task.name == "double")
    await by_code.options(key="k").start(21)
    with pytest.raises(KeyConflictError):
        await rig.another_app().start_by_name("double", {"number": 22}, key="k")
    assert await rig.stores.store.get(bytes.fromhex(lost)) is None
    assert await rig.result(rig.app.handle("double", key="k")) == 42
    assert str(rig.app.handle("double", key="k").id) == kept


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("null", "started with an object of its arguments, not with null"),
        ("'[21]'", "started with an object of its arguments"),
        ("""'{"number": 1, "colour": "red"}'""", "has no parameter colour"),
        ("""'{"number": 1}', ''""", "a key has 1 to 512 characters"),
        ("""'{"number": 1}', repeat('k', 513)""", "a key has 1 to 512 characters"),
        ("""'{"number": 1}', 'k', ''""", "the name of a queue has 1 to 100 characters"),
    ],
)
async def test_a_start_in_sql_refuses_what_the_library_does(rig: Rig, arguments: str, message: str) -> None:
    """Nobody would be there to hear of it later, and a queue without a name has no worker."""
    declare(rig)
    await rig.app.register()
    if not isinstance(rig.stores, PostgresStores):
        with pytest.raises(InvalidArgumentError):
            await rig.app.start_by_name("double", {"number": 1, "colour": "red"})
        return
    connection = await asyncpg.connect(rig.stores.url)
    try:
        with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
            await connection.fetchval(f"select {rig.stores.schema}.start('double', {arguments})")
    finally:
        await connection.close()


async def test_a_start_in_sql_refuses_a_batch_without_items(rig: Rig) -> None:
    @rig.app.batch(name="rows")
    async def rows(item: int) -> None:
        return None

    await rig.app.register()
    if not isinstance(rig.stores, PostgresStores):
        return  # SQL of one's own starts nothing there
    connection = await asyncpg.connect(rig.stores.url)
    try:
        for given in ("{}", '{"items": null}', '{"items": {"a": 1}}'):
            with pytest.raises(asyncpg.InvalidParameterValueError, match=r'start it with \{"items": \[...\]\}'):
                await connection.fetchval(f"select {rig.stores.schema}.start('rows', $1)", given)
        assert await connection.fetchval(f"select {rig.stores.schema}.start('rows', $1)", '{"items": []}')
    finally:
        await connection.close()


async def test_a_key_is_the_same_whether_sql_or_the_library_started_it(rig: Rig) -> None:
    """On SQLite it is the library's in either case."""
    declare(rig)

    @rig.app.machine(name="Order")
    class Order(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    @rig.app.batch(name="rows")
    async def rows(item: int) -> int:
        return item

    await rig.app.register()
    given = {"double": {"number": 21}, "checkout": {"order": 7}, "Order": 3, "rows": {"items": [1, 2]}}
    others = {"double": {"number": 9}, "checkout": {"order": 9}, "Order": 9, "rows": {"items": [9]}}
    for name, value in given.items():
        if isinstance(rig.stores, PostgresStores):
            connection = await asyncpg.connect(rig.stores.url)
            start = f"select {rig.stores.schema}.start($1, $2, 'k')"
            promise = await connection.fetchval(start, name, json.dumps(value))
            with pytest.raises(asyncpg.UniqueViolationError, match="another input"):
                await connection.fetchval(start, name, json.dumps(others[name]))
            await connection.close()
        else:
            promise = str((await rig.app.start_by_name(name, value, key="k")).id)
        again = await rig.app.start_by_name(name, value, key="k")
        assert str(again.id) == promise
    for name, other in (("double", {"number": 22}), ("checkout", {"order": 8}), ("checkout", {"order": "\0"})):
        with pytest.raises(KeyConflictError):
            await rig.app.start_by_name(name, other, key="k")
    assert (await rig.app.handle("rows", key="k").cancel()) is Status.RUNNABLE, "it is asked, and cleans up"
