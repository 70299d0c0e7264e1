"""Ridge learning as the paper writes it: one loop over actions, every matrix formed, nothing shared or cached.

Slow and plain on purpose. What the library computes by identities and in blocks is compared with this.
"""

import numpy as np

from spuir.base.records import Batch
from spuir.policies.ridge import Ridge

LINKS = {"linear": lambda z: z, "exp": lambda z: z * np.exp(z), "poly": lambda z: 2 * z**2}


class NaiveRidge:
    """The state of a ridge policy over feature rows of ``width`` columns, as M separate regressions."""

    def __init__(self, policy: Ridge, n_actions: int, width: int) -> None:
        self.policy, self.width, self.episode = policy, width, 0
        self.gram = [np.zeros((width, width)) for _ in range(n_actions)]
        self.moment = [np.zeros(width) for _ in range(n_actions)]
        self.weight = [0.0] * n_actions
        self.imputed_gram = [np.zeros((width, width)) for _ in range(n_actions)]
        self.imputed_moment = [np.zeros(width) for _ in range(n_actions)]
        self.imputed_weight = [0.0] * n_actions

    def add(self, like: int | None) -> None:
        """Add an action: cold, or a copy of ``like``."""
        for name, cold in {"gram": (self.width,) * 2, "moment": self.width, "weight": ()}.items():
            for sums in (getattr(self, name), getattr(self, f"imputed_{name}")):
                sums.append(np.zeros(cold) if like is None else np.array(sums[like]))

    def rate(self, j: int) -> float:
        """γ_j."""
        policy = self.policy
        if policy.imputation_rate == "balanced":
            if self.imputed_weight[j] == 0 or self.weight[j] == 0:
                return 0.0
            return min(1.0, policy.balance * self.weight[j] / self.imputed_weight[j])
        if policy.imputation_rate == "paper-schedule":
            return min(1.0, np.ceil(10 * self.episode / (policy.episodes or 90)) / 10)
        return float(policy.imputation_rate)

    def psi(self, j: int) -> np.ndarray:
        """Ψ_j = λI + Φ_j + γΦ̂_j."""
        return self.policy.ridge * np.eye(self.width) + self.gram[j] + self.rate(j) * self.imputed_gram[j]

    def theta(self, j: int) -> np.ndarray:
        """θ_j = Ψ_j⁻¹(b_j + γb̂_j)."""
        return np.linalg.solve(self.psi(j), self.moment[j] + self.rate(j) * self.imputed_moment[j])

    def says(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means T(θ_j,s) and widths ‖s‖ in the inverse of Ψ_j, each (n, M)."""
        actions = range(len(self.gram))
        means = np.stack([LINKS[self.policy.link](rows @ self.theta(j)) for j in actions], axis=1)
        squares = [np.einsum("np,pn->n", rows, np.linalg.solve(self.psi(j), rows.T)) for j in actions]
        return means, np.sqrt(np.stack(squares, axis=1))

    def learn(self, rows: np.ndarray, batch: Batch, weights: np.ndarray, key: int) -> None:
        """Learn from feature rows (B, p) with the given weights; ``key`` is that of the episode's hash."""
        policy, n = self.policy, len(rows)
        acting = [self.theta(j) for j in range(len(self.gram))]
        revealed = np.zeros((n, len(self.gram)), bool) if batch.revealed is None else batch.revealed
        for j, theta in enumerate(acting):
            own = [b for b in range(n) if batch.actions[b] == j or revealed[b, j]]
            rest = [b for b in range(n) if b not in set(own)]
            seen = [batch.rewards[b] if batch.actions[b] == j else batch.revealed_rewards[b, j] for b in own]  # type: ignore
            rewards = np.array(seen)
            gram, moment = self._observed(rows[own], rewards, weights[own], self._hash(batch, own, key), theta)
            self.gram[j] = policy.forgetting * self.gram[j] + gram
            self.moment[j] = policy.forgetting * self.moment[j] + moment
            self.weight[j] = policy.forgetting * self.weight[j] + weights[own].sum()
            gram, moment = self._imputed(rows[rest], weights[rest], self._hash(batch, rest, key), theta)
            self.imputed_gram[j] = policy.discount * self.imputed_gram[j] + gram
            self.imputed_moment[j] = policy.discount * self.imputed_moment[j] + moment
            self.imputed_weight[j] = policy.discount * self.imputed_weight[j] + weights[rest].sum()
        self.episode += 1

    def _hash(self, batch: Batch, chosen: list[int], key: int) -> np.ndarray | None:
        """C_j (c, k) of the chosen rows; None where the whole batch is kept."""
        if self.policy.sketch == "identity" or len(batch) <= self.policy.sketch_size:
            return None
        ids = np.arange(len(batch)) if batch.row_ids is None else batch.row_ids
        one = np.zeros(len(chosen), np.intp)
        return self.policy.learner.summation.sketch.sums(np.eye(len(chosen)), one, 1, ids[chosen], key)[0]

    def _observed(self, S, R, w, C, theta) -> tuple[np.ndarray, np.ndarray]:
        """Φ_j and b_j of one episode, or G_j and p_j, by the chosen kind of moments."""
        root = np.sqrt(w)
        if C is None:
            return S.T @ np.diag(w) @ S, S.T @ np.diag(w) @ R
        CS, CR = C @ (root[:, None] * S), C @ (root * R)  # Γ and Λ
        G, sketched = CS.T @ CS, CS.T @ CR
        solve = np.linalg.solve
        ridge = self.policy.ridge * np.eye(self.width)
        match self.policy.moments:
            case "sketched":
                return G, sketched
            case "exact":
                return G, S.T @ (w * R)
            case "corrected":
                batch_theta = solve(G + ridge, sketched)
                return G, G @ batch_theta + S.T @ (w * (R - S @ batch_theta))
        exact, hashed = S.T @ (w * (R - S @ theta)), sketched - G @ theta
        shift = exact @ solve(G + ridge, exact)
        noise = np.sum((CR - CS @ (theta + solve(G + ridge, hashed))) ** 2)
        share = shift / (shift + noise) if shift + noise > 0 else 0.0
        return G, G @ theta + share * hashed + (1 - share) * exact

    def _imputed(self, S, w, C, theta) -> tuple[np.ndarray, np.ndarray]:
        """Φ̂_j and b̂_j of one episode: imputed rewards from the θ that acted, capped for nonlinear links."""
        root, z = np.sqrt(w), S @ theta
        R = LINKS[self.policy.link](z)
        if self.policy.link != "linear" and self.policy.imputed_cap is not None:
            R = np.minimum(R, self.policy.imputed_cap)
        if C is None:
            return S.T @ np.diag(w) @ S, S.T @ np.diag(w) @ R
        CS = C @ (root[:, None] * S)  # Γ̂
        if self.policy.moments == "sketched":
            return CS.T @ CS, CS.T @ (C @ (root * R))
        return CS.T @ CS, CS.T @ CS @ theta + S.T @ (w * (R - z))
