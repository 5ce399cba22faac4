"""The OpenAPI 3.1 document, made from the table of routes and the structs it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast import __version__
from holdfast.web.problems import MEDIA_TYPE, ProblemDocument
from holdfast.web.requests import IdOrKey, QueueName
from holdfast.web.table import EVENT_STREAM, JSON, PREFIX, Route

_REF: Final = "#/components/schemas/{name}"
_PATH_PARTS: Final[dict[str, Any]] = {"id": IdOrKey, "name": QueueName}
_WORDS: Final = {
    400: "The body is no JSON",
    401: "A token is needed",
    403: "The token may not do this, or a browser sent it from elsewhere",
    404: "There is no such thing",
    409: "It cannot be done as things stand, or the id is ambiguous",
    413: "The body is too large",
    415: "The body is no JSON",
    421: "The request was sent to another host",
    422: "The request is not valid",
    429: "This reader has too many open streams",
    503: "The ledger cannot be reached",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document."""
    kinds = {route.answer for route in routes if route.media == JSON}
    kinds |= {route.body for route in routes if route.body is not None} | {ProblemDocument}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    by_kind = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind)
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Start, steer and watch executions. Errors are problem documents (RFC 9457).",
        },
        "servers": [{"url": PREFIX}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Roles: read < operate < admin. On loopback without tokens none is needed.",
                }
            },
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))
    return plain


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": _responses(route, schemas),
    }
    if route.role is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Role: {route.role.word}."
        operation["x-role"] = route.role.word
    if route.body is not None:
        is_needed = any(part.required for part in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"required": is_needed, "content": {JSON: {"schema": schemas[route.body]}}}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": msgspec.json.schema(_PATH_PARTS[name])}
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    (_,), components = msgspec.json.schema_components([route.query], ref_template="{name}")
    properties = components[route.query.__name__]["properties"]
    found = []
    for name, schema in properties.items():
        inlined = _inline(schema, components)
        parameter = {"name": name, "in": "query", "required": False, "schema": _without_null(inlined)}
        if "description" in inlined:
            parameter["description"] = inlined["description"]
        found.append(parameter)
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what is not there is left out."""
    kept = {key: value for key, value in schema.items() if key != "default" or value is not None}
    choices = [choice for choice in kept.pop("anyOf", []) if choice != {"type": "null"}]
    return {**kept, **(choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})}


def _inline(schema: Any, components: dict[str, Any]) -> Any:
    """Parameters are few and small: no references in them."""
    if isinstance(schema, list):
        return [_inline(part, components) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(components[schema["$ref"]], components)
    return {key: _inline(value, components) for key, value in schema.items()}


def _headers(route: Route) -> list[dict[str, Any]]:
    if route.media != EVENT_STREAM:
        return []
    description = "The id of the last event that was had: the stream goes on after it"
    return [{"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}, "description": description}]


def _responses(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    schema = schemas[route.answer] if route.media == JSON else {"type": "string"}
    responses: dict[str, Any] = {
        str(route.status): {"description": route.summary, "content": {route.media: {"schema": schema}}}
    }
    for status, words in route.extra_statuses.items():
        responses[str(status)] = {"description": words}
    refused = {421, 422, 503, *route.problems}
    if "{" in route.path:
        refused.add(404)
    if route.role is not None:
        refused |= {401, 403}
    if route.method != "GET":
        refused |= {403, 413}
    if route.body is not None:
        refused |= {400, 415}
    problem = {MEDIA_TYPE: {"schema": schemas[ProblemDocument]}}
    for status in sorted(refused):
        responses[str(status)] = {"description": _WORDS[status], "content": problem}
    return responses


def markdown(routes: Sequence[Route]) -> str:
    """The table of routes in the documentation."""
    lines = ["| method and path | role | |", "|---|---|---|"]
    for route in routes:
        role = "" if route.role is None else route.role.word
        lines.append(f"| `{route.method} {route.path}` | {role} | {route.summary} |")
    return "\n".join(lines)
