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

EPISODES, BATCH = 40, 500

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


RIDGES = (1.0, 0.1, 10.0, 100.0)
LINEAR = _settings(alpha=(0.1, 0.0, 0.03, 0.3, 1.0), ridge=RIDGES, scale=(True, False), intercept=(True,))
_COSINES = {"features": ("fourier",), "n_features": (200,), "intercept": (True,)}
_FORMS = ((False, False), (True, True))
FOURIER = [
    {**setting, "raw": raw, "scale": scale}
    for setting in _settings(alpha=(0.1, 0.3), ridge=(1.0, 0.1), **_COSINES)
    for raw, scale in _FORMS
]
SAMPLING = _settings(scale=(0.1, 0.0, 0.03, 0.3), ridge=(1.0, 10.0), scale_contexts=(True, False), intercept=(True,))
WABBIT = [{"options": text} for text in ("--squarecb --gamma_scale 1000", "--squarecb --gamma_scale 100", "--bag 5")]
LINUCB = _settings(alpha=(0.1, 0.0, 0.3, 1.0), ridge=(1.0, 10.0, 100.0))

SUM_BASED: Mapping[str, Rival] = {
    "SBUCB": Rival(policy="sbucb", settings=LINEAR),
    "PUIR": Rival(policy="puir", settings=LINEAR),
    "Fourier SBUCB": Rival(policy="sbucb", settings=FOURIER),
}
"""The rivals that the claim is about: their states are sums, as that of the default policy."""
OTHERS: Mapping[str, Rival] = {
    "linear Thompson": Rival(policy="linear-thompson", settings=SAMPLING),
    "contextualbandits": Rival(policy="contextualbandits", settings=LINUCB, library=True, tuning=1, seeds=5),
    "Vowpal Wabbit": Rival(policy="vowpalwabbit", settings=WABBIT, library=True, tuning=1, seeds=5),
}
