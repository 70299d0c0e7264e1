"""Protocol 1 and the history it leaves."""

import json
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from spuir import Bandit, list_policies, make_policy
from spuir.base.packing import pack
from spuir.base.parameters import COUNT, optional, parameter
from spuir.base.records import Feedback, Info, Rounds, Scores, State
from spuir.base.streams import generator
from spuir.environments import ENVIRONMENTS, list_environments, make_environment
from spuir.errors import InputError, MissingExtraError, ParameterError, UnknownNameError
from spuir.loop import run, with_horizon
from spuir.policies.base import Policy


@dataclass(frozen=True, kw_only=True, eq=False)
class Means(State):
    total: np.ndarray
    count: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Frugal(Policy):
    """A tiny policy for these tests: softmax of ten times each action's mean reward; keeps what it was given."""

    name: str = "frugal"
    state_type = Means
    episodes: int | None = parameter(None, "horizon (N)", optional(COUNT))
    batch_size: int | None = parameter(None, "steps of an episode (B)", optional(COUNT))
    seen: list = field(default_factory=list, compare=False, repr=False)

    @property
    def traits(self):
        return frozenset({"sampling"})

    def init(self, n_actions, dim, rng):
        return Means(n_actions=n_actions, dim=dim, total=np.zeros(n_actions), count=np.zeros(n_actions))

    def table(self, state, contexts, eligible):
        means = np.tile(state.total / np.maximum(state.count, 1), (len(contexts), 1))
        weights = np.exp(10 * means)
        probabilities = weights / weights.sum(axis=1, keepdims=True)
        return Scores(means=means, widths=0 * means, scores=means, probabilities=probabilities)

    def collect(self, state, batch, rng):
        rng.random()
        self.seen.append(batch)
        return batch

    def absorb(self, state, sums):
        count = np.bincount(sums.actions, minlength=state.n_actions)
        total = np.bincount(sums.actions, sums.rewards, minlength=state.n_actions)
        state = replace(state, total=state.total + total, count=state.count + count, episode=state.episode + 1)
        return state, Info(rows=len(sums), counts=count.astype(float))

    def grow(self, state, like):
        return state


@dataclass(frozen=True, kw_only=True)
class Stubborn(Frugal):
    """Always the same action once it has learned, after one extra draw per call: other streams must not feel it."""

    name: str = "stubborn"
    action: int = 0

    def table(self, state, contexts, eligible):
        table = super().table(state, contexts, eligible)
        if not state.episode:
            return table
        return replace(table, probabilities=np.eye(state.n_actions)[np.full(len(contexts), self.action)])


def short(policy: Any, environment: Any = "synthetic", **options: Any) -> Any:
    given: dict[str, Any] = {"episodes": 6, "batch_size": 80, "seed": 3}
    return run(policy, environment, **given | options)


def same(one, other):
    names = [name for name in one.columns() if not name.endswith("seconds")]
    assert names
    for name in names:
        np.testing.assert_array_equal(one.columns()[name], other.columns()[name], err_msg=name)


@pytest.mark.parametrize("environment", [one for one in list_environments() if not ENVIRONMENTS.get(one).needs_file])
def test_shapes_and_meanings(environment):
    history = short(Frugal(), environment)
    world = make_environment(environment)
    assert len(history) == 6
    assert history.counts.shape == (6, world.n_actions)
    np.testing.assert_array_equal(history.counts.sum(axis=1), 80)
    for column in (history.rewards, history.regret, history.fixed_regret, history.decide_seconds):
        assert column.shape == history.learn_seconds.shape == (6,)
    np.testing.assert_allclose(history.average_reward, [history.rewards[: n + 1].mean() for n in range(6)])
    assert np.all(np.diff(history.regret, prepend=0) >= 0)
    assert np.all(history.fixed_regret <= history.regret + 1e-12)
    assert np.all(history.decide_seconds > 0)
    assert (history.cvr is not None) == (history.ctcvr is not None) == world.has_clicks


def test_the_same_seed_gives_the_same_history_and_another_does_not():
    first = short(Frugal())
    same(first, short(Frugal()))
    assert not np.array_equal(first.rewards, short(Frugal(), seed=4).rewards)


def test_policies_meet_the_same_contexts_and_noise():
    one, two, three = Frugal(), Stubborn(action=0), Stubborn(action=3)
    for policy in (one, two, three):
        short(policy, "linear", feedback=1.0)
    for mine, other, third in zip(one.seen, two.seen, three.seen, strict=True):
        np.testing.assert_array_equal(mine.contexts, other.contexts)
        np.testing.assert_array_equal(mine.revealed_rewards, other.revealed_rewards)
        np.testing.assert_array_equal(mine.revealed_rewards, third.revealed_rewards)


