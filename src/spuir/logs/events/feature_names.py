"""Names and tags in files that give some characters a meaning of their own: escaped reversibly, as in web addresses."""

import re
from collections.abc import Mapping
from typing import Any

from spuir.logs.columns import COLUMNS, is_action_column

_MEANING = re.compile(r"[\x00-\x20\x7f:|%=]")
_ESCAPE = re.compile(r"%([0-9A-F]{2})")
_EMPTY = "%"
_CLASH = "context."
"""Goes before a feature that is called like a canonical column, or like a feature of actions."""


def escape(name: str) -> str:
    """Return a name without the characters that Vowpal Wabbit's text gives a meaning: blanks, ``: |`` and our ``% =``.

    Each becomes ``%`` and two hexadecimal digits, an empty name a single ``%``.
    """
    return _MEANING.sub(_code, name) or _EMPTY


def escape_key(name: str) -> str:
    """Return a name as a key of Vowpal Wabbit's JSON, which ignores what begins with ``_``."""
    written = name.replace("%", "%25")
    return "%5F" + written[1:] if written[:1] == "_" else written


def _code(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def unescape(name: str) -> str:
    """Return the name that :func:`escape` was given."""
    if "%" not in name:
        return name
    return "" if name == _EMPTY else _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)


def context_name(name: str) -> str:
    """Return the column for a feature: its name, led by ``context.`` where another column of a log is called so."""
    return _CLASH + name if name in COLUMNS or is_action_column(name) else name


def space_name(name: str) -> str:
    """Return what leads the features of a namespace: its name, led by ``context.`` if it is called "action"."""
    return _CLASH + name if is_action_column(f"{name}.…") else name


def by_namespace(context: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return features by namespace, which is the text before the first point; "" has those without one."""
    spaces: dict[str, dict[str, Any]] = {}
    for column, value in context.items():
        space, point, name = column.partition(".")
        spaces.setdefault(space if point else "", {})[name if point and space else column] = value
    return spaces
