"""What only matters while a policy learns: α, the floor and the batch size, by replay or by simulation.

Both let every setting learn from scratch, with the same random numbers, for several seeds. A floor costs reward now
and buys what the reward does not show: logs that can be evaluated, and tuned on, later. Tuning therefore chooses the
largest floor whose cost is within a given share of the best reward.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from spuir.base.parameters import parameter_names
from spuir.errors import InputError
from spuir.evaluation.candidates import Candidate, Numbers, Results
from spuir.evaluation.encoded_rows import EncodedRows
from spuir.evaluation.replay import least_propensity, replay
from spuir.evaluation.simulation import FittedWorld, fit_world, simulate
from spuir.policies import Policy
from spuir.training.engines import WorkEngine

ALPHAS = (0.0, 0.05, 0.2, 0.5, 1.0)
SHARES_OF_CHANCE = (0.0, 0.02, 0.1)
"""Floors, as the share of decisions that is left to chance: a floor is such a share over the number of actions."""
SEEDS, MORE_SEEDS = range(2), range(2, 8)
"""Seeds of the first round, and further ones for the best settings of each floor and batch size."""
BEST = 2
"""Settings of each floor and batch size that run with further seeds."""
FLOOR_COST = 0.01
"""Share of the best reward that a floor may cost."""
DECISIONS, EPISODES = 20_000, 40
"""Most decisions and episodes of a simulation."""
LEAST_EPISODES, OPERATIONS = 5, 2e9
"""Episodes of a simulation whatever it costs, and the operations for which it may have more: M·p³ per episode."""
REPLAYED_ROWS, REPLAYED_EPISODES = 20_000, 20
"""Accepted rows and episodes from which on a replay is preferred to a simulation."""
REPLAY, SIMULATION = "replay", "simulation"


class Exploring(NamedTuple):
    """A setting of what matters while learning; ``alpha`` is None for policies that have none."""

    alpha: float | None
    floor: float
    batch_size: int

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the policy."""
        return {"floor": self.floor} | ({} if self.alpha is None else {"alpha": self.alpha})


class Explored(NamedTuple):
    """A setting, its mean reward per decision while learning, and how far it is behind the best, over some seeds."""

    setting: Exploring
    value: float
    behind: float
    standard_error: float
    seeds: int


