"""Laws of learning: the result depends on the rows only, and on all of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from spuir.bandit import Bandit
from spuir.base import packing, streams
from spuir.base.records import Batch, Floats
from spuir.core.imputing import LINKS
from spuir.policies import Policy
from spuir.testing.trial import (
    DIM,
    N_ACTIONS,
    SIZES,
    TrialRows,
    contexts,
    enriched,
    episode,
    fresh,
    frozen,
    is_exact,
    law,
    require,
    require_alike,
    require_close,
    table,
    trained,
)

RIDGES = (0.1, 1.0, 4.0)
"""Values of λ; some mistakes are invisible at 1."""


def inputs_are_never_written(policy: Policy) -> None:
    """Learning accepts read-only arrays and does not change its arguments."""
    bandit = fresh(policy)
    X = contexts(40)
    for number, size in enumerate(SIZES):
        rows = enriched(episode(policy, number, size), lightest=1)
        kept = {name: np.array(column) for name, column in rows.columns().items()}
        for column in (*rows.columns().values(), X):
            column.flags.writeable = False
        bandit.partial_fit(**rows.columns())
        bandit.decide(X, eligible=rows.eligible[:40])
        for look in (bandit.predict, bandit.predict_proba, bandit.decision_function):
            look(X)
        for name, column in rows.columns().items():
            require(np.array_equal(column, kept[name]), f"{name} was written")
    require(np.array_equal(X, contexts(40)), "contexts were written")


def later_changes_of_the_inputs_do_not_matter(policy: Policy) -> None:
    """Check that overwriting a batch or contexts after the call changes neither the state nor the decision."""
    bandit, X = fresh(policy), contexts(40)
    rows = enriched(episode(policy, 0, 60), lightest=1)
    bandit.partial_fit(**rows.columns())
    decided, expected, before = bandit.decide(X), bandit.predict_proba(X), frozen(bandit)
    for column in (*rows.columns().values(), X):
        column[...] = 0
    require(np.array_equal(decided.probabilities, expected), "the decision reads the caller's array")
    require(frozen(bandit) == before, "the state holds the caller's array")


def the_order_of_rows_does_not_matter(policy: Policy) -> None:
    """Check that the order of rows that have ids does not matter."""
    straight, shuffled = fresh(policy), fresh(policy)
    rng = streams.generator(3, "order")
    for number, size in enumerate(SIZES):
        rows = episode(policy, number, size)
        rows = enriched(rows) if number else rows
        straight.partial_fit(**rows.columns())
        shuffled.partial_fit(**rows.take(rng.permutation(size)).columns())
        require_alike(shuffled, straight, f"episode {number}")


def names_of_actions_do_not_matter(policy: Policy) -> None:
    """Check that the order in which actions are listed does not matter."""
    names = np.array(["red", "blue", "green", "black"])
    order = np.array([2, 0, 3, 1])
    plain, other = fresh(policy, actions=list(names)), fresh(policy, actions=list(names[order]))
    X = contexts(40)
    for number, size in enumerate(SIZES):
        rows = episode(policy, number, size)
        rows = enriched(rows) if number else rows
        labelled = replace(rows, actions=names[rows.actions])
        plain.partial_fit(**labelled.columns())
        tables = ("eligible", "revealed", "revealed_rewards")
        moved = {name: getattr(rows, name)[:, order] for name in tables if getattr(rows, name) is not None}
        other.partial_fit(**replace(labelled, **moved).columns())
        expected, found = table(plain, X), table(other, X)
        require_close(found["probabilities"], expected["probabilities"][:, order], "probabilities")
        require_close(found["scores"], expected["scores"][:, order], "scores")
        if "coefficients" in expected:
            require_close(found["coefficients"], expected["coefficients"][order], "coefficients")


def a_weight_counts_as_copies(policy: Policy) -> None:
    """Check that a row of weight w counts as w copies, and a row of weight 0 does not count.

    A sketch hashes copies apart, so its episodes are so small that the copies are not sketched either.
    """
    weighted, copied = fresh(policy), fresh(policy)
    most = min(_unsketched(policy, SIZES)) // 3 if "sketched" in policy.traits else max(SIZES)
    for number, size in enumerate(min(size, most) for size in SIZES):
        rows = episode(policy, number, size)
        copies = streams.generator(number, "copies").integers(0, 4, size=size)
        every = np.repeat(np.arange(size), copies)
        weighted.partial_fit(**replace(rows, sample_weight=copies.astype(np.float64)).columns())
        copied.partial_fit(**replace(rows.take(every), row_ids=np.arange(len(every))).columns())
        require_alike(weighted, copied, f"episode {number}")


def a_sketch_weighs_rows_by_scaling_them(policy: Any) -> None:
    """Check that in a sketched batch a row of weight w counts as the row times √w, where the model is linear."""
    policy = replace(policy, imputation_rate=0.3)  # a balanced rate depends on the number of rows
    size = 8 * policy.sketch_size
    rows = replace(episode(policy, 0, size), propensities=np.ones(size))
    weights = 4.0 ** streams.generator(0, "weights").integers(-1, 2, size=size)
    bandit, X = fresh(policy).fix(contexts(300)), contexts(40)
    bandit.partial_fit(**replace(rows, sample_weight=weights).columns())
    once, twice = (policy.feature_map.apply(bandit.state_.features, part) for part in (X, 2.0 * X))  # type: ignore[attr-defined]
    if getattr(policy, "link", "linear") == "linear" and np.array_equal(2.0 * once, twice):
        root = np.sqrt(weights)
        scaled = replace(rows, X=root[:, None] * rows.X, rewards=root * rows.rewards)
        require_alike(bandit, fresh(policy).partial_fit(**scaled.columns()), "rows times √w")


def propensities_default_to_the_own(policy: Policy) -> None:
    """Check that without propensities, the policy's own are used, including eligibility and removed actions."""
    if not is_exact(policy):
        return
    implicit, explicit = trained(policy), trained(policy)
    for bandit in (implicit, explicit):
        bandit.remove_action(3)
    rows = enriched(episode(policy, 5, 90))
    rows = rows.take(rows.actions != 3)
    for number, part in enumerate((rows, replace(rows, eligible=None))):
        own = explicit.predict_proba(part.X, eligible=part.eligible)[np.arange(len(part)), part.actions]
        kept = own > 0
        implicit.partial_fit(**part.take(kept).columns(), allow_repeat=True)
        explicit.partial_fit(**replace(part, propensities=own).take(kept).columns(), allow_repeat=True)
        require_alike(implicit, explicit, f"part {number}")


