"""What the default policy is compared with, and where: rivals with a search of 20 settings each, in fifteen worlds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spuir.reproduction.base import Scope
from spuir.reproduction.other_libraries import play_library
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.sets import COUPONS, COVERTYPE, DIGITS, criteo, table
from spuir.reproduction.tasks import Task
from spuir.reproduction.tuning import Amount, Option, Range, SearchedMethod, Setting

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
TABLES = (COUPONS, DIGITS, COVERTYPE)
WORLDS = (*SIMULATED, *CRITEO, *TABLES)


def world_setup(scope: Scope, name: str) -> Setup | str:
    """Return where a world is played or, where it cannot be, the reason."""
    if name in CRITEO:
        return criteo(scope, name, EPISODES, BATCH)
    found = SIMULATED[name] if name in SIMULATED else table(scope, name)
    if isinstance(found, str):
        return found
    environment, world = found
    return Setup(environment=environment, episodes=EPISODES, batch_size=BATCH, world=world)


@dataclass(frozen=True, kw_only=True)
class LibraryMethod(SearchedMethod):
    """A policy of another library; ``parameters`` are the first setting of its search."""

    def tasks(self, seeds: Iterable[int], setup: Setup, setting: Setting, tuning: bool = False) -> list[Task]:
        """Return the runs of one setting."""
        given = {"library": self.policy, "parameters": {**self.parameters, **setting}}
        return [Task.of(play_library, **given, **setup.arguments(seed)) for seed in seeds]

    def value(self, name: str) -> Any:
        """Return a parameter's value in the first setting."""
        return self.parameters[name]


_FLAG = Option((True, False))
_WIDE: Mapping[str, Range] = {"ridge": Amount(0.1, 1e4), "raw": _FLAG, "scale": _FLAG, "scale_contexts": _FLAG}
_WABBIT = ("--squarecb --gamma_scale 1000", "--squarecb --gamma_scale 100", "--bag 5", "--epsilon 0.05")
_START: Setting = {"alpha": 0.1, "ridge": 10.0, "intercept": True, "scale": True}
FOURIER = "Fourier SBUCB"
SUM_BASED: Mapping[str, SearchedMethod] = {
    "SBUCB": SearchedMethod(
        policy="sbucb", tuned=("alpha", "ridge", "scale"), parameters=_START, preset=None, ranges=_WIDE
    ),
    "PUIR": SearchedMethod(
        policy="puir",
        tuned=("alpha", "ridge", "imputation_rate", "discount", "scale"),
        parameters=_START,
        preset=None,
        ranges=_WIDE,
    ),
    FOURIER: SearchedMethod(
        policy="sbucb",
        tuned=("alpha", "ridge", "scale", "raw"),
        parameters={**_START, "ridge": 1.0, "features": "fourier", "n_features": 200},
        preset=None,
        ranges={**_WIDE, "ridge": Amount(0.003, 10.0)},
    ),
}
"""The rivals that the claim is about: their states are sums, like the state of the default policy."""
OTHERS: Mapping[str, SearchedMethod] = {
    "linear Thompson": SearchedMethod(
        policy="linear-thompson",
        tuned=("scale", "ridge", "scale_contexts"),
        parameters={"scale": 0.1, "ridge": 10.0, "intercept": True, "scale_contexts": True},
        preset=None,
        ranges={"ridge": Amount(0.1, 1e4), "scale_contexts": _FLAG},
    ),
    "contextualbandits": LibraryMethod(
        policy="contextualbandits",
        tuned=("alpha", "ridge"),
        parameters={"alpha": 0.1, "ridge": 10.0},
        ranges={**_WIDE, "alpha": Amount(0.003, 3.0)},  # it refuses an alpha of 0
    ),
    "Vowpal Wabbit": LibraryMethod(
        policy="vowpalwabbit",
        tuned=("options",),
        parameters={"options": _WABBIT[0]},
        ranges={"options": Option(_WABBIT)},
    ),
}
