"""Clicks, conversions after a delay, and a reward that mixes both: what such environments share."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from scipy.special import expit

from spuir.environments.base import CONTEXT_MEAN, Environment
from spuir.parameters import FLAG, POSITIVE, UNIT, parameter
from spuir.records import Codes, Feedback, Floats, Rounds

CLICK_SHARE = 0.01
LARGEST_EXPONENT = 50.0


@dataclass(frozen=True, kw_only=True)
class ClickEnvironment(Environment):
    """An environment with clicks and delayed conversions, whose weights its subclasses draw.

    Notes
    -----
    Every action is clicked with probability ``click_rate``; a click converts with probability sigmoid(⟨w_j, s⟩)
    after an exponential delay of rate exp(⟨w^d_j, s⟩). The reward is λ·click + (1 − λ)·conversion, with λ = 0.01
    times the conversions per click *of the executed rows of the batch*.

    Row b of n is executed at time b·horizon/n. ``elapsed`` is what a delayed-feedback model reads: the delay
    where there is a conversion, otherwise the time left from the row's execution to the horizon. By default
    the reward counts every conversion, however late; with ``censored=True`` only those up to the horizon.

    Because λ depends on the batch, the expected reward needs a fixed one: ``expected_rewards`` takes λ at
    0.01 times the conversion rate of the best action at the mean context, which is about where λ settles for a
    policy that has learnt. λ never exceeds 0.01, and all actions share one click rate, so any other choice
    would scale regret by at most 1 %. The expectation counts every conversion, also when censored.
    """

    click_rate: float = parameter(0.5, "probability of a click, the same for every action", UNIT)
    horizon: float = parameter(
        1.4, "length of an episode in the units of the delays (0.001 per step at B = 1,400)", POSITIVE
    )
    censored: bool = parameter(False, "count only conversions that arrive by the horizon", FLAG)

    conversion_weights: Floats = field(init=False, repr=False, compare=False)
    delay_weights: Floats = field(init=False, repr=False, compare=False)
    click_share: float = field(init=False, repr=False, compare=False)

    has_clicks: ClassVar[bool] = True

    def _keep(self, conversion: Floats, delay: Floats) -> None:
        """Keep the true weights (M, d) of conversions and of delays."""
        put = object.__setattr__
        put(self, "conversion_weights", conversion)
        put(self, "delay_weights", delay)
        put(self, "click_share", CLICK_SHARE * float(expit(CONTEXT_MEAN * conversion.sum(axis=1)).max()))

    def conversion_rates(self, rounds: Rounds) -> Floats:
        """Return the probability (n, M) that a click converts."""
        return expit(rounds.contexts @ self.conversion_weights.T)

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return click_rate·(λ + (1 − λ)·conversion rate) (n, M), with the fixed λ of the class notes."""
        return self.click_rate * (self.click_share + (1 - self.click_share) * self.conversion_rates(rounds))

    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return reward, click, conversion and elapsed time of the executed actions."""
        executed = self._executed(rounds, actions)
        shape = (len(rounds), self.n_actions)
        click = rng.random(shape) < self.click_rate
        conversion = click & (rng.random(shape) < self.conversion_rates(rounds))
        log_rate = np.clip(rounds.contexts @ self.delay_weights.T, -LARGEST_EXPONENT, LARGEST_EXPONENT)
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
