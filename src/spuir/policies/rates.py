"""Imputation rates γ: constant, by the paper's schedule, or in proportion to what was observed."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from spuir.base.records import Floats
from spuir.core.imputing import balanced_rates, scheduled_rate
from spuir.core.statistics import Statistics


class Rate(Protocol):
    """A rule for the imputation rate of each action."""

    per_action: ClassVar[bool]
    """Whether actions may have different rates."""

    def at(self, episode: int, observed: Statistics, imputed: Statistics | None) -> Floats:
        """Return the rates (M,) after ``episode`` episodes with these sums."""
        ...


@dataclass(frozen=True)
class ConstantRate:
    """The same rate for every action and episode."""

    rate: float
    per_action: ClassVar[bool] = False

    def at(self, episode: int, observed: Statistics, imputed: Statistics | None) -> Floats:
        """Return the rate for all actions (M,)."""
        return np.full(len(observed.table), self.rate)


@dataclass(frozen=True)
class ScheduledRate:
    """The paper's schedule ⌈10 n/N⌉/10, with N = ``episodes``, or 90 where None."""

    episodes: int | None
    per_action: ClassVar[bool] = False

    def at(self, episode: int, observed: Statistics, imputed: Statistics | None) -> Floats:
        """Return the rate after ``episode`` episodes, for all actions (M,)."""
        return np.full(len(observed.table), scheduled_rate(episode, self.episodes))


@dataclass(frozen=True)
class BalancedRate:
    """γ_j = κ·n_j/n̂_j, at most 1: as much imputed as observed weight, times κ = ``balance``."""

    balance: float
    per_action: ClassVar[bool] = True

    def at(self, episode: int, observed: Statistics, imputed: Statistics | None) -> Floats:
        """Return the rate of each action (M,); 0 before anything was imputed."""
        if imputed is None:
            return np.zeros(len(observed.table))
        return balanced_rates(observed.weight, imputed.weight, self.balance)
