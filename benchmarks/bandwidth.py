"""How good ``bandwidth="auto"`` is: held-out reward and squared error against the best multiple in hindsight.

Run ``python -m benchmarks.bandwidth [repetitions]``. Real tables are read from the folder in the environment variable
SPUIR_DATA, or from ../shared/data beside the repository, and left out with a reason where they are absent.
For each set a first batch is learned (uniform actions, or the logged ones for coupons), per-action ridge fits
act greedily on rows held out, and every rule is compared with the best multiple of the median distance.
"""

import csv
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from spuir.base import streams
from spuir.base.records import Floats
from spuir.environments import make_environment
from spuir.features.bandwidth import MULTIPLES, median_distance
from spuir.features.canonical import Rows, canonical_rows
from spuir.features.fourier import Fourier

GRID = sorted(MULTIPLES)
FIXED = (0.5, 1.0, 2.8)
USER_COLUMNS = (
    "gender age maritalStatus has_children education occupation income "
    "Bar CoffeeHouse CarryAway RestaurantLessThan20 Restaurant20To50"
).split()


@dataclass(frozen=True)
class Trial:
    """A first batch (contexts, actions, rewards), test contexts, and a judge of predictions (n, M)."""

    contexts: Floats
    actions: Any
    rewards: Floats
    test: Floats
    judge: Callable[[Floats], tuple[float, float]]


Source = Callable[[int, Generator], Trial]


def known_rewards(table: Floats) -> Callable[[Floats], tuple[float, float]]:
    """Judge by the rewards (n, M) of all actions: greedy reward and mean squared error."""

    def judge(predicted: Floats) -> tuple[float, float]:
        greedy = predicted.argmax(axis=1)
        return float(table[np.arange(len(table)), greedy].mean()), float(np.mean((table - predicted) ** 2))

    return judge


def logged_rewards(actions: Any, rewards: Floats, shares: Floats) -> Callable[[Floats], tuple[float, float]]:
    """Judge by logged actions of known shares: self-normalised inverse propensities, error of the logged action."""

    def judge(predicted: Floats) -> tuple[float, float]:
        match = (predicted.argmax(axis=1) == actions) / shares[actions]
        error = np.mean((rewards - predicted[np.arange(len(actions)), actions]) ** 2)
        return float(match @ rewards / match.sum()), float(error)

    return judge


def simulated(name: str, **parameters: Any) -> Source:
    """Draw from an environment; the judge knows the expected rewards."""

    def draw(n: int, rng: Generator) -> Trial:
        environment = make_environment(name, seed=int(rng.integers(1000)), **parameters)
        rounds, later = environment.draw(n, rng), environment.draw(5000, rng)
        actions = rng.integers(environment.n_actions, size=n)
        rewards = environment.feedback(rounds, actions, rng).rewards
        return Trial(
            rounds.contexts, actions, rewards, later.contexts, known_rewards(environment.expected_rewards(later))
        )

    return draw


