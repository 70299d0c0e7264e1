"""How schemathesis writes bodies of types that it does not know; it loads this file by its path."""

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson", "application/jsonl")
def json_lines(_: Any, value: Any) -> bytes:
    """Write a text as it is, and anything else as one line of JSON."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else json.dumps(value).encode() + b"\n"
