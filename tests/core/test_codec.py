"""Values in and out of the ledger (issue "Bad input", rulings B5, B11, B17): what survives, what is refused."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.codec import Codec, annotation_of, codec_for, fingerprint
from holdfast.core.codec_hooks import decode_hook
from holdfast.core.errors import ConfigurationError, DecodeError, EncodeError, PayloadTooLargeError

T = TypeVar("T")
CustomerId = NewType("CustomerId", int)


class Colour(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Item:
    sku: str
    price: Decimal
    quantity: int = 1


@dataclass
class Order:
    id: int
    items: list[Item]
    note: str | None = None


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Node:
    value: int
    children: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Identityless:
    value: float | None
    extra: Any = None


@dataclass
class Forgiving:
    """Equal whatever its reading is."""

    name: str
    reading: float | None = field(compare=False, default=None)


class Point(NamedTuple):
    x: int
    y: int


class Address(TypedDict):
    street: str
    number: int


class Card(msgspec.Struct, tag=True, frozen=True):
    number: str


class Cash(msgspec.Struct, tag=True, frozen=True):
    amount: int


class Renamed(msgspec.Struct, rename="camel", array_like=False):
    unit_price: int
    colour_set: set[Colour]


class Packed(msgspec.Struct, tag="p", array_like=True):
    number: int
    colour_set: set[Colour]


class Customer(pydantic.BaseModel):
    name: str
    tags: set[str] = set()
    since: datetime | None = None
    nickname: str = pydantic.Field(default="", alias="nickName")


class StrictCustomer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    born: date
    score: Decimal

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"{self.born}"


class Premium(Customer):
    discount: int = 5


class Member(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: str


class Club(pydantic.BaseModel):
    members: set[Member]
    by_level: dict[int, frozenset[str]] = {}


class Tags(pydantic.RootModel[set[str]]):
    pass


class Account(pydantic.BaseModel):
    secret: pydantic.SecretStr
    _cache: int = pydantic.PrivateAttr(default=0)


class Remembering(pydantic.BaseModel):
    name: str
    _cache: int = pydantic.PrivateAttr(default=0)


@dataclass
class Shipment:
    customer: Customer
    label: Path
    history: dict[str, Customer] = field(default_factory=dict)


@dataclass
class Chain:
    next: Chain | None = None
    tail: int = 0


class Holder(msgspec.Struct):
    item: Item


class Labelled(TypedDict):
    item: Item


class Pair(NamedTuple):
    item: Item
    amount: int


@dataclass(slots=True)
class Slotted:
    number: int = 3


class Unwritable:
    pass


@dataclass
class Unresolved:
    part: Nowhere  # type: ignore[name-defined]  # noqa: F821


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTS = st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
DATETIMES = st.datetimes(timezones=st.none() | OFFSETS)
DECIMALS = st.decimals(allow_nan=False)
ITEMS = st.builds(Item, TEXT, DECIMALS, INTS)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CUSTOMERS = st.builds(
    Customer,
    name=TEXT,
    tags=st.sets(TEXT, max_size=3),
    since=st.none() | st.datetimes(timezones=OFFSETS),
    nickName=TEXT,
)

FAMILIES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, st.none()),
    (bool, st.booleans()),
    (int, INTS),
    (float, FLOATS),
    (str, TEXT),
    (bytes, st.binary(max_size=8)),
    (Decimal, DECIMALS),
    (UUID, st.uuids()),
    (date, st.dates()),
    (time, st.times() | st.times(timezones=OFFSETS)),
    (datetime, DATETIMES),
    (timedelta, st.timedeltas()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Path, TEXT.map(lambda text: Path("data", text.replace("\0", "")))),
    (PurePosixPath, TEXT.map(PurePosixPath)),
    (CustomerId, INTS),
    (Literal["a", 2], st.sampled_from(["a", 2])),
    (int | str | None, st.none() | INTS | TEXT),
    (Annotated[int, msgspec.Meta(ge=0)], st.integers(0, 2**70)),
    (list[int], st.lists(INTS, max_size=3)),
    (tuple[int, str], st.tuples(INTS, TEXT)),
    (tuple[Decimal, ...], st.lists(DECIMALS, max_size=3).map(tuple)),
    (set[int], st.sets(INTS, max_size=4)),
    (set[Item], st.sets(ITEMS, max_size=3)),
    (frozenset[Colour], st.frozensets(st.sampled_from(Colour))),
    (set[frozenset[int]], st.sets(st.frozensets(INTS, max_size=2), max_size=3)),
    (set[int | str], st.sets(INTS | TEXT, max_size=3)),
    (dict[str, float], st.dictionaries(TEXT, FLOATS, max_size=3)),
    (dict[int, str], st.dictionaries(INTS, TEXT, max_size=3)),
    (dict[UUID, date], st.dictionaries(st.uuids(), st.dates(), max_size=3)),
    (dict[Colour, Level], st.dictionaries(st.sampled_from(Colour), st.sampled_from(Level))),
    (dict[date, set[Colour]], st.dictionaries(st.dates(), st.sets(st.sampled_from(Colour)), max_size=3)),
    (Sequence[Path], st.lists(TEXT.map(PurePosixPath).map(Path), max_size=2)),
    (Mapping[str, object], st.dictionaries(TEXT, JSON, max_size=3)),
    (Any, JSON),
    (object, JSON),
    (Item, ITEMS),
    (Order, st.builds(Order, INTS, st.lists(ITEMS, max_size=2), st.none() | TEXT)),
    (Box[datetime], st.builds(Box, DATETIMES)),
    (Node, st.recursive(st.builds(Node, INTS), lambda n: st.builds(Node, INTS, st.lists(n, max_size=2)), max_leaves=4)),
    (Point, st.builds(Point, INTS, INTS)),
    (Address, st.fixed_dictionaries({"street": TEXT, "number": INTS})),
    (Card | Cash, st.builds(Card, TEXT) | st.builds(Cash, INTS)),
    (list[Card | Cash | None], st.lists(st.none() | st.builds(Cash, INTS), max_size=2)),
    (Renamed, st.builds(Renamed, INTS, st.sets(st.sampled_from(Colour)))),
    (Packed, st.builds(Packed, INTS, st.sets(st.sampled_from(Colour)))),
    (Customer, CUSTOMERS),
    (Customer | None, st.none() | CUSTOMERS),
    (
        StrictCustomer,
        st.builds(StrictCustomer, born=st.dates(), score=st.decimals(allow_nan=False, allow_infinity=False)),
    ),
    (Club, st.builds(Club, members=st.sets(st.builds(Member, name=TEXT), max_size=3))),
    (Tags, st.sets(TEXT, max_size=3).map(Tags)),
    (Shipment, st.builds(Shipment, CUSTOMERS, st.just(Path("a")), st.dictionaries(TEXT, CUSTOMERS, max_size=2))),
]


@pytest.mark.parametrize(("annotation", "values"), FAMILIES, ids=lambda part: str(part)[:40])
def test_every_family_comes_back_equal_and_of_the_same_type(annotation: Any, values: st.SearchStrategy[Any]) -> None:
    @given(values)
    def check(value: Any) -> None:
        codec = codec_for(annotation)
        text, decoded = codec.round_trip(value)
        assert decoded == value
        assert type(decoded) is type(value) or annotation is float
        assert codec.decode(text) == value
        assert codec.encode(decoded) == text
        assert codec.rewrite(text) == text
        assert codec.decode(text.encode()) == value

    check()


@given(st.dictionaries(TEXT, JSON, max_size=5), st.randoms(use_true_random=False))
def test_text_does_not_depend_on_the_insertion_order_of_dicts_ruling_b5(value: dict[str, Any], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert codec_for(Any).encode(dict(shuffled)) == codec_for(Any).encode(value)


@given(st.dictionaries(INTS, st.sets(st.sampled_from(Colour)), max_size=5), st.randoms(use_true_random=False))
def test_text_does_not_depend_on_the_order_of_keys_that_are_no_text(value: dict[int, set[Colour]], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    codec = codec_for(dict[int, set[Colour]])
    assert codec.encode(dict(shuffled)) == codec.encode(value)


SETS_OF_EVERY_KIND = """
import pydantic
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from holdfast.core.codec import codec_for
Fruit = Enum("Fruit", "APPLE PEAR PLUM FIG LIME")
@dataclass(frozen=True)
class Name:
    text: str