def classified(table: Floats, labels: Any) -> Source:
    """Give reward 1 where a uniformly chosen action hits the label; columns are standardised."""
    spread = table.std(axis=0)
    table = (table - table.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    hits = (labels[:, None] == np.unique(labels)).astype(float)

    def draw(n: int, rng: Generator) -> Trial:
        order = rng.permutation(len(table))
        first, held = order[:n], order[n : n + 20000]
        actions = rng.integers(hits.shape[1], size=n)
        return Trial(table[first], actions, hits[first, actions], table[held], known_rewards(hits[held]))

    return draw


def coupons(path: Path) -> Source:
    """Draw logged coupons: user columns one-hot (a missing value is a level), the coupon kind as action."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    columns = [np.array([line[name] for line in lines]) for name in USER_COLUMNS]
    table = np.hstack([(column[:, None] == np.unique(column)).astype(float) for column in columns])
    actions = np.unique([line["coupon"] for line in lines], return_inverse=True)[1]
    rewards = np.array([float(line["Y"]) for line in lines])
    shares = np.bincount(actions) / len(actions)

    def draw(n: int, rng: Generator) -> Trial:
        order = rng.permutation(len(table))
        first, held = order[:n], order[n:]
        judge = logged_rewards(actions[held], rewards[held], shares)
        return Trial(table[first], actions[first], rewards[first], table[held], judge)

    return draw


def sources() -> Iterator[tuple[str, Source, tuple[int, ...]]]:
    """Yield the sets with the sizes of their first batches, and say which are left out."""
    yield "synthetic", simulated("synthetic"), (1400,)
    yield "heterogeneous", simulated("heterogeneous"), (1400,)
    yield "nonlinear rbf", simulated("nonlinear", truth="rbf"), (1400,)
    yield "nonlinear poly", simulated("nonlinear", truth="poly"), (1400,)
    given = os.environ.get("SPUIR_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    covertype = folder / "covertype" / "covertype_100k.csv.gz"
    if covertype.is_file():
        table = np.loadtxt(covertype, delimiter=",", skiprows=1)
        yield "covertype", classified(table[:, :-1], table[:, -1]), (1400, 5000)
    else:
        print("covertype is left out: the file is not in SPUIR_DATA")
    coupon = folder / "uci_coupon" / "in-vehicle-coupon-recommendation.csv"
    if coupon.is_file():
        yield "coupon", coupons(coupon), (1400, 5000)
    else:
        print("coupon is left out: the file is not in SPUIR_DATA")
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        print("digits is left out: scikit-learn is not installed")
    else:
        digits: Any = load_digits()
        yield "digits", classified(digits.data, digits.target), (700, 1400)


def held_out(columns: Floats, rows: Rows, kept: Any, n_actions: int) -> float:
    """Return the squared error on the rows not ``kept`` of fits on those that are."""
    theta = fits(columns[kept], rows.actions[kept], rows.rewards[kept], n_actions)
    predicted = np.einsum("ij,ij->i", columns[~kept], theta[rows.actions[~kept]])
    return float(np.sum((rows.rewards[~kept] - predicted) ** 2))


def fits(columns: Floats, actions: Any, rewards: Floats, n_actions: int) -> Floats:
    """Return per-action ridge coefficients (M, width), λ = 1."""
    theta = np.zeros((n_actions, columns.shape[1]))
    for action in np.unique(actions):
        own = columns[actions == action]
        theta[action] = np.linalg.solve(own.T @ own + np.eye(own.shape[1]), own.T @ rewards[actions == action])
    return theta


def measure(source: Source, n: int, rng: Generator) -> tuple[Floats, Floats, dict[str, int]]:
    """Return reward and error for each multiple in GRID, and what each rule picks."""
    trial = source(n, rng)
    n_actions = int(trial.actions.max()) + 1
    rows = canonical_rows(trial.contexts, trial.actions, trial.rewards, None)
    median = median_distance(rows.contexts, rows.weights)
    place = rng.permutation(len(rows.rewards)) / len(rows.rewards)
    seed = int(rng.integers(2**31))
    judged: list[tuple[float, float]] = []
    scores: dict[str, list[float]] = {"five folds": [], "split 70/30": []}
    for multiple in GRID:
        features = Fourier(bandwidth=multiple * median)
        state = features.init(trial.contexts.shape[1], streams.generator(seed, "features"))
        theta = fits(features.apply(state, trial.contexts), trial.actions, trial.rewards, n_actions)
        judged.append(trial.judge(features.apply(state, trial.test) @ theta.T))
        columns = features.apply(state, rows.contexts)
        folds = [(place * 5).astype(int) != fold for fold in range(5)]
        scores["five folds"].append(sum(held_out(columns, rows, kept, n_actions) for kept in folds))
        scores["split 70/30"].append(held_out(columns, rows, place < 0.7, n_actions))
    automatic = Fourier()
    state = automatic.init(trial.contexts.shape[1], streams.generator(seed, "features"))
    fixed: Any = automatic.fix(state, trial.contexts, trial.actions, trial.rewards, None)
    picks = {"auto": int(np.argmin([abs(multiple * median - (fixed.bandwidth or 0.0)) for multiple in GRID]))}
    picks |= {rule: int(np.argmin(errors)) for rule, errors in scores.items()}
    rewards, errors = np.array(judged).T
    return rewards, errors, picks | {f"k = {k}": GRID.index(k) for k in FIXED}


def main() -> None:
    """Print one Markdown table: reward and error of each rule over those of the best multiple of each trial."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rules = ["auto", "five folds", "split 70/30", *(f"k = {k}" for k in FIXED)]
    print(f"Each cell: reward / best reward, and error / least error; {repetitions} repetitions.\n")
    print("| set | rows | best k | auto picks | " + " | ".join(rules) + " |")
    print("|---" * (4 + len(rules)) + "|")
    for name, source, sizes in sources():
        for n in sizes:
            trials = [measure(source, n, streams.generator(i, "bandwidth", name, n)) for i in range(repetitions)]
            best = np.mean([rewards.max() for rewards, _, _ in trials])
            cells = [
                f"{np.mean([r[p[rule]] for r, _, p in trials]) / best:.3f}, "
                f"{np.mean([e[p[rule]] / e.min() for _, e, p in trials]):.3f}"
                for rule in rules
            ]
            wanted = GRID[int(np.argmax(np.mean([r for r, _, _ in trials], axis=0)))]
            picked = ", ".join(f"{k:g}" for k in sorted({GRID[p["auto"]] for _, _, p in trials}))
            print(f"| {name} | {n:,} | {wanted:g} | {picked} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
