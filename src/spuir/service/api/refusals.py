"""Errors as HTTP answers: one shape for all of them, with stable codes."""

import re
from typing import Any

import msgspec

from spuir.errors import ServiceError
from spuir.service.commands import CODES

HTTP_CODES: dict[str, tuple[int, str]] = {
    "malformed": (400, "the body is not valid JSON"),
    "unauthorized": (401, "the request has no valid API key"),
    "forbidden": (403, "the API key may not do this"),
    "unknown_route": (404, "there is nothing at this address"),
    "method_not_allowed": (405, "the address does not take this method"),
    "too_large": (413, "the body has too many bytes or rows"),
    "unsupported_media": (415, "the body is of a type or encoding that is not read here"),
    "wrong_shape": (422, "the body is JSON, and not what this address takes"),
    "rate_limited": (429, "the API key sends too many requests"),
    "internal": (500, "the service failed in an unexpected way"),
    "overloaded": (503, "too much is waiting, or the service is stopping; nothing was recorded"),
    "timed_out": (503, "it took too long; send it again with the same id, since it may have been recorded"),
    "not_ready": (503, "the service cannot take requests yet, or not any more"),
}
"""Codes of errors that the HTTP layer finds itself, each with its status and what it means."""

ALL_CODES = {**CODES, **HTTP_CODES}
"""Every code that an answer can have."""

STATUSES: dict[int, str] = {}
"""What each error status means: the meanings of its codes."""
for _code, (_status, _meaning) in ALL_CODES.items():
    STATUSES[_status] = "; ".join(filter(None, [STATUSES.get(_status, ""), f"`{_code}`: {_meaning}"]))


class ErrorDetail(msgspec.Struct, kw_only=True):
    """What was wrong: a stable code for programs, one sentence, what to do, and the place in the request."""

    code: str
    message: str
    remedy: str
    where: str | None


class ErrorAnswer(msgspec.Struct):
    """The shape of every error."""

    error: ErrorDetail


def error_answer(error: ServiceError) -> tuple[int, ErrorAnswer]:
    """Return the status and the body that answer an error."""
    detail = ErrorDetail(code=error.code, message=str(error), remedy=error.remedy, where=error.where)
    return ALL_CODES[error.code][0], ErrorAnswer(detail)


_PLACE = re.compile(r" - at (`key` in )?`\$?\.?(.*?)`\Z")
_EXPECTED = re.compile(r"Expected `(.+)`, got `(.+)`\Z")
_LIMIT = re.compile(r"Expected `(\w+)` (.+)\Z")
_FIELD = re.compile(r"Object (contains unknown|missing required) field `(.*)`\Z")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)")
_KINDS = {list: "array", dict: "object", str: "str", int: "int", float: "float", bool: "bool", type(None): "null"}
SEE = "compare the body with the schema at /openapi.json"


def wrong_shape(error: Exception, sent: Any) -> ServiceError:
    """Return the refusal of a body that is JSON but does not fit the type of its address.

    ``sent`` is the body, of which the error names the place and the type of what is wrong, but not the value.
    """
    text = str(error)
    place = _PLACE.search(text)
    where = place[2] or None if place else None
    text = _PLACE.sub("", text)
    expected = _EXPECTED.match(text)
    got, where = _value_at(sent, where, expected[2] if expected else None)
    subject = where or "body"
    if place and place[1]:
        subject, got = f"a key of {subject}", "another one"
    if expected:
        return ServiceError("wrong_shape", subject, got, f"it must be {_types(expected[1])}", SEE, where)
    if found := _FIELD.match(text):
        unknown = found[1].startswith("contains")
        name = found[2]
        got, rule = (f"the field {name!r}", "it is not taken here") if unknown else (f"no {name!r}", "it is required")
        remedy = "drop it, or check its spelling" if unknown else "add it"
        return ServiceError("wrong_shape", subject, got, rule, remedy, f"{where}.{name}" if where else name)
    if found := _LIMIT.match(text):
        limit = found[2].replace("<=", "≤").replace(">=", "≥")
        return ServiceError("wrong_shape", subject, got, f"it must be {_types(found[1])} {limit}", SEE, where)
    return ServiceError("wrong_shape", subject, got, text[:1].lower() + text[1:], SEE, where)


def _value_at(sent: Any, where: str | None, kind: str | None) -> tuple[str, str | None]:
    """Return the value at a place as JSON, cut short, and the place; ``[...]`` in it is a key with a ``kind``."""
    value, steps = sent, list[str]()
    for index, name in _STEP.findall(where or ""):
        try:
            key: Any = int(index) if index.isdigit() else name
            if index == "...":
                key = next(one for one, held in value.items() if _KINDS.get(type(held)) == kind)
            value = value[key]
        except (LookupError, TypeError, AttributeError, StopIteration):
            return kind or "another value", where
        steps.append(f"[{str(key)[:40]!r}]" if index == "..." else f"[{key}]" if index else f".{key}" if steps else key)
    shown = msgspec.json.encode(value).decode()
    return shown if len(shown) <= 60 else f"{shown[:59]}…", "".join(steps) or None


def malformed(reason: str) -> ServiceError:
    """Return the refusal of a body that is not JSON."""
    return ServiceError("malformed", "body", reason, "it must be valid JSON", "send one JSON object in UTF-8")


def _types(names: str) -> str:
    words = {
        "float": "a number",
        "int": "an integer",
        "str": "a string",
        "bool": "true or false",
        "object": "an object",
        "array": "an array",
        "null": "null",
    }
    return " or ".join(words.get(name, f"`{name}`") for name in names.split(" | "))
