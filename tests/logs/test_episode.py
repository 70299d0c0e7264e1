"""The episode: rewards settled as a plain dict would, refusals that change nothing, and the way into a bandit."""

import pickle
import statistics
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import spuir
from spuir.errors import (
    InputError,
    NotFittedError,
    ParameterError,
    RepeatedEpisodeError,
    SnapshotError,
    SpuirError,
)
from spuir.logs import Report, open_log
from spuir.logs.rewards import AGGREGATIONS, LATE, RewardRules
from spuir.logs.times import microseconds
from spuir.storage import snapshot

Event = tuple[int, float, int]
"""A reward: the id of its decision, its value, when it came."""


def naive(
    decided: dict[int, int], events: list[Event], aggregation: str, window: int | None, late: str, default: float | None
) -> dict[int, float | None]:
    """Return the reward of each decision, settled one at a time."""
    rules: dict[str, Callable[[list[float]], float]] = {
        "earliest": lambda values: values[0],
        "sum": sum,
        "average": statistics.fmean,
        "median": statistics.median,
        "min": min,
        "max": max,
    }
    settled: dict[int, float | None] = {}
    for name, start in decided.items():
        own = [event for event in events if event[0] == name]
        if window is not None and late == "drop":
            own = [event for event in own if event[2] - start <= window]
        own.sort(key=lambda event: event[2])
        settled[name] = rules[aggregation]([event[1] for event in own]) if own else default
    return settled


EVENTS = st.lists(st.tuples(st.integers(0, 6), st.integers(-8, 8).map(float), st.integers(0, 30)), max_size=30)


@given(
    decided=st.dictionaries(st.integers(0, 5), st.integers(0, 10), min_size=1),
    events=EVENTS,
    aggregation=st.sampled_from(AGGREGATIONS),
    window=st.none() | st.integers(1, 20),
    late=st.sampled_from(["drop", "accept"]),
    default=st.none() | st.just(-1.0),
)
def test_rewards_are_settled_as_one_by_one(
    decided: dict[int, int], events: list[Event], aggregation: str, window: int | None, late: str, default: float | None
) -> None:
    episode = spuir.Episode(default, aggregation, window, late)
    names = list(decided)
    episode.record(np.zeros((len(names), 1)), ids=names, actions=[0] * len(names), time=list(decided.values()))
    for name, value, when in events:
        episode.reward(name, value, time=when)
    report = episode.close()
    expected = naive(decided, events, aggregation, window, late, default)
    known = {name: value for name, value in expected.items() if value is not None}
    assert episode.ids == list(known)
    if known:
        np.testing.assert_allclose(episode.batch().rewards, list(known.values()), rtol=1e-12)
    owned = [event for event in events if event[0] in decided]
    is_late = [window is not None and event[2] - decided[event[0]] > window for event in owned]
    used = [event for event, after in zip(owned, is_late, strict=True) if late == "accept" or not after]
    heard = {event[0] for event in used}
    assert report == Report(
        decisions=len(decided),
        rewards=len(events),
        repeated=len(used) - len(heard),
        orphans=len(events) - len(owned),
        late=sum(is_late),
        early=sum(event[2] < decided[event[0]] for event in owned),
        silent=len(decided) - len(heard),
    )


def opened(**rules: Any) -> spuir.Episode:
    """Return an episode with two decisions, a and b, taken at 0."""
    episode = spuir.Episode(**rules)
    episode.record([[1.0, 2.0], [3.0, 4.0]], ids=["a", "b"], actions=[0, 1], propensities=[0.5, 0.25], time=0)
    return episode


