"""The OpenAPI 3.1 description of the service, made from its operations and the types of its bodies and answers."""

import re
from collections.abc import Iterable
from inspect import cleandoc
from types import UnionType
from typing import Any, get_args

import msgspec

from spuir import __version__
from spuir.service.api.operations import Operation
from spuir.service.api.refusals import STATUSES, ErrorAnswer
from spuir.service.config import ServerConfig
from spuir.service.settings import LONGEST_ID, NAME

_ID = {"type": "string", "minLength": 1, "maxLength": LONGEST_ID}
PARAMETERS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "name": ("Name of the experiment.", {"type": "string", "pattern": f"^{NAME.pattern}$"}, "shop"),
    "id": ("Id of the decision.", _ID, "d1"),
    "label": ("Label of the action.", _ID, "red"),
    "version": ("Number of the version.", {"type": "integer", "minimum": 0}, 0),
    "unit": ("Id of the unit.", _ID, "u1"),
}
"""What can stand in an address, with its schema and an example."""

HEADERS = {
    "X-Request-Id": {"description": "Id of the request, for the log.", "schema": {"type": "string"}},
}
RETRY = {"Retry-After": {"description": "Seconds to wait.", "required": True, "schema": {"type": "integer"}}}
_MEANINGS = {
    200: "Done.",
    201: "Created.",
    202: "Recorded; the status says why it is not learned, or not yet.",
}


def describe(operations: Iterable[Operation], config: ServerConfig) -> dict[str, Any]:
    """Return the description of operations as a JSON object."""
    every = list(operations)
    types = _types(every)
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for name, limit in (("DecisionsBody", "decisions"), ("RewardsBody", "rewards")):
        if name in components:
            components[name]["properties"][limit]["maxItems"] = config.max_rows
    for schema in components.values():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for operation in every:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "spuir decision service",
            "version": __version__,
            "description": "Ask for decisions, report rewards, and run experiments.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _types(operations: Iterable[Operation]) -> list[Any]:
    """Return every type that a body or an answer has, once."""
    types: list[Any] = [ErrorAnswer]
    for operation in operations:
        for answer in operation.answers.values():
            types += [] if isinstance(answer, tuple) else _members(answer)
        types += operation.body
    return list(dict.fromkeys(types))


def _members(answer: Any) -> list[Any]:
    """Return the types of a union, or the one type."""
    return list(get_args(answer)) if isinstance(answer, UnionType) else [answer]


def _operation(operation: Operation) -> dict[str, Any]:
    """Return the description of one operation."""
    name = getattr(operation.handler, "__name__", "")
    about: dict[str, Any] = {
        "operationId": name,
        "summary": operation.summary,
        "responses": {str(status): _response(operation, status) for status in operation.statuses},
    }
    if operation.doc:
        about["description"] = operation.doc
    if operation.role is not None:
        about["security"] = [{"key": []}]
        about["x-role"] = operation.role
    parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", operation.path)]
    parameters += [
        {"name": one.name, "in": "query", "description": one.doc, "schema": dict(one.schema)} for one in operation.query
    ]
    if parameters:
        about["parameters"] = parameters
    if operation.body or operation.media:
        kinds = operation.media or ("application/json",)
        schema = _schema(operation.body) if operation.body else {"type": "string"}
        content: dict[str, Any] = {"schema": schema}
        if operation.example is not None:
            content["example"] = operation.example
        about["requestBody"] = {"required": True, "content": dict.fromkeys(kinds, content)}
    return about


def _path_parameter(name: str) -> dict[str, Any]:
    doc, schema, example = PARAMETERS[name]
    about = {"name": name, "in": "path", "required": True}
    return {**about, "description": doc, "schema": schema, "example": example}


def _schema(types: Iterable[Any]) -> dict[str, Any]:
    """Return the schema of one of several types, by reference."""
    found, _ = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = list(found)
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _response(operation: Operation, status: int) -> dict[str, Any]:
    """Return the description of what an operation answers with a status."""
    answer = operation.answers.get(status)
    headers = dict(HEADERS)
    if answer is None or status >= 400:
        if status in (429, 503, 507):
            headers |= RETRY
        content = {"application/json": {"schema": _schema([ErrorAnswer])}}
        return {"description": STATUSES[status], "headers": headers, "content": content}
    if isinstance(answer, tuple):
        content = {kind: {"schema": {"type": "string"}} for kind in answer}
    else:
        content = {"application/json": {"schema": _schema(_members(answer))}}
    return {"description": _MEANINGS[status], "headers": headers, "content": content}
