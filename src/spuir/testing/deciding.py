"""Laws of deciding: seeds repeat decisions, predicting changes nothing, and draws follow the probabilities."""

from typing import Any

import numpy as np
from scipy.stats import chi2

from spuir.bandit import Bandit
from spuir.base import streams
from spuir.base.records import Codes, Floats, Mask
from spuir.core import ties
from spuir.policies import Policy
from spuir.testing.trial import (
    N_ACTIONS,
    SIZES,
    contexts,
    episode,
    fresh,
    frozen,
    law,
    masks,
    require,
    require_close,
    require_probabilities,
    require_same,
    table,
    trained,
)

DRAWS = 40_000
ERROR_RATE = 1e-7
"""Probability of rejecting a correct policy in one comparison of draws with probabilities."""
RARE = 10.0
"""Cells with fewer expected draws than this are counted together."""
ESTIMATE_BIAS, FREQUENT = 0.1, 400
"""Largest bias of propensities that are Monte-Carlo estimates, and the draws of an action that show it: their mean then
has a standard error of at most 0.025."""


def the_same_seed_repeats_decisions(policy: Policy) -> None:
    """Check that the same seed repeats decisions and states bit for bit, and another seed draws differently."""
    first, twin, other = fresh(policy), fresh(policy), fresh(policy, seed=8)
    X = contexts(300)
    cold = [bandit.decide(X).actions for bandit in (first, twin, other)]
    require_same(cold[1], cold[0], "cold decisions")
    require(not np.array_equal(cold[2], cold[0]), "another seed draws the same 300 actions")
    for number, size in enumerate((60, 200)):
        rows = episode(policy, number, size)
        for bandit in (first, twin):
            bandit.partial_fit(**rows.columns())
        decided = [bandit.decide(X) for bandit in (first, twin)]
        require_same(decided[1].actions, decided[0].actions, "actions")
        require_same(decided[1].propensities, decided[0].propensities, "propensities")
        require(frozen(first) == frozen(twin), "states differ")


def a_cold_bandit_is_uniform(policy: Policy) -> None:
    """Check that before the first episode every action has probability 1/M."""
    bandit, X = fresh(policy), contexts(50)
    require_close(bandit.predict_proba(X), np.full((50, N_ACTIONS), 1 / N_ACTIONS), "cold probabilities", 1e-12)
    decided = bandit.decide(X)
    if decided.exact:
        require_close(decided.propensities, np.full(50, 1 / N_ACTIONS), "cold propensities", 1e-12)
    require_same(bandit.predict(X), np.zeros(50, np.intp), "the first of equals is predicted")


def predicting_changes_nothing(policy: Policy) -> None:
    """Check that predict, predict_proba and decision_function change neither the state nor the streams."""
    X = contexts(30)
    for bandit, twin in ((fresh(policy), fresh(policy)), (trained(policy), trained(policy))):
        before = frozen(bandit) if bandit.n_episodes_ else None
        predicted = bandit.predict(X)
        probabilities, scores = bandit.predict_proba(X), bandit.decision_function(X)
        if before is not None:
            require(frozen(bandit) == before, "predicting changed the state")
        require(frozen(bandit) == frozen(twin), "predicting changed the unfitted bandit")
        require_same(predicted, probabilities.argmax(axis=1), "predict is the most probable action")
        require_same(bandit.predict_proba(X), probabilities, "probabilities repeat")
        require_same(bandit.decision_function(X), scores, "scores repeat")
        require_same(bandit.decide(X).actions, twin.decide(X).actions, "the next decisions")
        probabilities[:] = 0.0
        scores[:] = np.nan
        require(frozen(bandit) == frozen(twin), "a returned array is part of the state")


def probabilities_sum_to_one(policy: Policy) -> None:
    """Check that rows sum to one, ineligible actions have 0 and others the floor or more, and propensities agree."""
    X = contexts(600)
    for sizes in ((), (60,), SIZES):
        bandit = trained(policy, sizes)
        for kind, mask in masks(len(X), streams.generator(1, "masks")).items():
            require_decisions(bandit, X, mask, f"{kind} eligible after {len(sizes)} episodes")


def require_decisions(bandit: Bandit, X: Floats, mask: Mask | None, what: str) -> None:
    """Fail unless decisions agree with the probabilities that they are drawn from; labels are codes."""
    n = len(X)
    allowed = np.broadcast_to(True if mask is None else mask, (n, len(bandit.actions_)))
    probabilities = bandit.predict_proba(X, eligible=mask)
    require_probabilities(probabilities, allowed, bandit.policy_.floor, what)
    decided = bandit.decide(X, eligible=mask, ids=np.arange(n))
    executed = np.arange(n), decided.actions.astype(np.intp)
    require(allowed[executed].all(), f"{what}: an ineligible action was chosen")
    require((probabilities[executed] > 0).all(), f"{what}: an impossible action was chosen")
    require((decided.propensities > 0).all() and (decided.propensities <= 1 + 1e-12).all(), f"{what}: propensities")
    if decided.exact:
        require_close(decided.propensities, probabilities[executed], f"{what}: propensities", 1e-9)
    require_close(decided.probabilities, probabilities, f"{what}: the decision's probabilities", 1e-12)
    require_same(decided.scores, bandit.decision_function(X, eligible=mask), f"{what}: the decision's scores")
    require(np.isfinite(decided.means).all() and (decided.widths >= 0).all(), f"{what}: means or widths")
    require_same(np.asarray(decided.ids), np.arange(n), f"{what}: ids")


def contexts_do_not_affect_each_other(policy: Policy) -> None:
    """Check that the result for a context does not depend on the other contexts of the call."""
    bandit, X = trained(policy), contexts(300)
    whole = table(bandit, X)
    for rows in (slice(0, 1), slice(40, 47), slice(299, None, -3)):
        part = table(bandit, X[rows])
        for name in ("probabilities", "scores"):
            require_close(part[name], whole[name][rows], f"{name} of {rows}")


