"""What a bandit refuses: each refusal is a spuir error that names value and place, and changes nothing."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import spuir
from spuir.base.streams import generator
from spuir.errors import InputError, ParameterError, ShardError, SpuirError, UnknownNameError
from tests.bandits import ACTIONS, REWARDS, B, D, M, X, taught


@pytest.mark.parametrize(
    ("before", "after"),
    [("puir", "bexp3"), ("uniform", "bexp3"), ("dfm-s", "bexp3-ipw"), ("puir", "dfm-s"), ("uniform", "dfm-s")],
)
def test_another_kind_of_policy_is_refused_until_fit(before: str, after: str) -> None:
    bandit = taught(before, click=np.ones(B), conversion=np.ones(B), elapsed=np.ones(B))
    bandit.set_params(policy=after)
    for verb in (bandit.decide, bandit.predict):
        with pytest.raises(ParameterError, match="call fit to start again"):
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
                bandit.partial_fit(*given, sample_weight=np.full(B, weight), allow_repeat=True)
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
    "uneven eligibility": lambda b: b.decide(X[:2], eligible=[[True], [True, False]]),
    "uneven eligibility of rows": lambda b: b.partial_fit(X[:2], [0, 1], [1, 2], eligible=[[True], [True, False]]),
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
    "one text as propensities": lambda b: b.partial_fit(X[:2], [0, 1], [1, 2], "logged"),
    "a list of labels as a policy": lambda b: spuir.Bandit(["mail", "call"]).decide(X),  # type: ignore[arg-type]
    "rewards as dates": lambda b: b.partial_fit(X[:2], [0, 1], np.array(["2026-01-01"] * 2, "M8[D]")),
    "contexts as text in a frame": lambda b: b.decide(pd.DataFrame({"a": ["1"], "b": ["2"], "c": [3]}).astype(object)),
    "eligibility of 2": lambda b: b.decide(X[:1], eligible=[[1, 2, 1]]),
    "eligibility of NaN": lambda b: b.decide(X[:1], eligible=[[1, np.nan, 0]]),
    "a number as a path": lambda b: b.save(3),
    "a path with a null character": lambda b: b.save("a\0b"),
    "no path": lambda b: spuir.load(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_every_refusal_is_ours(name: str) -> None:
    bandit = taught()
    rows = dict(bandit._rows.used)
    with warnings.catch_warnings(), pytest.raises(SpuirError) as refusal:
        warnings.simplefilter("error")
        REFUSED[name](bandit)
    assert "but" in str(refusal.value) and "\n" not in str(refusal.value).strip()
    assert bandit.n_episodes_ == 1 and bandit._rows.used == rows


def test_messages_name_value_and_place() -> None:
    bandit = taught()
    with pytest.raises(UnknownNameError, match=r"got '0' at row 0, but the actions are 0, 1, 2; did you mean 0\?"):
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


def test_shards_need_ids_that_are_unique() -> None:
    with pytest.raises(ShardError, match="a repeated id"):
        taught().collect(X[:2], [0, 1], [1, 2], row_ids=[1, 1])
