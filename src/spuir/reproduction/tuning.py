"""The same search for every method on every set: 40 settings, chosen by regret on seeds that no result uses.

Every setting is a draw from the method's own parameters (all of them have a bonus or a rate, and λ; some have γ, η or
c). The first 24 are drawn from wide ranges, the values of the authors' code among them. Then the best four are varied
four times each, which may leave the ranges, so that no best setting is held at an edge. Two seeds rank the 40
settings, eight the best six of them, and 24 the best three: a setting that fails on one seed in twenty must not win by
luck. Regret leaves out the noise of the rewards. A smaller search, of 20 settings, serves where there are many sets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator

from spuir.base.streams import generator
from spuir.reproduction.base import Scope
from spuir.reproduction.policy_runs import AUTHORS, REGRET, Setup, policy_of
from spuir.reproduction.tasks import Result, Task

Setting = Mapping[str, Any]
"""Parameters that differ from the authors' code."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long a search is.

    ``drawn`` settings are drawn, and each of the best ``parents`` is varied ``varied`` times. ``rounds`` are numbers of
    settings and of seeds: so many settings are kept for a round with so many seeds, the first round having all.
    """

    drawn: int
    parents: int
    varied: int
    rounds: tuple[tuple[int, int], ...]

    @property
    def settings(self) -> int:
        """How many settings are tried."""
        return self.drawn + self.parents * self.varied


FULL = Budget(drawn=24, parents=4, varied=4, rounds=((40, 2), (6, 8), (3, 24)))
SMALL = Budget(drawn=12, parents=2, varied=4, rounds=((20, 1), (4, 4), (2, 12)))


@dataclass(frozen=True)
class Amount:
    """A positive number, drawn on a logarithmic scale; with ``zero``, one draw in eight is 0."""

    low: float
    high: float
    zero: bool = False
    whole: bool = False

    def draw(self, rng: Generator) -> float:
        """Return a value within the range."""
        value = float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        return 0.0 if self.zero and rng.random() < 1 / 8 else self._rounded(value)

    def vary(self, value: float, rng: Generator) -> float:
        """Return a value near another one, by a factor of about two, beyond the range if need be."""
        if not value:
            return 0.0 if rng.random() < 0.5 else self._rounded(self.low * float(np.exp(rng.normal())))
        return self._rounded(value * float(np.exp(rng.normal(0.0, 0.7))))

    def _rounded(self, value: float) -> float:
        return max(1, round(value)) if self.whole else float(f"{value:.3g}")


@dataclass(frozen=True)
class Share:
    """A number from 0 to 1, drawn evenly, or on a logarithmic scale from ``low`` to 1."""

    low: float = 0.0

    def draw(self, rng: Generator) -> float:
        """Return a share."""
        return float(f"{np.exp(rng.uniform(np.log(self.low), 0.0)) if self.low else rng.random():.3g}")

    def vary(self, value: float, rng: Generator) -> float:
        """Return a share near another one."""
        near = value * np.exp(rng.normal(0.0, 0.7)) if self.low else value + rng.normal(0.0, 0.15)
        return float(f"{min(1.0, max(0.0, near)):.3g}")


@dataclass(frozen=True)
class Option:
    """One of several values."""

    values: tuple[Any, ...]

    def draw(self, rng: Generator) -> Any:
        """Return one of the values."""
        return self.values[int(rng.integers(len(self.values)))]

    def vary(self, value: Any, rng: Generator) -> Any:
        """Return the value or, in one case of four, another draw."""
        return self.draw(rng) if rng.random() < 0.25 else value


Range = Amount | Share | Option
_BONUS, _FLAG = Amount(0.003, 3.0, zero=True), Option((True, False))
RANGES: Mapping[str, Range] = {
    "alpha": _BONUS,
    "ridge": Amount(0.01, 1000.0),
    "imputation_rate": Share(0.003),
    "discount": Share(),
    "sketch_size": Amount(50, 400, whole=True),
    "rate": Amount(1e-4, 1.0),
    "scale": _BONUS,
    "iterations": Amount(4, 40, whole=True),
}
"""The ranges of parameters, by their names."""


@dataclass(frozen=True, kw_only=True)
class SearchedMethod:
    """A method of a comparison: a policy at the settings of the authors' code, and the parameters to search.

    ``parameters`` change the authors' preset for every setting: where their code does not do what the method's own
    paper says, they restore the method. ``searched`` change it for the search alone. ``ranges`` add to the usual ones.
    """

    policy: str
    tuned: tuple[str, ...]
    parameters: Setting = field(default_factory=dict[str, Any])
    searched: Setting = field(default_factory=dict[str, Any])
    preset: str | None = AUTHORS
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])

    def tasks(self, seeds: Iterable[int], setup: Setup, setting: Setting, tuning: bool = False) -> list[Task]:
        """Return the runs of one setting; ``{}`` is the setting of the authors' code."""
        given = {**self.parameters, **setting}
        return setup.runs(seeds, self.policy, preset=self.preset, parameters=given, tuning=tuning)

    def value(self, name: str) -> Any:
        """Return a parameter's value in the authors' code; None where a rule sets it, such as a rate by the horizon."""
        value = getattr(policy_of(self.policy, self.preset, self.parameters), name)
        return None if isinstance(value, str) and not isinstance(self.range(name), Option) else value

    def range(self, name: str) -> Range:
        """Return the range of a parameter."""
        return {**RANGES, **self.ranges}[name]


