"""Policies by name: trained on the earlier part of a log, evaluated on the rest."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import spuir
from benchmarks.worlds import World, threshold
from spuir.errors import ParameterError, UnknownNameError
from spuir.evaluation import evaluate
from spuir.logs import open_log, split_log
from spuir.training import train


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return World().draw(2000, np.random.default_rng(21))[0]


def test_a_name_is_trained_on_the_earlier_rows_and_evaluated_on_the_rest(frame: pd.DataFrame) -> None:
    earlier, later = split_log(open_log(frame), 0.25)
    by_hand = evaluate(later, {"auto": train(earlier, "auto", batch_size=250).bandit}, batch_size=250)
    found = evaluate(frame, "auto", holdout=0.25, batch_size=250)
    assert found.facts["rows"] == 500
    assert found.to_dict()["values"] == by_hand.to_dict()["values"]


@pytest.mark.parametrize("cut", [{"every": "day"}, {"batch_size": 250}])
def test_a_part_may_have_no_row_of_the_earlier_ones(frame: pd.DataFrame, tmp_path: Path, cut: Any) -> None:
    timed = frame.assign(time=pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(2000), unit="h"))
    timed.to_parquet(tmp_path / "log.parquet", row_group_size=500)
    found = evaluate(tmp_path / "log.parquet", "puir", holdout=0.25, **cut)
    assert found.facts["rows"] == 500
    assert found.to_dict()["values"] == evaluate(timed, "puir", holdout=0.25, **cut).to_dict()["values"]


@pytest.mark.parametrize("timed", [True, False])
def test_rows_whose_reward_is_not_known_yet_do_not_use_up_the_rest(frame: pd.DataFrame, timed: bool) -> None:
    """The last 30 % of a log whose rewards are late have no reward, and were all that --holdout 0.3 evaluated on."""
    late = frame.assign(reward=frame.reward.where(np.arange(2000) < 1400))
    if timed:
        late["time"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(2000), unit="h")
    earlier, later = split_log(open_log(late), 0.25)
    assert (earlier.table().num_rows, later.table().num_rows) == (1050, 950)
    assert evaluate(late, "auto", holdout=0.25, batch_size=250).facts["rows"] == 350
    nothing = open_log(late.assign(reward=np.nan))
    assert split_log(nothing, 0.25)[1].table().num_rows == 500


def test_a_policy_without_training_keeps_its_parameters(frame: pd.DataFrame) -> None:
    policy = spuir.make_policy("sbucb", intercept=True, floor=0.1)
    earlier, later = split_log(open_log(frame), 0.3)
    by_hand = evaluate(
        later, {"sbucb": train(earlier, policy, batch_size=250).bandit, "rule": threshold}, batch_size=250
    )
    found = evaluate(frame, [policy, threshold], batch_size=250)
    assert found.value_of("sbucb") == by_hand.value_of("sbucb")
    assert found.value_of("threshold").value == by_hand.value_of("rule").value


def test_a_file_goes_before_a_policy_of_the_same_name(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(World().draw(1000, np.random.default_rng(22))[0], "sbucb", batch_size=250, out=tmp_path / "m.spuir")
    (tmp_path / "m.spuir").rename(tmp_path / "auto")
    monkeypatch.chdir(tmp_path)
    assert evaluate(frame, "auto").facts["rows"] == len(frame)


def test_what_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(UnknownNameError, match="no saved model and no policy has that name; did you mean 'auto'"):
        evaluate(frame, "autos")
    with pytest.raises(ParameterError, match="a row for each row of the whole log; pass a function instead"):
        evaluate(frame, {"auto": "auto", "mine": np.full((2000, 3), 1 / 3)}, batch_size=250)
    with pytest.raises(ParameterError, match="leave it out, or evaluate a saved model"):
        evaluate(frame, "auto", after="2026-01-01", batch_size=250)
