"""What every durable thing is called (DESIGN section 4).

- `PromiseId`: a root of 32 bytes and a path of child numbers; its bytes sort as the pair does.
- `IdQuery`: what a person types (`checkout/4f7a9c21.2`, or any prefix of it) as a range of bytes.
- `resolve` and `shortest_unambiguous`: from a query to the one id it means, and back, as with commits in git.

How ids are stored and searched is the store's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from struct import pack, unpack
from typing import Self

from holdfast.core.errors import AmbiguousIdError, InvalidArgumentError, NotFoundError

ROOT_BYTES = 32
PATH_NUMBER_BYTES = 4
PATH_NUMBER_MAX = 2**32 - 1
# The last possible number is never a child's: after it come two numbers of a successor.
_SUCCESSOR_MARK = b"\xff\xff\xff\xff"
_SUCCESSOR_BYTES = 3 * PATH_NUMBER_BYTES
SUCCESSOR_TEXT = f".{PATH_NUMBER_MAX}."  # the mark as it is in the text of an id
NAME_MAX_CHARS = 200
KEY_MAX_CHARS = 512
PREFIX_MIN_HEX = 4
SHORT_HEX = 8
_REGION_BITS = 10  # the first of a fresh id, and so where it stands in an index
REGIONS = 1 << _REGION_BITS
FRESH_BITS = 8 * ROOT_BYTES - _REGION_BITS  # the others
CANDIDATES_SHOWN = 5

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_ID_TEXT = re.compile(r"([0-9A-Fa-f]*)((?:\.[0-9]{1,10}|~[0-9A-Fa-f]{16})*)")
_PATH_PART = re.compile(r"\.([0-9]+)|~([0-9A-Fa-f]{8})([0-9A-Fa-f]{8})")
# Above every id: only a root of 32 bytes 0xff could come near it, and SHA-256 is not going to give one.
_ABOVE_ALL_IDS = b"\xff" * 64

_assign = object.__setattr__


def check_name(name: str, what: str = "a definition") -> str:
    """`name` itself, if a definition may be called so, or `what` else."""
    if not isinstance(name, str) or len(name) > NAME_MAX_CHARS or not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is no name for {what}: use 1 to {NAME_MAX_CHARS} of the characters "
            "A-Z a-z 0-9 _ . : - and begin with a letter or an underscore"
        )
    return name


def check_key(key: str) -> str:
    """`key` itself, if it can serve as an idempotency key."""
    if not isinstance(key, str):
        raise InvalidArgumentError(
            f"an idempotency key is a string, not {type(key).__name__}: pass str(...) of {key!r}"
        )
    if not key:
        raise InvalidArgumentError("an idempotency key must not be empty: leave it out to get a fresh one")
    if len(key) > KEY_MAX_CHARS:
        raise InvalidArgumentError(
            f"the idempotency key {key[:40]!r}... has {len(key)} characters, the limit is {KEY_MAX_CHARS}: "
            "use a shorter key, or a hash of it"
        )
    if "\0" in key:  # PostgreSQL has no text with NUL.
        raise InvalidArgumentError(f"the idempotency key {key!r} holds a NUL character: remove or escape it")
    return key


@lru_cache(maxsize=4096)
def _hashed_name(name: str) -> bytes:
    raw = check_name(name).encode()
    return len(raw).to_bytes(8, "big") + raw


class PromiseId:
    """`root` (32 bytes) and `path` (numbers below 2**32), held as the bytes a store keeps."""

    __slots__ = ("_raw",)

    _raw: bytes

    def __init__(self, root: bytes, path: Iterable[int] = ()) -> None:
        if len(root) != ROOT_BYTES:
            raise InvalidArgumentError(f"the root of an id has {ROOT_BYTES} bytes, not {len(root)}")
        raw = bytes(root)
        for number in path:
            raw += _path_number(number)
        _assign(self, "_raw", raw)

    @classmethod
    def of(cls, name: str, key: str) -> Self:
        """The id that this definition name and idempotency key always have (ruling B6)."""
        try:
            raw = check_key(key).encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"the idempotency key {key!r} holds half of a surrogate pair, which has no UTF-8 form"
            ) from None
        return cls._trusted(sha256(_hashed_name(name) + len(raw).to_bytes(8, "big") + raw).digest())

    @classmethod
    def fresh(cls, chance: int, region: int = 0) -> Self:
        """The id of something started without a key, in one of `REGIONS`; the chance is the caller's."""
        if chance >> FRESH_BITS:
            raise InvalidArgumentError(f"a fresh id is made of {FRESH_BITS} random bits, not of {chance:#x}")
        return cls._trusted((region << FRESH_BITS | chance).to_bytes(ROOT_BYTES, "big"))

    @classmethod
    def fresh_many(cls, chance: bytes, region: int = 0) -> list[bytes]:
        """As `to_bytes` gives them: as many as there is chance for, `ROOT_BYTES` of it each."""
        if len(chance) % ROOT_BYTES:
            raise InvalidArgumentError(f"fresh ids are made of {ROOT_BYTES} random bytes each, not of {len(chance)}")
        free = 16 - _REGION_BITS  # the bits of the first two bytes that are not the region
        heads = [(region << free | rest).to_bytes(2, "big") for rest in range(1 << free)]
        return [
            heads[chance[at] % len(heads)] + chance[at + 2 : at + ROOT_BYTES]
            for at in range(0, len(chance), ROOT_BYTES)
        ]

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """The inverse of `to_bytes`."""
        if len(raw) < ROOT_BYTES or (len(raw) - ROOT_BYTES) % PATH_NUMBER_BYTES:
            raise InvalidArgumentError(
                f"{raw.hex()!r} is no id: it has {len(raw)} bytes, an id has {ROOT_BYTES} "
                f"and {PATH_NUMBER_BYTES} more for each level"
            )
        return cls._trusted(bytes(raw))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`: a whole id, no prefix."""
        prefix, path = _split_id(text)
        if len(prefix) != ROOT_BYTES * 2:
            raise InvalidArgumentError(
                f"{text!r} is no whole id: its root has {len(prefix)} hex digits of {ROOT_BYTES * 2}"
            )
        return cls(bytes.fromhex(prefix), path)

    @classmethod
    def _trusted(cls, raw: bytes) -> Self:
        self = cls.__new__(cls)
        _assign(self, "_raw", raw)
        return self

    def child(self, number: int) -> Self:
        """The id of this one's child `number`."""
        return self._trusted(self._raw + _path_number(number))

    @property
    def root(self) -> bytes:
        """The 32 bytes that name and key give."""
        return self._raw[:ROOT_BYTES]

    @property
    def path(self) -> tuple[int, ...]:
        """The numbers below the root: `(2, 0)` is the first operation of the third."""
        return unpack(f">{self.depth}I", self._raw[ROOT_BYTES:])

    @property
    def depth(self) -> int:
        """0 at the root, 1 for its children."""
        return (len(self._raw) - ROOT_BYTES) // PATH_NUMBER_BYTES

    @property
    def is_root(self) -> bool:
        """Whether nobody called it."""
        return len(self._raw) == ROOT_BYTES

    @property
    def root_id(self) -> Self:
        """The id at the top of its tree."""
        return self if self.is_root else self._trusted(self._raw[:ROOT_BYTES])

    @property
    def parent(self) -> Self | None:
        """The id of its caller, or None."""
        return None if self.is_root else self._trusted(self._raw[:-PATH_NUMBER_BYTES])

    @property
    def origin(self) -> Self:
        """The first of the runs that this one stands for; itself, unless it is a successor."""
        return self._trusted(origin_bytes(self._raw))

    def successor(self, why: str) -> Self:
        """The id of the run that goes on in this one's place; always the same one for the same reason.

        It lies below the origin, so that whatever takes in a tree by its range of ids takes in successors too.
        """
        digest = sha256(self._raw + why.encode()).digest()
        numbers = b"".join((int.from_bytes(digest[at : at + 4], "big") >> 1).to_bytes(4, "big") for at in (0, 4))
        return self._trusted(origin_bytes(self._raw) + _SUCCESSOR_MARK + numbers)

    def to_bytes(self) -> bytes:
        """The root, then four bytes (big-endian) a path number; sorts as `(root, path)` does."""
        return self._raw

    def subtree_range(self) -> tuple[bytes, bytes]:
        """`[low, high)` of the bytes of this id and everything below it."""
        return self._raw, _first_after_prefix(self._raw)

    @property
    def short(self) -> str:
        """The form people see: `4f7a9c21.2`; of a successor `4f7a9c21~1d9a05c83f20b7e4`."""
        return self._raw[: SHORT_HEX // 2].hex() + _path_text(self.path)

    def label(self, name: str) -> str:
        """The form people see, with the definition's name: `checkout/4f7a9c21.2`."""
        return f"{name}/{self.short}"

    def __str__(self) -> str:
        return id_text(self._raw)

    def __repr__(self) -> str:
        return f"PromiseId({self})"

    def __eq__(self, other: object) -> bool:
        return self._raw == other._raw if isinstance(other, PromiseId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._raw)

    def __lt__(self, other: PromiseId) -> bool:
        return self._raw < other._raw if isinstance(other, PromiseId) else NotImplemented

    def __le__(self, other: PromiseId) -> bool:
        return self._raw <= other._raw if isinstance(other, PromiseId) else NotImplemented

    def __gt__(self, other: PromiseId) -> bool:
        return self._raw > other._raw if isinstance(other, PromiseId) else NotImplemented

    def __ge__(self, other: PromiseId) -> bool:
        return self._raw >= other._raw if isinstance(other, PromiseId) else NotImplemented

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"a PromiseId cannot be changed: {attribute!r} was assigned")

    def __delattr__(self, attribute: str) -> None:
        raise AttributeError(f"a PromiseId cannot be changed: {attribute!r} was deleted")

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return type(self).from_bytes, (self._raw,)


@dataclass(frozen=True, slots=True)
class IdQuery:
    """What a person typed. Without a path it means the root itself, never its children."""

    name: str | None
    prefix: str
    path: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `name/prefix`, `prefix`, `prefix.path` and whole ids."""
        name, slash, rest = text.strip().rpartition("/")
        prefix, path = _split_id(rest)
        if len(prefix) < PREFIX_MIN_HEX:
            raise InvalidArgumentError(
                f"{text!r} is too short for an id: give at least {PREFIX_MIN_HEX} of its hex digits, "
                "as in checkout/4f7a or 4f7a9c21.2"
            )
        return cls(check_name(name) if slash else None, prefix, path)

    @property
    def low(self) -> bytes:
        """The first root that the prefix can mean."""
        return bytes.fromhex(self.prefix.ljust(ROOT_BYTES * 2, "0"))

    @property
    def high(self) -> bytes:
        """The first root after those that the prefix can mean; children of fitting roots are below it too."""
        whole, half = self.prefix[: len(self.prefix) & ~1], len(self.prefix) % 2
        if not half:
            return _first_after_prefix(bytes.fromhex(whole))
        digit = int(self.prefix[-1], 16)
        if digit == 0xF:
            return _first_after_prefix(bytes.fromhex(whole))
        return bytes.fromhex(f"{whole}{digit + 1:x}0")

    def matches(self, pid: PromiseId, name: str) -> bool:
        return (
            pid.to_bytes()[ROOT_BYTES:] == pack(f">{len(self.path)}I", *self.path)
            and pid.root.hex().startswith(self.prefix)
            and self.name in (None, name)
        )

    def __str__(self) -> str:
        name = "" if self.name is None else f"{self.name}/"
        return name + self.prefix + _path_text(self.path)


def resolve(query: IdQuery | str, candidates: Iterable[tuple[PromiseId, str]]) -> PromiseId:
    """The one candidate (id and definition name) that the query means."""
    if isinstance(query, str):
        query = IdQuery.parse(query)
    found = {pid: name for pid, name in candidates if query.matches(pid, name)}
    if not found:
        raise NotFoundError(f"no execution has the id {query}: check the digits, or list the executions to find it")
    if len(found) > 1:
        shown = sorted(found)[:CANDIDATES_SHOWN]
        forms = shortest_unambiguous(found)
        listed = ", ".join(f"{found[pid]}/{forms[pid]}" for pid in shown)
        more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
        raise AmbiguousIdError(f"{query} fits {len(found)} executions: {listed}{more}. Give more digits")
    return next(iter(found))


def shortest_unambiguous(ids: Iterable[PromiseId]) -> dict[PromiseId, str]:
    """For each id the shortest text that `IdQuery` reads and that means no other of these ids."""
    ids = list(ids)
    roots = sorted({pid.root.hex() for pid in ids})
    digits = dict.fromkeys(roots, PREFIX_MIN_HEX)
    # In sorted order the longest common prefix of a root is with one of its two neighbours.
    for left, right in pairwise(roots):
        needed = next(i for i in range(ROOT_BYTES * 2) if left[i] != right[i]) + 1
        digits[left] = max(digits[left], needed)
        digits[right] = max(digits[right], needed)
    return {pid: (root := pid.root.hex())[: digits[root]] + _path_text(pid.path) for pid in ids}


def id_text(raw: bytes) -> str:
    """`str` of the id with these bytes."""
    if len(raw) == ROOT_BYTES:
        return raw.hex()
    path = unpack(f">{(len(raw) - ROOT_BYTES) // PATH_NUMBER_BYTES}I", raw[ROOT_BYTES:])
    return raw[:ROOT_BYTES].hex() + "".join(f".{number}" for number in path)


def origin_bytes(raw: bytes) -> bytes:
    """`PromiseId.origin` of the bytes of an id."""
    if len(raw) >= ROOT_BYTES + _SUCCESSOR_BYTES and raw[-_SUCCESSOR_BYTES:].startswith(_SUCCESSOR_MARK):
        return raw[:-_SUCCESSOR_BYTES]
    return raw


def place_bytes(raw: bytes) -> bytes:
    """The id without the numbers of successors: one for all runs of a call, also below other runs of its caller."""
    path = raw[ROOT_BYTES:]
    if _SUCCESSOR_MARK not in path:
        return raw
    kept, at = raw[:ROOT_BYTES], 0
    while at < len(path):
        number = path[at : at + PATH_NUMBER_BYTES]
        if number == _SUCCESSOR_MARK and at + _SUCCESSOR_BYTES <= len(path):
            at += _SUCCESSOR_BYTES
        else:
            kept, at = kept + number, at + PATH_NUMBER_BYTES
    return kept


def parent_bytes(raw: bytes) -> bytes:
    """The bytes of the parent's id; a successor has the parent of its origin."""
    return origin_bytes(raw)[:-PATH_NUMBER_BYTES]


def _path_number(number: int) -> bytes:
    try:
        return number.to_bytes(PATH_NUMBER_BYTES, "big")
    except (OverflowError, AttributeError):
        raise InvalidArgumentError(
            f"{number!r} is no path number: it must be an integer from 0 to {PATH_NUMBER_MAX}"
        ) from None


def _split_id(text: str) -> tuple[str, tuple[int, ...]]:
    found = _ID_TEXT.fullmatch(text)
    if found is None or len(found[1]) > ROOT_BYTES * 2:
        raise InvalidArgumentError(
            f"{text!r} is no id: an id has up to {ROOT_BYTES * 2} hex digits, then .n for each level, as in 4f7a9c21.2"
        )
    path: tuple[int, ...] = ()
    for number, first, second in _PATH_PART.findall(found[2]):
        path += (int(number),) if number else (PATH_NUMBER_MAX, int(first, 16), int(second, 16))
    if any(number > PATH_NUMBER_MAX for number in path):
        raise InvalidArgumentError(f"{text!r} is no id: a path number is at most {PATH_NUMBER_MAX}")
    return found[1].lower(), path


def _path_text(path: tuple[int, ...]) -> str:
    """`.2.0`; the three numbers of a successor are one part, as `_split_id` reads it back."""
    text, at = "", 0
    while at < len(path):
        if path[at] == PATH_NUMBER_MAX and at + 2 < len(path):
            text += f"~{path[at + 1]:08x}{path[at + 2]:08x}"
            at += 3
        else:
            text += f".{path[at]}"
            at += 1
    return text


def _first_after_prefix(prefix: bytes) -> bytes:
    """The smallest byte string above everything that begins with `prefix`."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else _ABOVE_ALL_IDS
