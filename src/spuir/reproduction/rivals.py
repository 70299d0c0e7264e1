"""Where the default policy is compared, and with what: fifteen worlds, and rivals that are tuned on other seeds.

A rival chooses, in each world, the setting with the lowest regret over its tuning seeds. No reported number uses these.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from spuir.reproduction.base import Scope
from spuir.reproduction.experiments.figure3b import criteo_world
from spuir.reproduction.experiments.real import COUPONS, COVERTYPE, DIGITS, playable
from spuir.reproduction.method_comparison import REGRET
from spuir.reproduction.other_libraries import play_library
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import TUNING_SEEDS, Setting, highest
from spuir.reproduction.verdicts import Interval, estimate, last, mean_of, relative_gains

EPISODES, BATCH = 40, 500
AUTO, FLOORED = "auto, floor 0", "auto"
"""Labels of the default policy without and with its floor."""

SIMULATED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "synthetic": ("synthetic", {}),
    "heterogeneous": ("heterogeneous", {}),
    "heterogeneous-50": ("heterogeneous", {"n_actions": 50}),
    "exp": ("nonlinear", {"truth": "exp"}),
    "poly": ("nonlinear", {"truth": "poly"}),
    "rbf": ("nonlinear", {"truth": "rbf"}),
    "linear-0.1": ("linear", {"noise": 0.1}),
    "linear-1": ("linear", {"noise": 1.0}),
    "linear-3": ("linear", {"noise": 3.0}),
    "coupon": ("coupon", {}),
}
"""Name of a world → its environment and its parameters."""
CRITEO = ("criteo-recent", "criteo-all")
WORLDS = (*SIMULATED, *CRITEO, COUPONS, DIGITS, COVERTYPE)


def worlds(scope: Scope, quick: Sequence[str]) -> dict[str, Setup | str]:
    """Return the setup of each world or, where it cannot be played, the reason; a quick run has ``quick``."""
    made: dict[str, Setup | str] = {}
    for name in scope.axis(WORLDS, quick):
        if name in SIMULATED:
            environment, world = SIMULATED[name]
            made[name] = _setup(environment, world)
        elif name in CRITEO:
            made[name] = _setup(name, criteo_world(scope))
        else:
            made[name] = playable(scope, name, _setup)
    return made


def _setup(environment: str, world: Mapping[str, Any]) -> Setup:
    return Setup(environment=environment, episodes=EPISODES, batch_size=BATCH, world=world)


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A policy that chooses among settings.

    ``policy`` is one of ours or, with ``library``, the name of another library. ``tuning`` is the number of tuning
    seeds; ``seeds`` limits the reported ones where a run takes long.
    """

    policy: str
    settings: Sequence[Setting]
    library: bool = False
    tuning: int = 2
    seeds: int | None = None

    def runs(self, setup: Setup, seeds: Iterable[int], setting: Setting) -> list[Task]:
        """Return the runs of one setting, one per seed."""
        if not self.library:
            return setup.runs(seeds, self.policy, parameters=setting)
        given = {"library": self.policy, "parameters": dict(setting)}
        return [Task.of(play_library, **given, **setup.arguments(seed)) for seed in seeds]

    def _offered(self, scope: Scope) -> Sequence[Setting]:
        return scope.axis(self.settings, self.settings[:2])

    def _tuning(self, scope: Scope, setup: Setup) -> list[Task]:
        seeds = TUNING_SEEDS[: 1 if scope.quick else self.tuning]
        return [task for setting in self._offered(scope) for task in self.runs(setup, seeds, setting)]

    def chosen(self, scope: Scope, setup: Setup, known: Mapping[str, Result]) -> Setting | None:
        """Return the setting with the lowest mean regret over the tuning seeds; None while a run is missing."""
        return highest(self._offered(scope), self._tuning(scope, setup), known, REGRET, sign=-1)

    def reported(self, scope: Scope, setup: Setup, known: Mapping[str, Result]) -> list[Task]:
        """Return the runs of the chosen setting; none before it is chosen."""
        setting = self.chosen(scope, setup, known)
        return [] if setting is None else self.runs(setup, scope.seeds[: self.seeds], setting)

    def tasks(self, scope: Scope, setup: Setup, known: Mapping[str, Result]) -> list[Task]:
        """Return the tuning runs and, once these are known, the runs of the chosen setting."""
        return [*self._tuning(scope, setup), *self.reported(scope, setup, known)]


