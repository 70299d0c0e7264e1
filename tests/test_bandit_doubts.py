"""What a doubter tried on a bandit: orders of calls, odd arrays, races, values at the ends of the range."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

import spuir
from spuir.base.streams import generator
from spuir.errors import InputError, ParameterError, ShardError, SnapshotError, SpuirError, UnknownNameError
from spuir.storage import snapshot

B, D, M = 60, 3, 3
rng = np.random.default_rng(0)
X, ACTIONS, REWARDS = rng.normal(size=(B, D)), rng.integers(M, size=B), rng.normal(size=B)


def taught(policy: Any = "puir", **given: Any) -> spuir.Bandit:
    return spuir.Bandit(policy, M, random_state=0).partial_fit(X, ACTIONS, REWARDS, **given)


@pytest.mark.parametrize("policy", ["puir", "spuir", "bexp3", "linear-thompson", "uniform"])
@pytest.mark.parametrize("verb", ["predict", "predict_proba", "decision_function", "decide"])
def test_fit_alone_is_enough(policy: str, verb: str) -> None:
    getattr(spuir.Bandit(policy, M, random_state=0).fit(X, ACTIONS, REWARDS), verb)(X)
    bandit = spuir.Bandit(policy, M, random_state=0).fit(X, ACTIONS, REWARDS).partial_fit(X, ACTIONS, REWARDS)
    assert bandit.n_episodes_ == 2


def test_an_action_added_while_the_first_decision_is_made_is_kept_whole(monkeypatch, tmp_path: Path) -> None:
    bandit = spuir.Bandit("puir", M, random_state=0)
    decide = type(bandit.policy_).decide

    def meanwhile(*args: Any) -> Any:
        bandit.add_action(M)
        return decide(*args)

    with monkeypatch.context() as patch:
        patch.setattr(type(bandit.policy_), "decide", meanwhile)
        assert bandit.decide(X).probabilities.shape == (B, M)
    assert bandit.predict_proba(X).shape == (B, M + 1)
    bandit.partial_fit(X[:4], [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]).save(tmp_path / "m.spuir")
    assert spuir.load(tmp_path / "m.spuir").state_.n_actions == M + 1


@pytest.mark.parametrize("policy", ["spuir", "spuir-exp", "puir", "sbucb"])
@pytest.mark.parametrize("sparsely", [False, True])
def test_a_shard_keeps_nothing_of_the_callers_arrays(policy: str, sparsely: bool) -> None:
    bandit = taught(policy)
    given = [sparse.csr_array(X) if sparsely else X.copy(), ACTIONS.copy(), REWARDS.copy()]
    weights = np.ones(B)
    shard = bandit.collect(*given, row_ids=np.arange(B), sample_weight=weights)
    expected = copy.deepcopy(bandit).absorb(copy.deepcopy(shard)).coefficients_
    for array in (given[0].data if sparsely else given[0], *given[1:], weights):
        array[:] = 1
    np.testing.assert_array_equal(bandit.absorb(shard).coefficients_, expected)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_masked_values_are_refused(which: int) -> None:
    given: list[Any] = [X, ACTIONS, REWARDS]
    bandit, names = taught("sbucb"), ("X", "actions", "rewards")
    given[which] = np.ma.masked_array(given[which], mask=np.zeros_like(given[which], dtype=bool))
    assert bandit.partial_fit(*given).n_episodes_ == 2  # a mask that hides nothing
    np.testing.assert_array_equal(bandit.coefficients_, taught("sbucb").partial_fit(X, ACTIONS, REWARDS).coefficients_)
    given[which].mask.flat[7] = True
    with pytest.raises(InputError, match=f"^{names[which]}: got masked values"):
        bandit.partial_fit(*given)
    assert bandit.n_episodes_ == 2


class TestStandardErrors:
    def test_they_are_those_of_the_sandwich(self) -> None:
        table = taught(spuir.make_policy("sbucb", ridge=0.7)).coefficient_table()
        for code in range(M):
            S, R = X[ACTIONS == code], REWARDS[ACTIONS == code]
            inverse = np.linalg.inv(S.T @ S + 0.7 * np.eye(D))
            left = R - S @ inverse @ S.T @ R
            spread = left @ left / (len(R) - np.trace(inverse @ S.T @ S)) * np.diag(inverse @ S.T @ S @ inverse)
            np.testing.assert_allclose(
                [line.standard_error for line in table if line.action == code], np.sqrt(spread), rtol=1e-9
            )

    @pytest.mark.parametrize(("ridge", "scale"), [(1e-6, 1.0), (1.0, 1e6), (1e-9, 1e3)])
    def test_repeated_rows_have_finite_ones(self, ridge: float, scale: float) -> None:
        rows = scale * np.repeat(rng.normal(size=(1, 4)), 50, axis=0)
        bandit = spuir.Bandit(spuir.make_policy("sbucb", ridge=ridge, intercept=True), 1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bandit.partial_fit(rows, np.zeros(50, int), rng.normal(size=50))
            errors = np.array([line.standard_error for line in bandit.coefficient_table()])
        # One direction is known, to 1/√50 of the noise in all; the others stay where the ridge holds them.
        full = np.append(rows[0], 1.0)
        assert np.all(errors >= 0)
        np.testing.assert_allclose(errors / errors.max(), np.abs(full) / np.abs(full).max(), atol=1e-3)


@pytest.mark.parametrize(
    ("before", "after"),
    [("puir", "bexp3"), ("uniform", "bexp3"), ("dfm-s", "bexp3-ipw"), ("puir", "dfm-s"), ("uniform", "dfm-s")],
)
def test_another_kind_of_policy_is_refused_until_fit(before: str, after: str) -> None:
    bandit = taught(before, click=np.ones(B), conversion=np.ones(B), elapsed=np.ones(B))
    bandit.set_params(policy=after)
    for verb in (bandit.decide, bandit.predict):
        with pytest.raises(ParameterError, match="call fit to start anew"):
            verb(X)


@pytest.mark.parametrize("policy", ["puir", "uniform", "bexp3", "linear-thompson"])
def test_predict_names_the_row_of_the_whole(policy: str) -> None:
    rows = np.ones((300_000, D))
    rows[250_000, 1] = np.nan
    with pytest.raises(InputError, match="nan at row 250000, column 1"):
        taught(policy).predict(rows)


class TestTheEndsOfTheRange:
    """Refused in words, with no warning beside them, and the state as it was."""

    @pytest.mark.parametrize("policy", ["puir", "spuir", "puir-kernel", "blts-b", "bexp3", "sbucb"])
    @pytest.mark.parametrize(
        ("contexts", "rewards", "weight", "words"),
        [
            (1.0, 1e200, 1.0, r"^rewards: got .*e\+199 at row 0, .*scale the rewards down"),
            (1e5, 1.0, 1e300, "must have finite sums"),
            (1.0, 1.0, 1e308, "must have finite sums|a weight is finite"),
        ],
    )
    def test_sums_beyond_it(self, policy: str, contexts: float, rewards: float, weight: float, words: str) -> None:
        bandit = taught(policy)
        before = bandit.predict_proba(X)
        given = (contexts * X, ACTIONS, rewards * REWARDS)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if policy == "puir-kernel" and contexts > 1:  # its features lie within ±1, whatever the contexts
                assert bandit.partial_fit(*given, sample_weight=np.full(B, weight)).n_episodes_ == 2
                return
            with pytest.raises(InputError, match=words):
                bandit.partial_fit(*given, sample_weight=np.full(B, weight))
        assert bandit.n_episodes_ == 1
        np.testing.assert_array_equal(bandit.predict_proba(X), before)

    def test_sums_that_overflow_with_the_episodes(self) -> None:
        bandit = spuir.Bandit("puir", 2, random_state=0)
        rows = np.full((40, 2), 5e152)
        with warnings.catch_warnings(), pytest.raises(SpuirError, match="scale"):
            warnings.simplefilter("error")
            for _ in range(100):
                bandit.partial_fit(rows, np.arange(40) % 2, np.ones(40))
        assert 0 < bandit.n_episodes_ < 100 and np.isfinite(bandit.coefficients_).all()

    @pytest.mark.parametrize("verb", ["decide", "predict", "predict_proba", "decision_function"])
    def test_scores_beyond_it(self, verb: str) -> None:
        bandit = taught(spuir.make_policy("puir", alpha=1e308))
        with warnings.catch_warnings(), pytest.raises(InputError, match="scores must be finite"):
            warnings.simplefilter("error")
            getattr(bandit, verb)(100 * X)


class TestArrow:
    def test_levels_that_no_row_has_do_not_matter(self) -> None:
        bandit = spuir.Bandit("puir", ["x", "y"], random_state=0)
        levels = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["x", "y", "unused"]))
        bandit.partial_fit(X[:3], levels, [1.0, 2.0, 3.0])
        plain = spuir.Bandit("puir", ["x", "y"], random_state=0).partial_fit(X[:3], ["x", "y", "x"], [1.0, 2.0, 3.0])
        np.testing.assert_array_equal(bandit.coefficients_, plain.coefficients_)
        with pytest.raises(UnknownNameError, match="got 'w' at row 2"):
            bandit.partial_fit(X[:3], pa.array(["x", "x", "w"]).dictionary_encode(), [1.0, 2.0, 3.0])
        with pytest.raises(UnknownNameError, match="got None at row 1"):
            bandit.partial_fit(X[:3], pa.array(["x", None, "y"]).dictionary_encode(), [1.0, 2.0, 3.0])

    def test_columns_of_a_table_are_matched_by_name(self) -> None:
        names = ["a", "b", "c"]
        bandit = spuir.Bandit("puir", M, random_state=0)
        bandit.partial_fit(pa.table(dict(zip(names, X.T, strict=True))), ACTIONS, REWARDS)
        assert list(bandit.feature_names_in_) == names
        turned = pa.table({name: X[:, names.index(name)] for name in reversed(names)})
        frame = pd.DataFrame(X, columns=names)
        for given in (turned, turned.to_batches()[0], frame[["b", "c", "a"]]):
            np.testing.assert_array_equal(bandit.predict_proba(given), taught().predict_proba(X))
        with pytest.raises(InputError, match="columns without 'a'"):
            bandit.decide(turned.drop_columns(["a"]))

    def test_batches_with_booleans_and_missing_values(self) -> None:
        bandit = spuir.Bandit("puir", M, random_state=0)
        rows = pa.record_batch({"a": [True, False, True], "b": [1.0, 2.0, 3.0]})
        assert bandit.partial_fit(rows, [0, 1, 2], [1.0, 2.0, 3.0]).n_features_in_ == 2
        with pytest.raises(InputError, match="nan at row 1, column 1"):
            bandit.decide(pa.record_batch({"a": [True, False], "b": [1.0, None]}))
        with pytest.raises(InputError, match="no columns"):
            spuir.Bandit("puir", M).decide(pa.table({}))

    def test_as_many_levels_as_the_indices_count(self) -> None:
        names = [f"n{at}" for at in range(128)]
        levels = pa.DictionaryArray.from_arrays(pa.array(range(128), pa.int8()), pa.array(names))
        bandit = spuir.Bandit("uniform", names, random_state=0).partial_fit(np.ones((128, 1)), levels, np.ones(128))
        assert bandit.last_info_ is not None and bandit.last_info_.counts.tolist() == [1.0] * 128


def test_a_column_called_column_names() -> None:
    frame = pd.DataFrame(X, columns=["column_names", "columns", "schema"])
    bandit = spuir.Bandit("puir", M, random_state=0).partial_fit(frame, ACTIONS, REWARDS)
    assert list(bandit.feature_names_in_) == ["column_names", "columns", "schema"]


class TestParameters:
    @pytest.mark.parametrize("wrong", [{"random_state": 7, "bogus": 1}, {"actions": 7, "policy__bogus": 1}])
    def test_what_is_refused_sets_nothing(self, wrong: dict[str, Any]) -> None:
        bandit = taught()
        with pytest.raises(ParameterError, match="bogus"):
            bandit.set_params(**wrong)
        assert (bandit.random_state, bandit.actions, bandit.policy) == (0, M, "puir")

    def test_a_policy_and_its_parameters_together(self) -> None:
        bandit = taught().set_params(policy__alpha=0.3, policy="sbucb")
        assert (bandit.policy_.name, vars(bandit.policy_)["alpha"]) == ("sbucb", 0.3)

    @pytest.mark.parametrize(("name", "default"), [("puir", 0.1), ("spuir", 0.2), ("sbucb", 0.2)])
    def test_a_refusal_names_the_default_of_that_policy(self, name: str, default: float) -> None:
        with pytest.raises(ParameterError, match=f"the default is {default}"):
            spuir.make_policy(name, alpha=-1)

    @pytest.mark.parametrize("name", ["ridge", "alpha"])
    def test_an_integer_beyond_floats_is_no_number(self, name: str) -> None:
        with pytest.raises(ParameterError, match="finite number"):
            spuir.make_policy("puir", preset=None, **{name: 10**400})


UNEVEN = [[1.0], [1.0, 2.0]]
REFUSED: dict[str, Any] = {
    "an unhashable label to add": lambda b: b.add_action(["x"]),
    "an unhashable label to remove": lambda b: b.remove_action(["x"]),
    "an unhashable label to copy": lambda b: b.add_action("x", like=[1]),
    "a tuple that holds a list": lambda b: b.partial_fit(X[:1], [([1],)], [1.0]),
    "labels with such a tuple": lambda b: spuir.Bandit("puir", [([1],), "a"]).decide(X),
    "a number as a policy": lambda b: spuir.Bandit(123, M).decide(X),  # type: ignore[arg-type]
    "no policy": lambda b: spuir.Bandit(None, M).predict(X),  # type: ignore[arg-type]
    "a number as a policy of run": lambda b: spuir.run(3, "synthetic"),  # type: ignore[arg-type]
    "a number as an environment": lambda b: spuir.run("puir", 3),  # type: ignore[arg-type]
    "uneven eligibility": lambda b: b.decide(X[:2], eligible=UNEVEN),
    "uneven eligibility of rows": lambda b: b.partial_fit(X[:2], [0, 1], [1, 2], eligible=UNEVEN),
    "uneven rewards": lambda b: b.partial_fit(X[:2], [0, 1], UNEVEN),
    "uneven weighted rewards": lambda b: b.partial_fit(X[:2], [0, 1], UNEVEN, sample_weight=[1, 1]),
    "uneven row ids": lambda b: b.collect(X[:2], [0, 1], [1, 2], row_ids=UNEVEN),
    "row ids with None": lambda b: b.collect(X[:2], [0, 1], [1, 2], row_ids=[1, None]),
    "uneven actions": lambda b: spuir.Batch(contexts=X[:2], actions=[[0], [1, 2]], rewards=[1, 2]),  # type: ignore
    "complex rewards": lambda b: b.partial_fit(X[:2], [0, 1], [1j, 2]),
    "complex weights": lambda b: b.partial_fit(X[:2], [0, 1], [1, 2], sample_weight=np.array([1j, 1])),
    "rewards beyond floats": lambda b: b.partial_fit(X[:2], [0, 1], [10**400, 0]),
    "contexts beyond floats": lambda b: b.decide([[10**400, 0, 0]]),
    "the class of a policy in a bandit": lambda b: spuir.Bandit(type(b.policy_), M).decide(X),  # type: ignore[arg-type]
    "the class of a policy": lambda b: spuir.run(type(spuir.make_policy("puir")), "synthetic"),  # type: ignore
    "rewards as text": lambda b: b.partial_fit(X[:2], [0, 1], ["1", "2"]),
    "rewards as dates": lambda b: b.partial_fit(X[:2], [0, 1], np.array(["2026-01-01"] * 2, "M8[D]")),
    "contexts as text in a frame": lambda b: b.decide(pd.DataFrame({"a": ["1"], "b": ["2"], "c": [3]}).astype(object)),
    "eligibility of 2": lambda b: b.decide(X[:1], eligible=[[1, 2, 0]]),
    "eligibility of NaN": lambda b: b.decide(X[:1], eligible=[[1, np.nan, 0]]),
    "a number as a path": lambda b: b.save(3),
    "a path with a nought": lambda b: b.save("a\0b"),
    "no path": lambda b: spuir.load(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_every_refusal_is_ours(name: str) -> None:
    bandit = taught()
    rows = dict(bandit._rows)
    with warnings.catch_warnings(), pytest.raises(SpuirError) as refusal:
        warnings.simplefilter("error")
        REFUSED[name](bandit)
    assert "but" in str(refusal.value) and "\n" not in str(refusal.value).strip()
    assert bandit.n_episodes_ == 1 and bandit._rows == rows


def test_messages_name_value_and_place() -> None:
    bandit = taught()
    with pytest.raises(UnknownNameError, match=r"got '0' at row 0, but the actions are 0, 1, 2; did you mean 0\."):
        bandit.partial_fit(X[:2], ["0", "1"], [1, 2])
    with pytest.raises(InputError, match="eligible: got 2 at row 1"):
        bandit.decide(X[:2], eligible=[[1, 0, 1], [2, 1, 0]])


def batch(**changes: Any) -> spuir.Batch:
    given: dict[str, Any] = {"contexts": X[:2], "actions": [0, 1], "rewards": [1, 2]}
    return spuir.Batch(**(given | changes))


def test_direct_batches_are_held_to_the_same() -> None:
    with pytest.raises(InputError, match=r"^eligible: got 3 at row 0"):
        batch(eligible=[[0, 1, 3]] * 2)
    with pytest.raises(InputError, match=r"^revealed: got nan at row 0"):
        batch(revealed=[[0, np.nan, 1]] * 2)
    assert batch(contexts=sparse.coo_array(X[:2])).contexts.format == "csr"
    mask: Any = pd.DataFrame(np.eye(2, 3) > 0).astype("boolean")
    revealed = batch(revealed=mask, revealed_rewards=np.ones((2, 3))).revealed
    assert revealed is not None and np.array_equal(revealed, np.eye(2, 3) > 0)
    policy, narrow = spuir.make_policy("puir"), batch(revealed=np.zeros((2, 2)), revealed_rewards=np.zeros((2, 2)))
    with pytest.raises(InputError, match=r"revealed: got shape \(2, 2\), but it must be \(2, 3\)"):
        policy.learn(policy.init(M, D, generator(0)), narrow, generator(0))


@pytest.mark.parametrize("policy", ["puir", "spuir", "bexp3", "uniform", "blts-b"])
def test_rows_of_no_weight_are_no_episode(policy: str) -> None:
    bandit = taught(policy)
    before = bandit.predict_proba(X)
    bandit.partial_fit(X, ACTIONS, REWARDS, sample_weight=np.zeros(B))
    assert bandit.n_episodes_ == 1
    np.testing.assert_array_equal(bandit.predict_proba(X), before)
    with pytest.raises(InputError, match="finite"):
        bandit.partial_fit(X, ACTIONS, np.full(B, np.nan), sample_weight=np.zeros(B))


@pytest.mark.parametrize("labels", [[-1, 2**63], ["a", "a\0"], [2**70, 1, 0]])
def test_labels_come_back_as_they_were_given(labels: list[Any]) -> None:
    bandit = spuir.Bandit("uniform", labels, random_state=0)
    chosen = bandit.decide(np.ones((50, 1))).actions.tolist()
    assert set(chosen) == set(labels)
    assert bandit.partial_fit(np.ones((50, 1)), chosen, np.ones(50)).n_episodes_ == 1


def test_a_bandit_with_an_encoder_draws_on_its_own() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0]})
    encoder = spuir.Encoder.learn(frame)
    plain = spuir.Bandit("uniform", M, random_state=0).partial_fit(encoder.encode(frame), [0, 1, 2], [1.0, 2.0, 3.0])
    twin = plain.with_encoder(encoder)
    first = plain.decide(np.ones((20, 1))).actions
    np.testing.assert_array_equal(twin.decide(pd.DataFrame({"age": np.ones(20)})).actions, first)
    with pytest.raises(ParameterError, match="has another encoder"):
        spuir.Bandit("uniform", M, encoder=encoder).with_encoder(encoder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("active", [True, False]),
        ("active", [True] * 5),
        ("active", ["no"] * 3),
        ("active", [False] * 3),
        ("columns", ["a"]),
        ("columns", "abc"),
        ("columns", [[1], 2, 3]),
    ],
)
def test_a_header_that_does_not_fit_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    taught().save(tmp_path / "m.spuir")
    header, arrays = snapshot.read(tmp_path / "m.spuir")
    snapshot.write(tmp_path / "n.spuir", header | {field: value}, arrays)
    with pytest.raises(SnapshotError, match=field):
        spuir.load(tmp_path / "n.spuir")


@pytest.mark.parametrize("policy", spuir.list_policies())
def test_what_is_not_finite_is_refused_when_loaded(policy: str, tmp_path: Path) -> None:
    rng = generator(0, "rows")
    bandit = spuir.Bandit(policy, 3, random_state=0)
    bandit.partial_fit(rng.normal(size=(40, 2)), rng.integers(3, size=40), rng.integers(2, size=40))
    bandit.save(tmp_path / "m.spuir")
    header, arrays = snapshot.read(tmp_path / "m.spuir")
    # Rows that a policy keeps may have delays without an end.
    names = [name for name, array in arrays.items() if array.dtype.kind == "f" and name not in FREE]
    assert names
    for name in names:
        for value in (np.nan, np.inf):
            wild = arrays[name].copy()
            wild.flat[-1] = value
            snapshot.write(tmp_path / "n.spuir", header, arrays | {name: wild})
            with pytest.raises(SnapshotError, match="of the state a non-finite value"):
                spuir.load(tmp_path / "n.spuir")


def test_a_missing_file_is_one_error_not_two(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no such file") as caught:
        spuir.load(tmp_path / "none.spuir")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


FREE = {"kept.elapsed", "kept.weights"}


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fresh process for each file is a fork")
def test_every_policy_is_loaded_by_a_process_that_knows_nothing_of_it(tmp_path: Path) -> None:
    for name in spuir.list_policies():
        taught(name, click=np.ones(B), conversion=np.ones(B), elapsed=np.ones(B)).save(tmp_path / f"{name}.spuir")
    done = run_alone(
        "import os, sys, pathlib, spuir, spuir.bandit\n"
        f"for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        assert spuir.load(path).predict([[1.0, 2.0, 3.0]]).shape == (1,)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]:\n"
        "        sys.exit(path.name)\n"
    )
    assert done.returncode == 0, done.stderr


def test_how_numpy_warns_at_the_first_use_does_not_stay() -> None:
    done = run_alone(
        "import numpy as np, spuir\n"
        "with np.errstate(all='raise'):\n"
        "    spuir.Bandit\n"
        "X = np.full((4, 2), 1e-200)\n"
        "spuir.Bandit('puir', 2, random_state=0).partial_fit(X, [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0]).decide(X)\n"
    )
    assert done.returncode == 0, done.stderr


def test_shards_need_ids_that_are_unique() -> None:
    with pytest.raises(ShardError, match="a repeated id"):
        taught().collect(X[:2], [0, 1], [1, 2], row_ids=[1, 1])


def test_fit_resets_the_actions_too() -> None:
    bandit = spuir.Bandit("puir", ["a", "b"], random_state=0).add_action("c").remove_action("a")
    bandit.fit(X[:2], ["a", "b"], [1.0, 2.0])
    fresh = spuir.Bandit("puir", ["a", "b"], random_state=0).fit(X[:2], ["a", "b"], [1.0, 2.0])
    assert bandit.actions_.tolist() == ["a", "b"] and bandit.active_.all()
    np.testing.assert_array_equal(bandit.coefficients_, fresh.coefficients_)


def test_deciding_on_no_rows_settles_no_columns() -> None:
    bandit = spuir.Bandit("puir", 2, random_state=0)
    assert len(bandit.decide(np.empty((0, 9)))) == 0
    bandit.partial_fit(np.ones((2, 4)), [0, 1], [1.0, 2.0])


def test_decisions_can_be_kept_for_later() -> None:
    decision = taught().decide(X, ids=list(range(len(X))))
    again = pickle.loads(pickle.dumps(decision))
    for name in ("actions", "propensities", "ids", "exact", "probabilities", "scores", "means", "widths"):
        np.testing.assert_array_equal(getattr(again, name), getattr(decision, name))


def test_a_number_of_actions_is_no_array() -> None:
    with pytest.raises(ParameterError, match="a number M or a list of labels"):
        spuir.Bandit("puir", np.array(5)).decide(X)


def test_a_label_that_no_file_can_hold_is_named(tmp_path: Path) -> None:
    bandit = spuir.Bandit("puir", [1.0, np.inf], random_state=0)
    with pytest.raises(SnapshotError, match="action label: got inf"):
        bandit.save(tmp_path / "m.spuir")


def test_no_rows_at_all_are_not_taken_for_one() -> None:
    with pytest.raises(InputError, match="pass an array or a DataFrame"):
        taught().decide([])