class TestRules:
    def test_the_end_belongs_to_the_window(self) -> None:
        episode = opened(window="1m")
        episode.reward(["a", "b"], [1.0, 1.0], time=[60, 60.000001])
        assert episode.close().late == 1
        np.testing.assert_array_equal(episode.batch().rewards, [1.0, 0.0])

    def test_earliest_is_by_time_then_by_arrival(self) -> None:
        episode = opened()
        episode.reward(["a", "a", "b", "b"], [1.0, 2.0, 3.0, 4.0], time=[9, 5, 7, 7])
        episode.close()
        np.testing.assert_array_equal(episode.batch().rewards, [2.0, 3.0])

    def test_earliest_without_times_is_by_arrival(self) -> None:
        episode = opened()
        episode.reward(["a", "b", "a"], [1.0, 2.0, 3.0])
        episode.reward("b", 5.0, time=3)
        episode.close()
        np.testing.assert_array_equal(episode.batch().rewards, [1.0, 5.0])

    def test_late_rewards_can_be_refused(self) -> None:
        episode = opened(window="1h", late="refuse")
        episode.reward("b", 1.0, time=7200)
        with pytest.raises(InputError, match=r"7200 s after its decision 'b'.*the window is '1h'"):
            episode.close()
        assert not episode.is_closed

    def test_silent_decisions_can_stay_out(self) -> None:
        episode = opened(default=None)
        episode.reward("b", 2.0)
        assert episode.close().silent == 1
        assert episode.ids == ["b"]
        batch = episode.batch()
        np.testing.assert_array_equal(batch.contexts, [[3.0, 4.0]])
        assert batch.propensities is not None and batch.propensities.tolist() == [0.25]

    @pytest.mark.parametrize("rules", [{"aggregation": "mean"}, {"late": "keep"}, {"default": np.nan}, {"window": 0}])
    def test_unknown_rules_are_refused(self, rules: dict[str, Any]) -> None:
        with pytest.raises(ParameterError, match=next(iter(rules))):
            spuir.Episode(**rules)

    def test_the_words_are_those_of_the_interface(self) -> None:
        assert AGGREGATIONS == ("earliest", "sum", "average", "median", "min", "max")
        assert LATE == ("drop", "accept", "refuse")
        assert RewardRules(window="2m").reach == 120_000_000

    @pytest.mark.parametrize(
        ("value", "expected"),
        [("15m", 900), ("6h", 21_600), ("1d", 86_400), ("hour", 3_600), ("DAY", 86_400), (1.5, 1.5), ("250ms", 0.25)],
    )
    def test_durations(self, value: Any, expected: float) -> None:
        assert microseconds(value, "window") == expected * 1e6

    @pytest.mark.parametrize("value", ["", "m", "-1h", "1 fortnight", 0, -3, np.nan, np.inf, True, None, [1]])
    def test_no_durations(self, value: Any) -> None:
        with pytest.raises(ParameterError, match="15m"):
            microseconds(value, "window")


