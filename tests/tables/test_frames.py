"""Data frames: columns of masks by label, columns of contexts by kind; scikit-learn around a bandit."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import spuir
from spuir.errors import InputError, ParameterError, ShardError, UnknownNameError

B = 60
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(B, 3)), columns=list("xyz"))
ACTIONS, REWARDS = np.array(["a", "b"] * (B // 2)), rng.normal(size=B)


def taught(**given: Any) -> spuir.Bandit:
    return spuir.Bandit("puir", ["a", "b"], random_state=0).partial_fit(X, ACTIONS, REWARDS, **given)


def test_a_series_of_contexts_is_refused_with_the_frame_to_pass() -> None:
    encoder = spuir.Encoder.fit(X)
    encoded = spuir.Bandit("puir", ["a", "b"], encoder=encoder).partial_fit(X, ACTIONS, REWARDS)
    for bandit in (taught(), encoded):
        for series in (X.iloc[0], X.iloc[0].astype(object), X["x"]):
            with pytest.raises(InputError, match=r"pass a DataFrame: X\.iloc\[\[0\]\] for one row"):
                bandit.decide(series)
        assert len(bandit.decide(X.iloc[[0]]).actions) == 1


class TestColumnsOfActions:
    def test_a_mask_with_names_goes_by_them(self) -> None:
        mask = pd.DataFrame({"b": [True], "a": [False]})
        np.testing.assert_array_equal(taught().predict_proba(X[:1], eligible=mask), [[0.0, 1.0]])

    def test_a_mask_with_numbers_goes_by_place(self) -> None:
        np.testing.assert_array_equal(taught().predict_proba(X[:1], eligible=pd.DataFrame([[False, True]])), [[0, 1]])

    def test_a_series_and_an_arrow_table_go_by_names_too(self) -> None:
        row = pd.Series({"b": True, "a": False})
        np.testing.assert_array_equal(taught().predict_proba(X[:1], eligible=row), [[0.0, 1.0]])
        np.testing.assert_array_equal(taught().predict_proba(X[:1], eligible=pd.Series([True, False])), [[1.0, 0.0]])
        nullable: Any = pd.array([True, False])
        np.testing.assert_array_equal(taught().predict_proba(X[:1], eligible=nullable), [[1.0, 0.0]])
        table = pa.table({"b": [True, True], "a": [False, False]})
        np.testing.assert_array_equal(taught().predict_proba(X[:2], eligible=table), [[0.0, 1.0]] * 2)
        with pytest.raises(InputError, match="columns 'b', 'q'"):
            taught().predict(X[:1], eligible=pd.Series({"b": True, "q": True}))

    @pytest.mark.parametrize("form", [pd.DataFrame, lambda t: pa.table({str(k): v for k, v in t.items()})])
    def test_labels_that_are_numbers_in_another_order_are_names(self, form: Any) -> None:
        bandit = spuir.Bandit("uniform", [1, 2, 0], random_state=0)
        mask = form({0: [True], 1: [False], 2: [False]})
        assert bandit.decide(X[:1], eligible=mask).actions.tolist() == [0]

    @pytest.mark.parametrize("columns", [["b", "q"], ["a"], ["a", "b", "b"]], ids=str)
    def test_other_names_are_refused(self, columns: list[str]) -> None:
        mask = pd.DataFrame(np.ones((1, len(columns)), bool), columns=columns)
        with pytest.raises(InputError, match=r"^eligible: got columns .*the actions 'a', 'b'"):
            taught().predict(X[:1], eligible=mask)

    def test_revealed_rewards_go_by_their_names_too(self) -> None:
        seen, values = np.zeros((B, 2), bool), rng.normal(size=(B, 2))
        seen[:, 1] = True
        expected = taught(revealed=seen, revealed_rewards=values)
        named = {"revealed": seen, "revealed_rewards": values}
        turned = {name: pd.DataFrame(table, columns=["a", "b"])[["b", "a"]] for name, table in named.items()}
        np.testing.assert_array_equal(taught(**turned).coefficients_, expected.coefficients_)
        arrow = {name: pa.Table.from_pandas(table) for name, table in turned.items()}
        np.testing.assert_array_equal(taught(**arrow).coefficients_, expected.coefficients_)

    def test_executed_actions_must_be_eligible_by_name(self) -> None:
        mask = pd.DataFrame({"b": [True] * B, "a": [False] * B})
        with pytest.raises(InputError, match="'a' executed but not eligible at row 0"):
            taught(eligible=mask)


class TestColumnsOfContexts:
    @pytest.mark.parametrize(
        "column",
        [
            [True, False] * (B // 2),
            pd.array([1, 2] * (B // 2), dtype="Int64"),
            pd.array([1.5, 2.0] * (B // 2), dtype="Float64"),
            pd.array([True, False] * (B // 2), dtype="boolean"),
            np.arange(B, dtype=np.uint8),
            np.array([1, 2.5] * (B // 2), dtype=object),
        ],
        ids=lambda column: str(getattr(column, "dtype", "bool")),
    )
    def test_numbers_of_every_kind_are_numbers(self, column: Any) -> None:
        plain = X.assign(w=np.array(list(column), dtype=np.float64))
        learnt = [
            spuir.Bandit("puir", ["a", "b"]).partial_fit(t, ACTIONS, REWARDS) for t in (X.assign(w=column), plain)
        ]
        np.testing.assert_array_equal(learnt[0].coefficients_, learnt[1].coefficients_)

    @pytest.mark.parametrize(
        "column",
        ["text", pd.Timestamp("2024-01-01"), pd.Timedelta("1D"), pd.Categorical(["u"] * B), [object()] * B],
        ids=["text", "date", "duration", "category", "object"],
    )
    def test_a_column_of_anything_else_is_named(self, column: Any) -> None:
        with pytest.raises(InputError, match=r"column 'w' of dtype .*contexts must be numbers.*Encoder"):
            spuir.Bandit("puir", ["a", "b"]).partial_fit(X.assign(w=column), ACTIONS, REWARDS)

    def test_a_missing_number_is_named_by_its_place(self) -> None:
        table = X.assign(w=pd.array([1, None] + [2] * (B - 2), dtype="Int64"))
        with pytest.raises(InputError, match="nan at row 1, column 3"):
            spuir.Bandit("puir", ["a", "b"]).partial_fit(table, ACTIONS, REWARDS)

    @pytest.mark.parametrize("rows", [[{"x": 1.0}] * B, None, "text"], ids=["dicts", "None", "text"])
    def test_what_is_no_table_is_told_of_tables(self, rows: Any) -> None:
        with pytest.raises(InputError, match="pass an array or a DataFrame, or raw rows to an encoder"):
            taught().predict(rows)


class TestPipelines:
    def test_a_bandit_is_the_last_step(self) -> None:
        steps: Any = [("scale", StandardScaler()), ("bandit", spuir.Bandit("puir", ["a", "b"], random_state=0))]
        pipeline = Pipeline(steps).fit(X, ACTIONS, bandit__rewards=REWARDS)
        scaled = StandardScaler().fit_transform(X)
        alone = spuir.Bandit("puir", ["a", "b"], random_state=0).partial_fit(scaled, ACTIONS, REWARDS)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(pipeline.predict(X), alone.predict(scaled))
            np.testing.assert_array_equal(pipeline.predict_proba(X), alone.predict_proba(scaled))

    def test_one_that_has_learnt_nothing_is_not_fitted(self) -> None:
        pipeline: Any = Pipeline([("bandit", spuir.Bandit("puir", ["a", "b"]))])
        with pytest.raises(NotFittedError):
            pipeline.predict(X)


class TestRefusals:
    def test_ids_are_one_per_row(self) -> None:
        assert taught().decide(X, ids=list(range(B))).ids == list(range(B))
        with pytest.raises(InputError, match="ids: got 2 of them, but there are 60 rows"):
            taught().decide(X, ids=[1, 2])

    @pytest.mark.parametrize("episode", [-1, 0, 1.5, True, "a"], ids=repr)
    def test_an_episode_to_collect_is_a_coming_one(self, episode: Any) -> None:
        with pytest.raises(ShardError, match="a coming episode, 1 or later"):
            taught().collect(X, ACTIONS, REWARDS, episode=episode)

    def test_an_episode_may_be_a_number_of_numpy(self) -> None:
        episode: Any = np.int64(1)
        assert taught().absorb(taught().collect(X, ACTIONS, -REWARDS, episode=episode)).n_episodes_ == 2

    @pytest.mark.parametrize("kind", ["complex64", "complex128", "datetime64[s]", "timedelta64[s]", "U9", "S9"])
    def test_rewards_of_other_kinds_are_refused_with_the_first(self, kind: str) -> None:
        with pytest.raises(InputError, match=r"^rewards: got .* at row 0, .*; pass numbers"):
            taught().partial_fit(X, ACTIONS, np.arange(B).astype(kind))

    @pytest.mark.parametrize("wrong", ["x", 1j, np.complex64(1)], ids=repr)
    def test_one_wrong_reward_among_numbers_is_named(self, wrong: Any) -> None:
        rewards = np.ones(B, dtype=object)
        rewards[4] = wrong
        with pytest.raises(InputError, match="at row 4, but every reward must be finite; pass numbers"):
            taught().partial_fit(X, ACTIONS, rewards)

    def test_only_shards_are_added_to_shards(self) -> None:
        wrong: Any = 3
        with pytest.raises(ShardError, match="only shards add up"):
            _ = taught().collect(X, ACTIONS, REWARDS) + wrong

    def test_a_policy_that_is_none_is_refused_at_once(self) -> None:
        bandit = taught()
        with pytest.raises(ParameterError, match="policy: got 3"):
            bandit.set_params(policy=3)
        assert bandit.policy == "puir"

    def test_a_label_that_is_missing_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="a label equals itself"):
            spuir.Bandit("puir", [pd.NA, "a"]).decide(X)

    @pytest.mark.parametrize("name", ["PUIR", "Puir", "SPUIR", "SBUCB", "BLTS-B"])
    def test_a_name_in_capitals_is_answered_with_the_right_one(self, name: str) -> None:
        with pytest.raises(UnknownNameError, match=f"did you mean '{name.lower()}'"):
            spuir.make_policy(name)

    def test_revealed_rewards_beyond_the_range_are_named_by_their_row(self) -> None:
        values = np.ones((B, 2))
        values[7, 1] = 1e200
        with pytest.raises(InputError, match=r"^revealed_rewards: got 1e\+200 at row 7"):
            spuir.Bandit("puir", 2).partial_fit(
                X, np.zeros(B, int), REWARDS, revealed=np.ones((B, 2), bool), revealed_rewards=values
            )

    def test_contexts_beyond_the_range_are_named_where_rows_are_hashed(self) -> None:
        contexts = np.ones((200, 3))
        contexts[33, 1] = 1e200
        with pytest.raises(InputError, match="1e\\+200 at row 33, column 1"):
            spuir.Bandit("spuir", 2).partial_fit(contexts, np.arange(200) % 2, np.ones(200))

    def test_rewards_wider_than_double_are_refused_without_a_warning(self) -> None:
        rewards = np.where(np.arange(B) == 7, np.longdouble("1e400"), REWARDS)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match="inf at row 7"):
                spuir.Bandit("puir", ["a", "b"]).partial_fit(X, ACTIONS, rewards)


@pytest.mark.parametrize("n", [151, 300])
def test_rows_without_weight_are_no_rows_however_they_are_cut(n: int) -> None:
    draws = np.random.default_rng(n)
    rows, codes, rewards, ids = draws.normal(size=(n, 3)), draws.integers(2, size=n), draws.normal(size=n), np.arange(n)
    weights = draws.random(n)
    weights[[0, 5]] = 0.0
    whole, cut, kept = (spuir.Bandit("spuir", 2, random_state=0) for _ in range(3))
    whole.partial_fit(rows, codes, rewards, sample_weight=weights)
    parts = [
        cut.collect(rows[s], codes[s], rewards[s], row_ids=ids[s], sample_weight=weights[s])
        for s in (slice(1), slice(1, n))
    ]
    cut.absorb(parts[0] + parts[1])
    some = weights > 0
    kept.partial_fit(rows[some], codes[some], rewards[some], sample_weight=weights[some], row_ids=ids[some])
    assert [bandit.last_info_.rows for bandit in (whole, cut, kept) if bandit.last_info_] == [n - 2] * 3
    for other in (cut, kept):
        np.testing.assert_allclose(other.coefficients_, whole.coefficients_, rtol=0, atol=1e-12)
