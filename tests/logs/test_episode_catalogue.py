"""Episodes of actions with features: lists of eligible labels and features per decision come back as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spuir
from spuir.errors import InputError
from spuir.logs import open_log

ITEMS = {"a": {"size": 1.0}, "b": {"size": 2.0}, "c": {"size": 4.0}}
X = np.array([[0.1, 1.0], [0.7, -1.0], [-0.4, 0.3]])
LISTS = [["a", "b"], ["b", "c"], ["a", "b", "c"]]
LONG: dict[str, Any] = {
    "row": [0, 0, 1, 1, 2, 2, 2],
    "action": [label for one in LISTS for label in one],
    "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
}


def bandit() -> spuir.Bandit:
    return spuir.Bandit("hierarchical", ITEMS, random_state=0)


@pytest.mark.parametrize("given", [{"eligible": LISTS}, {"action_features": LONG}])
def test_a_recorded_decision_is_learned_as_it_was(tmp_path: Path, given: dict[str, Any]) -> None:
    made, direct = bandit(), bandit()
    day = made.decide(X, ids=["x", "y", "z"], **given)
    episode = spuir.Episode()
    episode.record(X, day)
    episode.reward(["x", "z"], [1.0, 0.5])
    episode.save(tmp_path / "open.episode")
    loaded = spuir.Episode.load(tmp_path / "open.episode")
    loaded.close()
    made.partial_fit(**loaded.columns())
    direct.partial_fit(direct.decide(X, ids=["x", "y", "z"], **given), [1.0, 0.0, 0.5])
    assert np.array_equal(made.coefficients_, direct.coefficients_)


def test_lists_are_kept_and_written_as_a_log(tmp_path: Path) -> None:
    episode = spuir.Episode()
    actions = ["b", "c", "a"]
    episode.record(X, ids=[1, 2, 3], actions=actions, propensities=0.5, eligible=LISTS, action_features=[[2], [4], [5]])
    episode.save(tmp_path / "open.episode")
    loaded = spuir.Episode.load(tmp_path / "open.episode")
    loaded.close()
    assert loaded.columns()["eligible"] == LISTS
    log = open_log(loaded.table())
    assert log.table(["eligible", "action.y0"]).to_pydict() == {"eligible": LISTS, "action.y0": [2.0, 4.0, 5.0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eligible": [["a"], ["b", "c"], ["a"]]}, "'b' executed but not eligible at row 0"),
        ({"eligible": [["b"], ["c"]]}, "2 lists, but one list for each id is needed, 3 here"),
    ],
)
def test_wrong_lists_are_refused_and_change_nothing(changes: dict[str, Any], message: str) -> None:
    episode = spuir.Episode()
    with pytest.raises(InputError, match=message):
        episode.record(X, ids=[1, 2, 3], actions=["b", "c", "a"], propensities=0.5, **changes)
    assert len(episode) == 0


def test_other_actions_need_their_own_features() -> None:
    day = bandit().decide(X, ids=[1, 2, 3], action_features=LONG)
    with pytest.raises(InputError, match="the decision's features are those of its own actions"):
        spuir.Episode().record(X, day, actions=["b", "c", "a"], propensities=0.5)


def test_numbers_of_one_length_stay_a_mask() -> None:
    episode = spuir.Episode()
    episode.record(X, ids=[1, 2, 3], actions=[0, 1, 0], propensities=0.5, eligible=[[1, 1], [0, 1], [1, 0]])
    episode.close()
    assert episode.columns()["eligible"].tolist() == [[True, True], [False, True], [True, False]]
