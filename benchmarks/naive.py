"""The paper's equations (2)–(4) and (6)–(8) as they are printed, action by action, in plain NumPy.

This is the one reference of the project. Tests compare the library with it, and the benchmarks race it as "the paper's
own form". For every action j the matrices S_j, R_j, Ŝ_j, R̂_j and, where the batch is sketched, C_j and Ĉ_j are formed
and multiplied; nothing is shared between actions, and NumPy's general solver solves every linear system. It uses none
of the library's arithmetic.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.sparse import csc_array

from spuir.base.records import Batch

Floats = NDArray[np.float64]

LINKS = {
    "linear": lambda z: z,
    "exp": lambda z: z * np.exp(z),  # ⟨θ, ∇exp⟨θ,s⟩⟩
    "poly": lambda z: 2 * z * z,  # ⟨θ, ∇⟨θ,s⟩²⟩
}


class Columns(Protocol):
    """A sketch: one column of c entries per row id, dense (c, N) or as buckets and signs, both (N, D)."""

    @property
    def size(self) -> int:
        """The number of rows c."""
        ...

    def columns(self, ids: Any, key: int) -> Any:
        """Return the columns of these ids."""
        ...


class Part(NamedTuple):
    """Rows of one action: S (N, d) and R (N,), each row scaled by √weight, the rows' ids, and their summed weight."""

    S: Floats
    R: Floats
    ids: NDArray[np.int64]
    weight: float