class TestRecording:
    def test_one_at_a_time_and_many_are_the_same(self) -> None:
        one, many = spuir.Episode(), spuir.Episode()
        X = np.arange(6.0).reshape(3, 2)
        for at, name in enumerate("abc"):
            one.record(X[at], ids=name, actions=at, propensities=0.5, time=at)
            one.reward(name, at, time=9)
        many.record(X, ids=list("abc"), actions=[0, 1, 2], propensities=0.5, time=[0, 1, 2])
        many.reward(np.array(list("abc")), [0, 1, 2], time=9)
        assert one.close() == many.close()
        assert one.table().equals(many.table())

    def test_duplicates_are_counted_and_the_first_stays(self) -> None:
        episode = opened()
        assert episode.record([[9.0, 9.0], [5.0, 6.0]], ids=["a", "c"], actions=[1, 1], propensities=1.0, time=1) == 1
        assert episode.record([[0.0, 0.0]] * 2, ids=["d", "d"], actions=[0, 1], propensities=1.0) == 1
        assert len(episode) == 4
        assert episode.close().duplicates == 2
        np.testing.assert_array_equal(episode.batch().contexts, [[1, 2], [3, 4], [5, 6], [0, 0]])

    def test_a_reward_may_come_before_its_decision_is_recorded(self) -> None:
        episode = spuir.Episode()
        episode.reward("a", 1.0)
        episode.record([1.0], ids="a", actions=0)
        assert episode.close().orphans == 0
        assert episode.batch().rewards.tolist() == [1.0]

    @pytest.mark.parametrize(
        "make",
        [np.asarray, sparse.csr_array, lambda X: pd.DataFrame(X, columns=["u", "v"])],
        ids=["array", "sparse", "frame"],
    )
    def test_contexts_of_every_form(self, make: Callable[[Any], Any]) -> None:
        X = np.arange(8.0).reshape(4, 2)
        episode = spuir.Episode(default=None)
        episode.record(make(X[:3]), ids=[1, 2, 3], actions=[0, 1, 0])
        episode.record(make(X[2:]), ids=[3, 4], actions=[1, 1])
        episode.reward([4, 1], [1.0, 2.0])
        episode.close()
        batch = episode.batch()
        contexts = batch.contexts.toarray() if hasattr(batch.contexts, "toarray") else batch.contexts
        np.testing.assert_array_equal(contexts, X[[0, 3]])
        assert type(episode.columns()["X"]) is type(make(X))

    def test_what_the_caller_changes_afterwards_does_not_matter(self) -> None:
        X, rewards = np.ones((1, 1)), np.ones(1)
        episode = spuir.Episode()
        episode.record(X, ids=[1], actions=[0])
        episode.reward([1], rewards)
        X[:], rewards[:] = 7, 7
        episode.close()
        assert episode.batch().contexts.tolist() == [[1.0]] and episode.batch().rewards.tolist() == [1.0]

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"contexts": [[1.0]]}, "contexts: got 1 columns.*2 columns so far"),
            ({"contexts": pd.DataFrame({"x": [1.0], "y": [2.0]})}, "columns x, y"),
            ({"contexts": [[1.0, 2.0]] * 2}, "one row for each id"),
            ({"contexts": [[1.0, 2.0], [1.0]]}, "different lengths"),
            ({"actions": [0, 1]}, "2 actions.*one action for each id"),
            ({"actions": None}, "actions: got None"),
            ({"ids": None}, "ids: got None"),
            ({"ids": [None]}, "None at row 0"),
            ({"ids": [[1]]}, "a text or a number"),
            ({"propensities": None}, "propensities: got none.*one per row so far"),
            ({"propensities": 0.0}, "lies in"),
            ({"propensities": [0.5, 0.5]}, "one value per context row"),
            ({"weights": 1.0}, "weights: got one per row"),
            ({"eligible": [True, True]}, "eligible: got 2 actions"),
            ({"time": "soon"}, "'soon'"),
            ({"time": 1.7e12}, "milliseconds"),
            ({"time": [1, 2]}, "2 times"),
        ],
    )
    def test_a_refused_decision_changes_nothing(self, given: dict[str, Any], told: str) -> None:
        episode = opened()
        row: dict[str, Any] = {"contexts": [[5.0, 6.0]], "ids": ["c"], "actions": [0], "propensities": [0.5], "time": 1}
        with pytest.raises(InputError, match=told):
            episode.record(**(row | given))
        assert len(episode) == 2
        assert episode.record(**row) == 1

    @pytest.mark.parametrize(
        ("ids", "rewards", "time", "told"),
        [
            ("a", np.nan, 0, "every reward must be finite"),
            (["a", "b"], [1.0, np.inf], 0, "inf at row 1"),
            (["a", "b"], [1.0], 0, "one value per"),
            ("a", "much", 0, r"rewards: got 'much' at row 0"),
            ("a", 1.0, None, "a window needs the time"),
            (["a", "b"], [1.0, 2.0], [0, None], "none for 'b'"),
        ],
    )
    def test_a_refused_reward_changes_nothing(self, ids: Any, rewards: Any, time: Any, told: str) -> None:
        episode = opened(window="1h")
        with pytest.raises(InputError, match=told):
            episode.reward(ids, rewards, time=time)
        assert episode.close().rewards == 0

    def test_closed_is_closed(self) -> None:
        episode = opened()
        with pytest.raises(NotFittedError, match=r"an open episode.*call close"):
            episode.batch()
        assert "open, 2 decisions" in repr(episode)
        report = episode.close()
        for late in (lambda: episode.reward("a", 1.0), lambda: episode.record([[1.0, 2.0]], ids="c", actions=0)):
            with pytest.raises(InputError, match=r"after closing.*open another"):
                late()
        assert episode.close() is report is episode.report
        assert "closed" in repr(episode)

    def test_an_empty_episode_closes_and_has_nothing_to_learn(self) -> None:
        episode = spuir.Episode()
        episode.reward("x", 1.0)
        assert episode.close() == Report(rewards=1, orphans=1)
        with pytest.raises(InputError, match="nothing to learn"):
            episode.columns()

    def test_the_report_reads_as_a_sentence(self) -> None:
        report = Report(decisions=1200, duplicates=2, rewards=3, orphans=1, late=1, silent=1199)
        told = (
            "1,200 decisions (2 duplicates left out), 3 rewards (1 without a decision, 1 late); "
            "1,199 decisions without a reward."
        )
        assert str(report) == told
        counted = Report(decisions=3, silent=2, open=1, default=0.0) + Report()
        assert str(counted).endswith("2 decisions without a reward (counted as 0), 1 with a window still open.")

    def test_threads_record_together(self) -> None:
        episode = spuir.Episode(aggregation="sum")

        def work(worker: int) -> None:
            for at in range(50):
                episode.record([float(worker)], ids=(worker * 50 + at) % 120, actions=0)
                episode.reward(at, 1.0)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = episode.close()
        assert (report.decisions, report.duplicates, report.rewards, report.orphans) == (120, 80, 200, 0)
        rewards = dict(zip(episode.ids, episode.batch().rewards, strict=True))
        assert all(rewards[at] == (4.0 if at < 50 else 0.0) for at in range(120))


