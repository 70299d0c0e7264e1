"""Exact sums: what the rows of a shard add up to, and the statistics of an episode made of them, (3) and (4)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from spuir.base.records import Batch, Codes, Floats, Mask
from spuir.core.imputing import Link, complement, gaps, linear_moments
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
    """Return which rows are imputed for which action: (B, M), or just the executed codes if nothing is revealed."""
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


class EpisodeStatistics(NamedTuple):
    """What an episode adds: ``seen`` to the observed and ``hidden`` to the imputed sums, ``total`` (p, p) to T.

    The last two are None where nothing is imputed.
    """

    seen: Statistics
    hidden: Statistics | None = None
    total: Floats | None = None


class ImputedRewards(NamedTuple):
    """What is imputed for the actions not executed: T(θ_j,s), at most ``cap``; ``on`` is False where nothing is."""

    link: Link
    cap: float | None
    on: bool


def exact_sums(batch: Batch, theta: Floats, imputed: ImputedRewards) -> ExactSums:
    """Return the sums of a batch whose contexts are already feature rows."""
    m = len(theta)
    rows, codes, rewards, weights = observed_entries(batch)
    observed = summarise(batch.contexts, codes, rewards, weights, m, rows)
    if not imputed.on:
        return ExactSums(len(batch), observed)
    hidden, gap, mask = None, None, hidden_mask(batch)
    if mask.ndim == 2:
        at, action = np.nonzero(mask)
        weights = None if batch.weights is None else batch.weights[at]
        hidden = summarise(batch.contexts, action, np.zeros(len(at)), weights, m, at)
    if not imputed.link.linear:
        gap = gaps(batch.contexts, mask, theta, imputed.link, imputed.cap, batch.weights)
    return ExactSums(len(batch), observed, hidden, gap)


def exact_episode(sums: ExactSums, theta: Floats, imputing: bool) -> EpisodeStatistics:
    """Return the statistics of an episode, in the arrays of ``sums``; ``theta`` (M, p) acted in it."""
    if not imputing:
        return EpisodeStatistics(sums.observed)
    hidden = sums.imputed()
    gram, moment = hidden.gram, hidden.moment
    linear_moments(gram, theta, out=moment)  # Ŝ_jᵀR̂_j of (4), identity 2
    hidden.energy.fill(0.0)  # imputed rewards have no energy
    if sums.gap is not None:
        moment += sums.gap
    p = hidden.width
    total = (sums.observed.table[0, : p * p] + hidden.table[0, : p * p]).reshape(p, p)
    return EpisodeStatistics(sums.observed, hidden, total)


@dataclass(frozen=True)
class ExactSummation:
    """Rows become exact sums: SBUCB and PUIR."""

    additive = foldable = True
    sketched = False

    def collect(self, rows: Batch, theta: Floats, imputed: ImputedRewards, rng: Generator) -> ExactSums:
        """Return the sums of feature rows; ``theta`` (M, p) acts in this episode."""
        return exact_sums(rows, theta, imputed)

    def episode(self, sums: ExactSums, theta: Floats, imputing: bool) -> EpisodeStatistics:
        """Return the statistics of an episode, in the arrays of its sums."""
        return exact_episode(sums, theta, imputing)
