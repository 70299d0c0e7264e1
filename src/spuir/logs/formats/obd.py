"""The Open Bandit Dataset: CSV files of fashion recommendations, optionally with a table of the items."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from spuir.errors import InputError, listed
from spuir.logs.formats import csv
from spuir.logs.formats.base import FileSurvey, Format, Request, read_with_names, with_names
from spuir.tables.arrow import pa, pc

_NAMES = {"timestamp": "time", "item_id": "action", "click": "reward"}
_PROBABILITY = ("propensity_score", "action_prob")
"""The propensity as the files call it, and as their description does."""
_HEADER = re.compile(rb'^\xef?\xbb?\xbf?"?"?,?"?timestamp"?,"?item_id"?,"?position"?,"?click"?,')
_ITEMS = "item_context.csv"


def _names(schema: "pa.Schema") -> dict[str, str]:
    """Return the canonical names of a file's columns."""
    found = [name for name in _PROBABILITY if name in schema.names]
    return _NAMES | ({found[0]: "propensity"} if found else {})


def _items(path: str, options: Mapping[str, Any]) -> "pa.Table | None":
    """Return the table of items if the caller wants it: given by its path, or True for the file next to the log."""
    wanted = options.get("item_context")
    if not wanted:
        return None
    items = str(Path(path).with_name(_ITEMS)) if wanted is True else str(wanted)
    seen = csv.survey(items, {})
    if "item_id" not in seen.schema.names:
        rule = "a table of items has a column 'item_id'"
        raise InputError(f"file {items!r}", f"columns {listed(seen.schema.names)}", rule, "pass another file")
    names = tuple(name for name in seen.schema.names if name)
    requests = (Request(schema=seen.schema, columns=names, section=section) for section in seen.sections)
    return pa.Table.from_batches(chain.from_iterable(csv.read(items, request) for request in requests))


def survey(path: str, options: Mapping[str, Any]) -> FileSurvey:
    """Return the columns of a log, with those of the chosen item if ``item_context`` says so."""
    found = csv.survey(path, options)
    seen = with_names(found, _names(found.schema), ("",))
    items = _items(path, options)
    if items is None:
        return seen
    more = [one for one in items.schema if one.name != "item_id"]
    return replace(seen, schema=pa.schema([*seen.schema, *more]))


def read(path: str, request: Request) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of a log."""
    items = _items(path, request.options)
    joined = [] if items is None else [name for name in request.columns if name in items.column_names]
    own = tuple(name for name in request.columns if name not in joined)
    needed = own if not joined or "action" in own else (*own, "action")
    raw = csv.survey(path, request.options).schema
    for batch in read_with_names(csv.read, path, replace(request, columns=needed), _names(raw)):
        yield (_with_items(batch, items, joined) if items is not None else batch).select(list(request.columns))


def _with_items(batch: "pa.RecordBatch", items: "pa.Table", names: list[str]) -> "pa.RecordBatch":
    """Return a batch with columns of the chosen item."""
    known = items["item_id"].cast(batch["action"].type).combine_chunks()
    for name in names:
        places = pc.call_function("index_in", [batch["action"]], pc.SetLookupOptions(known))
        batch = batch.append_column(name, items[name].combine_chunks().take(places))
    return batch


FORMAT = Format(
    name="obd",
    summary="the Open Bandit Dataset's CSV files",
    sniff=lambda path, first: bool(_HEADER.match(first)),
    survey=survey,
    read=read,
    options=("types", "item_context"),
    typed=False,
    locate=csv.locate,
)
