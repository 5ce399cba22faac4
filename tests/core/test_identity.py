"""Ids (DESIGN section 4, ruling B6): what they are made of, how they sort, and how people type them."""

from __future__ import annotations

import copy
import pickle
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import AmbiguousIdError, InvalidArgumentError, NotFoundError
from holdfast.core.identity import (
    FRESH_BITS,
    REGIONS,
    IdQuery,
    PromiseId,
    place_bytes,
    resolve,
    shortest_unambiguous,
)

ROOTS = st.binary(min_size=32, max_size=32)
NUMBERS = st.integers(0, 2**32 - 1)
IDS = st.builds(PromiseId, ROOTS, st.lists(NUMBERS, max_size=4).map(tuple))
# Roots that share long beginnings, so that prefixes collide.
CROWDED_ROOTS = st.builds(lambda tail: bytes.fromhex("ab" * 30) + tail, st.binary(min_size=2, max_size=2)) | st.binary(
    min_size=1, max_size=1
).map(lambda b: b * 32)
CROWDED_IDS = st.builds(PromiseId, CROWDED_ROOTS, st.lists(st.integers(0, 2), max_size=2).map(tuple))


def root_of(hex_digits: str) -> PromiseId:
    return PromiseId(bytes.fromhex(hex_digits.ljust(64, "0")))


def test_root_is_the_hash_of_length_prefixed_name_and_key() -> None:
    expected = sha256(b"\0\0\0\0\0\0\0\x08checkout" + b"\0\0\0\0\0\0\0\x03\xc3\xa9!").digest()
    assert PromiseId.of("checkout", "é!") == PromiseId(expected)


def test_lengths_keep_name_and_key_apart() -> None:
    assert PromiseId.of("ab", "c") != PromiseId.of("a", "bc")


def test_same_name_and_key_give_the_same_id_across_deploys_ruling_b6() -> None:
    assert str(PromiseId.of("checkout", "order-17")) == (
        "3c93336110ec15b1f50af40e36a03bdb940e371c9cdbd2b08fcd7b1fdf852e6d"
    )


def test_fresh_ids_follow_chance_and_meet_no_key() -> None:
    assert PromiseId.fresh(17) == PromiseId.fresh(17)
    assert PromiseId.fresh(17) != PromiseId.fresh(71)
    assert PromiseId.fresh(17) != PromiseId.of("a", "17")


def test_a_fresh_id_begins_with_its_region() -> None:
    for region in (0, 1, REGIONS - 1):
        for chance in (0, 2**FRESH_BITS // 3, 2**FRESH_BITS - 1):
            raw = PromiseId.fresh(chance, region).to_bytes()
            assert len(raw) == 32
            assert int.from_bytes(raw[:2], "big") >> 6 == region
            assert int.from_bytes(raw, "big") % 2**FRESH_BITS == chance


def test_many_fresh_ids_are_what_one_after_the_other_would_be() -> None:
    chance = bytes(range(256))
    for region in (0, 1, REGIONS - 1):
        made = PromiseId.fresh_many(chance, region)
        assert [len(raw) for raw in made] == [32] * 8
        assert {int.from_bytes(raw[:2], "big") >> 6 for raw in made} == {region}
        assert [raw[2:] for raw in made] == [chance[at + 2 : at + 32] for at in range(0, 256, 32)]
        assert [raw[1] & 63 for raw in made] == [chance[at] & 63 for at in range(0, 256, 32)]
    with pytest.raises(InvalidArgumentError, match="32 random bytes each, not of 31"):
        PromiseId.fresh_many(chance[:31])


@pytest.mark.parametrize("chance", [-1, 2**FRESH_BITS])
def test_fresh_ids_need_the_right_amount_of_chance(chance: int) -> None:
    with pytest.raises(InvalidArgumentError, match="made of 246 random bits, not of "):
        PromiseId.fresh(chance)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a/b", "é", "-a", "a" * 201, "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no name for a definition"):
        PromiseId.of(name, "key")


@pytest.mark.parametrize("name", ["a", "_a", "shop.Order:v2-x", "a" * 200])
def test_good_names_are_taken(name: str) -> None:
    assert PromiseId.of(name, "key").is_root


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "must not be empty: leave it out"),
        ("k" * 513, "has 513 characters, the limit is 512: use a shorter key"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
    ],
)
def test_bad_keys_are_refused_with_a_remedy(key: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        PromiseId.of("a", key)


def test_a_key_that_is_no_string_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a string, not int"):
        PromiseId.of("a", 17)  # type: ignore[arg-type]


def test_a_key_of_512_characters_is_taken() -> None:
    assert PromiseId.of("a", "é" * 512).is_root


def test_children_take_a_number_each() -> None:
    root = PromiseId.of("checkout", "1")
    child = root.child(2)
    assert (child.path, child.depth, child.is_root) == ((2,), 1, False)
    assert child.root == root.root
    assert child.child(0).path == (2, 0)
    assert child.child(0).root_id == root


@given(IDS, NUMBERS)
def test_parent_undoes_child(pid: PromiseId, number: int) -> None:
    assert pid.child(number).parent == pid
    assert pid.child(number).path == (*pid.path, number)


def test_the_root_has_no_parent() -> None:
    assert PromiseId.of("a", "1").parent is None


@pytest.mark.parametrize("number", [-1, 2**32, "1", 1.5, None])
def test_bad_child_numbers_are_refused(number: object) -> None:
    with pytest.raises(InvalidArgumentError, match="no path number"):
        PromiseId.of("a", "1").child(number)  # type: ignore[arg-type]


def test_a_root_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="32 bytes, not 31"):
        PromiseId(b"\0" * 31)


