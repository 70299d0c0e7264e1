"""How coefficients moved during a training: a bounded record, kept in a file next to the model."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from spuir.bandit import Bandit
from spuir.tables.coefficients import Coefficient

if TYPE_CHECKING:
    from spuir.training.fold import EpisodeSummary

EPISODES = 20
"""Coefficients are recorded after at most about this many episodes, evenly spread, the last among them."""
COEFFICIENTS, OPERATIONS = 2_000, 2e8
"""A policy with more coefficients, or whose standard errors take more operations, is not recorded."""

Recorded = tuple[tuple[float, float], ...]
"""Each coefficient with its standard error, in the order of ``Bandit.coefficient_table``."""


def record(bandit: Bandit, episode: int, episodes: int) -> Recorded | None:
    """Return the coefficients after an episode (of ``episodes`` in all); None where they are not recorded."""
    step = -(-episodes // EPISODES)
    policy = bandit.policy_
    if (episodes - 1 - episode) % step or "ridge" not in policy.traits or not bandit.n_episodes_:
        return None
    state, ridge = bandit.state_, cast("Any", policy)
    features = len(ridge.feature_names(state, [""] * state.dim))
    costly = state.n_actions * policy.width(state.dim) ** 3 > OPERATIONS
    if costly or state.n_actions * features > COEFFICIENTS or not policy.fixed(state):
        return None
    return tuple((line.coefficient, line.standard_error) for line in bandit.coefficient_table())


def move_rows(bandit: Bandit, summaries: "Sequence[EpisodeSummary]") -> Iterator[dict[str, Any]]:
    """Yield one row per recorded episode and coefficient; the columns of a kernel, which have no meaning, are left out.

    Parameters
    ----------
    bandit
        The trained bandit, which has the names of actions and features.
    summaries
        The summaries of the episodes, some of them with recorded coefficients.
    """
    recorded = [summary for summary in summaries if summary.coefficients]
    if not recorded:
        return
    policy: Any = bandit.policy_
    inputs = bandit._model.input_names
    sources = set(policy.source_names(bandit.state_, inputs))
    names: list[Coefficient] = bandit.coefficient_table()
    for summary in recorded:
        for name, (value, error) in zip(names, summary.coefficients or (), strict=True):
            if name.feature in sources:
                place = {"episode": summary.episode, "key": summary.key, "action": name.action, "feature": name.feature}
                yield {**place, "coefficient": value, "standard_error": error}


def moves_file(model: Path) -> Path:
    """Return where the record of a model is kept."""
    stem = model.with_suffix("") if model.suffix else model
    return stem.with_name(stem.name + ".coefficients.csv")


def read_moves(model: Path) -> list[dict[str, Any]]:
    """Return how far each coefficient moved from the middle of a training to its end, the largest move first.

    ``move`` is in standard errors of the estimate in the middle. If nothing changes in the world, it is below 2 in
    more than 95 % of all cases. An empty list means that nothing was recorded.
    """
    path = moves_file(model)
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    episodes = sorted({int(line["episode"]) for line in lines})
    if len(episodes) < 2:
        return []
    middle, last = episodes[(len(episodes) - 1) // 2], episodes[-1]
    at = {(int(line["episode"]), line["action"], line["feature"]): line for line in lines}
    moves = list[dict[str, Any]]()
    for (episode, action, feature), end in at.items():
        if episode == last and (start := at.get((middle, action, feature))):
            before, after = float(start["coefficient"]), float(end["coefficient"])
            error = float(start["standard_error"])
            move = abs(after - before) / error if error > 0 else np.nan
            moves.append({"action": action, "feature": feature, "from": before, "to": after, "move": move})
    return sorted(moves, key=lambda row: -np.nan_to_num(row["move"], nan=-1.0))
