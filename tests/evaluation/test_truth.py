"""Against the truth, in small: ``python -m benchmarks.evaluation`` draws more and larger logs."""

from collections import defaultdict

import numpy as np
import pytest

from benchmarks.worlds import ACTIONS, World, soft, threshold, turned, values
from spuir.evaluation import EvaluationReport, evaluate

LOGS, ROWS = 120, 600


@pytest.fixture(scope="module")
def truth() -> dict[str, float]:
    return values(200_000)


@pytest.fixture(scope="module")
def reports() -> list[EvaluationReport]:
    found: list[EvaluationReport] = []
    for seed in range(LOGS):
        frame, contexts = World().draw(ROWS, np.random.default_rng([7, seed]))
        policies = {"rule": threshold, "soft": soft(contexts), "reversed": turned, "a": "always:a"}
        against, estimators = ["logged", "always:b"], ["ips", "snips", "dr", "sndr"]
        found.append(evaluate(frame, policies, actions=ACTIONS, against=against, estimators=estimators))
    return found


def test_unbiased_estimates_have_the_right_mean(reports: list[EvaluationReport], truth: dict[str, float]) -> None:
    """Each mean lies within 3.5 standard errors; for all twelve together, chance misses with p < 0.006."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in (one for report in reports for one in report.values):
        if one.policy in ("rule", "soft", "logged") and one.value is not None:
            found[one.policy, one.estimator].append(one.value)
    for (policy, name), some in found.items():
        error = np.std(some, ddof=1) / np.sqrt(len(some))
        assert abs(np.mean(some) - truth[policy]) < 3.5 * error, (policy, name)


def test_intervals_cover(reports: list[EvaluationReport], truth: dict[str, float]) -> None:
    """Of 120 intervals of each estimator at least 105 hold the truth; with 95 % coverage chance misses at p < 0.002."""
    hits: dict[tuple[str, str], int] = defaultdict(int)
    for report in reports:
        for one in report.values:
            if one.policy in ("rule", "soft", "logged") and one.low is not None and one.high is not None:
                hits[one.policy, one.estimator] += one.low <= truth[one.policy] <= one.high
        pair = next(one for one in report.differences_found if (one.policy, one.against) == ("rule", "logged"))
        assert pair.low is not None and pair.high is not None
        hits["difference", "dr"] += pair.low <= truth["rule"] - truth["logged"] <= pair.high
    assert len(hits) == 3 * 4 + 1
    assert min(hits.values()) >= 105, hits


def test_a_worse_policy_is_hardly_ever_called_better(reports: list[EvaluationReport], truth: dict[str, float]) -> None:
    """At most 5 % of calls are wrong: 13 of 120 would be wrong by chance with p < 0.005."""
    assert truth["always:a"] < truth["always:b"] and truth["reversed"] < truth["logged"]
    assert sum(report.is_better("a", "always:b") for report in reports) <= 12
    assert sum(report.is_better("reversed", "logged") for report in reports) == 0
