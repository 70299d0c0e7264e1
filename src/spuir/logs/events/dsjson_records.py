"""Objects of dsjson whose keys are known, decoded straight into records, and the columns of many such records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np

from spuir.logs.events.dsjson_features import KeyTree, is_ignored
from spuir.logs.events.event_rows import msgspec
from spuir.logs.events.event_values import as_list
from spuir.logs.events.feature_names import context_name, space_name, unescape
from spuir.tables.arrow import pa

Columns = dict[str, Any]
"""Values by column: a list, or an Arrow array."""
Lead = tuple[tuple[str, str, Any], ...]
_SCALAR = str | int | float | bool | None


class UnusualBlockError(Exception):
    """Some values of a block cannot be turned into columns; all its events take the general way."""


class FieldPlan(NamedTuple):
    """How a field of a record becomes columns: its kind, the name (or prefix) of these, and the record inside."""

    field: str
    kind: str
    name: str
    inner: "RecordPlan | None"


@dataclass(frozen=True)
class RecordPlan:
    """How records become columns: their type, and their fields; ``absent`` is the value of a key that is not there."""

    record: Any
    fields: list[FieldPlan]
    absent: Any

    def gather(self, records: Sequence[Any], found: Columns) -> None:
        """Add the columns of some records, one for each row; None means no record."""
        for field, kind, name, inner in self.fields:
            try:
                values = list(map(attrgetter(field), records))
            except AttributeError:  # some row has no record
                blank = self.record()
                records = [blank if one is None else one for one in records]
                values = list(map(attrgetter(field), records))
            if inner is None and kind == "scalar":
                _put(found, name, values)
            elif kind == "items":
                self._gather_items(name, values, found)
            elif inner is not None and kind == "object":
                inner.gather([value or None for value in values], found)
            elif inner is not None:
                _put_objects(found, inner, values)

    def _gather_items(self, prefix: str, lists: Sequence[Any], found: Columns) -> None:
        if self.absent is None:
            _put_items(found, prefix, lists)
            return
        made: Columns = {}
        _put_items(made, prefix, [None if one is self.absent else one for one in lists])
        for name, values in made.items():
            _put(found, name, [self.absent if value is None else value for value in as_list(values)])


def _put(found: Columns, name: str, values: Any) -> None:
    if name in found:
        raise UnusualBlockError(name)
    found[name] = values


def _put_objects(found: Columns, inner: RecordPlan, lists: Sequence[Any]) -> None:
    """Add lists of objects, which share the names of their features; the last object that has a key counts."""
    if inner.absent is None:
        inner.gather([one[0] if one else None for one in lists], found)
        return
    lists = [one or () for one in lists]
    longest = max(map(len, lists), default=0)
    merged: Columns = {}
    for place in range(longest):
        part: Columns = {}
        inner.gather([one[place] if len(one) > place else None for one in lists], part)
        for name, values in part.items():
            pairs = zip(merged.get(name, values), values, strict=True)
            merged[name] = [old if new is inner.absent else new for old, new in pairs]
    for name, values in merged.items():
        _put(found, name, [None if value is inner.absent else value for value in values])


def _put_items(found: Columns, prefix: str, lists: Sequence[Any]) -> None:
    """Add lists of scalars: numbers are numbered from 0, texts are indicators."""
    items = list(chain.from_iterable(one for one in lists if one))
    kinds = set(map(type, items))
    lengths = {len(one) if one else 0 for one in lists}
    if kinds <= {int, float} and len(lengths) == 1:
        # Vectors of one length, which need no look at each number.
        table = np.array(items, np.float64).reshape(len(lists), -1).T
        for place, column in enumerate(np.ascontiguousarray(table)):
            _put(found, f"{prefix}{place}", pa.array(column))
        return
    if str not in kinds:
        for place in range(max((len(one) for one in lists if one), default=0)):
            _put(found, f"{prefix}{place}", [one[place] if one and len(one) > place else None for one in lists])
        return
    if kinds - {type(None)} != {str}:
        raise UnusualBlockError(prefix)
    owners = np.repeat(np.arange(len(lists)), [len(one) if one else 0 for one in lists])
    coded = pa.array(items, pa.string()).dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    ones, absent = np.ones(len(lists)), np.ones((len(coded.dictionary), len(lists)), np.bool_)
    absent[codes[codes >= 0], owners[codes >= 0]] = False
    for text, mask in zip(coded.dictionary.to_pylist(), absent, strict=True):
        _put(found, prefix + text, pa.array(ones, mask=mask))


def plan_record(
    node: KeyTree,
    prefix: str,
    absent: Any,
    lead: Lead = (),
    name_of: Callable[[str], str] = context_name,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> RecordPlan:
    """Return the plan of an object.

    Parameters
    ----------
    node
        Its keys.
    prefix
        What its features are led by.
    absent
        What stands for a key that is not there: None, or a mark that no JSON value equals.
    lead
        Fields that it must have in addition, each with its key and type; they give no columns.
    name_of
        Returns the name of a single value without a prefix, given its key.
    known
        Types of single values, by their names in full, that are narrower than usual; one value alone tells nothing.
    """
    fields: list[Any] = [(name, kind) for name, _, kind in lead]
    keys = {name: key for name, key, _ in lead}
    plans: list[FieldPlan] = []
    for place, (key, below) in enumerate(node.keys.items(), len(lead)):
        field = f"field_{place}"
        keys[field] = key
        name = prefix + unescape(key)
        kind, inner = msgspec.Raw, None
        if not is_ignored(key):
            named, name = (name, name) if prefix else (name_of(name), space_name(name))
            kind, inner = _typed(below, name, absent, known)
            if len(get_args(known.get(name))) != 1:
                plans.append(FieldPlan(field, below.kind, named if below.kind == "scalar" else f"{name}.", inner))
        fields.append((field, kind | None if absent is None else kind | None | msgspec.UnsetType, absent))
    record = msgspec.defstruct("Features", fields, rename=keys, forbid_unknown_fields=True, gc=False)
    return RecordPlan(record, [one for one in plans if one.kind not in ("unknown", "other")], absent)


def _typed(node: KeyTree, name: str, absent: Any, known: Mapping[str, Any]) -> tuple[Any, RecordPlan | None]:
    """Return the type of a field, and the plan of the objects in it."""
    if node.kind == "scalar":
        return known.get(name, _SCALAR), None
    if node.kind == "items":
        return list[_SCALAR], None
    if node.kind == "object":
        inner = plan_record(node, f"{name}.", absent, known=known)
        return inner.record, inner
    if node.kind == "objects":
        # Only where a list has several objects does it matter which keys are absent and which are null.
        inner = plan_record(node, f"{name}.", msgspec.UNSET if node.many else absent, known=known)
        return list[inner.record] if node.many else Annotated[list[inner.record], msgspec.Meta(max_length=1)], inner
    return Annotated[list[int], msgspec.Meta(max_length=0)], None