def test_episode_zero_is_uniform_learnt_from_and_not_counted():
    policy = Stubborn(action=2)
    history = short(policy, batch_size=2000)
    assert len(policy.seen) == 6
    first = policy.seen[0]
    np.testing.assert_allclose(first.propensities, 0.2)
    # Counts of 2,000 uniform draws: five standard errors in five counts, false alarms below 3e-6.
    assert np.all(np.abs(np.bincount(first.actions, minlength=5) - 400) < 5 * np.sqrt(320))
    assert all(np.all(batch.actions == 2) and np.all(batch.propensities == 1) for batch in policy.seen[1:])
    assert np.all(history.counts[:, 2] == 2000)


def test_the_batch_carries_propensities_and_outcomes():
    policy = Frugal()
    short(policy)
    batch = policy.seen[-1]
    assert len(np.unique(batch.propensities)) > 1
    assert set(np.unique(batch.click)) <= {0, 1}
    assert np.all(batch.conversion <= batch.click)
    assert np.all(batch.elapsed > 0)
    assert batch.revealed is None


def test_regrets_are_those_of_the_definitions():
    world: Any = make_environment("heterogeneous", seed=3)
    policy = Frugal()
    history = short(policy, world, episodes=7)
    losses, gains = [], []
    for batch in policy.seen[1:]:
        expected = batch.contexts @ world.coefficients.T
        chosen = expected[np.arange(80), batch.actions]
        losses.append((expected.max(axis=1) - chosen).sum())
        gains.append(expected.sum(axis=0) - chosen.sum())
    np.testing.assert_allclose(history.regret[:6], np.cumsum(losses))
    np.testing.assert_allclose(history.fixed_regret[:6], [np.sum(gains[: n + 1], axis=0).max() for n in range(6)])


def test_a_policy_that_plays_the_best_fixed_action_has_no_fixed_regret():
    history = short(Stubborn(action=0), "synthetic")
    np.testing.assert_allclose(history.fixed_regret, 0, atol=1e-12)
    assert short(Stubborn(action=4), "synthetic").fixed_regret[-1] > 0.1 * 6 * 80


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_feedback_reveals_that_share_of_the_other_actions(share):
    policy = Frugal()
    short(policy, batch_size=500, feedback=share)
    if share == 0:
        assert all(batch.revealed is None for batch in policy.seen)
        return
    revealed = np.concatenate([batch.revealed for batch in policy.seen])
    actions = np.concatenate([batch.actions for batch in policy.seen])
    assert not revealed[np.arange(len(actions)), actions].any()
    found = revealed.sum() / (4 * len(actions))
    # 12,000 Bernoulli draws: six standard errors, false alarms below 1e-8.
    assert abs(found - share) <= 6 * np.sqrt(share * (1 - share) / (4 * len(actions)))


def test_feedback_changes_neither_contexts_nor_noise():
    bandit, full = Stubborn(action=1), Stubborn(action=1)
    same(short(bandit), short(full, feedback=1.0))


def test_feedback_needs_an_environment_that_knows_all_rewards():
    world = make_environment("linear")
    hidden = type(
        "Hidden", (type(world),), {"feedback": lambda *a: replace(type(world).feedback(*a), all_rewards=None)}
    )
    with pytest.raises(InputError, match="feedback"):
        short(Frugal(), hidden(), feedback=0.5)


def test_an_open_horizon_is_filled_in_and_a_given_one_kept():
    policy = Frugal(episodes=50)
    filled: Any = with_horizon(policy, 6, 80)
    assert (filled.episodes, filled.batch_size) == (50, 80)
    assert short(Frugal()).parameters["episodes"] == 6
    settled = Frugal(episodes=1, batch_size=2)
    assert with_horizon(settled, 6, 80) is settled


def test_one_blas_thread_meanwhile():
    counts = []
    short(Frugal(), progress=lambda n: counts.append({lib["num_threads"] for lib in threadpool_info()}))
    assert counts == [{1}] * 6


def test_progress_counts_the_episodes():
    calls = []
    short(Frugal(), progress=calls.append)
    assert calls == [1, 2, 3, 4, 5, 6]


def test_names_take_the_defaults_and_the_seed_of_the_run():
    by_name = short("sbucb", "heterogeneous")
    by_object = short("sbucb", make_environment("heterogeneous", seed=3))
    same(by_name, by_object)
    assert (by_name.policy, by_name.environment) == ("sbucb", "heterogeneous")


