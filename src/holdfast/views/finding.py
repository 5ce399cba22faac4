"""The execution that somebody means: by its id, any unambiguous prefix of one, `name/prefix`, or by its key.

- `find`: the one that a text names.
- `meant`: all that it can name; more than one is for a person to choose from.
- `newest`: the run that stands for one that was retried, or went on as new. A key names the first.

An id is a hash of name and key, so a key is found without an index: the ledger knows the names of its definitions.
"""

from __future__ import annotations

from holdfast.core.errors import AmbiguousIdError, InvalidArgumentError, NotFoundError
from holdfast.core.identity import KEY_MAX_CHARS, PREFIX_MIN_HEX, ROOT_BYTES, IdQuery, PromiseId, origin_bytes, resolve
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView

_WHOLE = ROOT_BYTES * 2


async def find(store: Store, text: str | PromiseId) -> ExecutionView:
    """The one execution that this names; `NotFoundError` or `AmbiguousIdError` otherwise."""
    if isinstance(text, PromiseId):
        view = await store.get(text.to_bytes())
        if view is None:
            raise NotFoundError(f"there is no execution {text.short}; it may have been deleted by retention")
        return view
    found = await meant(store, text)
    if len(found) == 1:
        return found[0]
    keyed = [view for view in found if _is_key_of(text, view)]
    if keyed:  # so digits that are a key as well never reach the wrong one
        listed = ", ".join(f"{view.name}/{PromiseId.from_bytes(view.promise).short}" for view in found)
        raise AmbiguousIdError(f"{text!r} is the key or the id of {len(found)} executions: {listed}. Give one of these")
    query = _query_of(text)
    if query is None:
        raise NotFoundError(
            f"no execution has the key {text[:60]!r}, and it is no id: give a key, `name/key`, or at least "
            f"{PREFIX_MIN_HEX} digits of an id such as 4f7a9c21.2, or list the executions to find it"
        )
    ids = {PromiseId.from_bytes(view.promise): view for view in found}
    return ids[resolve(query, [(promise, view.name) for promise, view in ids.items()])]


async def meant(store: Store, text: str, limit: int = 6) -> list[ExecutionView]:
    """The executions whose id begins so, and those whose key this is; at most `limit` of the former."""
    query = _query_of(text)
    fits = [] if query is None else await store.find(query, limit)
    found = [view for view in fits if query and query.matches(PromiseId.from_bytes(view.promise), view.name)]
    if query is not None and len(query.prefix) == _WHOLE:
        return found
    known = {view.promise for view in found}
    return found + [view for view in await _keyed(store, text.strip()) if view.promise not in known]


async def newest(store: Store, view: ExecutionView) -> ExecutionView | None:
    """The last of the runs that went on in its place; None where it is the last itself."""
    found, last = view, None
    if view.successor is not None and (first := origin_bytes(view.promise)) != view.promise:
        found = await store.get(first) or view  # it names the newest; those between name the next
    while found.successor is not None and (following := await store.get(found.successor)) is not None:
        found = last = following
    return last


async def _keyed(store: Store, text: str) -> list[ExecutionView]:
    name, slash, key = text.partition("/")
    pairs = [(found, text) for found in dict.fromkeys(line.name for line in await store.definitions())]
    ids: set[bytes] = set()
    for pair in [*pairs, (name, key)] if slash else pairs:
        try:
            ids.add(PromiseId.of(*pair).to_bytes())
        except InvalidArgumentError:
            continue  # no name, or nothing that can be a key
    return [view for view in await store.get_many(sorted(ids)) if view is not None] if ids else []


def _query_of(text: str) -> IdQuery | None:
    """None where it is no id, which a key need not be."""
    try:
        return IdQuery.parse(text)
    except InvalidArgumentError:
        if 0 < len(text.strip()) <= KEY_MAX_CHARS:
            return None
        raise


def _is_key_of(text: str, view: ExecutionView) -> bool:
    given = text.strip()
    return view.idempotency_key is not None and given in (view.idempotency_key, f"{view.name}/{view.idempotency_key}")