def returned_results_stay_unchanged(policy: Policy) -> None:
    """Check that later decisions and episodes do not change results that were returned before."""
    bandit, X = trained(policy), contexts(300)
    held = {**table(bandit, X), "predictions": bandit.predict(X)}
    decided = bandit.decide(X)
    held |= {"actions": decided.actions, "propensities": decided.propensities, "means": decided.means}
    copies = {name: values.copy() for name, values in held.items()}
    untouched, expected = bandit.decide(X), bandit.predict_proba(X)
    for number in range(2):
        bandit.decide(contexts(700, seed=5))
        bandit.predict_proba(contexts(300, seed=6))
        bandit.partial_fit(**episode(policy, number + 4, 180).columns())
    for name, values in held.items():
        require_same(values, copies[name], name)
    require_same(untouched.probabilities, expected, "probabilities of a decision, asked for after learning")


def the_best_score_is_chosen(policy: Policy) -> None:
    """Check that a rule without sampling takes the best score, with ties split evenly and the floor mixed in."""
    X = contexts(200)
    for sizes in ((), SIZES):
        bandit = trained(policy, sizes)
        for kind, mask in masks(len(X), streams.generator(2, "masks")).items():
            allowed = np.broadcast_to(True if mask is None else mask, (len(X), N_ACTIONS))
            scores = np.where(allowed, bandit.decision_function(X, eligible=mask), -np.inf)
            best = scores >= scores.max(axis=1, keepdims=True) - 1e-12 * np.abs(scores.max(axis=1, keepdims=True))
            expected = ties.with_floor(best / best.sum(axis=1, keepdims=True), allowed, policy.floor)
            require_close(bandit.predict_proba(X, eligible=mask), expected, f"{kind} eligible", 1e-12)


def draws_match_the_probabilities(policy: Policy) -> None:
    """Check 40,000 draws on four contexts, and 8,000 before learning, by chi-square tests of error rate 1e-7 each."""
    some = contexts(4)
    mask = np.arange(N_ACTIONS) != 2
    for sizes, eligible, draws in (((), mask, DRAWS // 5), (SIZES, None, DRAWS)):
        bandit = trained(policy, sizes)
        repeated = np.repeat(some, draws // 4, axis=0)
        probabilities = bandit.predict_proba(some, eligible=eligible)
        decided = bandit.decide(repeated, eligible=eligible)
        drawn = decided.actions.astype(np.intp).reshape(4, -1)
        counts = np.stack([np.bincount(row, minlength=N_ACTIONS) for row in drawn])
        _check_counts(counts, probabilities, f"after {len(sizes)} episodes")
        off = decided.propensities.reshape(4, -1) - np.take_along_axis(probabilities, drawn, axis=1)
        bias = np.abs([np.bincount(codes, row, N_ACTIONS) for codes, row in zip(drawn, off, strict=True)])
        worst = float((bias / np.maximum(counts, FREQUENT)).max())
        require(worst <= ESTIMATE_BIAS, f"propensities are off by {worst:.2g} on average")


def _check_counts(counts: Codes, probabilities: Floats, what: str) -> None:
    statistic, freedom = 0.0, 0
    for seen, row in zip(counts, probabilities, strict=True):
        require((seen[row == 0] == 0).all(), f"{what}: an impossible action was drawn")
        expected = row * seen.sum()
        rare = expected < RARE
        observed = np.append(seen[~rare], seen[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        some = expected > 0
        if some[-1] and expected[-1] < RARE:  # too few for the approximation, so they join the most frequent cell
            observed[0], expected[0] = observed[0] + observed[-1], expected[0] + expected[-1]
            some[-1] = False
        statistic += float((np.square(observed[some] - expected[some]) / expected[some]).sum())
        freedom += int(some.sum()) - 1
    if freedom:
        limit = float(chi2.isf(ERROR_RATE, freedom))
        require(statistic <= limit, f"{what}: chi-square {statistic:.1f} above {limit:.1f}")
    else:
        require(statistic < 1e-6, f"{what}: draws differ from certainties")


def parts_of_an_estimate_add_up(policy: Any) -> None:
    """Check that the contributions of all sources add up to the estimate, and that errors and shares make sense."""
    bandit, X = trained(policy), contexts(20)
    state = bandit.state_
    names = policy.source_names(state, [f"x{i}" for i in range(state.dim)])
    means = policy.estimates(state, X)[0]
    for code in range(N_ACTIONS):
        parts = policy.contributions(state, X, np.full(20, code))
        require(parts.shape == (20, len(names)), f"{len(names)} sources, but contributions of shape {parts.shape}")
        if getattr(policy, "link", "linear") == "linear":
            require_close(parts.sum(axis=1), means[:, code], "contributions")
    errors, shares = policy.mean_errors(state, X), policy.imputed_shares(state)
    require(errors.shape == means.shape and (errors > 0).all(), "an estimate without a standard error")
    require(((shares >= 0) & (shares <= 1)).all(), "a share outside [0, 1]")
    require(("imputing" in policy.traits) == bool(shares.any()), "a share of imputed rows without imputation")


LAWS = (
    law(the_same_seed_repeats_decisions),
    law(a_cold_bandit_is_uniform),
    law(predicting_changes_nothing),
    law(probabilities_sum_to_one),
    law(contexts_do_not_affect_each_other),
    law(returned_results_stay_unchanged),
    law(the_best_score_is_chosen, unless={"sampling"}),
    law(draws_match_the_probabilities),
    law(parts_of_an_estimate_add_up, needs={"ridge"}),
)
