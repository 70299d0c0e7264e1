"""The paper's equations (2)-(4) and (6)-(8) as they are printed: one loop an index, one matrix a symbol.

Nothing here is fast, shared between actions or stacked. For every action j and episode the matrices S_j, R_j,
Ŝ_j, R̂_j and, where the batch is sketched, C_j and Ĉ_j are built row by row, and every linear system is solved
by NumPy's general solver. The fast paths of the library are held to this module.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spuir.base.records import Batch

LINK = {
    "linear": lambda z: z,
    "exp": lambda z: z * math.exp(z),  # ⟨θ, ∇exp⟨θ,s⟩⟩
    "poly": lambda z: 2 * z * z,  # ⟨θ, ∇⟨θ,s⟩²⟩
}


@dataclass
class Row:
    """One step of an episode: context, executed action, reward, weight, and what was revealed: action → reward."""

    context: np.ndarray
    action: int
    reward: float
    weight: float = 1.0
    revealed: dict[int, float] = field(default_factory=dict)
    id: int = 0


def rows_of(batch: Batch) -> list[Row]:
    """Return a batch as a list of rows."""
    contexts = batch.contexts.toarray() if hasattr(batch.contexts, "toarray") else batch.contexts
    rows = []
    for b, context in enumerate(np.asarray(contexts, dtype=float)):
        row = Row(context, int(batch.actions[b]), float(batch.rewards[b]), id=b)
        if batch.weights is not None:
            row.weight = float(batch.weights[b])
        if batch.row_ids is not None:
            row.id = int(batch.row_ids[b])
        if batch.revealed is not None and batch.revealed_rewards is not None:
            for k in np.flatnonzero(batch.revealed[b]):
                if k != row.action:
                    row.revealed[int(k)] = float(batch.revealed_rewards[b, k])
        rows.append(row)
    return rows


def sketch_matrix(sketch: Any, ids: list[int], key: int) -> np.ndarray:
    """Return C (c, number of ids) with one column an id, as an explicit matrix."""
    columns = sketch.columns(np.array(ids, dtype=np.int64), key)
    if isinstance(columns, np.ndarray):
        return columns
    C = np.zeros((sketch.size, len(ids)))
    for at, (buckets, signs) in enumerate(zip(*columns, strict=True)):
        for bucket, sign in zip(buckets, signs, strict=True):
            C[bucket, at] += sign
    return C


@dataclass
class NaivePolicy:
    """One policy of the paper, its parameters named as in the library."""

    n_actions: int
    dim: int
    ridge: float = 1.0
    imputation_rate: float | str = 0.0
    discount: float = 0.9
    balance: float = 1.0
    forgetting: float = 1.0
    link: str = "linear"
    imputed_cap: float | None = None
    sketch: Any = None
    moments: str = "anchored"
    episodes: int | None = None
    alpha: float = 0.1

    def __post_init__(self) -> None:
        M, d = self.n_actions, self.dim
        self.episode = 0
        self.Phi, self.b, self.n, self.energy = zeros(M, d, d), zeros(M, d), [0.0] * M, [0.0] * M
        self.Phi_hat, self.b_hat, self.n_hat = zeros(M, d, d), zeros(M, d), [0.0] * M

    # ---- one episode's matrices ----------------------------------------------------------------------------

    def observed(self, rows: list[Row], j: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Return S_j, R_j and the rows' ids; a row of weight w enters scaled by √w."""
        S, R, ids = [], [], []
        for row in rows:
            if row.action == j or j in row.revealed:
                reward = row.reward if row.action == j else row.revealed[j]
                S.append(math.sqrt(row.weight) * row.context)
                R.append(math.sqrt(row.weight) * reward)
                ids.append(row.id)
        return np.array(S).reshape(-1, self.dim), np.array(R), ids

    def imputed(self, rows: list[Row], j: int, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Return Ŝ_j, R̂_j and the ids of the rows on which j was neither executed nor revealed."""
        S, R, ids = [], [], []
        for row in rows:
            if row.action != j and j not in row.revealed:
                reward = LINK[self.link](float(theta @ row.context))
                if self.imputed_cap is not None and self.link != "linear":
                    reward = min(reward, self.imputed_cap)
                S.append(math.sqrt(row.weight) * row.context)
                R.append(math.sqrt(row.weight) * reward)
                ids.append(row.id)
        return np.array(S).reshape(-1, self.dim), np.array(R), ids

    # ---- learning ------------------------------------------------------------------------------------------

    def learn(self, batch: Batch, key: int = 0) -> None:
        """Update the sums by one episode; ``key`` is the episode's key of the sketch."""
        rows = rows_of(batch)
        acting = [self.theta(j) for j in range(self.n_actions)]
        for j in range(self.n_actions):
            S, R, ids = self.observed(rows, j)
            S_hat, R_hat, ids_hat = self.imputed(rows, j, acting[j])
            if self.sketch is None or len(rows) <= self.sketch.size:
                gram, moment, energy = S.T @ S, S.T @ R, float(R @ R)  # (3)
                gram_hat, moment_hat = S_hat.T @ S_hat, S_hat.T @ R_hat  # (4)
            else:
                C, C_hat = sketch_matrix(self.sketch, ids, key), sketch_matrix(self.sketch, ids_hat, key)
                gram, moment, energy = self.sketched(C, S, R, acting[j], weight_of(rows, ids))  # (7)
                gram_hat, moment_hat = self.sketched_imputed(C_hat, S_hat, R_hat, acting[j])  # (8)
            self.Phi[j] = self.forgetting * self.Phi[j] + gram
            self.b[j] = self.forgetting * self.b[j] + moment
            self.n[j] = self.forgetting * self.n[j] + weight_of(rows, ids)
            self.energy[j] = self.forgetting * self.energy[j] + energy
            self.Phi_hat[j] = self.discount * self.Phi_hat[j] + gram_hat
            self.b_hat[j] = self.discount * self.b_hat[j] + moment_hat
            self.n_hat[j] = self.discount * self.n_hat[j] + weight_of(rows, ids_hat)
        self.episode += 1

    def sketched(
        self, C: np.ndarray, S: np.ndarray, R: np.ndarray, acting: np.ndarray, weight: float
    ) -> tuple[Any, Any, float]:
        """Return Γ_jᵀΓ_j, the moment in the form that ``moments`` names, and the energy that belongs to both."""
        Gamma, Lambda = C @ S, C @ R
        G, H = Gamma.T @ Gamma, Gamma.T @ Gamma + self.ridge * np.eye(self.dim)
        reference = np.zeros(self.dim)
        if self.moments == "anchored":
            reference = acting
        if self.moments == "corrected":
            reference = np.linalg.solve(H, Gamma.T @ Lambda)
        left = R - S @ reference
        sketched, exact = Gamma.T @ (C @ left), S.T @ left
        shift = exact @ np.linalg.solve(H, exact)
        rest = C @ left - Gamma @ np.linalg.solve(H, sketched)
        noise = rest @ rest
        share = 1.0 if self.moments == "sketched" else 0.0
        if self.moments == "anchored" and shift + noise > 0:
            share = shift / (shift + noise)
        moment = G @ reference + share * sketched + (1 - share) * exact  # ΓᵀΛ of (7) where the share is 1
        # What the sums leave unexplained is n(σ² + τ²/c): noise, and the error of the moment that the sketch adds.
        size = len(C)
        k = min(weight, size)
        noise *= k / max(k - self.dim, 1.0)
        extra = (share**2 * noise + (1 - share) ** 2 * shift) / size
        return G, moment, float(noise + weight * extra + moment @ np.linalg.solve(H, moment))

    def sketched_imputed(self, C: np.ndarray, S: np.ndarray, R: np.ndarray, acting: np.ndarray) -> tuple[Any, Any]:
        """Return Γ̂_jᵀΓ̂_j and Γ̂_jᵀΛ̂_j; apart from the paper's moments, a link's bend is summed exactly."""
        Gamma, Lambda = C @ S, C @ R
        if self.moments == "sketched":
            return Gamma.T @ Gamma, Gamma.T @ Lambda  # (8)
        return Gamma.T @ Gamma, Gamma.T @ Gamma @ acting + S.T @ (R - S @ acting)

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

    def psi(self, j: int) -> np.ndarray:
        """Return Ψ_j = λI + Φ_j + γΦ̂_j, or W_j."""
        return self.ridge * np.eye(self.dim) + self.Phi[j] + self.gamma(j) * self.Phi_hat[j]

    def theta(self, j: int) -> np.ndarray:
        """Return θ_j of (2), or θ̃_j of (6)."""
        return np.linalg.solve(self.psi(j), self.b[j] + self.gamma(j) * self.b_hat[j])

    def tables(self, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return means T(θ_j, s), widths ‖s‖ in the norm of Ψ_j⁻¹, and scores (n, M) of contexts (n, d)."""
        shape = (len(contexts), self.n_actions)
        means, widths = np.empty(shape), np.empty(shape)
        for j in range(self.n_actions):
            theta, inverse = self.theta(j), np.linalg.inv(self.psi(j))
            for i, s in enumerate(contexts):
                means[i, j] = LINK[self.link](float(theta @ s))
                widths[i, j] = math.sqrt(s @ inverse @ s)
        return means, widths, means + self.alpha * widths


def zeros(n_actions: int, *shape: int) -> list[np.ndarray]:
    """Return one zero array an action."""
    return [np.zeros(shape) for _ in range(n_actions)]


def weight_of(rows: list[Row], ids: list[int]) -> float:
    """Return the summed weight of the rows with these ids."""
    weight = {row.id: row.weight for row in rows}
    return sum(weight[one] for one in ids)


def choose(scores: np.ndarray, eligible: np.ndarray, floor: float) -> np.ndarray:
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