class Model(pydantic.BaseModel):
    tags: set[str]
    nested: list[frozenset[str]]
names = ["ada", "bob", "cyd", "dan", "eve"]
print(codec_for(set[str]).encode(set(names)))
print(codec_for(set[Fruit]).encode(set(Fruit)))
print(codec_for(set[Name]).encode({Name(name) for name in names}))
print(codec_for(set[frozenset[str]]).encode({frozenset({name, "x"}) for name in names}))
print(codec_for(Model).encode(Model(tags=set(names), nested=[frozenset(names)])))
"""


def test_text_of_sets_is_the_same_in_every_process_ruling_b5() -> None:
    """String hashes differ from process to process, and with them the order in which sets are walked."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SETS_OF_EVERY_KIND],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_fields_keep_their_order_and_keys_are_sorted() -> None:
    assert codec_for(Order).encode(Order(1, [], "x")) == '{"id":1,"items":[],"note":"x"}'
    assert codec_for(Any).encode({"b": 1, "a": {"d": 1, "c": 2}}) == '{"a":{"c":2,"d":1},"b":1}'


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(EncodeError) as caught:
        codec_for(annotation).encode(value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value", "type_name", "path"),
    [
        (int, "1", "int", "$"),
        (int, True, "int", "$"),
        (int, 1.0, "int", "$"),
        (Order, Order(1, [Item("a", Decimal(1)), Item("b", "3x")]), "Order", "$.items[1].price"),  # type: ignore[arg-type]
        (list[Customer], [Customer.model_construct(name=3)], "Customer", "$[0]"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "int", "$"),
        (Literal["a"], "b", "Literal", "$"),
        (None, 1, "None", "$"),
    ],
)
def test_a_value_that_does_not_fit_names_type_path_and_remedy(
    annotation: Any, value: Any, type_name: str, path: str
) -> None:
    message = refusal(annotation, value)
    assert "does not fit" in message
    assert type_name in message
    assert f"(at {path})" in message
    assert "Pass what the annotation says, or correct it" in message


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("annotation", "wrap", "path"),
    [
        (float, lambda x: x, "$"),
        (float | None, lambda x: x, "$"),
        (Any, lambda x: {"a": [None, x]}, "$.a[1]"),
        (Box[float], Box, "$.content"),
        (Identityless, Identityless, "$.value"),
        (Forgiving, lambda x: Forgiving("a", x), "$.reading"),
        (dict[int, float | None], lambda x: {7: x}, "$[7]"),
    ],
)
def test_nan_and_infinity_are_refused_never_written_as_null(
    annotation: Any, wrap: Callable[[float], Any], path: str, number: float
) -> None:
    message = refusal(annotation, wrap(number))
    assert f"{number} has no JSON form: use None, text or a Decimal (at {path})" in message