@pytest.mark.parametrize(
    "options", [{"episodes": 0}, {"batch_size": 1.5}, {"seed": -1}, {"feedback": 1.2}, {"episodes": True}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        short(Frugal(), **options)


def test_wrong_names_are_answered():
    with pytest.raises(UnknownNameError, match="did you mean 'sbucb'"):
        short("sbucp")
    with pytest.raises(UnknownNameError, match="did you mean 'linear'"):
        short(Frugal(), "linaer")


class Bare:
    """An environment without a base class: only what a run needs."""

    n_actions = 2

    def draw(self, n, rng):
        return Rounds(contexts=rng.normal(size=(n, 2)))

    def expected_rewards(self, rounds):
        return rounds.contexts.copy()

    def feedback(self, rounds, actions, rng):
        return Feedback(rewards=rounds.contexts[np.arange(len(rounds)), actions])


def test_an_environment_needs_no_base_class():
    history = short("sbucb", Bare())
    assert history.environment == "Bare"
    assert history.cvr is None
    assert history.rewards[-1] > 0.4


@pytest.mark.parametrize("environment", [Bare, object()])
def test_what_is_no_environment_is_refused(environment):
    with pytest.raises(ParameterError, match="n_actions, draw, feedback and expected_rewards"):
        short("sbucb", environment)


def test_rows_and_dict_hold_the_same_numbers():
    history = short(Frugal())
    rows, data = history.rows(), json.loads(json.dumps(history.to_dict(), allow_nan=False))
    assert [row["episode"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert {row["policy"] for row in rows} == {data["policy"]} == {"frugal"}
    for name, values in data["columns"].items():
        assert [row[name] for row in rows] == values
    assert data["columns"]["regret"] == history.regret.tolist()
    assert data["summary"]["cvr"] == pytest.approx(history.conversions.sum() / history.clicks.sum())
    assert data["summary"]["regret_per_step"] == pytest.approx(history.regret[-1] / 480)


def test_an_episode_without_clicks_has_no_conversion_rate():
    history = short(Frugal(), make_environment("synthetic", click_rate=0))
    assert np.isnan(history.cvr).all()
    assert not history.ctcvr.any()
    assert history.to_dict()["columns"]["cvr"] == [None] * 6


def test_frame():
    pandas = pytest.importorskip("pandas")
    history = short(Frugal())
    frame = history.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    np.testing.assert_array_equal(frame["reward"], history.rewards)
    assert list(frame["episode"]) == [1, 2, 3, 4, 5, 6]


def test_frame_without_pandas_says_how_to_get_it(monkeypatch):
    history = short(Frugal())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"spuir\[data\]"):
        history.to_frame()


def test_plot_writes_both_formats(tmp_path):
    pytest.importorskip("matplotlib")
    figure = short(Frugal()).plot(tmp_path / "run.png")
    assert {path.name for path in tmp_path.iterdir()} == {"run.png", "run.svg"}
    assert figure.axes[0].get_ylabel() == "running average reward"


@pytest.mark.parametrize("name", list_policies())
def test_a_loop_around_a_bandit_gives_the_same_actions_and_the_same_state(name, monkeypatch):
    policy = with_horizon(make_policy(name, preset="paper"), 3, 60)
    made: list[Any] = []

    class Watched(Bandit):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)
            self.decided: list[Any] = []

        def decide(self, *given: Any, **named: Any) -> Any:
            self.decided.append(super().decide(*given, **named))
            return self.decided[-1]

    monkeypatch.setattr("spuir.loop.Bandit", Watched)
    run(policy, "synthetic", episodes=3, batch_size=60, seed=5)
    (inside,) = made

    world, bandit = make_environment("synthetic", seed=5), Bandit(policy, 5, random_state=5)
    with threadpool_limits(limits=1):
        for n in range(4):
            rounds = world.draw(60, generator(5, "environment", "contexts", n))
            decision = bandit.decide(rounds.contexts)
            np.testing.assert_array_equal(decision.actions, inside.decided[n].actions)
            np.testing.assert_array_equal(decision.propensities, inside.decided[n].propensities)
            if n < 3:
                outcome = world.feedback(rounds, decision.actions, generator(5, "environment", "noise", n))
                bandit.partial_fit(
                    rounds.contexts,
                    decision.actions,
                    outcome.rewards,
                    propensities=decision.propensities,
                    click=outcome.click,
                    conversion=outcome.conversion,
                    elapsed=outcome.elapsed,
                )
    assert digest_of(bandit.state_) == digest_of(inside.state_)


def digest_of(state: Any) -> tuple[Any, Any]:
    tree, arrays = pack(state)
    return tree, {name: array.tobytes() for name, array in arrays.items()}
