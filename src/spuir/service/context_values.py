"""Values of raw contexts: which of them can be read as the kind of their column, before an encoder reads them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from spuir.service.settings import ColumnContext, NumberContext, refuse
from spuir.tables.encoder import Encoder

_WANTED = {"number": "numbers", "flag": "true, false, 1 and 0", "time": "dates and times in ISO 8601"}
"""What columns hold whose values are not just texts of levels."""


def kinds_of(encoder: Encoder | None, context: NumberContext | ColumnContext | None) -> dict[str, str]:
    """Return the kinds of columns by name: those that an encoder learned or, without one, that the settings name."""
    if encoder is not None:
        return {column["column"]: column["kind"] for column in encoder.describe()}
    return context.kinds if isinstance(context, ColumnContext) else {}


def is_readable(value: Any, kind: str | None) -> bool:
    """Return whether a text, number or flag can be read as a kind; what is missing can."""
    if value is None or kind not in _WANTED:
        return True
    if kind == "time":
        try:
            return isinstance(value, str) and bool(datetime.fromisoformat(value))
        except ValueError:
            return False
    return not isinstance(value, str) and (kind == "number" or value in (0, 1))


def check_columns(context: Any, kinds: Mapping[str, str], where: str | None) -> None:
    """Refuse a value of a raw context that cannot be read as the kind of its column."""
    for name, kind in kinds.items():
        if isinstance(context, dict) and not is_readable(context.get(name), kind):
            rule = f"this column holds {_WANTED[kind]}"
            remedy = "correct the value, or send null where it is unknown"
            raise refuse(f"column {name[:80]!r}", repr(context[name])[:60], rule, remedy, where)


def readable(table: Mapping[str, Sequence[Any]], kinds: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return columns with None for values that cannot be read.

    There are such values if they were taken before the first episode settled what their columns hold: a few of them
    do not keep an episode from being learned.
    """
    return {
        name: [value if is_readable(value, kinds.get(name)) else None for value in column]
        for name, column in table.items()
    }
