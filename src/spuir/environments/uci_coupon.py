"""The public in-vehicle coupon survey as a bandit: five kinds of coupons, accepted or not."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize
from scipy.special import expit

from spuir.base.parameters import POSITIVE, SEED, optional, parameter
from spuir.base.records import Codes, Feedback, Floats, Mask, Rounds
from spuir.environments.base import Environment, derived
from spuir.environments.csv_files import PATH, at, file_stamp, place_of, read_names, read_rows, shown
from spuir.errors import InputError, ParameterError

COUPON, ACCEPTED = "coupon", "Y"
USER = (
    *("gender", "age", "maritalStatus", "has_children", "education", "occupation", "income"),
    *("Bar", "CoffeeHouse", "CarryAway", "RestaurantLessThan20", "Restaurant20To50"),
)
"""The columns that describe the user. Those of the scenario (place, weather, hour, …) decide which coupon was shown."""


@dataclass(frozen=True)
class CouponSurvey:
    """The survey as arrays: users (n, d) one-hot, their profile, the coupon shown and whether it was accepted (n,)."""

    users: Floats
    profiles: Codes
    coupons: Codes
    accepted: Floats
    kinds: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UciCoupon(Environment):
    """The public in-vehicle coupon survey (UCI), from a file: models of half the users reward the other half.

    Notes
    -----
    Actions are the kinds of coupons in the file (``kinds``, in alphabetical order: M = 5). The context is the
    twelve columns that describe the user, one column of 0 and 1 for each answer (``columns``: d = 82). A missing
    answer is a level of its own, the one whose columns are all 0. The scenario's columns stay out: they
    determine which coupon was shown, so coupons could not be compared given them.

    Rows come in blocks by user, so *profiles* (rows whose user columns are all equal) are split, not rows: in an
    order drawn from the seed, the first ones up to half of the rows fit the models, and contexts are drawn from
    the others, with replacement. The models have seen no user that a policy decides for. Each kind has a logistic
    regression on its own rows, Σ log(1 + e^(∓⟨w, s⟩)) + ½·ridge·‖w‖², and its reward is Bernoulli with that
    probability. The default ridge predicted the users left out best: over six splits their mean log-loss was 0.668,
    0.648, 0.629, 0.619 and 0.622 at 1, 3, 10, 30 and 100; smaller ones fit chance. The survey has no
    times, so there are no clicks and no delays.
    """

    n_actions: int = derived("number of kinds of coupons in the file (M)")
    dim: int = derived("number of answers to the user's questions in the file (d)")
    seed: int = parameter(0, "seed of the split of users between models and contexts", SEED)
    path: str | None = parameter(None, "the survey's CSV file, plain or gzip; required", optional(PATH))
    ridge: float = parameter(30.0, "penalty of the models that reward", POSITIVE)

    weights: Floats = field(init=False, repr=False, compare=False)
    contexts: Floats = field(init=False, repr=False, compare=False)
    kinds: tuple[str, ...] = field(init=False, repr=False, compare=False)
    columns: tuple[str, ...] = field(init=False, repr=False, compare=False)

    name: ClassVar[str] = "uci-coupon"
    needs_file: ClassVar[bool] = True

    def _settle(self, rng: Generator) -> None:
        if self.path is None:
            rule = "the survey comes from your own file"
            remedy = (
                "get the data set 'in-vehicle coupon recommendation' (number 603) of the UCI Machine Learning "
                "Repository, and give its CSV file as path="
            )
            raise ParameterError(f"path of environment {self.name!r}", "None", rule, remedy)
        self._put(path=os.fspath(self.path))
        survey = read_survey(self.path, file_stamp(self.path))
        fitted = half_of_profiles(survey.profiles, rng)
        weights = [
            fit_logistic(survey.users[rows], survey.accepted[rows], self.ridge)
            for rows in (fitted & (survey.coupons == kind) for kind in range(len(survey.kinds)))
        ]
        self._put(weights=np.stack(weights), contexts=survey.users[~fitted], kinds=survey.kinds)
        self._put(columns=survey.columns, n_actions=len(survey.kinds), dim=len(survey.columns))

    def draw(self, n: int, rng: Generator) -> Rounds:
        """Draw n users (n, d), with replacement, from the half that the models have not seen."""
        return Rounds(contexts=self.contexts[rng.integers(len(self.contexts), size=n)])

    def expected_rewards(self, rounds: Rounds) -> Floats:
        """Return the probability (n, M) that the user accepts each kind of coupon."""
        return expit(rounds.contexts @ self.weights.T)

    def feedback(self, rounds: Rounds, actions: Codes, rng: Generator) -> Feedback:
        """Return 1 where the coupon is accepted, drawn for all actions."""
        executed = self._executed(rounds, actions)
        chances = self.expected_rewards(rounds)
        rewards = (rng.random(chances.shape) < chances).astype(np.float64)
        return Feedback(rewards=rewards[executed], all_rewards=rewards)


def half_of_profiles(profiles: Codes, rng: Generator) -> Mask:
    """Return a mask (n,) of whole profiles, in random order, as many as fit into half of the rows; at least one."""
    sizes = np.bincount(profiles)
    order = rng.permutation(len(sizes))
    taken = np.cumsum(sizes[order]) <= len(profiles) / 2
    taken[0] = True
    return np.isin(profiles, order[taken])


def fit_logistic(columns: Floats, outcomes: Floats, ridge: float) -> Floats:
    """Return the weights (d,) that minimise Σ log(1 + e^⟨w, s⟩) − y·⟨w, s⟩ + ½·ridge·‖w‖²; 0 without rows."""

    def loss(w: Floats) -> tuple[float, Floats]:
        z = columns @ w
        value = np.logaddexp(0.0, z).sum() - outcomes @ z + 0.5 * ridge * w @ w
        return float(value), columns.T @ (expit(z) - outcomes) + ridge * w

    def curvature(w: Floats) -> Floats:
        chance = expit(columns @ w)
        return (columns.T * (chance * (1 - chance))) @ columns + ridge * np.eye(columns.shape[1])

    # The loss is strictly convex, and Newton steps in a trust region reach its minimum in about five.
    start = np.zeros(columns.shape[1])
    found: Any = minimize(loss, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-6})
    return found.x


@lru_cache(maxsize=2)
def read_survey(path: str, stamp: tuple[int, int] | None) -> CouponSurvey:
    """Read the survey; ``stamp`` changes when the file does, so that a changed file is read again."""
    rows = read_rows(path)
    names = read_names(path, rows)
    shown_at, accepted_at = place_of(path, names, COUPON), place_of(path, names, ACCEPTED)
    user_at = [place_of(path, names, name) for name in USER]
    users, kinds, accepted = list[tuple[str, ...]](), list[str](), list[float]()
    for number, cells in rows:
        kind, answer = cells[shown_at].strip(), cells[accepted_at].strip()
        if not kind or answer not in ("0", "1"):
            wrong, what = (ACCEPTED, "0 or 1") if kind else (COUPON, "the kind of coupon shown")
            remedy = "correct or drop that row"
            raise InputError(at(path, number), shown(answer if kind else kind), f"{wrong} must be {what}", remedy)
        users.append(tuple(cells[place].strip() for place in user_at))
        kinds.append(kind)
        accepted.append(float(answer))
    known, profiles = sorted(set(kinds)), sorted(set(users))
    if len(known) < 2 or len(profiles) < 2:
        rule, remedy = "at least two of each are needed", "check that the file was saved whole"
        raise InputError(f"file {path!r}", f"{len(known)} kinds and {len(profiles)} users", rule, remedy)
    columns, table = one_hot(profiles)
    codes = _coded(users, profiles)
    return CouponSurvey(table[codes], codes, _coded(kinds, known), np.array(accepted), tuple(known), columns)


def _coded(values: Sequence[Any], known: Sequence[Any]) -> Codes:
    """Return the place of each value among those known (n,)."""
    places = {value: place for place, value in enumerate(known)}
    return np.array([places[value] for value in values], dtype=np.intp)


def one_hot(profiles: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], Floats]:
    """Return names (d,) and 0/1 columns (n, d), one for each answer that occurs; a missing one has none."""
    names, columns = list[str](), list[Any]()
    for question, answers in zip(USER, zip(*profiles, strict=True), strict=True):
        for level in sorted(set(answers) - {""}):
            names.append(f"{question}={level}")
            columns.append([answer == level for answer in answers])
    return tuple(names), np.array(columns, dtype=np.float64).T