@given(IDS)
def test_bytes_and_text_come_back(pid: PromiseId) -> None:
    assert PromiseId.from_bytes(pid.to_bytes()) == pid
    assert PromiseId.parse(str(pid)) == pid
    assert PromiseId(pid.root, pid.path) == pid


@pytest.mark.parametrize("length", [0, 31, 33, 35, 38])
def test_bytes_of_no_id_are_refused(length: int) -> None:
    with pytest.raises(InvalidArgumentError, match="is no id"):
        PromiseId.from_bytes(b"\0" * length)


def test_parsing_a_whole_id_takes_no_prefix() -> None:
    with pytest.raises(InvalidArgumentError, match="8 hex digits of 64"):
        PromiseId.parse("4f7a9c21")


@given(CROWDED_IDS | IDS, CROWDED_IDS | IDS)
def test_bytes_sort_as_root_and_path(one: PromiseId, other: PromiseId) -> None:
    as_pair = (one.root, one.path) < (other.root, other.path)
    assert (one.to_bytes() < other.to_bytes()) == as_pair
    assert (one < other) == as_pair
    assert (one >= other) == (not as_pair)
    assert (one == other) == ((one.root, one.path) == (other.root, other.path))
    assert (one <= other) == (as_pair or one == other)
    assert (one > other) == (not as_pair and one != other)


@given(CROWDED_IDS, CROWDED_IDS)
def test_a_subtree_is_a_range_of_bytes(one: PromiseId, other: PromiseId) -> None:
    low, high = one.subtree_range()
    below = other.root == one.root and other.path[: one.depth] == one.path
    assert (low <= other.to_bytes() < high) == below


def test_ids_are_values() -> None:
    pid = PromiseId.of("a", "1").child(3)
    assert len({pid, PromiseId.from_bytes(pid.to_bytes())}) == 1
    assert pid != pid.to_bytes()
    assert pickle.loads(pickle.dumps(pid)) == pid
    assert copy.deepcopy(pid) == pid


def test_ids_cannot_be_changed() -> None:
    pid = PromiseId.of("a", "1")
    with pytest.raises(AttributeError, match="cannot be changed"):
        pid._raw = b""
    with pytest.raises(AttributeError, match="cannot be changed"):
        del pid._raw
    with pytest.raises(AttributeError, match="cannot be changed"):
        pid.other = 1


def test_people_see_eight_digits_and_the_path() -> None:
    pid = root_of("4f7a9c21aa").child(2)
    assert pid.short == "4f7a9c21.2"
    assert pid.label("checkout") == "checkout/4f7a9c21.2"


def test_a_successor_is_seen_as_one_part_and_read_back() -> None:
    first = root_of("4f7a9c21aa")
    again = first.successor("retry")
    number, one, two = again.path
    assert again.short == f"4f7a9c21~{one:08x}{two:08x}"
    assert (number, again.child(4).short) == (2**32 - 1, f"{again.short}.4")
    for pid in (again, again.child(4), first.child(3).successor("retry").child(0)):
        assert resolve(pid.label("checkout"), [(pid, "checkout"), (first, "checkout")]) == pid
        assert resolve(str(pid), [(pid, "checkout")]) == pid
        assert PromiseId.parse(first.root.hex() + pid.short[8:]) == pid
    assert str(IdQuery.parse(again.short)) == again.short


@pytest.mark.parametrize(
    ("text", "name", "prefix", "path"),
    [
        ("checkout/4f7a", "checkout", "4f7a", ()),
        (" 4F7A9C2 ", None, "4f7a9c2", ()),
        ("4f7a9c21.2.0", None, "4f7a9c21", (2, 0)),
        ("shop.v2/4f7a9c21.4294967295", "shop.v2", "4f7a9c21", (2**32 - 1,)),
        ("ab" * 32, None, "ab" * 32, ()),
    ],
)
def test_queries_are_read(text: str, name: str | None, prefix: str, path: tuple[int, ...]) -> None:
    assert IdQuery.parse(text) == IdQuery(name, prefix, path)


