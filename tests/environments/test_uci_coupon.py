"""The in-vehicle coupon survey: the written one everywhere, the real one where it is at hand."""

import gzip

import numpy as np
import pytest
from scipy.special import expit

import spuir
from spuir.base.records import Rounds
from spuir.base.streams import generator
from spuir.environments.uci_coupon import USER, UciCoupon, fit_logistic, half_of_profiles, read_survey
from spuir.errors import InputError, ParameterError
from tests.environments.files import COUPONS, KINDS, find, survey_rows, write_survey


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_survey(tmp_path_factory.mktemp("survey") / "survey.csv"))


def test_actions_and_columns_follow_from_the_file(path):
    world = UciCoupon(path=path)
    assert world.kinds == KINDS and world.n_actions == 5
    # Eleven questions of three answers and one of two; a missing answer has no column.
    assert world.dim == len(world.columns) == 11 * 3 + 2
    assert {name.split("=")[0] for name in world.columns} == set(USER)
    assert not any(name.endswith("=") for name in world.columns)
    assert set(np.unique(world.contexts)) == {0.0, 1.0}


def test_a_missing_answer_is_a_level_of_its_own(path):
    survey = read_survey(path, None)
    bar = [place for place, name in enumerate(survey.columns) if name.startswith("Bar=")]
    missing = np.array([row["Bar"] == "" for row in survey_rows()])
    assert missing.any()
    np.testing.assert_array_equal(survey.users[:, bar].sum(axis=1), 1 - missing)


def test_no_user_is_on_both_sides(path):
    survey = read_survey(path, None)
    halves = [half_of_profiles(survey.profiles, generator(seed, "half")) for seed in range(20)]
    for fitted in halves:
        assert not set(survey.profiles[fitted]) & set(survey.profiles[~fitted])
        # Twelve rows a user: half of the rows, up to one user.
        assert len(fitted) / 2 - 24 <= fitted.sum() <= len(fitted) / 2
    assert len({fitted.tobytes() for fitted in halves}) == 20


def test_models_are_where_the_gradient_vanishes():
    rng = generator(3, "logistic")
    columns = rng.standard_normal((300, 6))
    outcomes = (rng.random(300) < expit(columns @ np.arange(6.0))).astype(float)
    for ridge in (0.1, 1.0, 30.0):
        weights = fit_logistic(columns, outcomes, ridge)
        gradient = columns.T @ (expit(columns @ weights) - outcomes) + ridge * weights
        assert np.abs(gradient).max() < 1e-5
    assert not fit_logistic(columns[:0], outcomes[:0], 1.0).any()


def test_models_find_what_the_file_holds(path):
    """Written: bar coupons are accepted with 0.1 by those who never go, everything else with 0.7."""
    world = UciCoupon(path=path, ridge=1.0)
    never = world.contexts[:, world.columns.index("Bar=never")] == 1
    chances = world.expected_rewards(Rounds(contexts=world.contexts))
    assert chances[never, 0].mean() < 0.35
    assert chances[~never, 0].mean() > 0.55
    assert (chances[:, 1:].mean(axis=0) > 0.55).all()


def test_rewards_are_bernoulli_of_the_models(path):
    world = UciCoupon(path=path)
    rounds = world.draw(20_000, generator(1, "contexts"))
    rewards = world.feedback(rounds, np.zeros(20_000, int), generator(2, "noise")).all_rewards
    assert rewards is not None and set(np.unique(rewards)) == {0.0, 1.0}
    gap = (rewards - world.expected_rewards(rounds)).mean(axis=0)
    # Five standard errors in five means: false alarms below 3e-6.
    assert np.all(np.abs(gap) < 5 * 0.5 / np.sqrt(20_000))


def test_the_same_seed_is_the_same_world(path, tmp_path):
    first, twin, other = (UciCoupon(path=path, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.weights, twin.weights)
    np.testing.assert_array_equal(first.contexts, twin.contexts)
    assert not np.array_equal(first.weights, other.weights)
    with open(path, "rb") as plain:
        data = plain.read()
    packed = tmp_path / "survey.csv.gz"
    packed.write_bytes(gzip.compress(data.replace(b"\r\n", b"\n")))
    np.testing.assert_array_equal(UciCoupon(path=str(packed), seed=1).weights, first.weights)


def test_without_a_file_it_says_where_one_comes_from():
    with pytest.raises(ParameterError, match=r"path of environment 'uci-coupon'.*UCI Machine Learning Repository"):
        spuir.make_environment("uci-coupon")


def test_broken_surveys_are_refused_with_file_row_and_remedy(tmp_path):
    rows = survey_rows(4, 3)
    broken = {
        r"row 4.*'yes'.*Y must be 0 or 1.*drop": [*rows[:2], rows[2] | {"Y": "yes"}, *rows[3:]],
        r"row 2.*''.*Y must be 0 or 1.*drop": [rows[0] | {"Y": ""}, *rows[1:]],
        r"row 3.*''.*coupon must be the kind.*drop": [rows[0], rows[1] | {"coupon": ""}, *rows[2:]],
        r"0 kinds and 0 users.*saved whole": [],
        r"1 users.*saved whole": rows[:3],
    }
    for message, given in broken.items():
        path = write_survey(tmp_path / "survey.csv", given)
        with pytest.raises(InputError, match=message) as caught:
            read_survey.__wrapped__(str(path), None)
        assert str(path) in str(caught.value)


def test_a_file_without_its_columns_is_refused(tmp_path):
    path = write_survey(tmp_path / "survey.csv")
    for name in ("coupon", "Y", "age"):
        other = tmp_path / f"{name}.csv"
        other.write_text(path.read_text().replace(f",{name}", ",else", 1))
        with pytest.raises(InputError, match=rf"row 1.*no column '{name}'.*destination"):
            UciCoupon(path=str(other))


@pytest.mark.parametrize(("name", "value"), [("ridge", 0), ("path", 1), ("seed", -1)])
def test_wrong_parameters(name, value):
    with pytest.raises(ParameterError, match=name):
        spuir.make_environment("uci-coupon", **{name: value})


def test_the_real_survey_is_what_its_description_says():
    path = str(find(COUPONS))
    survey = read_survey(path, None)
    assert survey.users.shape == (12_684, 82) and survey.profiles.max() + 1 == 567
    assert survey.kinds == KINDS
    np.testing.assert_array_equal(np.bincount(survey.coupons), [2017, 2393, 3996, 1492, 2786])
    rates = [survey.accepted[survey.coupons == kind].mean() for kind in range(5)]
    np.testing.assert_allclose(rates, [0.410, 0.736, 0.499, 0.441, 0.707], atol=6e-4)


def test_a_policy_learns_the_real_survey():
    world = UciCoupon(path=str(find(COUPONS)))
    truth = world.expected_rewards(Rounds(contexts=world.contexts))
    uniform, fixed, best = truth.mean(), truth.mean(axis=0).max(), truth.max(axis=1).mean()
    assert 0.5 < uniform < 0.6
    assert 0.68 < fixed < best < 0.8
    history = spuir.run("sbucb", world, episodes=10, batch_size=500, seed=1)
    # 1,500 Bernoulli rewards have a standard error of 0.012: eight of them above uniform.
    assert history.rewards[-3:].mean() > uniform + 0.1
