"""The default policy against its recipe written out row by row, and what makes it safe without tuning."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import spuir
from spuir.base.streams import generator
from spuir.errors import InputError, SnapshotError
from spuir.policies.auto import Auto, AutoState
from spuir.storage import snapshot

M, D = 3, 4
SIZES = (300, 40, 90, 200, 60, 120, 80)


def policy(**given: Any) -> Any:
    return spuir.make_policy("auto", **{"landmarks": 15, "floor": 0.0, **given})


def rows(number: int, n: int, curved: bool = True, empty: bool = False) -> dict[str, Any]:
    """Return an episode; with ``empty`` the last action is never executed."""
    rng = generator(number, "auto rows")
    X = rng.normal([0.0, 50.0, -3.0, 1e4], [1.0, 20.0, 0.1, 2e3], (n, D))
    actions = rng.integers(M - empty, size=n)
    z = (X - [0.0, 50.0, -3.0, 1e4]) / [1.0, 20.0, 0.1, 2e3]
    signal = np.cos(2 * z[:, 0] + actions) if curved else z[:, 0] * (actions - 1.0)
    rewards = 5.0 + signal + 0.3 * z[:, 1] + 0.5 * rng.standard_normal(n)
    return {"X": X, "actions": actions, "rewards": rewards, "sample_weight": rng.integers(1, 3, n).astype(float)}


def taught(made: Any, sizes: Any = SIZES, **given: Any) -> spuir.Bandit:
    bandit = spuir.Bandit(made, M, random_state=0)
    for number, size in enumerate(sizes):
        bandit.partial_fit(**rows(number, size, **given))
    return bandit


class Recipe:
    """The recipe as it is written: one copy of a row per unit of weight, and no sums."""

    def __init__(self, made: Any, state: AutoState, forgetting: float) -> None:
        self.made, self.features, self.forgetting = made, state.features, forgetting
        self.S, self.a, self.r = np.empty((0, D)), np.empty(0, int), np.empty(0)
        self.w = np.empty(0)
        self.lam: dict[str, Any] = {}
        self.v, self.n, self.last, self.linear = 0.0, 0, 0, True

    def blocks(self, name: str) -> list[list[int]]:
        p = self.made.width(D)
        linear, kernel = list(range(D)), list(range(D, p - 1))
        return [[D], linear] if name == "linear" else [[p - 1], linear, kernel]

    def phi(self, name: str, X: Any) -> Any:
        every = self.made.feature_map.apply(self.features, X)
        return every[:, [*range(D), every.shape[1] - 1]] if name == "linear" else every

    def solve(self, name: str, lam: Any) -> dict[str, Any]:
        phi, N = self.phi(name, self.S), self.w.sum()
        mean = (self.w * self.r).sum() / N
        diagonal = np.empty(phi.shape[1])
        for block, value in zip(self.blocks(name), lam, strict=True):
            diagonal[block] = value
        psi, theta, left = [], [], 0.0
        for j in range(M):
            own = self.a == j
            P, w, y = phi[own], self.w[own], self.r[own] - mean
            psi.append((P.T * w) @ P + np.diag(diagonal))
            theta.append(np.linalg.solve(psi[j], P.T @ (w * y)))
            left += (w * y * y).sum() - (w * y) @ P @ theta[j]
        noise = max(left / N, 1e-12 * self.v)
        logdet = sum(np.linalg.slogdet(one)[1] for one in psi)
        evidence = -0.5 * (N * np.log(noise) + logdet - M * np.log(diagonal).sum())
        return {"mean": mean, "psi": psi, "theta": np.array(theta), "noise": noise, "evidence": evidence, "lam": lam}

    def step(self, name: str, fit: dict[str, Any]) -> list[float]:
        most = max((self.w * (self.a == j)).sum() for j in range(M))
        least = max(fit["noise"] / (2 * self.v), 1e-9 * (1 + most))
        lam = []
        for q, block in enumerate(self.blocks(name)):
            trace = sum(np.trace(np.linalg.inv(one)[np.ix_(block, block)]) for one in fit["psi"])
            g = max(M * len(block) - fit["lam"][q] * trace, 1e-3)
            length = max((fit["theta"][:, block] ** 2).sum(), 1e-12 * self.v)
            lam.append(float(np.clip(fit["noise"] * g / length, least, 1e3)))
        return lam

    def learn(self, X: Any, actions: Any, rewards: Any, sample_weight: Any) -> None:
        self.n += 1
        keep = self.forgetting
        self.S, self.a = np.vstack([self.S, X]), np.append(self.a, actions)
        self.r, self.w = np.append(self.r, rewards), np.append(keep * self.w, sample_weight)
        mean = np.average(rewards, weights=sample_weight)
        if sample_weight.sum() >= 30:
            self.v = max(keep * self.v, np.average((rewards - mean) ** 2, weights=sample_weight))
        due = self.n <= 4 or self.n >= 1.45 * self.last or (keep < 1 and (self.n - self.last) >= 1 / (1 - keep))
        if due:
            fits = {}
            for name, size in (("linear", 2), ("all", 3)):
                fit = self.solve(name, self.lam.get(name, [1.0] * size))
                for _ in range(2 if self.last else 6):
                    fit = self.solve(name, self.step(name, fit))
                fits[name], self.lam[name] = fit, fit["lam"]
            self.linear = fits["linear"]["evidence"] >= fits["all"]["evidence"]
            self.evidence = [fits["linear"]["evidence"], fits["all"]["evidence"]]
            self.last = self.n
        name = "linear" if self.linear else "all"
        self.fit, self.name = self.solve(name, self.lam[name]), name

    def table(self, X: Any) -> tuple[Any, Any, Any]:
        phi, sigma = self.phi(self.name, X), np.sqrt(self.fit["noise"])
        means = phi @ self.fit["theta"].T
        widths = np.stack([np.sqrt((phi @ np.linalg.inv(one) * phi).sum(axis=1)) for one in self.fit["psi"]], axis=1)
        shares = np.zeros_like(means)
        for k in range(16):
            best = (means + sigma * (k + 0.5) / 8 * widths).argmax(axis=1)
            shares[np.arange(len(X)), best] += 1 / 16
        return means + self.fit["mean"], means + sigma * widths + self.fit["mean"], shares


@pytest.mark.parametrize("forgetting", [1.0, 0.8])
@pytest.mark.parametrize("curved", [True, False])
@pytest.mark.parametrize("empty", [False, True])
def test_it_is_the_recipe(forgetting: float, curved: bool, empty: bool) -> None:
    made = policy(forgetting=forgetting)
    bandit = spuir.Bandit(made, M, random_state=0)
    naive, probe = None, rows(99, 200)["X"]
    for number, size in enumerate(SIZES):
        given = rows(number, size, curved, empty)
        bandit.partial_fit(**given)
        state: Any = bandit.state_
        naive = naive or Recipe(made, state, forgetting)
        naive.learn(**given)
        assert (state.linear, state.updated) == (naive.linear, naive.last)
        np.testing.assert_allclose(state.linear_ridges, naive.lam["linear"], rtol=1e-6)
        np.testing.assert_allclose(state.ridges, naive.lam["all"], rtol=1e-6)
        np.testing.assert_allclose(state.evidence, naive.evidence, rtol=1e-8)
    assert naive is not None
    means, scores, shares = naive.table(probe)
    decided = bandit.decide(probe)
    np.testing.assert_allclose(decided.means, means, rtol=1e-7)
    np.testing.assert_allclose(bandit.decision_function(probe), scores, rtol=1e-7)
    np.testing.assert_allclose(bandit.predict_proba(probe), shares, atol=1e-12)
    np.testing.assert_allclose(decided.propensities, shares[np.arange(200), decided.actions], atol=1e-12)
    assert 0 < (shares.max(axis=1) < 1).mean() < 1  # some rows are left to chance, some are not


def test_curves_need_the_kernel_and_lines_do_not() -> None:
    curved: Any = taught(policy(), curved=True)
    straight: Any = taught(policy(), curved=False)
    told = curved.diagnosis()
    assert told["model"] == "linear + kernel" and told["evidence difference"] > 0 and 0.3 < told["kernel share"] <= 1
    assert told["noise"] == pytest.approx(0.5, rel=0.4) and set(told["ridges"]) == {"constant", "linear", "kernel"}
    told = straight.diagnosis()
    assert told["model"] == "linear" and told["evidence difference"] <= 0 and told["kernel share"] == 0
    # Column 1 earns 0.3 per standard deviation of 20, whatever the action; column 0 one per unit of action − 1.
    np.testing.assert_allclose(straight.coefficients_[:, 1], 0.3 / 20, atol=0.006)
    np.testing.assert_allclose(straight.coefficients_[:, 0], [-1.0, 0.0, 1.0], atol=0.12)
    errors = straight.policy_.standard_errors(straight.state_)
    assert (np.abs(straight.coefficients_[:, 1] - 0.3 / 20) < 4 * errors[:, 1]).all()
    fitted = straight.coefficients_ @ rows(5, 50)["X"].T + straight.intercept_[:, None]
    np.testing.assert_allclose(fitted.T, straight.decide(rows(5, 50)["X"]).means, atol=0.05)


def test_columns_whose_squares_overflow_are_refused_and_change_nothing() -> None:
    bandit, first = spuir.Bandit(policy(), M, random_state=0), rows(0, 300)
    with pytest.raises(InputError, match=r"at row \d+, column \d, which overflows the score"):
        bandit.partial_fit(**first | {"X": first["X"] * 1e200})
    one = first["X"].copy()
    one[7:9, 1] = [1e308, -1e308]
    with pytest.raises(InputError, match=r"1e\+308 at row 7, column 1, which overflows"):
        bandit.partial_fit(**first | {"X": one})
    again, plain = bandit.partial_fit(**first), spuir.Bandit(policy(), M, random_state=0).partial_fit(**first)
    np.testing.assert_array_equal(again.predict_proba(first["X"]), plain.predict_proba(first["X"]))


@pytest.mark.parametrize(("scale", "offset"), [(1e-8, 0.0), (1e8, 0.0), (1.0, 1e8), (1.0, -1e6)])
def test_the_units_of_rewards_change_no_decision(scale: float, offset: float) -> None:
    plain, other = taught(policy()), spuir.Bandit(policy(), M, random_state=0)
    for number, size in enumerate(SIZES):
        given = rows(number, size)
        other.partial_fit(**{**given, "rewards": scale * given["rewards"] + offset})
    X = rows(99, 400)["X"]
    np.testing.assert_allclose(other.predict_proba(X), plain.predict_proba(X), atol=1 / 16 + 1e-9)
    assert (other.predict(X) == plain.predict(X)).mean() > 0.995


def test_the_units_of_columns_change_nothing_given_the_landmarks() -> None:
    plain, a, b = taught(policy()), np.array([1e-3, 7.0, 1e5, -2.0]), np.array([1e6, -3.0, 0.0, 5.0])
    state: Any = plain.state_
    moved_scaling = replace(
        state.features.scaling,
        origin=a * state.features.scaling.origin + b,
        mean=a * state.features.scaling.mean,
        scale=a * state.features.scaling.scale,
    )
    moved = replace(state, features=replace(state.features, scaling=moved_scaling))
    X, everyone = rows(99, 100)["X"], np.ones((100, M), np.bool_)
    made: Any = policy()
    left, right = made.table(state, X, everyone), made.table(moved, a * X + b, everyone)
    np.testing.assert_allclose(right.means, left.means, rtol=1e-6)
    # And the map that raw columns in other units fix has the same scales: z does not change.
    other = made.init(M, D, generator(0, "init"))
    z, moved_z = (made.fix(other, rows_).features.scaling.apply(rows_) for rows_ in (X, a * X + b))
    np.testing.assert_allclose(moved_z, np.sign(a) * z, atol=1e-6)


def test_small_first_episodes_wait_and_are_learned_in_order() -> None:
    made, sizes = policy(), (1, 100, 100, 60, 90)
    bandit = spuir.Bandit(made, M, random_state=0)
    for number, size in enumerate(sizes):
        bandit.partial_fit(**rows(number, size))
        state: Any = bandit.state_
        assert state.episode == number + 1
        assert made.fixed(state) == (
            sum(rows(n, s)["sample_weight"].sum() for n, s in enumerate(sizes[: number + 1])) >= 256
        )
        if not made.fixed(state):
            np.testing.assert_allclose(bandit.predict_proba(rows(9, 20)["X"]), 1 / M)
    known = spuir.Bandit(made, M, random_state=0)
    waited = [rows(n, s) for n, s in enumerate(sizes)]
    first = int(np.flatnonzero(np.cumsum([one["sample_weight"].sum() for one in waited]) >= 256)[0]) + 1
    sample = {name: np.concatenate([one[name] for one in waited[:first]]) for name in ("X", "sample_weight")}
    known.fix(**sample)
    for one in waited:
        known.partial_fit(**one)
    X = rows(99, 50)["X"]
    np.testing.assert_allclose(bandit.decision_function(X), known.decision_function(X), rtol=1e-9)


def test_a_model_that_waits_survives_saving_and_new_actions(tmp_path: Any) -> None:
    bandit = spuir.Bandit(policy(), M, random_state=0)
    bandit.partial_fit(**rows(0, 50), eligible=np.ones((50, M), np.bool_))
    bandit.save(tmp_path / "m.spuir")
    again = spuir.load(tmp_path / "m.spuir")
    for one in (bandit, again):
        one.add_action("new", ramp=1.0)
        one.partial_fit(**rows(1, 300))
    np.testing.assert_array_equal(bandit.predict_proba(rows(9, 20)["X"]), again.predict_proba(rows(9, 20)["X"]))


def test_nothing_that_is_not_finite_is_loaded(tmp_path: Any) -> None:
    taught(policy(), SIZES[:2]).save(tmp_path / "m.spuir")
    header, arrays = snapshot.read(tmp_path / "m.spuir")
    names = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    assert len(names) > 6
    for name in names:
        wild = arrays[name].copy()
        wild.flat[-1] = np.nan
        snapshot.write(tmp_path / "n.spuir", header, arrays | {name: wild})
        with pytest.raises(SnapshotError):
            spuir.load(tmp_path / "n.spuir")


class TestBadInput:
    def test_constant_columns_and_repeated_rows(self) -> None:
        given = rows(0, 300)
        given["X"] = np.column_stack([np.full(300, 7.0), np.arange(300) % 2])
        bandit = spuir.Bandit(policy(landmarks=50), M, random_state=0).partial_fit(**given)
        state: Any = bandit.state_
        assert len(state.features.landmarks) == 2  # fewer distinct rows than landmarks
        assert np.isfinite(bandit.predict_proba(given["X"])).all()

    def test_equal_rewards_stay_uniform_until_they_differ(self) -> None:
        bandit, given = spuir.Bandit(policy(), M, random_state=0), rows(0, 300)
        bandit.partial_fit(**{**given, "rewards": np.full(300, 0.3)})
        np.testing.assert_allclose(bandit.predict_proba(given["X"]), 1 / M)
        state: Any = bandit.state_
        assert not state.updated
        bandit.partial_fit(**rows(1, 300))
        state = bandit.state_
        assert state.updated == 2

    def test_more_columns_than_rows(self) -> None:
        rng = generator(3, "wide")
        bandit = spuir.Bandit(policy(), 2, random_state=0)
        for _ in range(2):
            bandit.partial_fit(rng.normal(size=(260, 400)), rng.integers(2, size=260), rng.normal(size=260))
        assert np.isfinite(bandit.decide(rng.normal(size=(5, 400))).scores).all()

    def test_episodes_of_one_row(self) -> None:
        bandit, given = spuir.Bandit(policy(), M, random_state=0), rows(0, 300)
        for row in range(300):
            bandit.partial_fit(**{name: column[row : row + 1] for name, column in given.items()}, allow_repeat=True)
        assert bandit.n_episodes_ == 300 and np.isfinite(bandit.decide(given["X"]).scores).all()

    @pytest.mark.parametrize("way", ["waits", "weighs enough", "fixed on it"])
    def test_one_row(self, way: str) -> None:
        bandit, given = spuir.Bandit(policy(), M, random_state=0), rows(0, 300)
        if way == "fixed on it":
            bandit.fix(given["X"][:1])
        first = {name: column[:1] for name, column in given.items()}
        if way == "weighs enough":
            first["sample_weight"] = np.array([300.0])
        bandit.partial_fit(**first)
        np.testing.assert_allclose(bandit.predict_proba(given["X"]).sum(axis=1), 1.0)
        bandit.partial_fit(**given)
        state: Any = bandit.state_
        assert np.isfinite(bandit.decide(given["X"]).scores).all() and state.updated == 2

    def test_too_many_actions_for_the_memory_are_refused_with_the_arithmetic(self) -> None:
        bandit = spuir.Bandit("auto", 10_000, memory_limit=1.0)
        with pytest.raises(
            InputError, match=r"10,000 actions × 221² columns × 8 bytes = 3\.66 GiB.*landmarks=94.*'none'"
        ):
            bandit.decide(np.zeros((1, 20)))
        assert spuir.Bandit("auto", 10_000, memory_limit=1.0, landmarks=94).policy_.width(20) == 115
        spuir.make_policy("auto", memory_limit=1.0, landmarks=94)._check_memory(10_000, 20)  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="fewer columns"):
            spuir.make_policy("auto", memory_limit=0.01, kernel_map="none")._check_memory(10_000, 200)  # type: ignore[attr-defined]

    def test_nan_is_refused_while_rows_wait(self) -> None:
        bandit, given = spuir.Bandit(policy(), M, random_state=0), rows(0, 20)
        given["X"][3, 1] = np.nan
        with pytest.raises(InputError, match="row 3, column 1"):
            bandit.partial_fit(**given)
        assert bandit.n_episodes_ == 0


def test_every_ridge_policy_takes_the_randomised_bonus() -> None:
    """The probabilities are those of 8 levels around α, and one level is the plain rule."""
    rng = generator(5, "levels")
    X, actions, rewards = rng.normal(size=(200, 3)), rng.integers(4, size=200), rng.normal(size=200)
    bandit = spuir.Bandit("puir", 4, random_state=0, alpha=0.7, levels=8).partial_fit(X, actions, rewards)
    probe = rng.normal(size=(300, 3))
    decided = bandit.decide(probe, eligible=np.array([True, True, False, True]))
    expected = np.zeros((300, 4))
    for k in range(8):
        scores = decided.means + 0.7 * (2 * k + 1) / 8 * decided.widths
        scores[:, 2] = -np.inf
        expected[np.arange(300), scores.argmax(axis=1)] += 1 / 8
    np.testing.assert_allclose(decided.probabilities, expected, atol=1e-12)
    np.testing.assert_allclose(decided.propensities, expected[np.arange(300), decided.actions], atol=1e-12)
    assert isinstance(policy(), Auto) and 0 < (expected.max(axis=1) < 1).mean() < 1