def _settings(**values: Sequence[Any]) -> list[Setting]:
    """Return every combination of the values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


_SCALED, _RAW = (
    {"ridge": (10.0, 1.0, 100.0, 1e3, 1e4), "scale": (True,)},
    {"ridge": (1.0, 0.1, 10.0), "scale": (False,)},
)
_COSINES: Mapping[str, Sequence[Any]] = {"features": ("fourier",), "n_features": (200,), "alpha": (0.1,)}
LINEAR = [
    setting
    for columns in (_SCALED, _RAW)
    for setting in _settings(alpha=(0.1, 0.0, 0.3, 1.0, 3.0), intercept=(True,), **columns)
]
FOURIER = [
    setting
    for raw, scale, ridges in (
        (False, False, (1.0, 0.1, 0.01)),
        (False, True, (1.0, 0.1, 0.01)),
        (True, True, (1.0, 0.1)),
    )
    for setting in _settings(ridge=ridges, raw=(raw,), scale=(scale,), intercept=(True,), **_COSINES)
]
SAMPLING = [
    setting
    for scaled, ridge in ((True, 10.0), (False, 1.0))
    for setting in _settings(scale=(0.1, 0.0, 0.03, 0.3), ridge=(ridge,), scale_contexts=(scaled,), intercept=(True,))
]
WABBIT = _settings(options=("--squarecb --gamma_scale 1000", "--bag 5"))
LINUCB = _settings(alpha=(0.1, 0.01, 0.3, 1.0), ridge=(10.0, 1.0, 100.0))

SUM_BASED: Mapping[str, Rival] = {
    "SBUCB": Rival(policy="sbucb", settings=LINEAR),
    "PUIR": Rival(policy="puir", settings=LINEAR),
    "Fourier SBUCB": Rival(policy="sbucb", settings=FOURIER),
}
"""The rivals that the claim is about: their states are sums, as that of the default policy."""
OTHERS: Mapping[str, Rival] = {
    "linear Thompson": Rival(policy="linear-thompson", settings=SAMPLING),
    "contextualbandits": Rival(policy="contextualbandits", settings=LINUCB, library=True, tuning=1, seeds=3),
    "Vowpal Wabbit": Rival(policy="vowpalwabbit", settings=WABBIT, library=True, tuning=1, seeds=3),
}


@dataclass(frozen=True, kw_only=True)
class WorldResult:
    """Expected rewards in one world: label → seed → reward. ``chosen`` are the rivals' settings, in words."""

    name: str
    actions: int
    columns: int
    oracle: Mapping[int, float]
    rewards: Mapping[str, Mapping[int, float]]
    chosen: Mapping[str, str]

    @property
    def best(self) -> str:
        """The sum-based rival with the highest mean on the reported seeds: looking back, which favours the rival."""
        return max((label for label in SUM_BASED if label in self.rewards), key=self.mean)

    def mean(self, label: str) -> float:
        """Return the mean over the seeds; NaN without any."""
        return mean_of(self.rewards.get(label, {}))

    def gain(self, rival: str, ours: str = AUTO) -> Interval:
        """Return what one label earns more than another, in per cent, with its 95 % interval over seeds."""
        shares = relative_gains(self.rewards.get(ours, {}), self.rewards.get(rival, {}))
        return estimate(100 * share for share in shares.values())


def expected(results: Sequence[Result], oracle: Mapping[int, float]) -> dict[int, float]:
    """Return the mean expected reward of each run: what the best actions earn, minus the regret."""
    return {seed: oracle[seed] - regret for seed, regret in last(results, REGRET).items() if seed in oracle}