class TestBandit:
    def test_from_decision_to_learning(self) -> None:
        bandit, twin = (spuir.Bandit("puir", ["mail", "call"], random_state=3) for _ in range(2))
        X = np.random.default_rng(0).normal(size=(40, 3))
        decision = bandit.decide(X, ids=np.arange(40))
        episode = spuir.Episode()
        assert episode.record(X, decision, time=datetime(2024, 5, 1, tzinfo=UTC)) == 40
        episode.reward([3, 5], [1.0, 2.0])
        episode.close()
        bandit.partial_fit(**episode.columns())
        rewards = np.zeros(40)
        rewards[[3, 5]] = 1, 2
        twin.partial_fit(X, decision.actions, rewards, decision.propensities)
        np.testing.assert_array_equal(bandit.coefficients_, twin.coefficients_)
        batch = episode.batch(bandit)
        assert [["mail", "call"][code] for code in batch.actions] == decision.actions.tolist()

    def test_a_decision_needs_ids_and_other_actions_their_propensities(self) -> None:
        decision = spuir.Bandit("uniform", 2, random_state=0).decide(np.ones((1, 1)))
        episode = spuir.Episode()
        with pytest.raises(InputError, match=r"no ids.*decide"):
            episode.record([[1.0]], decision)
        with pytest.raises(InputError, match="pass their propensities"):
            episode.record([[1.0]], decision, ids=["a"], actions=[0])
        assert episode.record([[1.0]], decision, ids=["a"], actions=[0], propensities=[0.1]) == 1

    def test_labels_without_a_bandit_are_refused(self) -> None:
        episode = spuir.Episode()
        episode.record([[1.0]], ids=["a"], actions=["mail"])
        episode.close()
        with pytest.raises(InputError, match="integer action codes"):
            episode.batch()

    def test_the_closed_episode_is_a_log(self) -> None:
        episode = spuir.Episode(default=None)
        frame = pd.DataFrame({"age": [1.0, 2.0], "city": ["x", "y"]})
        episode.record(frame, ids=["a", "b"], actions=["m", "n"], propensities=0.5, time=0, eligible=[True, True])
        episode.reward("b", 1.0, time=5)
        episode.close()
        log = open_log(episode.table())
        assert log.context == ("age", "city")
        second = log.table().to_pylist()[1]
        assert second["reward"] == 1.0 and second["reward_time"] == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
        assert log.table()["reward"].to_pylist()[0] is None and second["eligible"] == [True, True]

    def test_a_context_with_a_name_of_the_log_is_refused(self) -> None:
        episode = spuir.Episode()
        episode.record(pd.DataFrame({"reward": [1.0]}), ids=["a"], actions=[0])
        episode.close()
        with pytest.raises(InputError, match=r"column 'reward'.*another name"):
            episode.table()


