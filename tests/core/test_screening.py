"""Winners by screening: widths in two precisions, the shared bound, and the memory they work in."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from spuir.core import screening, ties
from spuir.core.screening import Acting, Bound
from spuir.core.solving import FINE, Solved, solve
from spuir.core.ties import Winners
from spuir.errors import InputError
from tests.core.screening import WAYS, check_winners, extended_widths, force, single_case, tie_table

# ---- widths ---------------------------------------------------------------------------------------------------


def solved_of(rng: np.random.Generator, m: int, p: int, condition: float, copies: int = 1) -> Solved:
    """Actions with matrices of that condition number, the last ``copies`` of them alike."""
    turn = np.linalg.qr(rng.normal(size=(m, p, p)))[0]
    psi = (turn * np.geomspace(1.0, condition, p)) @ turn.transpose(0, 2, 1)
    rhs = 0.1 * rng.normal(size=(m, p))
    psi[m - copies :], rhs[m - copies :] = psi[-1], 0.0 if copies > 1 else rhs[-1]
    return solve((psi + psi.transpose(0, 2, 1)) / 2, rhs)


def choose(
    solved: Solved, contexts: np.ndarray, alpha: float, eligible: np.ndarray | None = None, bound: Bound | None = None
) -> Winners:
    rule = Acting(solved=solved, alpha=alpha, bound=bound)
    n = len(contexts)
    return screening.winners(n, lambda rows: contexts[rows], lambda rows: solved.theta @ rows.T, rule, eligible)


def spy(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Return a list that grows by one number, its first argument's or contexts' length, at each call of a function."""
    calls: list[int] = []
    honest = getattr(screening, name)

    def counting(*given_: Any) -> Any:
        calls.append(len(given_[1]))
        return honest(*given_)

    monkeypatch.setattr(screening, name, counting)
    return calls


@pytest.mark.parametrize("m", [1, 5, 33])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_widths_in_both_precisions_are_those_of_the_factor(m: int, condition: float) -> None:
    rng = np.random.default_rng(m)
    solved = solved_of(rng, m, 7, condition)
    contexts = rng.normal(size=(50, 7))
    expected = np.stack([extended_widths(upper, contexts) for upper in solved.upper])
    np.testing.assert_allclose(np.sqrt(screening.squared_widths(solved, contexts)), expected, rtol=1e-11)
    short = screening.single_widths(solved.single, contexts)
    assert short is not None and short.shape == (m, 50) and short.dtype == np.float64
    np.testing.assert_allclose(short, expected.astype(float), rtol=solved.single.error)
    assert 1e-9 < np.abs(short / expected - 1).max()  # it is single precision indeed


@pytest.mark.parametrize("budget", [1, 8 * 7 * 14 * 5, 10**6])
@pytest.mark.parametrize("least", [1, 4, 32])
def test_widths_do_not_depend_on_the_size_of_pieces(monkeypatch: pytest.MonkeyPatch, budget: int, least: int) -> None:
    rng = np.random.default_rng(3)
    solved, contexts = solved_of(rng, 14, 7, 10.0), rng.normal(size=(23, 7))
    double, single = screening.squared_widths(solved, contexts), screening.single_widths(solved.single, contexts)
    monkeypatch.setattr(screening, "CACHE_BYTES", budget)
    monkeypatch.setattr(screening, "MIN_CHUNK_ROWS", least)
    monkeypatch.setattr(screening, "MIN_SINGLE_ROWS", least)
    np.testing.assert_allclose(screening.squared_widths(solved, contexts), double, rtol=1e-13)
    again = screening.single_widths(solved.single, contexts)
    assert again is not None and single is not None
    np.testing.assert_allclose(again, single, rtol=solved.single.error)


