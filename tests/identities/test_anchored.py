"""The anchored moment: between the paper's and the exact one, and nearer to the truth than either.

With H = SᵀS, G = ΓᵀΓ, θ the least squares solution of the batch, e = R − Sθ and δ = θ − θ_a: both moments would
lead to θ if they were Gθ. The paper's misses it by ΓᵀCe, the exact one about θ_a by (H − G)δ.
"""

from typing import Any

import numpy as np
import pytest

from spuir import make_policy
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.policies.ridge import Ridge
from spuir.sketches import make_sketch

ROWS, DIM, SIZE = 300, 5, 60


def sketched_sums(
    moments: str, S: np.ndarray, R: np.ndarray, acting: np.ndarray, draw: int, ridge: float = 1e-6, **given: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the library adds to G and p for a batch of one action, acting with ``acting``."""
    parameters = {"sketch_size": SIZE, "imputation_rate": 0.0, "ridge": ridge, **given}
    policy = make_policy("spuir", moments=moments, **parameters)
    assert isinstance(policy, Ridge)
    state = policy.init(1, S.shape[1], generator(0, "init"))
    state.observed.moment[0] = ridge * acting  # so that the state's coefficients are these
    batch = Batch(contexts=S, actions=np.zeros(len(S), np.intp), rewards=R)
    after, _ = policy.learn(state, batch, generator(draw, "learn"))
    return after.observed.gram[0], after.observed.moment[0] - state.observed.moment[0]


def problem(rng: np.random.Generator, ratio: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return S, R, the least squares solution θ and acting coefficients with ‖Sδ‖ = ratio·‖e‖."""
    S, theta, delta = 0.3 + rng.normal(size=(ROWS, DIM)), rng.normal(size=DIM), rng.normal(size=DIM)
    e = rng.normal(size=ROWS)
    e -= S @ np.linalg.lstsq(S, e, rcond=None)[0]
    e *= 0.0 if ratio == np.inf else 1.0 / np.linalg.norm(e)
    delta *= (1.0 if ratio == np.inf else ratio) / np.linalg.norm(S @ delta)
    return S, S @ theta + e, theta, theta - delta


def exact_about(S: np.ndarray, R: np.ndarray, G: np.ndarray, acting: np.ndarray) -> np.ndarray:
    return G @ acting + S.T @ (R - S @ acting)


@pytest.mark.parametrize("draw", range(20))
def test_without_noise_it_is_the_papers(draw: int) -> None:
    S, R, theta, acting = problem(generator(draw, "noiseless"), np.inf)
    G, anchored = sketched_sums("anchored", S, R, acting, draw)
    G_paper, paper = sketched_sums("sketched", S, R, acting, draw)
    np.testing.assert_array_equal(G, G_paper)
    np.testing.assert_allclose(paper, G @ theta, atol=1e-9)  # no noise: the paper's is without error
    np.testing.assert_allclose(anchored, paper, rtol=1e-9, atol=1e-9)
    assert np.abs(exact_about(S, R, G, acting) - paper).max() > 1e-3


@pytest.mark.parametrize("sketch", ["sjlt", "gaussian"])
def test_about_the_least_squares_solution_it_is_the_exact_one(sketch: str) -> None:
    S, R, theta, _ = problem(generator(1, "least squares"), 1.0)
    G, anchored = sketched_sums("anchored", S, R, theta, 1, sketch=sketch)
    np.testing.assert_allclose(anchored, exact_about(S, R, G, theta), rtol=1e-9)
    np.testing.assert_allclose(anchored, G @ theta, rtol=1e-9)
    _, paper = sketched_sums("sketched", S, R, theta, 1, sketch=sketch)
    assert np.abs(anchored - paper).max() > 1e-3 * np.abs(paper).max()


@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_it_lies_between_the_two(ratio: float) -> None:
    S, R, _, acting = problem(generator(2, "between"), ratio)
    G, anchored = sketched_sums("anchored", S, R, acting, 2)
    _, paper = sketched_sums("sketched", S, R, acting, 2)
    exact = exact_about(S, R, G, acting)
    share = float((anchored - exact) @ (paper - exact) / ((paper - exact) @ (paper - exact)))
    np.testing.assert_allclose(anchored, share * paper + (1 - share) * exact, rtol=1e-8)
    # The share of the paper's is that of the acting coefficients' error, here within a factor of two.
    wanted = ratio**2 / (1 + ratio**2)
    assert 0 <= share <= 1
    assert share / (1 - share + 1e-3) == pytest.approx(wanted / (1 - wanted + 1e-3), rel=1.0)


def test_a_shift_of_all_coefficients_shifts_it_along() -> None:
    S, R, _, acting = problem(generator(3, "shift"), 1.0)
    G, anchored = sketched_sums("anchored", S, R, acting, 3)
    _, about_nought = sketched_sums("anchored", S, R - S @ acting, np.zeros(DIM), 3)
    np.testing.assert_allclose(anchored, G @ acting + about_nought, rtol=1e-9, atol=1e-9)


def test_rewards_that_were_predicted_to_the_last_bit_leave_no_doubt() -> None:
    S, acting = np.eye(DIM)[np.arange(ROWS) % DIM], np.arange(1.0, DIM + 1)
    G, anchored = sketched_sums("anchored", S, S @ acting, acting, 4, ridge=1.0)
    np.testing.assert_allclose(anchored, G @ acting, rtol=1e-12)
    G, anchored = sketched_sums("anchored", S, np.zeros(ROWS), np.zeros(DIM), 4)
    assert not anchored.any()


@pytest.mark.parametrize("kind", ["sjlt", "gaussian"])
def test_the_two_errors_have_the_stated_size_and_do_not_go_together(kind: str) -> None:
    S, R, theta, acting = problem(generator(5, "errors"), 1.0)
    H, e, delta, draws = S.T @ S, R - S @ theta, theta - acting, 600
    root = np.linalg.cholesky(np.linalg.inv(H))
    sketch, noise, drift = make_sketch(kind, size=SIZE), [], []
    both, one, ids = np.column_stack([S, e]), np.zeros(ROWS, np.intp), np.arange(ROWS)
    for key in range(draws):
        hashed = sketch.sums(both, one, 1, ids, key)[0]
        Gamma, noise_sketch = hashed[:, :DIM], hashed[:, DIM]
        noise.append(root.T @ (Gamma.T @ noise_sketch))
        drift.append(root.T @ (H @ delta - Gamma.T @ (Gamma @ delta)))
    # E‖ΓᵀCe‖² = p‖e‖²/c and E‖(H−G)δ‖² = (p+1)‖Sδ‖²/c in the norm of H⁻¹. Each mean has a relative standard error
    # below 4 %; with the entries' own terms of order 1/B, 20 % is off by chance less than once in 100,000.
    assert np.sum(np.square(noise)) / draws == pytest.approx(DIM * (e @ e) / SIZE, rel=0.2)
    assert np.sum(np.square(drift)) / draws == pytest.approx((DIM + 1) * (delta @ H @ delta) / SIZE, rel=0.2)
    # The mean inner product has a standard error of about 1/√(5·600) of their sizes: six of them.
    together = np.sum(np.multiply(noise, drift)) / np.sqrt(np.sum(np.square(noise)) * np.sum(np.square(drift)))
    assert abs(together) < 6 / np.sqrt(DIM * draws)


@pytest.mark.parametrize("ratio", [0.05, 0.3, 1.0, 3.0, 20.0])
def test_its_mean_squared_error_is_below_both_others(ratio: float) -> None:
    draws = 150
    losses = np.empty((draws, 3))
    for draw in range(draws):
        S, R, theta, acting = problem(generator(draw, "loss"), ratio)
        H, ridge = S.T @ S, 1e-6 * np.eye(DIM)
        G, anchored = sketched_sums("anchored", S, R, acting, draw)
        _, paper = sketched_sums("sketched", S, R, acting, draw)
        for at, moment in enumerate((anchored, paper, exact_about(S, R, G, acting))):
            miss = np.linalg.solve(G + ridge, moment) - theta
            losses[draw, at] = miss @ H @ miss
    # Paired differences: three standard errors below nought, wrong at most once in 700 where there is no gain; where
    # one moment is hopeless the gain over the other is small, and not being above it by chance has to do.
    gain = losses[:, 1:] - losses[:, :1]
    z = gain.mean(axis=0) / (gain.std(axis=0) / np.sqrt(draws))
    assert z.max() > 3.0
    assert z.min() > (3.0 if 0.2 < ratio < 2.0 else -1.0)