def test_a_class_with_its_own_equality_may_hold_none() -> None:
    assert codec_for(Forgiving).encode(Forgiving("a", None)) == '{"name":"a","reading":null}'


@pytest.mark.parametrize("number", [Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity")])
def test_decimals_keep_their_special_values(number: Decimal) -> None:
    assert str(codec_for(Decimal).decode(codec_for(Decimal).encode(number))) == str(number)


def test_numbers_take_the_kind_of_their_annotation_whatever_their_digits() -> None:
    for number in (0.1, 0.5, 1e300):
        assert codec_for(Decimal).round_trip(number)[1] == Decimal(repr(number))
    assert isinstance(codec_for(float).round_trip(3)[1], float)
    assert codec_for(Decimal).round_trip(3)[1] == Decimal(3)


def test_one_number_has_one_text_however_it_is_given_ruling_b5() -> None:
    assert codec_for(float).encode(3) == codec_for(float).encode(3.0) == "3.0"
    assert codec_for(Item).encode(Item("a", 0.5)) == codec_for(Item).encode(Item("a", Decimal("0.5")))  # type: ignore[arg-type]
    assert codec_for(Box[list[float]]).encode(Box([1])) == '{"content":[1.0]}'
    assert codec_for(int | float).encode(3) == "3"


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**64), 10**400])
def test_large_integers_work(number: int) -> None:
    assert codec_for(int).round_trip(number)[1] == number
    assert codec_for(Any).round_trip([number])[1] == [number]


def test_an_integer_that_python_does_not_print_is_refused() -> None:
    assert "4300 digits" in refusal(int, 10**5000)


def test_nul_is_escaped() -> None:
    assert codec_for(str).encode("a\0b") == '"a\\u0000b"'


def test_half_a_surrogate_pair_is_refused_with_its_path() -> None:
    message = refusal(dict[str, Any], {"a": ["ok", "\ud800"]})
    assert "'\\ud800' holds half of a surrogate pair" in message
    assert "(at $.a[1])" in message