def only_weighting_policies_read_propensities(policy: Policy) -> None:
    """Check that propensities change what is learned if and only if the policy has the trait "weighting"."""
    rows = episode(policy, 0, 60)
    learned = [
        frozen(fresh(policy).fix(contexts(300)).partial_fit(**replace(rows, propensities=chance).columns()))
        for chance in (np.full(60, 0.5), np.linspace(0.2, 0.9, 60))
    ]
    reads = learned[0] != learned[1]
    require(reads == ("weighting" in policy.traits), f"reads propensities: {reads}, but traits {sorted(policy.traits)}")


def an_empty_batch_is_no_episode(policy: Policy) -> None:
    """Check that a batch without rows changes nothing, decay and schedules included, before the first episode too."""
    nothing = episode(policy, 0, 0)
    for bandit in (fresh(policy), trained(policy)):
        before = frozen(bandit) if bandit.n_episodes_ else None
        bandit.partial_fit(**nothing.columns())
        require(before is None or frozen(bandit) == before, "an empty batch changed the state")
        require(bandit.n_episodes_ == (0 if before is None else 3), "an empty batch counted")
        state = bandit.state_ if before is not None else policy.init(N_ACTIONS, DIM, streams.generator(0, "init"))
        batch = Batch(contexts=nothing.X, actions=nothing.actions, rewards=nothing.rewards)
        after, info = policy.learn(state, batch, streams.generator(0, "learn"))
        same = packing.pack(after)[0] == packing.pack(state)[0] and after.episode == state.episode
        require(same and info.rows == 0, "an empty batch is an episode to the policy itself")
    require(len(trained(policy).decide(np.empty((0, DIM))).actions) == 0, "no contexts, no actions")


def a_never_tried_action_has_no_estimate(policy: Policy) -> None:
    """Check that a never-tried action has coefficients 0 and the matrix λI + γ_jΦ̂_j, where Φ̂_j is over all rows."""
    for ridge in RIDGES:
        _check_never_tried(replace(policy, **{"ridge": ridge}))


