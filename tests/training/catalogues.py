"""Logs of actions with features, for the tests of training and evaluation."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import spuir
from spuir.base.streams import generator
from tests.training.logs import write_files

DIM, BATCH, ROWS, OFFERED = 3, 300, 1_200, 3
LABELS = [f"n{number}" for number in range(12)]


def _items() -> dict[str, Any]:
    rng = generator(0, "tests", "catalogue")
    kinds = ["news", "sport"] * (len(LABELS) // 2)
    return {"action": LABELS, "size": rng.standard_normal(len(LABELS)).tolist(), "kind": kinds}


ITEMS = _items()
"""The catalogue: a number and a text per label."""


def make_log(rows: int = ROWS, seed: int = 0, *, varying: bool = False) -> pa.Table:
    """Return decisions among three of the actions, each as likely; rewards follow features, actions and prices."""
    rng = generator(seed, "tests", "catalogue", "log")
    contexts = rng.standard_normal((rows, DIM))
    offered = np.argsort(rng.random((rows, len(LABELS))), axis=1)[:, :OFFERED]
    place = rng.integers(OFFERED, size=rows)
    codes = offered[np.arange(rows), place]
    prices = rng.standard_normal((rows, OFFERED))
    sizes, sport = np.array(ITEMS["size"])[codes], np.array(ITEMS["kind"])[codes] == "sport"
    own = rng.standard_normal(len(LABELS))[codes]
    score = contexts[:, 0] * sizes + 0.5 * sport * contexts[:, 1] + 0.3 * own
    score -= prices[np.arange(rows), place] if varying else 0.0
    labels = np.array(LABELS)
    table = {
        "action": labels[codes],
        "reward": score + 0.5 * rng.standard_normal(rows),
        "propensity": np.full(rows, 1 / OFFERED),
        "eligible": [labels[one].tolist() for one in offered],
        **({"action.price": prices.tolist()} if varying else {}),
        **{f"x{at}": contexts[:, at] for at in range(DIM)},
    }
    return pa.table(table)


def frame() -> pd.DataFrame:
    """Return the catalogue with the labels as its index."""
    return pd.DataFrame(ITEMS).set_index("action")


def executed_prices(table: pa.Table) -> Any:
    """Return the price of the executed action (n,)."""
    rows = table.select(["action", "eligible", "action.price"]).to_pylist()
    return np.array([row["action.price"][row["eligible"].index(row["action"])] for row in rows])


def one_by_one(table: pa.Table, size: int = BATCH, **parameters: Any) -> spuir.Bandit:
    """Return what ``partial_fit`` makes of the episodes, in memory."""
    contexts = np.column_stack([table[f"x{at}"].to_numpy() for at in range(DIM)])
    actions, rewards = np.array(table["action"].to_pylist()), table["reward"].to_numpy()
    prices = executed_prices(table) if "action.price" in table.column_names else None
    made = spuir.Bandit("hierarchical", frame(), random_state=0, **parameters)

    def features(rows: Any) -> dict[str, Any]:
        return {} if prices is None else {"action_features": {"price": prices[rows]}}

    made.fix(contexts, **features(slice(None)))  # as train does with all rows of so short a log
    for start in range(0, len(rewards), size):
        rows = slice(start, start + size)
        made.partial_fit(contexts[rows], actions[rows], rewards[rows], **features(rows))
    return made


def write_parts(folder: Path, table: pa.Table) -> Path:
    """Write a log as files and row groups that have nothing to do with the episodes."""
    first = table.num_rows // 3
    return write_files(folder, table, [first, 7, table.num_rows - first - 7], group=111)