@pytest.mark.parametrize("annotation", [Any, object, inspect.Parameter.empty])
@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset({"a"}),
        {1: "a"},
        b"ab",
        date(2024, 1, 1),
        Decimal("1.5"),
        UUID(int=1),
        Colour.RED,
        Item("a", Decimal(1)),
        Card("1"),
        Point(1, 2),
        Customer(name="a"),
        Path("a"),
        timedelta(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_without_annotation_only_json_values_are_taken(annotation: Any, value: Any) -> None:
    assert "would come back as" in refusal(annotation, {"a": [value]})


def test_without_annotation_a_tuple_comes_back_as_a_list() -> None:
    assert codec_for(Any).round_trip({"a": (1, (2, 3))})[1] == {"a": [1, [2, 3]]}


def test_a_change_deep_inside_names_its_path() -> None:
    message = refusal(dict[str, Any], {"orders": [{"when": date(2024, 1, 2)}]})
    assert "datetime.date(2024, 1, 2) of type date would come back as '2024-01-02' of type str" in message
    assert "(at $.orders[0].when)" in message


def test_sequences_take_the_kind_of_their_annotation() -> None:
    assert codec_for(Sequence[int]).round_trip((1, 2))[1] == [1, 2]
    assert codec_for(tuple[int, ...]).round_trip([1, 2])[1] == (1, 2)
    assert "of type set would come back as" in refusal(list[int], {1, 2})
    assert "of type list would come back as" in refusal(set[int], [1, 1])


def test_an_objects_json_is_not_the_object() -> None:
    assert "of type dict would come back as Order" in refusal(Order, {"id": 1, "items": []})
    assert "of type str would come back as" in refusal(date, "2024-01-01")


@pytest.mark.parametrize(("annotation", "value"), [(Customer, Premium(name="a")), (Item, Card("1"))])
def test_a_value_of_another_class_is_refused_rather_than_cut_down(annotation: Any, value: Any) -> None:
    assert "value of type" in refusal(annotation, value)


def test_a_secret_that_hides_itself_is_refused() -> None:
    assert "(at $.secret)" in refusal(Account, Account(secret=pydantic.SecretStr("x")))


def test_private_attributes_of_a_model_are_not_data() -> None:
    model = Remembering(name="a")
    model._cache = 7
    assert codec_for(Remembering).round_trip(model)[1].name == "a"


def test_keys_with_the_same_text_are_refused() -> None:
    assert "2 keys would come back as 1" in refusal(dict[int | str, int], {1: 1, "1": 2})


def test_a_key_that_a_typed_dict_does_not_have_is_named() -> None:
    assert "the key 'zip' is not one of its keys and would be lost (at $)" in refusal(
        Address, {"street": "a", "number": 1, "zip": "x"}
    )


def test_a_key_without_text_is_named() -> None:
    message = refusal(Any, {"a": {(1, 2): 3}})
    assert "the key (1, 2) of type tuple has no JSON text (at $.a)" in message


def test_objects_without_equality_are_compared_by_their_fields() -> None:
    decoded = codec_for(Identityless).round_trip(Identityless(1.5, (1, 2)))[1]
    assert (decoded.value, decoded.extra) == (1.5, [1, 2])
    assert "(at $.extra)" in refusal(Identityless, Identityless(1.5, {1, 2}))


def test_an_offset_that_iso_text_cannot_hold_is_refused() -> None:
    assert "would come back as" in refusal(
        datetime, datetime(1800, 1, 1, tzinfo=timezone(timedelta(hours=2, seconds=7)))
    )


def test_a_time_zone_comes_back_as_its_offset() -> None:
    moment = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    decoded = codec_for(datetime).round_trip(moment)[1]
    assert decoded == moment
    assert decoded.utcoffset() == timedelta(hours=2)


def test_subclasses_of_text_and_numbers_are_written_as_their_base() -> None:
    class Text(str):
        def __str__(self) -> str:
            return "lies"

    class Whole(int):
        pass

    class Real(float):
        pass

    assert codec_for(list[Any]).encode([Text("a"), Whole(3), Real(1.5)]) == '["a",3,1.5]'


@pytest.mark.parametrize(
    ("base", "arguments"),
    [
        (datetime, (2024, 7, 1, 12, 30, 15, 7, UTC)),
        (date, (2024, 7, 1)),
        (time, (9, 30, 1, 2)),
        (timedelta, (-1, 3, 7)),
        (Decimal, ("1.50",)),
        (bytes, (b"\x00\xff",)),
        (UUID, ("12345678123456781234567812345678",)),
    ],
    ids=str,
)
def test_subclasses_of_standard_types_come_back_as_their_base(base: Any, arguments: tuple[Any, ...]) -> None:
    """As of pandas, pendulum, freezegun or a driver."""
    given, meant = type("Own", (base,), {})(*arguments), base(*arguments)
    codec = codec_for(Box[base])
    text, decoded = codec.round_trip(Box(given))
    assert (decoded, type(decoded.content), text) == (Box(meant), base, codec.encode(Box(meant)))
    assert codec_for(annotation_of(given)).encode(given) == codec_for(base).encode(meant)


@pytest.mark.parametrize("value", [len, ValueError("x"), iter([1]), object(), deque([1]), range(3)])
def test_a_value_without_json_form_names_its_path(value: Any) -> None:
    message = refusal(Any, {"ok": 1, "jobs": [{"it": value}]})
    assert f"a value of type {type(value).__qualname__} has no JSON form (at $.jobs[0].it)" in message
    assert "Pass data" in message


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "contains itself" in refusal(Any, loop)


@pytest.mark.parametrize("leaf", [1, (1,), math.nan, len])
@pytest.mark.parametrize("depth", [300, 700, 950, 5000])
def test_deep_nesting_works_or_is_refused_but_never_crashes(depth: int, leaf: Any) -> None:
    value = leaf
    for _ in range(depth):
        value = [value]
    with suppress(EncodeError):
        assert codec_for(Any).encode(value).startswith("[" * depth)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (None, Any),
        (True, Any),
        ([1, "a"], Any),
        ({}, Any),
        (Level.LOW, Level),
        (Point(1, 2), Point),
        ([Item("a", Decimal(1))], list[Item]),
        ({"a": [date(2024, 1, 1)]}, dict[str, list[date]]),
        ([Item("a", Decimal(1)), 1], Any),
    ],
    ids=str,
)
def test_a_value_without_annotation_is_written_by_its_type(value: Any, annotation: Any) -> None:
    assert annotation_of(value) == annotation


