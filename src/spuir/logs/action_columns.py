"""Features of actions at each decision, as arrays: those of the executed action, or of every eligible one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from spuir.base.counting import counted
from spuir.base.records import Codes, Floats
from spuir.errors import InputError, UnknownNameError, listed, quoted
from spuir.logs.columns import ACTION_PREFIX
from spuir.logs.eligible_masks import check_masks, holds_masks, listed_items
from spuir.logs.log import Log
from spuir.tables.arrow import pa, pc

_REMEDY = "correct or drop that row"


def number_columns(log: Log) -> tuple[list[str], list[str]]:
    """Return the features per decision that are numbers, and those that are texts, without their prefix."""
    found: tuple[list[str], list[str]] = ([], [])
    for name in log.action_columns:
        kind = log.schema.field(name).type
        inner = kind.value_type if pa.types.is_list(kind) else kind
        found[pa.types.is_string(inner)].append(name.removeprefix(ACTION_PREFIX))
    return found


def columns_to_read(names: Sequence[str], log: Log, model: str) -> list[str]:
    """Return the columns of a log to read for some features per decision; refuse a log without one of them."""
    for name in names:
        if f"{ACTION_PREFIX}{name}" not in log.action_columns:
            rule = f"{model} reads the feature {name!r} of actions at each decision"
            among = f" among {listed(list(log.action_columns))}" if log.action_columns else ""
            raise InputError("log", f"no column '{ACTION_PREFIX}{name}'{among}", rule, "add it to the log")
    lists = ["eligible"] if names and "eligible" in log.schema.names else []
    return [*lists, *(f"{ACTION_PREFIX}{name}" for name in names)]


def executed_features(batch: Any, names: Sequence[str], labels: Sequence[Any]) -> Floats:
    """Return the features (n, y) of the executed actions.

    Parameters
    ----------
    batch
        Rows with ``action``, the columns of the features and, if these are lists, ``eligible``.
    names
        The features, without their prefix.
    labels
        All labels, in the order of masks.
    """
    table = np.empty((batch.num_rows, len(names)))
    places: Codes | None = None
    for at, name in enumerate(names):
        column = _column(batch, name)
        if pa.types.is_list(column.type):
            if places is None:
                places = _executed_places(batch, labels)
            values = _values(batch, name)[places]
        else:
            values = column.to_numpy(zero_copy_only=False).astype(np.float64)
        table[:, at] = _known(values, name)
    return table


def offered_features(batch: Any, names: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
    """Return a long table (row, action, feature…) of the eligible actions, as ``Bandit.decide`` takes it."""
    owners, offered = _eligible(batch, labels)
    chosen = np.ones(len(owners), np.bool_)
    if holds_masks(batch["eligible"]):
        chosen = batch["eligible"].flatten().fill_null(False).to_numpy(zero_copy_only=False)
    owners = owners[chosen]
    counts = np.bincount(owners, minlength=batch.num_rows)
    if not counts.all():
        row = int(np.argmin(counts))
        raise InputError("eligible", f"no action at row {row}", "every row needs one", "list an action there")
    table: dict[str, Any] = {"row": owners, "action": offered.filter(pa.array(chosen))}
    for name in names:
        if not pa.types.is_list(batch[f"{ACTION_PREFIX}{name}"].type):
            rule = "to choose, the value of every eligible action must be known"
            remedy = "log a list with one value for each label in `eligible`"
            raise InputError(f"column '{ACTION_PREFIX}{name}'", "one value per row", rule, remedy)
        table[name] = _known(_values(batch, name)[chosen], name, owners)
    return table


def check_known(batch: Any, labels: Sequence[Any]) -> None:
    """Refuse a row that lists an unknown label."""
    owners, offered = _eligible(batch, labels)
    coded = offered.dictionary_encode()
    known = set(labels)
    strange = [at for at, label in enumerate(coded.dictionary.to_pylist()) if label not in known]
    if strange or coded.null_count:
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        at = int(np.argmax(np.isin(codes, [*strange, -1])))
        rule = f"the model knows {quoted(labels)}"
        got = f"{offered[at].as_py()!r} at row {owners[at]}"
        raise UnknownNameError("eligible", got, rule, "add it to the model first, or leave it out of the list")


def _eligible(batch: Any, labels: Sequence[Any]) -> tuple[Codes, Any]:
    """Return the row (k,) and the label (k,) of every eligible action."""
    if "eligible" not in batch.schema.names or batch["eligible"].null_count:
        row = int(np.argmax(batch["eligible"].is_null())) if "eligible" in batch.schema.names else 0
        rule = "lists of features go by the order of the eligible actions"
        raise InputError("eligible", f"nothing at row {row}", rule, "log the labels that could be chosen")
    lengths, owners, items = listed_items(batch["eligible"])
    if holds_masks(batch["eligible"]):
        check_masks(lengths, labels)
        items = pa.array(list(labels) * len(lengths))
    return owners, items


def _executed_places(batch: Any, labels: Sequence[Any]) -> Codes:
    """Return where the executed action of each row is among the eligible ones of all rows (n,)."""
    owners, offered = _eligible(batch, labels)
    same = pc.equal(offered, batch["action"].take(pa.array(owners)))
    found = np.flatnonzero(same.fill_null(False).to_numpy(zero_copy_only=False))
    counts = np.bincount(owners[found], minlength=batch.num_rows)
    if (counts != 1).any():
        row = int(np.argmax(counts != 1))
        how = "not listed" if not counts[row] else f"listed {counts[row]} times"
        got = f"{batch['action'][row].as_py()!r} {how} at row {row}"
        raise InputError("eligible", got, "the executed action is listed once", _REMEDY)
    return found


def _values(batch: Any, name: str) -> Floats:
    """Return the values of all eligible actions of all rows (k,); refuse lists of another length."""
    column = _column(batch, name)
    (counts, _, values), (wanted, _, _) = listed_items(column), listed_items(batch["eligible"])
    if (counts != wanted).any():
        row = int(np.argmax(counts != wanted))
        rule = f"there is one for each of the {wanted[row]} eligible actions"
        got = counted(counts[row], "value") if counts[row] >= 0 else "nothing"
        raise InputError(f"column '{ACTION_PREFIX}{name}'", f"{got} at row {row}", rule, _REMEDY)
    return values.to_numpy(zero_copy_only=False).astype(np.float64)


def _column(batch: Any, name: str) -> Any:
    """Return the column of a feature; refuse one of texts."""
    column, types = batch[f"{ACTION_PREFIX}{name}"], pa.types
    inner = column.type.value_type if types.is_list(column.type) else column.type
    if types.is_string(inner):
        got, rule = f"type {column.type}", "a feature per decision is a finite number"
        raise InputError(f"column '{ACTION_PREFIX}{name}'", got, rule, "write numbers, or describe it in the catalogue")
    return column


def _known(values: Floats, name: str, rows: Codes | None = None) -> Floats:
    """Return finite values (k,); refuse others with the row."""
    bad = ~np.isfinite(values)
    if bad.any():
        at = int(np.argmax(bad))
        row, got = at if rows is None else int(rows[at]), "nothing" if np.isnan(values[at]) else str(values[at])
        rule = "a feature per decision is a finite number"
        raise InputError(f"column '{ACTION_PREFIX}{name}'", f"{got} at row {row}", rule, "fill it, or drop that row")
    return values
