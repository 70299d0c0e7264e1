"""An open or closed episode as a file, so that one night's job decides and the next one learns."""

import json
from collections.abc import Hashable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spuir import __version__
from spuir.errors import SnapshotError
from spuir.logs.decision_rows import DecisionRows
from spuir.storage import snapshot
from spuir.tables.arrow import pa
from spuir.tables.contexts import column_names

KIND = "spuir episode"
Arrays = dict[str, NDArray[Any]]
OPTIONAL = ("propensities", "weights", "eligible", "features")
SAVE_AGAIN = "restore the file from a copy, or save it again"


def write_episode(path: Any, header: Mapping[str, Any], lists: Mapping[str, list[Hashable]], arrays: Arrays) -> None:
    """Write JSON data, lists of ids and labels, and arrays."""
    texts = {f"list/{name}": _bytes(name, values) for name, values in lists.items()}
    snapshot.write(path, {"kind": KIND, "spuir": __version__, **header}, arrays | texts)


def read_episode(path: Any) -> tuple[dict[str, Any], dict[str, list[Any]], Arrays]:
    """Return what :func:`write_episode` wrote; anything else is refused."""
    header, arrays = snapshot.read(path)
    if header.get("kind") != KIND:
        raise SnapshotError(str(path), f"kind {header.get('kind')!r}", "a saved episode is needed", "pass its path")
    texts = {name: array for name, array in arrays.items() if name.startswith("list/")}
    try:
        lists = {name.removeprefix("list/"): json.loads(array.tobytes()) for name, array in texts.items()}
    except (ValueError, RecursionError):
        raise SnapshotError(str(path), "ids that are not JSON", "ids and labels are JSON", SAVE_AGAIN) from None
    every = [one for values in lists.values() for one in (values if isinstance(values, list) else [None])]
    if not all(isinstance(one, (str, int, float)) for one in every):
        raise SnapshotError(str(path), "other ids", "an id or label is text or a number", SAVE_AGAIN)
    return header, lists, {name: array for name, array in arrays.items() if name not in texts}


def _bytes(name: str, values: list[Hashable]) -> NDArray[np.uint8]:
    for value in values:
        if not isinstance(value, (str, int, float)):
            rule = "a saved id or label is text or a number"
            raise SnapshotError(name, repr(value), rule, "use text")
    return np.frombuffer(json.dumps(values).encode(), np.uint8)


def pack_rows(rows: DecisionRows) -> Arrays:
    """Return decisions as arrays, except for actions and lists of eligible labels: see :func:`labels_in`."""
    arrays: Arrays = {"times": rows.times}
    for name in OPTIONAL:
        if getattr(rows, name) is not None and getattr(rows, name).dtype != object:
            arrays[name] = np.ascontiguousarray(getattr(rows, name))
    contexts = rows.contexts
    if column_names(contexts) is not None:
        sink = BytesIO()
        table = pa.Table.from_pandas(contexts, preserve_index=False)
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        arrays["contexts/frame"] = np.frombuffer(sink.getvalue(), np.uint8)
    elif hasattr(contexts, "tocsr"):
        arrays |= {f"contexts/{part}": getattr(contexts, part) for part in ("data", "indices", "indptr")}
        arrays["contexts/shape"] = np.array(contexts.shape)
    elif contexts.dtype.kind in "fiub":
        arrays["contexts"] = contexts
    else:
        rule = "an array that is saved holds numbers"
        raise SnapshotError("contexts", f"an array of {contexts.dtype}", rule, "record a DataFrame")
    return arrays


def labels_in(rows: DecisionRows) -> dict[str, list[Any]]:
    """Return the labels of decisions as lists: the actions and, where lists say so, what was eligible."""
    lists: dict[str, list[Any]] = {"actions": rows.actions}
    if rows.eligible is not None and rows.eligible.ndim == 1:
        lists["eligible"] = [label for one in rows.eligible.tolist() for label in one]
        lists["eligible_counts"] = [len(one) for one in rows.eligible.tolist()]
    return lists


def unpack_rows(path: str, lists: Mapping[str, list[Any]], arrays: Arrays) -> DecisionRows:
    """Return the decisions that :func:`pack_rows` and :func:`labels_in` packed, if their lengths agree."""
    try:
        contexts, actions = _contexts(arrays), lists["actions"]
        optional = {name: arrays.get(name) for name in OPTIONAL}
        if "eligible" in lists:
            labels, optional["eligible"] = iter(lists["eligible"]), np.empty(len(actions), np.object_)
            optional["eligible"][:] = [[next(labels) for _ in range(count)] for count in lists["eligible_counts"]]
        rows = DecisionRows(contexts, actions, arrays["times"], **optional)
        lengths = {int(rows.contexts.shape[0]), *(len(column) for column in rows[1:] if column is not None)}
    except (KeyError, ValueError, TypeError, IndexError, OSError) as broken:
        raise SnapshotError(path, repr(broken)[:80], "an episode has contexts, actions and times", SAVE_AGAIN) from None
    if len(lengths) > 1:
        raise SnapshotError(path, "columns of different lengths", "each decision has one row", SAVE_AGAIN)
    return rows


def _contexts(arrays: Arrays) -> Any:
    if "contexts/frame" in arrays:
        with pa.ipc.open_stream(arrays["contexts/frame"].tobytes()) as stream:
            return stream.read_all().to_pandas()
    if "contexts/data" in arrays:
        from scipy import sparse

        parts = tuple(arrays[f"contexts/{part}"] for part in ("data", "indices", "indptr"))
        table = sparse.csr_array(parts, shape=tuple(arrays["contexts/shape"].tolist()))
        table.check_format(full_check=True)
        return table
    return arrays["contexts"]