def test_a_deep_value_without_annotation_is_left_to_its_codec() -> None:
    deep: Any = date(2024, 1, 1)
    for _ in range(5_000):
        deep = [deep]
    assert annotation_of(deep) is Any


def test_a_long_chain_of_objects_is_refused_by_a_typed_error_both_ways() -> None:
    """Filling in defaults takes more of the stack than reading did."""
    chain: Chain | None = None
    for _ in range(300):
        chain = Chain(chain)
    assert "nested too deeply to be read back" in refusal(Chain, chain)
    with pytest.raises(DecodeError, match="recursion depth"):
        codec_for(Chain).decode('{"next":' * 300 + "null" + "}" * 300)


@pytest.mark.parametrize(
    "annotation",
    [
        lambda: 1,
        5,
        "Order",
        Callable[[int], int],
        type[int],
        complex,
        deque[int],
        OrderedDict[str, int],
        defaultdict,
        Exception,
        list[Unwritable],
        Box[Callable[[], int]],
        int | Customer,
        Item | Order,
        bytes | str,
        list[int] | set[int],
        dict[tuple[int, int], int],
        dict[Path, int],
        Unresolved,
    ],
    ids=lambda annotation: getattr(annotation, "__qualname__", None) or str(annotation),
)
def test_an_annotation_that_cannot_work_is_refused_when_the_codec_is_built(annotation: Any) -> None:
    with pytest.raises(ConfigurationError, match="has no JSON form that can be read back"):
        Codec(annotation)


def test_a_refused_annotation_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"the type list\[complex\].*complex is neither"):
        Codec(list[complex])


def test_a_union_of_dataclasses_is_told_what_to_use_instead() -> None:
    with pytest.raises(ConfigurationError, match=r"msgspec\.Structs with tag=True, or fields of one pydantic model"):
        Codec(Item | Order)


def test_a_payload_over_the_limit_says_size_limit_and_remedy() -> None:
    codec = codec_for(str)
    assert codec.encode("é" * 4, max_bytes=10) == '"éééé"'
    with pytest.raises(PayloadTooLargeError, match=r"str takes 1,002 bytes .* limit of 10: store the data elsewhere"):
        codec.encode("é" * 500, max_bytes=10)
    with pytest.raises(PayloadTooLargeError, match="limit of 2,097,152"):
        codec.round_trip("x" * 2**21)
    assert len(codec.encode("x" * 2**21, max_bytes=None)) == 2**21 + 2


