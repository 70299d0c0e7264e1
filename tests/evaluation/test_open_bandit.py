"""Real data: the log of one policy of the Open Bandit Dataset says what the other one earned."""

import os
from pathlib import Path

import pytest

from spuir.evaluation import evaluate
from spuir.logs import open_log

FOLDER = Path(os.environ.get("SPUIR_OPEN_BANDIT", "obd_small"))
USERS = [f"user_feature_{at}" for at in range(4)]


@pytest.mark.skipif(not FOLDER.is_dir(), reason="set SPUIR_OPEN_BANDIT to the folder of the small Open Bandit Dataset")
def test_the_value_of_the_uniform_policy_is_recovered_from_the_log_of_the_other_one() -> None:
    random, other = (FOLDER / policy / "all" / "all.csv" for policy in ("random", "bts"))
    earned = open_log(str(random)).table(["reward"])["reward"].to_numpy().mean()
    report = evaluate(str(other), ["uniform"], against=["logged"], context=USERS)
    for name in ("dr", "ips", "snips", "sndr"):
        one = report.value_of("uniform", name)
        assert one.low is not None and one.high is not None
        assert one.low <= earned <= one.high
    assert report.supports["uniform"].verdict == "weak"
    assert report.differences_found[0].verdict == "not distinguishable"
