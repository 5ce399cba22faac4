"""Exceptions as values (rulings B4, B11): recorded in any case, read back, and rebuilt from registered types."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import ErrorRecord, decode_error, encode_error, rebuild_error, record_error
from holdfast.core.error_record import MESSAGE_MAX_CHARS, TRACEBACK_MAX_FRAMES, type_name
from holdfast.core.errors import DecodeError


class DeclinedError(Exception):
    def __init__(self, code: int, *, card: str) -> None:
        super().__init__(f"card {card} declined with {code}")
        self.code = code
        self.card = card


@dataclass
class DetailedError(Exception):
    reason: str
    tries: int


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")

    def __repr__(self) -> str:
        raise RuntimeError("no repr either")


class PlainError(Exception):
    pass


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class SlottedError(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class PickyError(OSError):
    def __new__(cls, number: int, what: str, path: str) -> PickyError:
        return super().__new__(cls, number, what)

    def __init__(self, number: int, what: str, path: str) -> None:
        super().__init__(number, what)
        self.path = path

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            raise AttributeError(name)
        super().__setattr__(name, value)


class LateError(ValueError, TimeoutError):
    """Of two built-in types, the second of which is an OSError and laid out otherwise."""


class VeiledError(Exception):
    args = property(lambda self: 1 / 0)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def fall(depth: int) -> None:
    if depth == 0:
        raise ValueError("bottom")
    fall(depth - 1)


def test_type_message_and_fields_are_recorded_ruling_b11() -> None:
    record = decode_error(encode_error(DeclinedError(7, card="visa")))
    assert record == ErrorRecord(
        type=f"{__name__}.DeclinedError",
        message="card visa declined with 7",
        args=("card visa declined with 7",),
        fields={"card": "visa", "code": 7},
    )


def test_builtin_types_have_their_plain_name() -> None:
    assert type_name(ValueError) == "ValueError"
    assert str(record_error(KeyError("a"))) == "KeyError: 'a'"
    assert str(record_error(ValueError())) == "ValueError"


def test_the_kind_is_recorded_ruling_b4() -> None:
    assert decode_error(encode_error(TimeoutError("late"), kind="timeout")).kind == "timeout"
    assert decode_error(encode_error(ValueError("x"))).kind == "user"


@pytest.mark.parametrize(
    "error",
    [
        DeclinedError(7, card="visa"),
        DetailedError("dull", 3),
        LateError("too late"),
        ValueError("a", 1, [2, {"b": None}]),
    ],
)
def test_a_registered_type_is_rebuilt_with_arguments_and_fields_ruling_b11(error: Exception) -> None:
    rebuilt = rebuild_error(decode_error(encode_error(error)), type(error))
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)
    assert rebuilt.args == error.args
    assert vars(rebuilt) == vars(error)


def test_a_rebuilt_error_is_recorded_like_the_first() -> None:
    """Ruling B11: a body sees, and passes on, the same error the first time and on replay."""
    first = encode_error(DeclinedError(7, card="visa"))
    assert encode_error(rebuild_error(decode_error(first), DeclinedError)) == first


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (FrozenError(7), "code", 7),
        (SlottedError(7), "code", 7),
        (PickyError(13, "denied", "/a"), "errno", 13),
        (PickyError(13, "denied", "/a"), "path", "/a"),
    ],
)
def test_a_type_with_rules_of_its_own_is_rebuilt_without_asking_it(error: Exception, name: str, value: object) -> None:
    rebuilt = rebuild_error(decode_error(encode_error(error)), type(error))
    assert (type(rebuilt), str(rebuilt)) == (type(error), str(error))
    assert getattr(rebuilt, name) == value


def test_notes_are_part_of_the_message_and_come_back() -> None:
    error = ValueError("bad row")
    error.add_note("row 17 of a.csv")
    record = decode_error(encode_error(error))
    assert record.message == "bad row\nrow 17 of a.csv"
    rebuilt = rebuild_error(record, ValueError)
    assert (str(rebuilt), rebuilt.__notes__) == ("bad row", ["row 17 of a.csv"])


def test_what_json_cannot_keep_is_recorded_as_its_repr() -> None:
    record = decode_error(encode_error(ValueError({1, 2}, object, float("nan"), "\ud800", (1, 2))))
    assert record.args == ("{1, 2}", "<class 'object'>", "nan", "'\\ud800'", [1, 2])


def test_an_exception_with_hostile_methods_is_recorded_all_the_same() -> None:
    error = HostileError(HostileError())
    error.own = HostileError()  # type: ignore[attr-defined]
    record = decode_error(encode_error(error))
    assert record.message == "<the message could not be read: RuntimeError>"
    assert record.args == ("<HostileError>",)
    assert record.fields == {"own": "<HostileError>"}


def test_an_exception_that_hides_its_arguments_or_has_odd_names_is_recorded_all_the_same() -> None:
    error = VeiledError("x")
    error.__dict__.update({7: 1, "\ud800": 2, "good": 3})  # type: ignore[dict-item]
    record = decode_error(encode_error(error))
    assert (record.args, record.fields) == (("x",), {"good": 3})


def test_private_fields_stay_out() -> None:
    error = PlainError("x")
    error._secret = 1  # type: ignore[attr-defined]
    assert record_error(error).fields == {}


def test_long_messages_are_cut() -> None:
    record = decode_error(encode_error(ValueError("x" * 10**6)))
    assert len(record.message) == MESSAGE_MAX_CHARS
    assert record.message.endswith("...")
    assert len(json.dumps(record.args)) < 5_000
    assert record.args[0].startswith("xxx")


def test_many_arguments_and_fields_are_cut() -> None:
    error = PlainError(*range(10**6))
    vars(error).update({f"field{number}": number for number in range(10**4)})
    assert len(encode_error(error)) < 10_000


def test_the_innermost_frames_are_kept() -> None:
    with pytest.raises(ValueError, match="bottom") as caught:
        fall(100)
    frames = decode_error(encode_error(caught.value)).traceback
    assert len(frames) == TRACEBACK_MAX_FRAMES
    assert all(frame.endswith(" in fall") for frame in frames)


def test_causes_are_named_nearest_first() -> None:
    first = raised(KeyError("k"))
    second = raised(OSError("disk"))
    second.__cause__ = first
    third = raised(ValueError("v"))
    third.__context__ = second
    assert record_error(third).causes == ("OSError: disk", "KeyError: 'k'")
    third.__suppress_context__ = True
    assert record_error(third).causes == ()


def test_causes_in_a_circle_end() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert len(record_error(one).causes) == 5
    one.__cause__ = one
    assert len(record_error(one).causes) == 5


def test_a_group_names_what_it_holds_and_where_that_was_raised() -> None:
    """As of an `asyncio.TaskGroup`, whose own message only counts them."""
    inner = ExceptionGroup("inner", [raised(KeyError("k"))])
    record = record_error(ExceptionGroup("outer", [raised(ValueError("v")), inner]))
    assert [cause.partition(" at ")[0] for cause in record.causes] == ["ValueError: v", "KeyError: 'k'"]
    assert all(cause.endswith(" in raised") for cause in record.causes)


def test_groups_in_groups_are_recorded_however_deep_they_are() -> None:
    group: ExceptionGroup[Exception] = ExceptionGroup("g", [ValueError("deep down")])
    for _ in range(5_000):
        group = ExceptionGroup("g", [group])
    assert record_error(group).causes == ("ValueError: deep down",)


@given(st.text(), st.lists(st.none() | st.integers() | st.text() | st.floats() | st.binary()))
def test_any_message_and_arguments_are_recorded(message: str, arguments: list[object]) -> None:
    text = encode_error(PlainError(message, *arguments))
    assert decode_error(text).type == f"{__name__}.PlainError"
    assert encode_error(PlainError(message, *arguments)) == text


@pytest.mark.parametrize("text", ["", "{}", '{"type":1,"message":""}', "[]"])
def test_a_text_that_is_no_error_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="a stored error cannot be read"):
        decode_error(text)