def _check_never_tried(policy: Any) -> None:
    bandit, imputed = fresh(policy).fix(contexts(300)), None
    sizes = _unsketched(policy, (40, 30))
    for number, size in enumerate(sizes):
        # With propensity 1, a rule that weights rows by their propensities leaves them unchanged.
        rows = replace(episode(policy, number, size, actions=N_ACTIONS - 1), propensities=np.ones(size))
        bandit.partial_fit(**rows.columns())
        columns = policy.feature_map.apply(bandit.state_.features, rows.X)  # type: ignore[attr-defined]
        gram = columns.T @ columns
        imputed = gram if imputed is None else policy.discount * imputed + gram
    assert imputed is not None
    rate = _rate(policy, len(sizes), 0.0, 1.0) if _imputes(policy, "widths") else 0.0
    psi = policy.ridge * np.eye(len(imputed)) + rate * imputed
    X = contexts(20)
    columns = policy.feature_map.apply(bandit.state_.features, X)  # type: ignore[attr-defined]
    decided = bandit.decide(X)
    require((bandit.coefficients_[-1] == 0).all(), f"λ = {policy.ridge}: coefficients of a never-tried action")
    require_close(
        decided.widths[:, -1], _widths(columns, psi), f"λ = {policy.ridge}: widths of a never-tried action", 1e-9
    )
    require((decided.means[:, -1] == 0).all(), f"λ = {policy.ridge}: means of a never-tried action")


def first_estimates_solve_the_ridge_equation(policy: Policy) -> None:
    """Check that after one episode θ_j = (λI + Φ_j + γ_jΦ̂_j)⁻¹b_j: the cold policy imputed rewards of 0."""
    for ridge in RIDGES:
        _check_estimates(replace(policy, **{"ridge": ridge}), (60,))


def later_estimates_solve_the_ridge_equation(policy: Policy) -> None:
    """Check θ_j and widths after three episodes: the acting coefficients impute, and older sums are discounted."""
    for ridge in RIDGES:
        _check_estimates(replace(policy, **{"ridge": ridge}), (60, 40, 50))


def _check_estimates(policy: Any, sizes: tuple[int, ...]) -> None:
    episodes = [
        replace(episode(policy, number, size), propensities=np.ones(size))
        for number, size in enumerate(_unsketched(policy, sizes))
    ]
    bandit, X = fresh(policy).fix(contexts(300)), contexts(20)
    for rows in episodes:
        bandit.partial_fit(**rows.columns())
    decided, features = bandit.decide(X), bandit.state_.features  # type: ignore[attr-defined]
    asked = policy.feature_map.apply(features, X)
    seen = [policy.feature_map.apply(features, rows.X) for rows in episodes]
    link, cap = LINKS[getattr(policy, "link", "linear")], getattr(policy, "imputed_cap", None)
    for action in range(N_ACTIONS):
        # The Gram matrix of the observed or the imputed rows, their moment as one more column, and their number.
        observed = imputed = np.zeros((asked.shape[1], asked.shape[1] + 1))
        executed, hidden, theta = 0.0, 0.0, np.zeros(asked.shape[1])
        with_imputed = observed
        for number, (S, rows) in enumerate(zip(seen, episodes, strict=True), 1):
            own = rows.actions == action
            guessed = link.reward(S @ theta, None if link.linear else cap)
            observed = policy.forgetting * observed + S[own].T @ np.column_stack([S, rows.rewards])[own]
            imputed = policy.discount * imputed + S[~own].T @ np.column_stack([S, guessed])[~own]
            executed = policy.forgetting * executed + own.sum()
            hidden = policy.discount * hidden + (~own).sum()
            with_imputed = observed + _rate(policy, number, executed, hidden) * imputed
            sums = with_imputed if _imputes(policy, "estimates") else observed
            theta = np.linalg.solve(sums[:, :-1] + policy.ridge * np.eye(len(theta)), sums[:, -1])
        gram = (with_imputed if _imputes(policy, "widths") else observed)[:, :-1]
        widths = _widths(asked, gram + policy.ridge * np.eye(len(theta)))
        what = f"λ = {policy.ridge}, action {action}"
        require_close(decided.means[:, action], link.score(asked @ theta), f"{what}: means", 1e-9)
        require_close(decided.widths[:, action], widths, f"{what}: widths", 1e-9)


def _widths(columns: Floats, psi: Floats) -> Floats:
    """Return √(sᵀΨ⁻¹s) of each row s."""
    return np.sqrt(np.einsum("np,np->n", columns, np.linalg.solve(psi, columns.T).T))


def _unsketched(policy: Any, sizes: tuple[int, ...]) -> list[int]:
    """Return sizes of episodes that are not sketched."""
    return [min(size, policy.sketch_size) if "sketched" in policy.traits else size for size in sizes]


def _imputes(policy: Any, what: str) -> bool:
    """Return whether imputed rewards change ``what``, "estimates" or "widths"."""
    return getattr(policy, "bonus", "imputed") in ("imputed", {"estimates": "observed", "widths": "only"}[what])


