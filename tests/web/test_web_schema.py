"""The API keeps to its OpenAPI document: requests that schemathesis makes of it, in process, the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from tests.web.kit import Shop, client

from holdfast.web.api import ROUTES
from holdfast.web.openapi import document
from holdfast.web.server import build
from holdfast.web.table import EVENT_STREAM

EXAMPLES = {GenerationMode.POSITIVE: 4, GenerationMode.NEGATIVE: 6}  # of each route
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
STREAMS = {route.name for route in ROUTES if route.media == EVENT_STREAM}  # they have no end


def operations() -> Iterator[Any]:
    whole = document(ROUTES)
    for operation in (operation for path in whole["paths"].values() for operation in path.values()):
        operation.pop("security", None)  # on loopback; tokens have tests of their own
    for found in schemathesis.openapi.from_dict(whole).get_all_operations():
        made: Any = found.ok()  # type: ignore[union-attr]
        if made.definition.raw["operationId"] not in STREAMS:
            yield made


def cases(operation: Any, mode: GenerationMode) -> list[Any]:
    """Made first and sent afterwards: what makes them is not asynchronous."""
    made: list[Any] = []

    @settings(
        max_examples=EXAMPLES[mode],
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        made.append(case)

    collect()
    return made


async def test_the_api_keeps_to_its_document(shop: Shop) -> None:
    handle = await shop.order.options(key="a", attributes={"city": "Rome"}).start(5)
    await shop.broken.start("no")
    await shop.work()
    async with client(build(shop.app, dashboard=False)) as http:
        for operation in operations():
            for number, case in enumerate(cases(operation, GenerationMode.POSITIVE)):
                if "id" in (case.path_parameters or {}) and number % 2:
                    case.path_parameters["id"] = str(handle.id)
                await send(http, case)


async def test_what_the_document_forbids_is_refused(shop: Shop) -> None:
    sent = 0
    async with client(build(shop.app, dashboard=False)) as http:
        for operation in operations():
            # In a path nearly every text is a name, or a key: there is little to refuse, and it is slow to find.
            if operation.query or operation.body:
                for case in cases(operation, GenerationMode.NEGATIVE):
                    await send(http, case)
                    sent += 1
    assert sent > 40


async def send(http: httpx.AsyncClient, case: Any) -> None:
    given = case.as_transport_kwargs(base_url="http://localhost/api/v1")
    given.pop("cookies", None)
    if not isinstance(given.get("data", {}), dict):
        given["content"] = given.pop("data")
    request = http.build_request(**{name: value for name, value in given.items() if value is not None})
    answer = await http.send(request)
    case.validate_response(schemathesis.Response.from_httpx(answer, verify=True), checks=CHECKS)
