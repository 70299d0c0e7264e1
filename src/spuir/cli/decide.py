"""``spuir decide``: draw an action for each row of a table, and write the decisions."""

import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spuir.base.counting import counted
from spuir.cli import log_options, options
from spuir.cli.output import check_apart, note_unless, print_result, print_written
from spuir.errors import DriftWarning, InputError, ParameterError, nearest

if TYPE_CHECKING:
    from spuir.bandit import Bandit
    from spuir.logs import Log

TABLE_CELLS = 2**23
"""Rows times actions that are decided at a time."""
BATCH_ROWS = 65_536
KEPT = ("decision_id", "time", "unit_id")
"""Canonical columns of the table that the decisions keep, besides the context."""

UNEXPLORED = (
    "Every decision has propensity 1, because the model has floor=0: no other policy can be evaluated on their log. "
    "Train with a floor, e.g. --set floor=0.01, or tune with a larger --floor-cost."
)


@click.command("decide")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("table", nargs=-1, required=True)
@options.out("File for the decisions; its ending sets the format, e.g. .parquet, .csv or .jsonl.", "decisions.parquet")
@click.option(
    "--eligible",
    multiple=True,
    help="Actions that may be chosen, separated by commas; repeatable.  [default: the table's column eligible, or all]",
)
@log_options.reading_contexts
@options.JSON
@options.QUIET
def decide(*, model: Path, table: Sequence[str], out: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Choose an action for each row of TABLE with MODEL.

    TABLE is files or folders of contexts. A column eligible lists the actions that may be chosen in a row, and columns
    action.… hold their features. The command writes the decisions with their propensities.

    Each row needs an id: the same id gets the same action as long as the model does not learn, so that a repeated
    job changes nothing. The decisions are ready for spuir train --from MODEL, joined with their rewards.
    """
    from spuir import load
    from spuir.cli.model_tables import print_drift
    from spuir.cli.terminal import print_shares
    from spuir.logs import open_log, write_log

    check_apart([out], [*table, str(model)])
    bandit, how = load(model), log_options.how_to_open(given, ("id",))
    opened = open_log(list(table) if len(table) > 1 else table[0], **how, kind="contexts")
    counts: dict[str, int] = {}
    propensities: dict[str, float] = {}
    context = _context(bandit, opened, given["id_column"])
    eligible = _eligible(bandit, opened, given["eligible"])
    batches = _watched(_decided(bandit, opened, context, eligible, counts), propensities)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", DriftWarning)
        write_log(batches, out)
    for one in found:
        note_unless(quiet)(str(one.message))
    if propensities["least"] >= 1 and getattr(bandit.policy_, "floor", None) == 0:
        note_unless(quiet)(UNEXPLORED)
    rows = sum(counts.values())
    summary = {
        "model": bandit.version_,
        "rows": rows,
        "actions": {label: {"rows": count, "share": count / rows} for label, count in counts.items()},
        "propensities": propensities,
        "drift": None if bandit.drift_ is None else bandit.drift_.to_dict(),
        "written": str(out),
    }

    def show() -> None:
        print_shares(counted(rows, "decision", f"of model {bandit.version_}"), summary["actions"])
        print_drift(summary["drift"])

    print_result(summary, show, as_json, quiet)
    print_written([out], quiet)


def _eligible(bandit: "Bandit", log: "Log", names: Sequence[str]) -> list[bool] | None:
    """Return which actions may be chosen (M,)."""
    from spuir.errors import UnknownNameError, did_you_mean

    wanted = options.names_in(names, "--eligible")
    if wanted and "eligible" in log.schema.names:
        rule, remedy = "the table has a column eligible", "leave out one of them (--rename eligible=)"
        raise ParameterError("--eligible", ",".join(wanted), rule, remedy)
    labels = [str(label) for label in bandit.actions_.tolist()]
    for name in wanted:
        if name not in labels:
            raise UnknownNameError("--eligible", repr(name), "no action has that label", did_you_mean(name, labels))
    return [label in wanted for label in labels] if wanted else None


def _decided(
    bandit: "Bandit", log: "Log", context: Sequence[str], eligible: list[bool] | None, counts: dict[str, int]
) -> "Iterator[Any]":
    """Yield the decisions batch by batch, and count them by action."""
    from spuir.tables.arrow import arrow

    pa = arrow()
    offered = _offered_columns(bandit, log)
    kept = [name for name in KEPT if name in log.schema.names]
    seen: set[str] = set()
    counts |= dict.fromkeys((str(label) for label in bandit.actions_[bandit.active_].tolist()), 0)
    moment, empty = datetime.now(UTC), True
    for batch, locating in _batches(log, [*kept, *context, *offered], len(bandit.actions_)):
        rows = batch.select(context)
        with locating():
            ids = _checked_ids(batch["decision_id"].to_pylist(), seen)
            given = {"eligible": eligible} if not offered else _offered(bandit, batch)
            table = rows if bandit.encoder is not None else pa.Table.from_batches([rows])
            day = bandit.decide(table, ids=ids, **given)
        empty = empty and not ids
        for label in day.actions.tolist():
            counts[str(label)] += 1
        columns = {name: batch[name] for name in (*kept, *offered)}
        if "time" not in kept:
            columns["time"] = pa.array([moment] * len(ids), pa.timestamp("us", "UTC"))
        columns |= {
            "episode": pa.array([day.episode] * len(ids), pa.int64()),
            "action": pa.array(day.actions.tolist()),
            "propensity": pa.array(day.propensities),
            "probabilities": _probabilities(bandit, batch, day.probabilities),
            "policy_version": pa.array([bandit.version_] * len(ids)),
        }
        yield pa.RecordBatch.from_pydict(columns | {name: batch[name] for name in context})
    if empty:
        raise InputError("table", "no rows", "there is nothing to decide", "check the file")


def _watched(batches: "Iterator[Any]", propensities: dict[str, float]) -> "Iterator[Any]":
    """Yield the batches of decisions, and keep their least and largest propensity."""
    for batch in batches:
        if batch.num_rows:
            values = batch["propensity"].to_numpy()
            propensities["least"] = min(propensities.get("least", 1.0), float(values.min()))
            propensities["largest"] = max(propensities.get("largest", 0.0), float(values.max()))
        yield batch


def _offered_columns(bandit: "Bandit", log: "Log") -> list[str]:
    """Return the columns that say what may be chosen, and with which features."""
    from spuir.logs.action_columns import columns_to_read

    own = columns_to_read(bandit._model.varying, log, "the model")
    if bandit._model.varying and "eligible" not in own:
        rule = "the model reads features of the eligible actions"
        raise InputError("table", "no column 'eligible'", rule, "add a column that lists the labels of each row")
    return own or [name for name in ("eligible",) if name in log.schema.names]


def _batches(log: "Log", columns: Sequence[str], actions: int) -> "Iterator[tuple[Any, Any]]":
    """Yield batches of bounded size, each with what makes an error in it name the file and the row."""
    most = max(1, TABLE_CELLS // actions)
    for part in log.parts:
        row = 0
        for block in part.read(list(dict.fromkeys(columns)), batch_rows=min(most, BATCH_ROWS)):
            for start in range(0, block.num_rows, most):
                batch = block.slice(start, most)
                yield batch, partial(part.locating, row)
                row += batch.num_rows


def _offered(bandit: "Bandit", batch: Any) -> dict[str, Any]:
    """Return what may be chosen in each row, as the arguments of ``decide``."""
    from spuir.logs.action_columns import check_known, offered_features
    from spuir.tables.arrow import arrow

    column, varying = batch["eligible"], bandit._model.varying
    if varying:
        labels = bandit.actions_.tolist()
        check_known(batch, labels)
        return {"action_features": offered_features(batch, varying, labels)}
    if column.null_count:
        if column.null_count == len(column):
            return {"eligible": None}
        row = column.is_null().to_pylist().index(True)
        rule, remedy = "other rows list what may be chosen", "list the labels there too"
        raise InputError("eligible", f"nothing at row {row}", rule, remedy)
    return {"eligible": column.to_pylist() if arrow().types.is_boolean(column.type.value_type) else column}


def _probabilities(bandit: "Bandit", batch: Any, table: Any) -> Any:
    """Return the probabilities of each row as lists: of the labels that it lists, or of all actions."""
    import numpy as np

    from spuir.tables.arrow import arrow

    pa = arrow()
    column = batch["eligible"] if "eligible" in batch.schema.names else None
    if column is None or column.null_count or pa.types.is_boolean(column.type.value_type):
        return pa.FixedSizeListArray.from_arrays(table.ravel(), len(bandit.actions_)).cast(pa.list_(pa.float64()))
    codes = bandit._model.labels.encode(column.flatten())
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    values = table[np.repeat(np.arange(len(table)), lengths), codes]
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), pa.array(values))


def _context(bandit: "Bandit", log: "Log", id_column: str | None) -> list[str]:
    """Return the names of the columns that the model reads; ``id_column`` is the name that the ids had."""
    from spuir.logs.columns import renaming

    names = bandit._model.names
    wanted = list(log.context) if names is None else list(names)
    missing = next((name for name in wanted if name not in log.schema.names), None)
    if missing is None:
        return wanted
    if missing == id_column:
        rule = "the model was trained with it as context, and a column is one or the other"
        remedy = f"train the model without it, {renaming(missing, None)}, or name another column of ids"
        raise InputError("--id-column", repr(missing), rule, remedy)
    near = nearest(missing, log.context)
    remedy = f"add it, or rename one, {renaming(near or '…', missing)}"
    raise InputError("table", f"no column {missing!r}", "the model was trained with it", remedy)


def _checked_ids(ids: list[Any], seen: set[str]) -> list[Any]:
    """Return the ids of a batch after refusing a missing one, and one that was in an earlier batch."""
    for row, one in enumerate(ids):
        if one is None or str(one) in seen:
            got = f"none at row {row}" if one is None else f"{one!r} again at row {row}"
            raise InputError("decision_id", got, "each row has its own id", "drop the row, or give it an id")
        seen.add(str(one))
    return ids
