"""What one shard of an episode contributes to a ridge policy that keeps no sketch: sums that add up."""

from dataclasses import dataclass

import numpy as np

from spuir.base.records import Batch, Codes, Floats, Mask
from spuir.core.imputing import LINKS, complement, gaps
from spuir.core.statistics import Statistics, summarise


def observed_entries(batch: Batch) -> tuple[Codes | None, Codes, Floats, Floats | None]:
    """Return (rows, actions, rewards, weights) of everything observed: executed, then revealed."""
    if batch.revealed is None or batch.revealed_rewards is None:
        return None, batch.actions, batch.rewards, batch.weights
    further = batch.revealed.copy()
    further[np.arange(len(batch)), batch.actions] = False
    rows, codes = np.nonzero(further)
    every = np.concatenate([np.arange(len(batch)), rows])
    rewards = np.concatenate([batch.rewards, batch.revealed_rewards[rows, codes]])
    weights = None if batch.weights is None else batch.weights[every]
    return every, np.concatenate([batch.actions, codes]), rewards, weights


def hidden_mask(batch: Batch) -> Mask | Codes:
    """Return which rows are imputed for which action: (B, M), or the executed codes where that says it all."""
    if batch.revealed is None:
        return batch.actions
    hidden = ~batch.revealed
    hidden[np.arange(len(batch)), batch.actions] = False
    return hidden


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Sums of a shard's rows.

    ``observed`` per action; ``hidden`` the sums of the rows imputed for each action, None where they are
    the complement of the observed ones; ``gap`` (M, p) what a nonlinear link adds to the imputed moment.
    """

    rows: int
    observed: Statistics
    hidden: Statistics | None = None
    gap: Floats | None = None

    def imputed(self) -> Statistics:
        """Return the sums of the rows imputed for each action; only gram and weight mean something."""
        if self.hidden is not None:
            return self.hidden
        return Statistics(self.observed.width, complement(self.observed.table))

    def __add__(self, other: "ExactSums") -> "ExactSums":
        """Return the sums of both shards."""
        hidden = None
        if self.hidden is not None or other.hidden is not None:
            hidden = self.imputed() + other.imputed()
        gap = self.gap if other.gap is None else other.gap if self.gap is None else self.gap + other.gap
        return ExactSums(self.rows + other.rows, self.observed + other.observed, hidden, gap)


def exact_sums(batch: Batch, theta: Floats, link: str, cap: float | None, imputing: bool) -> ExactSums:
    """Return the sums of a batch whose contexts are already feature rows."""
    m = len(theta)
    rows, codes, rewards, weights = observed_entries(batch)
    observed = summarise(batch.contexts, codes, rewards, weights, m, rows)
    if not imputing:
        return ExactSums(len(batch), observed)
    hidden, gap, mask = None, None, hidden_mask(batch)
    if mask.ndim == 2:
        at, action = np.nonzero(mask)
        weights = None if batch.weights is None else batch.weights[at]
        hidden = summarise(batch.contexts, action, np.zeros(len(at)), weights, m, at)
    if not LINKS[link].linear:
        gap = gaps(batch.contexts, mask, theta, LINKS[link], cap, batch.weights)
    return ExactSums(len(batch), observed, hidden, gap)