_UCB, _IMPUTED = ("alpha", "ridge"), ("alpha", "ridge", "imputation_rate", "discount")
_BY_STEPS = {"accumulate": "steps"}
_ALL_ROWS = {"memory": "all", "horizon": None}
METHODS: Mapping[str, SearchedMethod] = {
    "sbucb": SearchedMethod(policy="sbucb", tuned=_UCB),
    "puir": SearchedMethod(policy="puir", tuned=_IMPUTED),
    "spuir": SearchedMethod(policy="spuir", tuned=(*_IMPUTED, "sketch_size")),
    "puir-rs": SearchedMethod(policy="puir-rs", tuned=("alpha", "ridge", "discount")),
    "spuir-rs": SearchedMethod(policy="spuir-rs", tuned=("alpha", "ridge", "discount", "sketch_size")),
    "bexp3": SearchedMethod(policy="bexp3", tuned=("rate", "ridge"), parameters=_BY_STEPS),
    "bexp3-ipw": SearchedMethod(policy="bexp3-ipw", tuned=("rate", "ridge"), parameters=_BY_STEPS),
    "blts-b": SearchedMethod(policy="blts-b", tuned=("scale", "ridge"), searched={"propensity_draws": None}),
    "dfm-s": SearchedMethod(
        policy="dfm-s", tuned=("ridge", "iterations"), parameters=_ALL_ROWS, searched={"memory": "laplace"}
    ),
}
"""The methods of the paper's table. BEXP3 sums over steps, as its paper says. DFM-S fits all rows, and sees all
conversions as every other method does; its search keeps a prior in place of earlier rows, which is faster. BLTS-B is
searched with exact propensities, which are faster than drawn ones."""


def own_method(path: str) -> SearchedMethod:
    """Return the user's policy "module:name" as a method: its numbers that have a range are searched.

    What belongs to imputation or to a sketch is searched only if the policy has them.
    """
    policy = policy_of(path, None, {})
    needed = {"imputation_rate": "imputing", "discount": "imputing", "sketch_size": "sketched"}
    values = {name: getattr(policy, name, None) for name in RANGES if needed.get(name) in (None, *policy.traits)}
    numbers = [
        name for name, value in values.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    return SearchedMethod(policy=path, tuned=tuple(numbers), preset=None)


def drawn(method: SearchedMethod, setup: Setup, count: int) -> list[Setting]:
    """Return the first settings: the authors' own, then draws from the ranges, the same on every set."""
    rng = generator(0, "tuning", method.policy)
    settings: list[Setting] = [{}]
    for _ in range(count - 1):
        values = {name: method.range(name).draw(rng) for name in method.tuned}
        settings.append({**method.searched, **_sketching(values, setup)})
    return settings


def varied(method: SearchedMethod, setup: Setup, best: Sequence[Setting], times: int) -> list[Setting]:
    """Return settings near the best ones; what such a setting leaves to the authors' code is read from its policy."""
    rng = generator(0, "tuning", method.policy, "near")
    made: list[Setting] = []
    for setting in (one for one in best for _ in range(times)):
        values = {name: setting.get(name, method.value(name)) for name in method.tuned}
        near = {
            name: method.range(name).draw(rng) if value is None else method.range(name).vary(value, rng)
            for name, value in values.items()
        }
        made.append({**method.searched, **_sketching(near, setup)})
    return made


def _sketching(values: Setting, setup: Setup) -> Setting:
    """Return a setting whose sketch, if it has one, has at most half as many rows as the batch."""
    most = setup.batch_size // 2
    return {name: min(value, most) if name == "sketch_size" else value for name, value in values.items()}


class Search:
    """The search of one method on one set: the tasks it needs next, and the setting it has chosen."""

    def __init__(
        self, scope: Scope, method: SearchedMethod, setup: Setup, known: Mapping[str, Result], budget: Budget = FULL
    ) -> None:
        self._method, self._setup, self._known = method, setup, known
        self.tasks: list[Task] = []
        self.chosen = self._search(scope.tuning_seeds, budget, scope.quick)

    def _search(self, seeds: Sequence[int], budget: Budget, quick: bool) -> Setting | None:
        if not self._method.tuned:
            return {}
        settings = drawn(self._method, self._setup, budget.drawn)
        if quick:
            return next(iter(self._best(settings[:3], seeds[:1], 1)), None)
        parents = self._best(settings, seeds[: budget.rounds[0][1]], budget.parents)
        if not parents:
            return None
        settings += varied(self._method, self._setup, parents, budget.varied)
        kept = [*(count for count, _ in budget.rounds[1:]), 1]
        for (_, count), survivors in zip(budget.rounds, kept, strict=True):
            settings = self._best(settings, seeds[:count], survivors)
        return next(iter(settings), None)

    def _best(self, settings: Sequence[Setting], seeds: Sequence[int], count: int) -> list[Setting]:
        """Return the settings with the lowest mean regret, the first of equals; none while runs are missing."""
        means: list[float] = []  # none for no settings, as in a round that waits for the one before
        for setting in settings:
            tasks = self._method.tasks(seeds, self._setup, setting, tuning=True)
            self.tasks += tasks
            values = [self._known[task.key].rows[-1][REGRET] for task in tasks if task.key in self._known]
            means.append(float(np.mean(values)) if len(values) == len(tasks) else np.nan)
        if np.isnan(means).any():
            return []
        return [settings[place] for place in np.argsort(means, kind="stable")[:count]]


def words(setting: Setting | None) -> str:
    """Return a setting as a table shows it."""
    if setting is None:
        return "not chosen yet"
    return ", ".join(f"{name} = {value}" for name, value in setting.items()) or "that of the code"