@pytest.mark.parametrize("text", ['{"id":1}', '{"id":"x","items":[]}', "", "{", "[", "nul", '"\ud800"'])
def test_a_stored_text_that_does_not_fit_names_type_and_remedy(text: str) -> None:
    with pytest.raises(DecodeError, match=r"does not fit Order at .*Give new fields a default"):
        codec_for(Order).decode(text)


def test_a_stored_text_of_another_shape_names_the_path() -> None:
    with pytest.raises(DecodeError, match=r"at \$\.items\[0\]\.price"):
        codec_for(Order).decode('{"id":1,"items":[{"sku":"a","price":[]}]}')


def test_a_new_field_with_a_default_is_no_change_ruling_b17() -> None:
    before = '{"id":1,"items":[]}'
    today = codec_for(Order).encode(Order(1, []))
    assert before != today
    assert codec_for(Order).rewrite(before) == today


OLD_TEXTS: list[tuple[Any, str, Any]] = [
    (list[Order], '[{"id":1,"items":[{"sku":"a","price":"1"}]}]', [Order(1, [Item("a", Decimal(1))])]),
    (Order | None, '{"id":1,"items":[]}', Order(1, [])),
    (dict[str, Item], '{"x":{"sku":"a","price":"1"}}', {"x": Item("a", Decimal(1))}),
    (dict[int, tuple[int, Item]], '{"1":[2,{"sku":"a","price":"1"}]}', {1: (2, Item("a", Decimal(1)))}),
    (tuple[Item, ...], '[{"sku":"a","price":"1"}]', (Item("a", Decimal(1)),)),
    (set[Item], '[{"sku":"a","price":"1"}]', {Item("a", Decimal(1))}),
    (Chain, '{"next":{"next":{}}}', Chain(Chain(Chain()))),
    (Holder, '{"item":{"sku":"a","price":"1"}}', Holder(Item("a", Decimal(1)))),
    (Labelled, '{"item":{"sku":"a","price":"1"}}', {"item": Item("a", Decimal(1))}),
    (Pair, '[{"sku":"a","price":"1"},2]', Pair(Item("a", Decimal(1)), 2)),
    (Box[Order], '{"content":{"id":1,"items":[]}}', Box(Order(1, []))),
    (Slotted, "{}", Slotted()),
    (Customer, '{"name":"a"}', Customer(name="a")),
]


@pytest.mark.parametrize(("annotation", "text", "value"), OLD_TEXTS, ids=lambda part: str(part)[:40])
def test_a_value_read_from_an_older_text_is_written_like_a_new_one_ruling_b17(
    annotation: Any, text: str, value: Any
) -> None:
    codec = codec_for(annotation)
    today = codec.encode(value)
    assert text != today
    assert codec.decode(text) == value
    assert codec.encode(codec.decode(text)) == today
    assert codec.rewrite(text) == today
    # A user's own msgspec leaves defaults out in the same way.
    unfilled = msgspec.json.decode(text, type=annotation, dec_hook=decode_hook)
    assert codec.encode(unfilled) == today


def test_fingerprints_are_short_and_fixed() -> None:
    assert fingerprint('{"a":1}') == "1f8c00645b7df6ce"
    assert fingerprint('{"a":1}') != fingerprint('{"a":2}')


def test_codecs_are_built_once() -> None:
    assert codec_for(Order) is codec_for(Order)
    unhashable = Annotated[int, ["no hash"]]
    assert codec_for(unhashable).encode(3) == "3"


def test_pydantic_aliases_are_read_in_both_forms() -> None:
    codec = codec_for(Customer)
    assert codec.decode('{"name":"a","nickName":"x"}') == codec.decode('{"name":"a","nickname":"x"}')


@given(st.binary(max_size=12))
@example(b"\xff")
def test_bytes_in_plain_values_come_back(data: bytes) -> None:
    assert codec_for(Box[bytes]).round_trip(Box(data))[1] == Box(data)


def test_moments_in_utc_are_written_with_a_z() -> None:
    assert codec_for(datetime).encode(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)) == '"2024-01-02T03:04:05Z"'


def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    program = (
        "import sys; from holdfast.core.codec import codec_for; codec_for(list[int]).encode([1]); "
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
