"""Logs for the tests of training: small, random, and with everything that a log may hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from spuir import Bandit
from spuir.base.streams import generator
from spuir.policies import Policy
from spuir.training import policy_for_logs

DIM, ACTIONS = 4, 3


def make_table(rows: int, seed: int = 0, *, labels: tuple[Any, ...] = (0, 1, 2), **columns: Any) -> pa.Table:
    """Return decisions with contexts x0…x3, an action, a reward that depends on both, and further columns."""
    rng = generator(seed, "tests", "training")
    contexts = rng.standard_normal((rows, DIM))
    codes = rng.integers(len(labels), size=rows)
    rewards = np.tanh(contexts[:, 0]) * (codes == 1) + 0.3 * rng.standard_normal(rows)
    named = {f"x{place}": contexts[:, place] for place in range(DIM)}
    actions = [labels[code] for code in codes]
    return pa.table({"action": actions, "reward": rewards, **named, **columns})


def write_files(folder: Path, table: pa.Table, sizes: list[int], group: int) -> Path:
    """Write the table as Parquet files of these sizes, with row groups of ``group`` rows."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for number, size in enumerate(sizes):
        parquet.write_table(table.slice(start, size), folder / f"part-{number:02d}.parquet", row_group_size=group)
        start += size
    assert start == table.num_rows
    return folder


def rows_of(table: pa.Table, chosen: Any) -> tuple[Any, Any, Any]:
    """Return contexts, actions and rewards of the chosen rows."""
    contexts = np.column_stack([table[f"x{place}"].to_numpy() for place in range(DIM)])
    return contexts[chosen], np.array(table["action"].to_pylist())[chosen], table["reward"].to_numpy()[chosen]


def one_by_one(policy: Policy | str, table: pa.Table, episodes: list[Any], seed: int = 0, **columns: Any) -> Bandit:
    """Return what ``partial_fit`` makes of the episodes, each given by its rows.

    ``columns`` are further arguments: a column of the table by name, or an array.
    """
    labels = sorted(set(table["action"].to_pylist()))
    made = Bandit(policy_for_logs(policy) if isinstance(policy, str) else policy, labels, seed)
    weights = table[columns["sample_weight"]].to_numpy() if "sample_weight" in columns else None
    made.fix(rows_of(table, slice(None))[0], weights)  # as train does with all rows of so short a log
    for chosen in episodes:
        further = {
            argument: (table[one].to_numpy() if isinstance(one, str) else one)[chosen]
            for argument, one in columns.items()
        }
        made.partial_fit(*rows_of(table, chosen), **further)
    return made


def gap(one: Bandit, two: Bandit) -> float:
    """Return the largest difference of what two bandits say of the same contexts, relative to its size."""
    rows = generator(7, "tests", "training", "probe").standard_normal((20, DIM))
    raw = {f"x{place}": rows[:, place] for place in range(DIM)}
    tables = [made.decision_function(raw if made.encoder is not None else rows) for made in (one, two)]
    return float(np.abs(tables[0] - tables[1]).max() / max(np.abs(tables[1]).max(), 1e-300))