class TestSaving:
    """A night's job decides and saves, the next one rewards and learns."""

    FRAME = pd.DataFrame({"age": [31, 58, 40], "device": pd.Categorical(["phone", None, "tv"])})

    @pytest.mark.parametrize("contexts", [np.arange(6.0).reshape(3, 2), sparse.csr_array(np.eye(3)), FRAME])
    @pytest.mark.parametrize("closed", [False, True])
    def test_a_loaded_episode_goes_on_as_the_original(self, contexts: Any, closed: bool, tmp_path: Path) -> None:
        original = spuir.Episode(default=-1.0, aggregation="sum", window="1d")
        given: dict[str, Any] = {"propensities": [0.5, 0.2, 1.0], "eligible": np.eye(3, 4) > -1, "weights": [1, 2, 3]}
        original.record(contexts, ids=["a", 2, 3.5], actions=["x", 1, 2.5], time=[0, 10, 20], **given)
        original.record(contexts, ids=["a", 2, "new"], actions=["x", 1, "x"], time=5, **given)
        original.reward(["a", "orphan"], [1.0, 2.0], time=[30, 40])
        if closed:
            original.close()
        original.save(tmp_path / "night")
        copies = [spuir.Episode.load(tmp_path / "night"), pickle.loads(pickle.dumps(original))]
        for copy in copies:
            assert copy.is_closed is closed and repr(copy) == repr(original) and copy.rules == original.rules
        for episode in (*copies, original):
            if not closed:
                episode.reward([2, "a"], [5.0, 7.0], time=50)
        for copy in copies:
            assert copy.close() == original.close()
            assert copy.ids == original.ids
            found, expected = copy.columns(), original.columns()
            for name in ("X", "actions", "rewards", "propensities", "sample_weight", "eligible", "ids"):
                left, right = (
                    part[name].toarray() if hasattr(part[name], "toarray") else np.asarray(part[name], dtype=object)
                    for part in (found, expected)
                )
                assert left.shape == right.shape and ((left == right) | pd.isna(right)).all(), name

    def test_an_empty_one_stays_open(self, tmp_path: Path) -> None:
        spuir.Episode().save(tmp_path / "e")
        loaded = spuir.Episode.load(tmp_path / "e")
        assert loaded.record([[1.0]], ids="a", actions=0) == 1

    def test_an_episode_is_learned_once(self, tmp_path: Path) -> None:
        bandit = spuir.Bandit("puir", 2, random_state=0)
        for _ in range(2):  # the same customers every night
            night = spuir.Episode()
            night.record([[1.0], [2.0]], bandit.decide([[1.0], [2.0]], ids=["ann", "bob"]))
            night.save(tmp_path / "night")
            night.close()
            bandit.partial_fit(**night.columns())
        again = spuir.Episode.load(tmp_path / "night")
        again.reward("bob", 1.0)
        again.close()
        with pytest.raises(RepeatedEpisodeError):
            bandit.partial_fit(**again.columns())
        assert bandit.n_episodes_ == 2

    def test_what_cannot_be_saved_or_read_is_refused(self, tmp_path: Path) -> None:
        night = spuir.Episode()
        night.record([["text"]], ids="a", actions=0)
        with pytest.raises(SnapshotError, match="an array that is saved holds numbers"):
            night.save(tmp_path / "e")
        night = spuir.Episode()
        night.record([[1.0]], ids=[("a", 1)], actions=0)
        with pytest.raises(SnapshotError, match="a saved id or label is text or a number"):
            night.save(tmp_path / "e")
        spuir.Bandit("puir", 2).save(tmp_path / "m")
        with pytest.raises(SnapshotError, match="a saved episode is needed"):
            spuir.Episode.load(tmp_path / "m")
        assert not (tmp_path / "e").exists()

    def test_forged_files_are_refused(self, tmp_path: Path) -> None:
        night = spuir.Episode()
        night.record([[1.0], [2.0]], ids=["a", "b"], actions=[0, 1])
        night.save(tmp_path / "e")
        header, arrays = snapshot.read(tmp_path / "e")
        text = {name: np.frombuffer(name.encode(), np.uint8) for name in ('["a"]', '["a","a"]', "[[]]", "[" * 99, "7")}
        changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
            *(({}, {"list/ids": one}) for one in text.values()),
            ({}, {"contexts": np.ones((3, 1))}),
            ({}, {"rewards": np.ones(1)}),
            ({"rules": {"bogus": 1}}, {}),
            ({"rules": None}, {}),
        ]
        for head, body in changes:
            snapshot.write(tmp_path / "f", header | head, arrays | body)
            with pytest.raises(SpuirError):
                spuir.Episode.load(tmp_path / "f")