def test_pieces_are_of_the_size_of_the_cache_but_of_no_less_rows_than_pay() -> None:
    assert [rows.stop - rows.start for rows in screening._chunks(100, 2**30, 32)] == [32, 32, 32, 4]
    pieces = screening._chunks(1000, screening.CACHE_BYTES // 400, 32)
    assert [rows.stop - rows.start for rows in pieces] == [400, 400, 200]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m", [2, 15, 37])
def test_actions_alike_stay_tied_however_their_widths_are_computed(
    monkeypatch: pytest.MonkeyPatch, way: str, m: int
) -> None:
    force(monkeypatch, way)
    rng = np.random.default_rng(m)
    for condition in (1.0, 1e3, 1e6, 1e9, 1e12):
        solved = solved_of(rng, m, 10, condition, copies=m)
        contexts = rng.normal(size=(60, 10))
        upper = np.triu(solved.upper[0])
        # Half of them along the longest axes, where the form is the difference of large numbers.
        contexts[:30] = contexts[:30] @ (upper.T @ upper) / condition
        assert tie_table(choose(solved, contexts, 0.5)).all()
        eligible = rng.random((m, 60)) < 0.6
        eligible[rng.integers(m, size=60), np.arange(60)] = True
        np.testing.assert_array_equal(tie_table(choose(solved, contexts, 0.5, eligible)), eligible)


def near_ties(rng: np.random.Generator, solved: Solved) -> Solved:
    """Return the actions with some made copies of others, but for a relative distance of the coefficients."""
    m = len(solved.theta)
    model = np.where(rng.random(m) < 0.5, np.arange(m), rng.integers(m, size=m))
    distance = rng.choice([0.0, 1e-14, 1e-13, 1e-11, 1e-9, 1e-7, 1e-5], size=(m, 1))
    theta = solved.theta[model] * (1.0 + np.where(model[:, None] == np.arange(m)[:, None], 0.0, distance))
    return Solved(upper=solved.upper[model], theta=theta, codes=solved.codes)


@pytest.mark.parametrize("way", WAYS)
def test_winners_and_ties_are_those_of_exact_widths(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    force(monkeypatch, way)
    ties = trusted = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        m, p, n = int(rng.choice([1, 2, 5, 20])), int(rng.choice([1, 3, 8])), int(rng.choice([1, 40]))
        solved = near_ties(rng, solved_of(rng, m, p, float(rng.choice([1.0, 1e3, 1e6, 1e12]))))
        contexts = float(rng.choice([1e-25, 1e-9, 1.0, 1e9, 1e25])) * rng.normal(size=(n, p))
        alpha = float(rng.choice([0.0, 1e-12, 0.01, 1.0, 1e12]))
        eligible = None
        means = solved.theta @ contexts.T
        if rng.random() < 0.4:
            eligible = rng.random((m, n)) < 0.6
            eligible[rng.integers(m, size=n), np.arange(n)] = True
            means = np.where(eligible, means, -np.inf)
        ties += check_winners(choose(solved, contexts, alpha, eligible), means, solved, alpha, contexts)
        trusted += solved.single.error < screening.MAX_SINGLE_ERROR
    assert ties > 300 and (way == "all together" or 30 < trusted < 80)


@pytest.mark.parametrize(
    ("way", "single", "double", "apart"),
    [
        ("action by action", False, False, True),
        ("single, then action by action", True, False, True),
        ("single, then all together", True, True, False),
        ("all together", False, True, False),
    ],
)
def test_each_way_is_taken(monkeypatch: pytest.MonkeyPatch, way: str, single: bool, double: bool, apart: bool) -> None:
    force(monkeypatch, way)
    rng = np.random.default_rng(4)
    solved, contexts = near_ties(rng, solved_of(rng, 20, 5, 10.0)), rng.normal(size=(200, 5))
    short, long, each = (spy(monkeypatch, name) for name in ("single_widths", "squared_widths", "_candidate_scores"))
    found = choose(solved, contexts, 0.1)
    assert (bool(short), bool(long), bool(each)) == (single, double, apart)
    # What single precision settles is not computed again.
    assert 0 < len(found.columns) < 200 and (not single or sum(long) + sum(each) < 200)


def test_single_precision_decides_nothing_that_it_may_have_wrong() -> None:
    misled = 0
    for seed in range(30):
        p = 2 + seed % 4
        first, contexts, _ = single_case("collinear", p, 1e6, seed)
        second, more, _ = single_case("one long axis", p, 1e6, seed)
        contexts = np.concatenate([contexts, more])
        solved = Solved(upper=np.concatenate([first.upper, second.upper]), theta=np.zeros((2, p)), codes=(FINE, FINE))
        short, widths = (
            screening.single_widths(solved.single, contexts),
            np.sqrt(screening.squared_widths(solved, contexts)),
        )
        assert short is not None and solved.single.error < screening.MAX_SINGLE_ERROR
        for leader in (0, 1):
            # Means that all but level the scores: the leader is ahead by a hundred-millionth.
            means = widths.max(axis=0) - widths
            means[leader] += 1e-8 * widths.max(axis=0)
            found, _ = screening._block_winners(means, Acting(solved=solved, alpha=1.0), contexts)
            assert np.all(found.winner == leader) and not len(found.columns)
            misled += int(((means + short).argmax(axis=0) != leader).sum())
    assert misled > 500  # single precision alone would have had them wrong


def test_badly_conditioned_actions_go_without_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = spy(monkeypatch, "single_widths")
    rng = np.random.default_rng(5)
    contexts = rng.normal(size=(30, 6))
    choose(solved_of(rng, 4, 6, 1e10), contexts, 0.5)
    assert not calls
    choose(solved_of(rng, 4, 6, 1e3), contexts, 0.5)
    assert calls


# Powers of two, so that the scaled case has the same digits: contexts from 1e-45 to 1e60, matrices to match or not.
@pytest.mark.parametrize("context_scale", [-150, -83, -60, 0, 40, 64, 83, 130, 200])
@pytest.mark.parametrize("matrix_scale", [-480, -240, -100, 0, 100, 240, 480])
def test_the_ends_of_single_precision_change_no_winner(context_scale: int, matrix_scale: int) -> None:
    rng = np.random.default_rng(7)
    solved = near_ties(rng, solved_of(rng, 12, 5, 100.0, copies=2))
    wide = solved_of(rng, 3, 100, 2.0)
    for case, p in ((solved, 5), (wide, 100)):
        scaled = Solved(upper=2.0 ** (matrix_scale / 2) * case.upper, theta=case.theta, codes=case.codes)
        contexts = 2.0**context_scale * rng.normal(size=(40, p))
        contexts[::9] = 0.0
        # Means of the size of widths: neither decides alone.
        alpha = 2.0 ** (matrix_scale / 2)
        check_winners(choose(scaled, contexts, alpha), case.theta @ contexts.T, scaled, alpha, contexts)


def test_one_context_that_overflows_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    solved, contexts = solved_of(rng, 6, 4, 10.0), rng.normal(size=(50, 4))
    contexts[17] *= 1e30
    contexts[33, 2] = 1e39
    calls = spy(monkeypatch, "squared_widths")
    found = choose(solved, contexts, 0.3)
    assert calls[0] == 50
    check_winners(found, solved.theta @ contexts.T, solved, 0.3, contexts)
    ordinary = np.delete(np.arange(50), [17, 33])
    np.testing.assert_array_equal(found.winner[ordinary], choose(solved, contexts[ordinary], 0.3).winner)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("size", "alpha"), [(1e200, 0.1), (1e160, 1e-9), (1e20, 1e300), (1e10, 1e300)])
def test_scores_that_overflow_are_refused(monkeypatch: pytest.MonkeyPatch, way: str, size: float, alpha: float) -> None:
    force(monkeypatch, way)
    # Coefficients are nought, so that the means are finite.
    solved = solve(np.stack([np.eye(3)] * 4), np.zeros((4, 3)))
    contexts = np.ones((5, 3))
    contexts[3] = size
    for bound in (None, Bound.of(np.eye(3) / 2, 0.0, solved, np.empty(0, np.intp))):
        with pytest.raises(InputError, match="overflow"):
            choose(solved, contexts, alpha, bound=bound)
        assert tie_table(choose(solved, contexts[:3], alpha, bound=bound)).all()
    if size > 1e150:
        with pytest.raises(InputError, match="overflow"):
            screening.squared_widths(solved, contexts)


class TestBound:
    nobody = np.empty(0, np.intp)

    def case(self, seed: int, large: float) -> tuple[Solved, np.ndarray]:
        rng = np.random.default_rng(seed)
        solved = solved_of(rng, 4, 3, 10.0)
        return Solved(upper=large * solved.upper, theta=solved.theta, codes=solved.codes), rng.normal(size=(60, 3))

    def test_a_reach_that_overflows_leaves_everyone_in_play(self) -> None:
        solved, contexts = self.case(1, 1e150)
        P = 1e-40 * np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
        bound = Bound(shared=solve(P[None], np.zeros((1, 3))), inflation=1.0, uncovered=self.nobody)
        # One context alone: infinite parts of both signs may meet in its product.
        for given_ in (1e170 * contexts, 1e295 * np.abs(contexts), 1e295 * np.abs(contexts[:1])):
            with np.errstate(over="ignore", invalid="ignore"):
                assert np.all(bound.largest_bonus(given_, 1.0) == np.inf)
            found = choose(solved, given_, 1e150, bound=bound)
            check_winners(found, solved.theta @ given_.T, solved, 1e150, given_)

    def test_a_matrix_that_had_to_be_lifted_is_no_bound(self) -> None:
        solved, _ = self.case(2, 1.0)
        P = 0.5 * np.eye(3)
        assert Bound.of(P, 0.5, solved, self.nobody) is not None
        np.testing.assert_array_equal(P, 0.5 * np.eye(3))
        assert Bound.of(np.diag([1.0, 1.0, -1e-3]), 0.0, solved, self.nobody) is None
        assert Bound.of(np.diag([1.0, 1.0, -1e-13]), 0.0, solved, self.nobody) is None

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("scale", [1e-18, 1.0, 1e15])
    def test_an_action_as_wide_as_the_bound_is_dropped_no_sooner_than_it_loses(
        self, monkeypatch: pytest.MonkeyPatch, way: str, scale: float
    ) -> None:
        force(monkeypatch, way)
        wide, narrow = np.diag([1.0, 2.0, 3.0]), 1e12 * np.eye(3)
        contexts = scale * np.random.default_rng(3).normal(size=(50, 3))
        bound = Bound(shared=solve(wide[None].copy(), np.zeros((1, 3))), inflation=1.0, uncovered=np.empty(0, np.intp))
        solved = solve(np.stack([narrow, wide, narrow]), np.zeros((3, 3)))
        reach = np.sqrt(screening.squared_widths(bound.shared, contexts)[0])
        for gap, winner in ((1.0 - 1e-5, 1), (1.0 + 1e-5, 0)):
            # Means are given: action 1 is behind by a little less, or more, than all that its width can make good.
            means = np.stack([np.full(50, scale), scale - gap * 0.5 * reach, np.full(50, -9.0 * scale)])
            found, _ = screening._block_winners(means, Acting(solved=solved, alpha=0.5, bound=bound), contexts)
            check_winners(found, means, solved, 0.5, contexts)
            assert np.all(found.winner == winner)

    @pytest.mark.parametrize("way", WAYS)
    def test_who_is_not_covered_or_not_eligible(self, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
        force(monkeypatch, way)
        rng = np.random.default_rng(9)
        # Three actions of narrow widths, and a free one of a low mean and a width far above the shared bound.
        psi = np.stack([400.0 * np.eye(3)] * 3 + [np.eye(3)])
        solved = solve(psi, psi[:, 0, :1] * rng.normal(size=(4, 3)))
        bound = Bound(shared=solve(400.0 * np.eye(3)[None], np.zeros((1, 3))), inflation=1.0, uncovered=np.array([3]))
        contexts = rng.normal(size=(300, 3))
        means = solved.theta @ contexts.T
        found = choose(solved, contexts, 1.0, bound=bound)
        check_winners(found, means, solved, 1.0, contexts)
        assert 50 < (found.winner == 3).sum() < 250
        low = means[3] < means[:3].max(axis=0) - 0.5
        assert np.any(low & (found.winner == 3))  # it wins where the bound alone would have dropped it
        eligible = rng.random((4, 300)) < 0.5
        eligible[rng.integers(4, size=300), np.arange(300)] = True
        found = choose(solved, contexts, 1.0, eligible, bound)
        check_winners(found, np.where(eligible, means, -np.inf), solved, 1.0, contexts)
        assert eligible[found.winner, np.arange(300)].all() and not np.any(tie_table(found) & ~eligible)


@pytest.mark.parametrize("n", [0, 1, 5, 16])
def test_blocks_of_contexts_join_to_the_same_winners(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    rng = np.random.default_rng(6)
    solved = solved_of(rng, 4, 3, 10.0, copies=2)
    contexts = rng.normal(size=(n, 3))
    whole = choose(solved, contexts, 1.0)
    assert n < 16 or 0 < len(whole.columns) < n
    for rows in (1, 2, 3):
        monkeypatch.setattr(ties, "BLOCK_BYTES", rows * 8 * 4)
        cut = choose(solved, contexts, 1.0)
        np.testing.assert_array_equal(cut.winner, whole.winner)
        np.testing.assert_array_equal(cut.columns, whole.columns)
        np.testing.assert_array_equal(cut.shares, whole.shares)


# ---- what the constants are for --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-300, 1e300, 1e308, 1.79e308])
def test_a_weight_of_any_size_decides_on_contexts_of_nought(alpha: float) -> None:
    rng = np.random.default_rng(12)
    solved, contexts = solved_of(rng, 4, 3, 10.0), np.zeros((5, 3))
    bound = Bound.of(0.01 * np.eye(3), 0.0, solved, np.empty(0, np.intp))
    for given_ in (None, bound):
        assert tie_table(choose(solved, contexts, alpha, bound=given_)).all()


def test_ties_of_means_survive_a_bound_far_below_them() -> None:
    solved = solve(np.stack([1e12 * np.eye(2)] * 2), np.zeros((2, 2)))
    bound = Bound.of(0.5e12 * np.eye(2), 0.0, solved, np.empty(0, np.intp))
    contexts, means = np.array([[1e-6, 0.0]]), np.array([[1.0], [1.0 - 5e-13]])
    found, _ = screening._block_winners(means, Acting(solved=solved, alpha=1e-3, bound=bound), contexts)
    assert found.columns.tolist() == [0] and (found.shares > 0).all()


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_widths_as_wrong_as_they_may_be_change_no_winner(monkeypatch: pytest.MonkeyPatch, sign: float) -> None:
    rng = np.random.default_rng(13)
    solved, contexts = solved_of(rng, 2, 6, 100.0), rng.normal(size=(400, 6))
    exact = np.sqrt(screening.squared_widths(solved, contexts))
    # The first is computed too narrow by all that is allowed and the second too wide, or the other way round.
    stated = np.abs(contexts) @ solved.single.rounding
    wrong = exact + 0.999 * sign * np.stack([-stated, stated])
    monkeypatch.setattr(screening, "single_widths", lambda *_: wrong.copy())
    # Means that level the scores but for a lead of 1.9 times the error: computed widths would have it the other way.
    leader = 0 if sign > 0 else 1
    means = exact.max(axis=0) - exact
    means[leader] += 1.9 * stated
    found, _ = screening._block_winners(means, Acting(solved=solved, alpha=1.0), contexts)
    assert np.all(found.winner == leader) and not len(found.columns)
    assert np.all((means + wrong).argmax(axis=0) != leader)


# ---- memory ---------------------------------------------------------------------------------------------------


def results(solved: Solved, contexts: np.ndarray) -> list[np.ndarray]:
    """Return every array that leaves the module for one set of contexts."""
    short = screening.single_widths(solved.single, contexts)
    assert short is not None
    bound = Bound.of(0.9 * np.eye(contexts.shape[1]), 0.0, solved, np.empty(0, np.intp))
    assert bound is not None
    found = choose(solved, contexts, 0.5, bound=bound)
    exact, bonus = screening.squared_widths(solved, contexts), bound.largest_bonus(contexts, 0.5)
    return [short, exact, bonus, found.winner, found.shares]


class TestMemory:
    rng = np.random.default_rng(10)
    solved = solved_of(rng, 5, 6, 10.0, copies=2)
    first, second = rng.normal(size=(2, 300, 6))

    def test_a_later_call_overwrites_no_result(self) -> None:
        held = results(self.solved, self.first)
        copies = [part.copy() for part in held]
        results(self.solved, self.second)
        for part, copy in zip(held, copies, strict=True):
            np.testing.assert_array_equal(part, copy)

    def test_threads_do_not_disturb_each_other(self) -> None:
        gate = Barrier(2, timeout=60)

        def work(contexts: np.ndarray) -> bool:
            expected = results(self.solved, contexts)
            same = True
            for _ in range(30):
                gate.wait()
                again = results(self.solved, contexts)
                same = same and all(np.array_equal(a, b) for a, b in zip(again, expected, strict=True))
            return same

        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(work, [self.first, self.second]))