class Rehearsals:
    """Settings of one or more candidates, each learning from scratch along the same rows."""

    def __init__(self, rows: EncodedRows, how: str, batch_sizes: Sequence[int], seed: int) -> None:
        self.rows, self.batch_sizes, self._seed = rows, tuple(batch_sizes), seed
        self.how = how if how in (REPLAY, SIMULATION) else self._preferred()
        if self.how == SIMULATION and self._masked:
            rule = "a simulation allows every action everywhere, and this log does not"
            raise InputError("learning", SIMULATION, rule, "use learning='replay'")
        if self.how == REPLAY and least_propensity(rows) * len(rows) < 2 * max(self.batch_sizes):
            got = f"batches of {max(self.batch_sizes):,} rows"
            rule = f"about {least_propensity(rows) * len(rows):,.0f} of the {len(rows):,} rows would be accepted"
            raise InputError("replay", got, rule, "use smaller batches, a longer log, or a simulation")

    @property
    def _masked(self) -> bool:
        """Whether some action is not eligible somewhere."""
        return self.rows.eligible is not None and not self.rows.eligible.all()

    def _preferred(self) -> str:
        accepted = least_propensity(self.rows) * len(self.rows)
        enough = accepted >= max(REPLAYED_ROWS, REPLAYED_EPISODES * max(self.batch_sizes))
        return REPLAY if self._masked or enough else SIMULATION

    def _decisions(self, policy: Policy) -> int:
        """Return the decisions of a simulation, about the same for all batch sizes; fewer where updates cost much."""
        cost = len(self.rows.labels) * float(policy.width(self.rows.contexts.shape[1])) ** 3
        episodes = max(LEAST_EPISODES, min(EPISODES, int(OPERATIONS / cost)))
        largest = max(self.batch_sizes)
        return max(LEAST_EPISODES * largest, min(DECISIONS, episodes * largest))

    @cached_property
    def _world(self) -> FittedWorld:
        return fit_world(self.rows, self._seed)

    def settings(self, candidate: Candidate) -> list[Exploring]:
        """Return the settings to compare for one candidate."""
        has_alpha = "alpha" in parameter_names(candidate.make())
        alphas: tuple[float | None, ...] = ALPHAS if has_alpha else (None,)
        floors = [share / len(self.rows.labels) for share in SHARES_OF_CHANCE]
        return [Exploring(alpha, floor, size) for size in self.batch_sizes for floor in floors for alpha in alphas]

    def _learn(self, task: tuple[str, Candidate, Exploring, int]) -> Numbers:
        """Return the mean reward of one setting and seed."""
        _, candidate, setting, seed = task
        policy, size = candidate.make(**setting.parameters()), setting.batch_size
        if self.how == REPLAY:
            return {"value": replay(self.rows, policy, batch_size=size, seed=seed).value}
        episodes = max(1, self._decisions(policy) // size - 1)
        history = simulate(self._world, policy, episodes=episodes, batch_size=size, seed=seed)
        # A run does not count episode 0, which is decided at random. It counts here, as it is longer in larger batches.
        return {"value": (self._world.random_reward + float(history.rewards.sum())) / (episodes + 1)}

    def tasks(self, candidate: Candidate, settings: Sequence[Exploring], seeds: range) -> list[Any]:
        """Return the runs of some settings, seed by seed."""
        return [(self.how, candidate, setting, self._seed + seed) for setting in settings for seed in seeds]

    def compare(
        self, candidate: Candidate, results: Results, engine: WorkEngine, done: Callable[[int], object]
    ) -> list[Explored]:
        """Return all settings of a candidate: those with all seeds first, best first."""
        if self.how == SIMULATION:
            _ = self._world  # fitted once, before threads ask for it
        settings = self.settings(candidate)
        first = self._values(candidate, settings, SEEDS, results, engine, done)
        order = np.argsort(-first.mean(axis=1), kind="stable").tolist()
        kept = best_of_each(settings, order)
        more = self._values(candidate, [settings[at] for at in kept], MORE_SEEDS, results, engine, done)
        rest = [at for at in order if at not in kept]
        return [
            *ranked([settings[at] for at in kept], np.hstack([first[kept], more])),
            *(ranked([settings[at] for at in rest], first[rest], first[order[0]]) if rest else []),
        ]

    def _values(self, candidate: Candidate, settings: Sequence[Exploring], seeds: range, *where: Any) -> Any:
        results, engine, done = where
        found = results.fill(engine, self._learn, self.tasks(candidate, settings, seeds), done)
        return np.array([one["value"] for one in found]).reshape(len(settings), len(seeds))

    def count(self, candidate: Candidate) -> int:
        """Return how many runs a comparison takes."""
        settings = self.settings(candidate)
        kept = best_of_each(settings, range(len(settings)))
        return len(settings) * len(SEEDS) + len(kept) * len(MORE_SEEDS)


def best_of_each(settings: Sequence[Exploring], order: Sequence[int]) -> list[int]:
    """Return the places of the best settings of each floor and batch size, given the order of all, best first."""
    groups: dict[tuple[float, int], list[int]] = {}
    for at in order:
        groups.setdefault((settings[at].floor, settings[at].batch_size), []).append(at)
    return [at for group in groups.values() for at in group[:BEST]]


def ranked(settings: Sequence[Exploring], values: Any, best: Any = None) -> list[Explored]:
    """Return settings with their values (k, seeds), best first, and how far each is behind the best, paired by seed."""
    means = values.mean(axis=1)
    top = values[int(means.argmax())] if best is None else best
    gaps = top - values
    errors = gaps.std(axis=1, ddof=1) / np.sqrt(gaps.shape[1])
    made = [
        Explored(setting, float(mean), float(gap), float(error), values.shape[1])
        for setting, mean, gap, error in zip(settings, means, gaps.mean(axis=1), errors, strict=True)
    ]
    return sorted(made, key=lambda one: -one.value)


def choose(explored: Sequence[Explored], floor_cost: float = FLOOR_COST) -> Explored:
    """Return the best setting of the largest floor that costs at most this share of the best reward."""
    finished = finished_settings(explored)
    most = floor_cost * abs(finished[0].value)
    return max((one for one in finished if one.behind <= most), key=lambda one: (one.setting.floor, one.value))


def finished_settings(explored: Sequence[Explored]) -> list[Explored]:
    """Return the settings that ran with all seeds, best first."""
    seeds = max(one.seeds for one in explored)
    return [one for one in explored if one.seeds == seeds]


def deployed(candidate: Candidate, setting: Exploring) -> Any:
    """Return the policy of a candidate as it will decide: with its α and its floor."""
    return replace(candidate.make(), **setting.parameters())