def _rate(policy: Any, episodes: int, observed: float, imputed: float) -> float:
    """Return γ_j after a number of episodes, by its definition, from the observed and the imputed weight."""
    if policy.imputation_rate == "balanced":
        return min(1.0, policy.balance * observed / imputed)
    if policy.imputation_rate == "paper-schedule":
        return min(1.0, np.ceil(10 * episodes / (policy.episodes or 90)) / 10)
    return float(policy.imputation_rate)


def layout_does_not_matter(policy: Policy) -> None:
    """Check that nested lists, single precision, Fortran order, strides and CSR give the same results."""
    kinds = {
        "list": lambda X: X.tolist(),
        "float32": lambda X: X.astype(np.float32),
        "Fortran": np.asfortranarray,
        "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        "CSR": csr_array,
    }
    plain, X, sample = fresh(policy), contexts(40), contexts(300, seed=1)
    # All have a map fixed on the same dense rows: sparse ones would be scaled without being centred.
    plain.fix(sample)
    for number, size in enumerate(SIZES):
        plain.partial_fit(**episode(policy, number, size).columns())
    for kind, convert in kinds.items():
        bandit = fresh(policy).fix(sample)
        for number, size in enumerate(SIZES):
            rows = episode(policy, number, size)
            bandit.partial_fit(**{**rows.columns(), "X": convert(rows.X), "actions": list(rows.actions)})
        require_alike(bandit, plain, kind)
        require_close(bandit.predict_proba(convert(X)), plain.predict_proba(X), f"{kind} contexts")
        require(np.array_equal(bandit.predict(convert(X)), plain.predict(X)), f"{kind}: predictions")
        require(len(bandit.decide(convert(X)).actions) == 40, f"{kind}: decisions")


def extreme_batches_are_learned(policy: Policy) -> None:
    """Check that one action, one row, more columns than rows, a constant context and rewards of ±10⁶ work."""
    shapes = {"one action": (1, 3, 40), "one row": (4, 3, 1), "more columns than rows": (4, 30, 8)}
    for name, (actions, dim, rows) in shapes.items():
        bandit = fresh(policy, actions=actions)
        for number in range(3):
            bandit.partial_fit(**episode(policy, number, rows, actions=actions, dim=dim).columns())
        _check_alive(bandit, contexts(20, dim=dim), name)
    changes: dict[str, Callable[[TrialRows], TrialRows]] = {
        "one action executed throughout": lambda rows: replace(rows, actions=np.full(len(rows), 2)),
        "one context everywhere": lambda rows: replace(rows, X=np.tile(rows.X[:1], (len(rows), 1))),
        "rewards of a million": lambda rows: replace(rows, rewards=np.where(rows.rewards > 0.5, 1e6, -1e6)),
    }
    if getattr(policy, "link", "linear") != "linear":
        del changes["rewards of a million"]  # nothing bounds the output of a nonlinear link
    for name, change in changes.items():
        bandit = fresh(policy)
        for number in range(3):
            bandit.partial_fit(**change(episode(policy, number, 200)).columns())
        _check_alive(bandit, contexts(20), name)


def _check_alive(bandit: Bandit, X: Floats, name: str) -> None:
    for part, values in table(bandit, X).items():
        require(np.isfinite(values).all(), f"{name}: {part} are not finite")
    require_close(bandit.predict_proba(X).sum(axis=1), np.ones(len(X)), f"{name}: sums", 1e-12)
    decided = bandit.decide(X)
    require((decided.propensities > 0).all(), f"{name}: propensities")
    require(bandit.n_episodes_ == 3, f"{name}: episodes")


LAWS = (
    law(inputs_are_never_written),
    law(later_changes_of_the_inputs_do_not_matter),
    law(the_order_of_rows_does_not_matter),
    law(names_of_actions_do_not_matter),
    law(a_weight_counts_as_copies),
    law(a_sketch_weighs_rows_by_scaling_them, needs={"sketched"}),
    law(propensities_default_to_the_own),
    law(only_weighting_policies_read_propensities),
    law(an_empty_batch_is_no_episode),
    law(a_never_tried_action_has_no_estimate, needs={"ridge"}, unless={"self-tuning"}),
    law(first_estimates_solve_the_ridge_equation, needs={"ridge"}, unless={"self-tuning"}),
    law(later_estimates_solve_the_ridge_equation, needs={"ridge"}, unless={"self-tuning"}),
    law(layout_does_not_matter),
    law(extreme_batches_are_learned),
)
