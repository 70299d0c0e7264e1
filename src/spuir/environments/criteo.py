"""Criteo's conversion log as a bandit: actions are campaigns, and rows of the log are the contexts."""

import os
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from scipy.special import expit

from spuir.base.parameters import (
    COUNT,
    FLAG,
    NON_NEGATIVE,
    POSITIVE,
    SEED,
    UNIT,
    Rule,
    optional,
    parameter,
    parameters_of,
)
from spuir.base.records import Floats, Rounds
from spuir.environments.base import derived
from spuir.environments.clicks import ClickEnvironment
from spuir.environments.criteo_fit import Campaigns, FitSource, fitted
from spuir.environments.criteo_generator import CAMPAIGNS, RECENT
from spuir.environments.csv_files import PATH, file_stamp

LOWEST_CLICK_RATE, CLICK_RANGE = 0.3, 0.2
SETTLING = 4096
"""Contexts from which the conversion rate of a trained policy is estimated."""
ENOUGH = Rule("an integer ≥ 5000", lambda v: COUNT.test(v) and v >= 5000)


@dataclass(frozen=True, kw_only=True)
class Criteo(ClickEnvironment):
    """What both choices of campaigns share.

    Notes
    -----
    Rows come from Criteo's ``data.txt`` (``path``). Without it, rows in the same schema are generated, written to a
    temporary file and read in the same way; ``generated`` is then True, and no result is about Criteo's data. The log
    holds clicked ads only, so nothing about clicks can be learned from it.

    As the paper's group does in earlier work (CBDF, SIGIR 2021):

    - an action is a campaign; empty integers count as −1 (int1, int3, int5) or 0, empty categories as none;
    - a row's context are its scores on the first d = 50 principal components *of its own campaign*, each with mean 0
      and deviation 1. Every campaign's weights apply to these scores, so a coordinate means "the k-th component" of
      whichever campaign the row belongs to;
    - w_c and w_d are fitted on each campaign by the delayed-feedback model; a click converts with probability
      sigmoid(⟨w_c, s⟩ + c) after a delay of rate exp(⟨w_d, s⟩ + c′); the seed adds normal noise to the weights;
    - campaigns are drawn at random, each with its share of the log;
    - the click rate of action j is preset to 0.3 + 0.2·j/M;
    - an episode lasts 0.0014 days for each of its rows, where these are 3,000 (``horizon`` = 4.2) with 5 campaigns and
      12,000 (16.8) with 15. A delayed-feedback policy needs the same ``horizon``.

    Unlike that work:

    - the constants c and c′ (``intercept``). Scores have mean 0, so that without constants every campaign converts
      about half of its clicks, after about one unit of time, whatever its rows say; with a small ridge, such a fit
      explains the missing conversions by delays that never end. Policies need an intercept of their own;
    - times are days, not seconds, which keeps both halves of the fit on one scale;
    - noise of deviation 0.01 on w_d too; they used 10, which makes every delay either almost zero or endless;
    - integers v enter as ±log(1 + |v|), because their tails reach a million; the 500 most frequent categories of
      each campaign have columns;
    - at most ``max_rows`` rows of each campaign are kept, drawn at random, and contexts are drawn from them with
      replacement: an environment keeps no position, so there is no order of time.

    The default ridge was chosen on generated rows, about where rows that were left out of the fit were predicted
    best; a real log may need another.

    The fit does not depend on ``seed``, which draws the noise on its weights: all seeds share one, made at the first
    use in a process, or read from ``cache``.
    """

    n_actions: int = derived("number of campaigns (M)")
    dim: int = parameter(50, "number of principal components (d)", COUNT)
    seed: int = parameter(0, "seed of the noise on the fitted weights", SEED)
    click_rate: float | None = parameter(
        None, "probability of a click, the same for every action; None is 0.3 + 0.2·j/M for action j", optional(UNIT)
    )
    path: str | None = parameter(
        None, "Criteo's data.txt, plain or gzip; None generates rows in its schema", optional(PATH)
    )
    cache: str | None = parameter(None, "folder in which fits are kept, so that a file is read once", optional(PATH))
    max_rows: int = parameter(20_000, "rows of each campaign that are kept", COUNT)
    rows: int = parameter(60_000, "rows to generate where no path is given", ENOUGH)
    rows_seed: int = parameter(0, "seed of the generated rows, and of the choice of rows that max_rows keeps", SEED)
    ridge: float = parameter(100.0, "penalty of the fitted weights, ½·ridge·(‖w_c‖² + ‖w_d‖²)", POSITIVE)
    intercept: bool = parameter(True, "fit constants beside the weights", FLAG)
    noise: float = parameter(0.01, "standard deviation of the noise on the fitted weights", NON_NEGATIVE)

    fitted: Campaigns = field(init=False, repr=False, compare=False)

    campaigns: ClassVar[tuple[str, ...]]

    def _settle(self, rng: Generator) -> None:
        paths = {name: getattr(self, name) for name in ("path", "cache")}
        self._put(**{name: os.fspath(path) for name, path in paths.items() if path is not None})
        self._put(n_actions=len(self.campaigns), fitted=fitted(self._source(), self.cache))
        conversion, delay = (
            weights + self.noise * rng.standard_normal(weights.shape)
            for weights in (self.fitted.conversion, self.fitted.delay)
        )
        levels = self.fitted.levels
        clicks = LOWEST_CLICK_RATE + CLICK_RANGE * np.arange(self.n_actions) / self.n_actions
        if self.click_rate is not None:
            clicks = np.full(self.n_actions, float(self.click_rate))
        rates = expit(self.draw(SETTLING, rng).contexts @ conversion.T + levels[0])
        settled = _conversions_per_click(clicks, rates)
        self._keep(conversion, delay, levels=levels, click_rates=clicks, settled=settled)

    def _source(self) -> FitSource:
        return FitSource(
            path=self.path,
            stamp=None if self.path is None else file_stamp(self.path),
            generated=int(self.rows) if self.generated else 0,
            seed=int(self.rows_seed),
            campaigns=self.campaigns,
            max_rows=int(self.max_rows),
            dim=int(self.dim),
            ridge=float(self.ridge),
            intercept=bool(self.intercept),
        )

    def __reduce__(self) -> Any:
        """Pickle the parameters only: the other process fits or reads once instead of receiving all rows each time."""
        return partial(type(self), **parameters_of(self)), ()

    @property
    def generated(self) -> bool:
        """Whether the rows are generated because there is no file."""
        return self.path is None

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw n rows (n, d) with replacement: the campaign by its share of the log, then one of the rows kept."""
        sizes, counts = self.fitted.sizes, self.fitted.counts
        campaign = rng.choice(len(counts), size=n, p=counts / counts.sum())
        within = (rng.random(n) * sizes[campaign]).astype(np.intp)
        return Rounds(contexts=self.fitted.contexts[(np.cumsum(sizes) - sizes)[campaign] + within])


def _conversions_per_click(clicks: Floats, rates: Floats) -> float:
    """Return the rate at which the clicks convert that the best actions earn, of click rates (M,) and rates (n, M)."""
    best = (clicks * rates).argmax(axis=1)
    converted = clicks[best] @ rates[np.arange(len(rates)), best]
    return float(converted / clicks[best].sum()) if clicks.any() else 0.0


@dataclass(frozen=True, kw_only=True)
class CriteoRecent(Criteo):
    """Criteo's conversion log, 5 campaigns: contexts and fitted conversions from its file, or from generated rows."""

    horizon: float = parameter(4.2, "length of an episode in days", POSITIVE)

    name: ClassVar[str] = "criteo-recent"
    campaigns: ClassVar[tuple[str, ...]] = RECENT


@dataclass(frozen=True, kw_only=True)
class CriteoAll(Criteo):
    """Criteo's conversion log, 15 campaigns: contexts and fitted conversions from its file, or from generated rows."""

    horizon: float = parameter(16.8, "length of an episode in days", POSITIVE)

    name: ClassVar[str] = "criteo-all"
    campaigns: ClassVar[tuple[str, ...]] = CAMPAIGNS
