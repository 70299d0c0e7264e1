"""The base of environments with clicks, delayed conversions, and a reward that mixes both."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from scipy.special import expit

from spuir.base.parameters import FLAG, POSITIVE, UNIT, parameter
from spuir.base.records import Codes, Feedback, Floats, Rounds
from spuir.environments.base import CONTEXT_MEAN, Environment

CLICK_SHARE = 0.01
LARGEST_EXPONENT = 50.0


@dataclass(frozen=True, kw_only=True)
class ClickEnvironment(Environment):
    """An environment with clicks and delayed conversions, whose weights its subclasses draw.

    Notes
    -----
    Every action is clicked with probability ``click_rate``, or with its own rate if the environment sets one; a
    click converts with probability sigmoid(⟨w_j, s⟩) after an exponential delay of rate exp(⟨w^d_j, s⟩), where either
    exponent may include a constant. The reward is λ·click + (1 − λ)·conversion, with λ = 0.01 times the
    conversions per click *of the executed rows of the batch*.

    Row b of n is executed at time b·horizon/n. ``elapsed`` is what a delayed-feedback model reads: the delay
    where there is a conversion, otherwise the time left from the row's execution to the horizon. By default
    the reward counts every conversion, however late; with ``censored=True`` only those up to the horizon.

    Because λ depends on the batch, the expected reward needs a fixed one: ``expected_rewards`` uses
    0.01 times the conversion rate of the best action at the mean context, which is about where λ settles for a
    policy that has learned. λ never exceeds 0.01, so any other choice would move an expected reward by at most 1 % of
    the click rate. The expectation counts every conversion, also when censored.
    """

    click_rate: float = parameter(0.5, "probability of a click, the same for every action", UNIT)
    horizon: float = parameter(
        1.4, "length of an episode in the units of the delays (0.001 per step at B = 1,400)", POSITIVE
    )
    censored: bool = parameter(False, "count only conversions that arrive by the horizon", FLAG)

    conversion_weights: Floats = field(init=False, repr=False, compare=False)
    delay_weights: Floats = field(init=False, repr=False, compare=False)
    levels: Floats = field(init=False, repr=False, compare=False)
    click_rates: Floats = field(init=False, repr=False, compare=False)
    click_share: float = field(init=False, repr=False, compare=False)

    has_clicks: ClassVar[bool] = True

    def _keep(
        self,
        conversion: Floats,
        delay: Floats,
        *,
        levels: Floats | None = None,
        click_rates: Floats | None = None,
        settled: float | None = None,
    ) -> None:
        """Set the true parameters.

        Parameters
        ----------
        conversion, delay
            (M, d) weights of conversions and of delays.
        levels
            (2, M) constants added to both; None means 0.
        click_rates
            (M,) probability of a click for each action; None means ``click_rate`` for all.
        settled
            Conversions per click of a trained policy; None means those of the best action at the mean context.
        """
        if settled is None:
            settled = float(expit(CONTEXT_MEAN * conversion.sum(axis=1)).max())
        self._put(
            conversion_weights=conversion,
            delay_weights=delay,
            levels=np.zeros((2, self.n_actions)) if levels is None else levels,
            click_rates=np.full(self.n_actions, self.click_rate) if click_rates is None else click_rates,
            click_share=CLICK_SHARE * settled,
        )

    def conversion_rates(self, rounds: Rounds) -> Floats:
        """Return the probability (n, M) that a click converts."""
        return expit(rounds.contexts @ self.conversion_weights.T + self.levels[0])

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return click rate·(λ + (1 − λ)·conversion rate) (n, M), with the fixed λ of the class notes."""
        return self.click_rates * (self.click_share + (1 - self.click_share) * self.conversion_rates(rounds))

    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return reward, click, conversion and elapsed time of the executed actions."""
        executed = self._executed(rounds, actions)
        shape = (len(rounds), self.n_actions)
        click = rng.random(shape) < self.click_rates
        conversion = click & (rng.random(shape) < self.conversion_rates(rounds))
        log_rate = rounds.contexts @ self.delay_weights.T + self.levels[1]
        log_rate = np.clip(log_rate, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        delay = rng.exponential(size=shape) * np.exp(-log_rate)
        remaining = self.horizon * (1 - np.arange(len(rounds))[:, None] / max(len(rounds), 1))
        if self.censored:
            conversion &= delay <= remaining
        elapsed = np.where(conversion, delay, remaining)
        clicks, conversions = int(click[executed].sum()), int(conversion[executed].sum())
        share = CLICK_SHARE * conversions / clicks if clicks else 0.0
        rewards = share * click + (1 - share) * conversion
        return Feedback(
            rewards=rewards[executed],
            click=click[executed].astype(np.float64),
            conversion=conversion[executed].astype(np.float64),
            elapsed=elapsed[executed],
            all_rewards=rewards,
        )
