"""Real data: the log of one policy of the Open Bandit Dataset says what the other one earned."""

from spuir.evaluation import evaluate
from spuir.logs import open_log
from tests.environments.files import find

USERS = [f"user_feature_{at}" for at in range(4)]


def test_the_value_of_the_uniform_policy_is_recovered_from_the_log_of_the_other_one() -> None:
    random, other = (find(f"obd_small/{policy}/all/all.csv") for policy in ("random", "bts"))
    earned = open_log(str(random)).table(["reward"])["reward"].to_numpy().mean()
    report = evaluate(str(other), ["uniform"], against=["logged"], context=USERS)
    for name in ("dr", "ips", "snips", "sndr"):
        one = report.value_of("uniform", name)
        assert one.low is not None and one.high is not None
        assert one.low <= earned <= one.high
    assert report.supports["uniform"].verdict == "weak"
    assert report.differences_found[0].verdict == "not distinguishable"