@pytest.mark.parametrize("text", ["", "abc", "checkout/4f7", ".2", "checkout/"])
def test_a_prefix_has_at_least_four_digits(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 4 of its hex digits"):
        IdQuery.parse(text)


@pytest.mark.parametrize(
    "text",
    ["checkout", "4f7g", "4f7a.", "4f7a.x", "4f7a..1", "4f7a.-1", "4f7a.4294967296", "ab" * 33, "4f7a.٣", "4f7a~12"],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is no id"):
        IdQuery.parse(text)


@pytest.mark.parametrize("text", ["a b/4f7a", "/4f7a", "a/b/4f7a"])
def test_a_bad_name_in_a_query_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no name for a definition"):
        IdQuery.parse(text)


@given(CROWDED_IDS | IDS, CROWDED_IDS | IDS, st.integers(4, 64))
def test_a_prefix_is_a_range_of_bytes(asked: PromiseId, other: PromiseId, digits: int) -> None:
    prefix = asked.root.hex()[:digits]
    query = IdQuery.parse(prefix)
    for pid in (asked, other):
        assert (query.low <= pid.to_bytes() < query.high) == pid.root.hex().startswith(prefix)


def test_a_query_without_a_path_means_the_root_alone() -> None:
    root = root_of("4f7a9c21")
    query = IdQuery.parse("4f7a")
    assert query.matches(root, "checkout")
    assert not query.matches(root.child(0), "checkout")
    assert IdQuery.parse("4f7a.0").matches(root.child(0), "checkout")
    assert not IdQuery.parse("4f7a.0").matches(root.child(0).child(0), "checkout")


def test_a_name_in_a_query_must_fit() -> None:
    root = root_of("4f7a9c21")
    assert IdQuery.parse("checkout/4f7a").matches(root, "checkout")
    assert not IdQuery.parse("refund/4f7a").matches(root, "checkout")


@given(CROWDED_IDS)
def test_a_query_reads_what_it_prints(pid: PromiseId) -> None:
    query = IdQuery.parse(pid.label("a.b"))
    assert IdQuery.parse(str(query)) == query
    assert query.matches(pid, "a.b")


def test_resolving_finds_the_one_match() -> None:
    one, other = root_of("4f7a9c21"), root_of("4f7b0000")
    assert resolve("4f7a", [(one, "a"), (other, "a"), (one.child(1), "b")]) == one
    assert resolve(IdQuery.parse("4f7a.1"), [(one, "a"), (one.child(1), "b")]) == one.child(1)


def test_resolving_forgives_a_candidate_named_twice() -> None:
    one = root_of("4f7a9c21")
    assert resolve("4f7a", [(one, "a"), (one, "a")]) == one


def test_resolving_nothing_says_so() -> None:
    with pytest.raises(NotFoundError, match=r"no execution has the id checkout/4f7a.*list the executions"):
        resolve("checkout/4f7a", [(root_of("4f7a9c21"), "refund")])


def test_an_ambiguous_prefix_lists_candidates_by_their_shortest_forms() -> None:
    candidates = [(root_of(f"4f7a{digit}0"), "checkout") for digit in "01234567"]
    with pytest.raises(AmbiguousIdError) as caught:
        resolve("4f7a", candidates)
    assert str(caught.value) == (
        "4f7a fits 8 executions: checkout/4f7a0, checkout/4f7a1, checkout/4f7a2, checkout/4f7a3, checkout/4f7a4 "
        "and 3 more. Give more digits"
    )


@given(st.lists(CROWDED_IDS, min_size=1, max_size=8, unique=True))
def test_shortest_forms_mean_one_id_each_and_cannot_be_shorter(ids: list[PromiseId]) -> None:
    forms = shortest_unambiguous(ids)
    named = [(pid, "a") for pid in ids]
    for pid, form in forms.items():
        assert resolve(form, named) == pid
        prefix = form.split(".")[0]
        others = {other.root.hex() for other in ids} - {pid.root.hex()}
        assert len(prefix) == 4 or any(other.startswith(prefix[:-1]) for other in others)


def test_runs_of_one_call_have_one_place_below_whichever_run_of_their_caller() -> None:
    root = PromiseId.of("a", "b")
    again = root.successor("retry")
    below = [root.child(3).child(1), again.child(3).child(1), again.child(3).successor("retry").child(1)]
    runs = [*below, *(id_.successor("retry") for id_ in below), again.successor("retry").child(3).child(1)]
    assert {place_bytes(id_.to_bytes()) for id_ in runs} == {below[0].to_bytes()}
    others = [root.child(3), again.child(3), again.child(1).child(1), PromiseId.of("a", "c").child(3).child(1)]
    assert below[0].to_bytes() not in {place_bytes(id_.to_bytes()) for id_ in others}
    assert place_bytes(again.to_bytes()) == root.to_bytes()
