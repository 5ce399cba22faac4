"""An execution is found by what people know of it: its id, the first digits of one, its name, its key."""

from __future__ import annotations

import pytest

from holdfast import PromiseId
from holdfast.core.errors import AmbiguousIdError, InvalidArgumentError, NotFoundError
from holdfast.store.base import Store
from holdfast.store.values import Definition, NewExecution
from holdfast.views.finding import find


def row(name: str, key: str | None, promise: PromiseId) -> NewExecution:
    return NewExecution(
        promise=promise.to_bytes(),
        kind="workflow",
        name=name,
        version=1,
        handler=1,
        step="",
        state="{}",
        input_hash="",
        idempotency_key=key,
    )


def keyed(name: str, key: str) -> NewExecution:
    return row(name, key, PromiseId.of(name, key))


async def known(store: Store, *names: str) -> None:
    await store.register_definitions(
        [Definition(kind="workflow", name=name, version=1, step="", queue="default") for name in names]
    )


async def name_of(store: Store, text: str) -> tuple[str, str | None]:
    view = await find(store, text)
    return view.name, view.idempotency_key


async def test_a_key_names_it_alone_or_with_its_definition(store: Store) -> None:
    await known(store, "order", "refund")
    await store.insert([keyed("order", "order-17"), keyed("refund", "a/b"), keyed("gone", "old")])
    assert await name_of(store, "order-17") == ("order", "order-17")
    assert await name_of(store, " order/order-17 ") == ("order", "order-17")
    assert await name_of(store, "a/b") == ("refund", "a/b")
    assert await name_of(store, "refund/a/b") == ("refund", "a/b")
    assert await name_of(store, "gone/old") == ("gone", "old")  # whose code no worker has any more


async def test_digits_name_it_as_before(store: Store) -> None:
    await known(store, "order")
    promise = PromiseId.of("order", "order-17")
    await store.insert([keyed("order", "order-17")])
    for text in (str(promise), promise.short, promise.label("order"), promise.root.hex()[:4]):
        assert (await find(store, text)).promise == promise.to_bytes()
    assert (await find(store, promise)).promise == promise.to_bytes()


async def test_a_key_of_several_definitions_is_refused_with_the_candidates(store: Store) -> None:
    await known(store, "order", "refund")
    await store.insert([keyed("order", "17"), keyed("refund", "17")])
    with pytest.raises(
        AmbiguousIdError, match=r"'17' is the key or the id of 2 executions: \w+/\w{8}, \w+/\w{8}\. Give one of these"
    ):
        await find(store, "17")
    assert await name_of(store, "refund/17") == ("refund", "17")


async def test_a_key_that_is_also_the_beginning_of_an_id_never_reaches_the_wrong_one(store: Store) -> None:
    await known(store, "order")
    digits = PromiseId(bytes.fromhex("1234") + bytes(30))
    await store.insert([keyed("order", "1234"), row("order", None, digits)])
    for text in ("1234", "order/1234"):
        with pytest.raises(AmbiguousIdError, match="Give one of these"):
            await find(store, text)
    assert (await find(store, "12340")).promise == digits.to_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("order-18", "no execution has the key 'order-18', and it is no id"),
        ("ab", "no execution has the key 'ab', and it is no id"),
        ("ffff0000ffff", "no execution has the id ffff0000ffff"),
        ("a\0b", "no execution has the key"),
        ("\udcff", "no execution has the key"),
    ],
)
async def test_what_is_not_there_is_said(store: Store, text: str, said: str) -> None:
    await known(store, "order")
    with pytest.raises(NotFoundError, match=said):
        await find(store, text)


async def test_what_can_be_neither_is_refused(store: Store) -> None:
    for text in ("", " ", "x" * 600):
        with pytest.raises(InvalidArgumentError):
            await find(store, text)
    with pytest.raises(NotFoundError):
        await find(store, PromiseId.of("order", "other"))