@dataclass
class FreshHash:
    """An SJLT with one block that is drawn anew at every call, whatever the ids: a map per action and term."""

    size: int
    rng: Generator

    def columns(self, ids: Any, key: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return one random bucket and one random sign per id."""
        shape = (len(ids), 1)
        return self.rng.integers(self.size, size=shape), self.rng.integers(2, size=shape) * 2.0 - 1.0


def sketch_matrix(sketch: Columns, ids: Any, key: int) -> Any:
    """Return C (c, N) with one column per id; sparse where the sketch hashes."""
    columns = sketch.columns(np.asarray(ids, dtype=np.int64), key)
    if isinstance(columns, np.ndarray):
        return columns
    buckets, signs = columns
    n, blocks = buckets.shape
    pointers = np.arange(0, n * blocks + 1, blocks)
    return csc_array((signs.ravel(), buckets.ravel(), pointers), shape=(sketch.size, n))


@dataclass
class NaivePolicy:
    """One policy of the paper; its parameters have the library's names.

    ``with_energy=False`` skips Σ w r² and its sketched counterpart, which the paper does not need.
    """

    n_actions: int
    dim: int
    ridge: float = 1.0
    imputation_rate: float | str = 0.0
    discount: float = 0.9
    balance: float = 1.0
    forgetting: float = 1.0
    link: str = "linear"
    imputed_cap: float | None = None
    sketch: Columns | None = None
    moments: str = "anchored"
    episodes: int | None = None
    alpha: float = 0.1
    bonus: str = "imputed"
    with_energy: bool = True

    def __post_init__(self) -> None:
        M, d = self.n_actions, self.dim
        self.episode = 0
        self.Phi, self.b, self.n, self.energy = zeros(M, d, d), zeros(M, d), [0.0] * M, [0.0] * M
        self.Phi_hat, self.b_hat, self.n_hat = zeros(M, d, d), zeros(M, d), [0.0] * M

    def add(self, like: int | None) -> None:
        """Add an action: empty, or a copy of ``like``."""
        self.n_actions += 1
        sums: list[Any]
        for sums in (self.Phi, self.b, self.n, self.energy, self.Phi_hat, self.b_hat, self.n_hat):
            sums.append(0 * sums[0] if like is None else 1 * sums[like])

    # ---- one episode's matrices ----------------------------------------------------------------------------

    def observed(self, batch: Batch, j: int) -> Part:
        """Return S_j and R_j: the rows on which j was executed or revealed."""
        seen, rewards = observed_rows(batch, j), batch.rewards[batch.actions == j]
        if batch.revealed is not None and batch.revealed_rewards is not None:
            rewards = np.where(batch.actions == j, batch.rewards, batch.revealed_rewards[:, j])[seen]
        return part(batch, seen, dense(batch.contexts)[seen], rewards)

    def imputed(self, batch: Batch, j: int, theta: Floats) -> Part:
        """Return Ŝ_j and R̂_j: the other rows, with the rewards that ``theta`` imputes."""
        hidden = ~observed_rows(batch, j)
        contexts = dense(batch.contexts)[hidden]
        rewards = LINKS[self.link](contexts @ theta)
        if self.imputed_cap is not None and self.link != "linear":
            rewards = np.minimum(rewards, self.imputed_cap)
        return part(batch, hidden, contexts, rewards)

    # ---- learning ------------------------------------------------------------------------------------------

    def learn(self, batch: Batch, key: int = 0) -> None:
        """Update the sums by one episode; ``key`` is the episode's key of the sketch."""
        whole = self.sketch is None or len(batch) <= self.sketch.size
        for j in range(self.n_actions):
            acting = self.theta(j)
            seen, hidden = self.observed(batch, j), self.imputed(batch, j, acting)
            if whole:
                gram, moment, energy = seen.S.T @ seen.S, seen.S.T @ seen.R, float(seen.R @ seen.R)  # (3)
                gram_hat, moment_hat = hidden.S.T @ hidden.S, hidden.S.T @ hidden.R  # (4)
            else:
                gram, moment, energy = self.sketched(seen, acting, key)  # (7)
                gram_hat, moment_hat = self.sketched_imputed(hidden, acting, key)  # (8)
            self.Phi[j] = self.forgetting * self.Phi[j] + gram
            self.b[j] = self.forgetting * self.b[j] + moment
            self.n[j] = self.forgetting * self.n[j] + seen.weight
            self.energy[j] = self.forgetting * self.energy[j] + energy
            self.Phi_hat[j] = self.discount * self.Phi_hat[j] + gram_hat
            self.b_hat[j] = self.discount * self.b_hat[j] + moment_hat
            self.n_hat[j] = self.discount * self.n_hat[j] + hidden.weight
        self.episode += 1

    def sketched(self, rows: Part, acting: Floats, key: int) -> tuple[Floats, Floats, float]:
        """Return Γ_jᵀΓ_j, the moment in the form that ``moments`` names, and the energy that belongs to both."""
        assert self.sketch is not None
        C = sketch_matrix(self.sketch, rows.ids, key)
        Gamma, Lambda = C @ rows.S, C @ rows.R
        G = Gamma.T @ Gamma
        if self.moments == "sketched" and not self.with_energy:
            return G, Gamma.T @ Lambda, 0.0  # (7)
        H = G + self.ridge * np.eye(self.dim)
        reference = np.zeros(self.dim)
        if self.moments == "anchored":
            reference = acting
        if self.moments == "corrected":
            reference = np.linalg.solve(H, Gamma.T @ Lambda)
        left = rows.R - rows.S @ reference
        sketched, exact = Gamma.T @ (C @ left), rows.S.T @ left
        shift = exact @ np.linalg.solve(H, exact)
        rest = C @ left - Gamma @ np.linalg.solve(H, sketched)
        noise = rest @ rest
        share = 1.0 if self.moments == "sketched" else 0.0
        if self.moments == "anchored" and shift + noise > 0:
            share = shift / (shift + noise)
        moment = G @ reference + share * sketched + (1 - share) * exact  # ΓᵀΛ of (7) where the share is 1
        # The sums leave n(σ² + τ²/c) unexplained: the noise, and the error of the moment that the sketch adds.
        size = self.sketch.size
        k = min(rows.weight, size)
        noise *= k / max(k - self.dim, 1.0)
        extra = (share**2 * noise + (1 - share) ** 2 * shift) / size
        return G, moment, float(noise + rows.weight * extra + moment @ np.linalg.solve(H, moment))

    def sketched_imputed(self, rows: Part, acting: Floats, key: int) -> tuple[Floats, Floats]:
        """Return Γ̂_jᵀΓ̂_j and Γ̂_jᵀΛ̂_j; except with the paper's moments, a link's nonlinear part is summed exactly."""
        assert self.sketch is not None
        C = sketch_matrix(self.sketch, rows.ids, key)
        Gamma = C @ rows.S
        gram = Gamma.T @ Gamma
        if self.moments == "sketched":
            return gram, Gamma.T @ (C @ rows.R)  # (8)
        return gram, gram @ acting + rows.S.T @ (rows.R - rows.S @ acting)

    # ---- what follows from the sums ------------------------------------------------------------------------

    def gamma(self, j: int) -> float:
        """Return the imputation rate of action j."""
        if self.imputation_rate == "paper-schedule":
            horizon = self.episodes if self.episodes is not None else 90
            for tenth in range(11):
                if tenth * horizon >= 10 * self.episode:
                    return tenth / 10
            return 1.0
        if self.imputation_rate == "balanced":
            return min(1.0, self.balance * self.n[j] / self.n_hat[j]) if self.n_hat[j] > 0 else 0.0
        return float(self.imputation_rate)

    def psi(self, j: int, gamma: float) -> Floats:
        """Return Ψ_j = λI + Φ_j + γΦ̂_j, or W_j."""
        return self.ridge * np.eye(self.dim) + self.Phi[j] + gamma * self.Phi_hat[j]

    def theta(self, j: int) -> Floats:
        """Return θ_j of (2), or θ̃_j of (6)."""
        gamma = 0.0 if self.bonus == "only" else self.gamma(j)
        return np.linalg.solve(self.psi(j, gamma), self.b[j] + gamma * self.b_hat[j]).astype(np.float64, copy=False)

    def tables(self, contexts: Floats) -> tuple[Floats, Floats, Floats]:
        """Return means T(θ_j, s), widths ‖s‖ in the norm of Ψ_j⁻¹, and scores of (9), each (n, M)."""
        shape = (len(contexts), self.n_actions)
        means, widths = np.empty(shape), np.empty(shape)
        for j in range(self.n_actions):
            gamma = 0.0 if self.bonus == "observed" else self.gamma(j)
            theta, inverse = self.theta(j), np.linalg.inv(self.psi(j, gamma))
            for i, s in enumerate(contexts):
                means[i, j] = LINKS[self.link](float(theta @ s))
                widths[i, j] = math.sqrt(s @ inverse @ s)
        return means, widths, means + self.alpha * widths


def dense(contexts: Any) -> Floats:
    """Return contexts, sparse or not, as a float64 array."""
    return np.asarray(contexts.toarray() if hasattr(contexts, "toarray") else contexts, dtype=np.float64)


def observed_rows(batch: Batch, j: int) -> NDArray[np.bool_]:
    """Return on which rows (B,) the reward of action j is known."""
    seen = batch.actions == j
    return seen if batch.revealed is None else seen | batch.revealed[:, j]


def part(batch: Batch, chosen: NDArray[np.bool_], contexts: Floats, rewards: Floats) -> Part:
    """Return the chosen rows (B,), of which contexts and rewards are given; weight w scales a row by √w."""
    rows = np.flatnonzero(chosen)
    ids = rows if batch.row_ids is None else batch.row_ids[rows]
    if batch.weights is None:
        return Part(contexts, rewards, ids, float(len(rows)))
    weights = batch.weights[rows]
    return Part(contexts * np.sqrt(weights)[:, None], rewards * np.sqrt(weights), ids, float(weights.sum()))


def zeros(n_actions: int, *shape: int) -> list[Floats]:
    """Return one zero array per action."""
    return [np.zeros(shape) for _ in range(n_actions)]


def choose(scores: Floats, eligible: NDArray[np.bool_], floor: float) -> Floats:
    """Return the probabilities (n, M): the best eligible score, ties within 1e-12 shared, the floor mixed in."""
    out = np.zeros(scores.shape)
    for i in range(len(scores)):
        allowed = [j for j in range(scores.shape[1]) if eligible[i, j]]
        top = max(scores[i, j] for j in allowed)
        tied = [j for j in allowed if scores[i, j] >= top - 1e-12 * abs(top)]
        for j in allowed:
            rule = 1 / len(tied) if j in tied else 0.0
            out[i, j] = floor + (1 - len(allowed) * floor) * rule
    return out
