"""The sentences that sum all up: their numbers are those of the tables, their words those of the verdicts."""

import pytest

from spuir.errors import SpuirError
from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN
from spuir.reproduction.overview import joined, overview, percent


def section(tables=None, verdicts=(), source="Figure 0"):
    made = [{"name": name, "title": "", "rows": rows} for name, rows in (tables or {}).items()]
    judged = [{"id": id, "claim": "any words", "outcome": outcome, "evidence": ""} for id, outcome in verdicts]
    return {"source": source, "tables": made, "verdicts": judged}


def compared(outcome, rewards, experiment="figure3a"):
    rows = [{"method": method.replace("_", " ("), "average reward": reward} for method, reward in rewards.items()]
    rows = [row | {"method": row["method"] + (")" if "(" in row["method"] else "")} for row in rows]
    return section({"": rows}, [(f"{experiment}/puir-over-sbucb", outcome)])


REWARDS = {"sbucb": 0.5, "puir": 0.55, "spuir": 0.44, "sbucb_tuned": 0.55, "puir_tuned": 0.56, "spuir_tuned": 0.532}


def said(sections, title):
    """Return the paragraphs under a title as one text."""
    return " ".join(text for part in overview(sections) if part["title"] == title for text in part["paragraphs"])


def test_nothing_is_said_without_results():
    assert overview({}) == []
    assert overview({"figure1": section(), "table2": section({"time": []})}) == []


def test_imputation_is_told_at_both_settings():
    text = said({"figure3a": compared(HOLDS, REWARDS)}, "What imputation brings")
    assert "at the authors' settings: +10.0 % on synthetic data" in text
    assert "Each at its own best setting: +1.82 % on synthetic data" in text
    assert "PUIR is significantly better on 1 of 1 data sets" in text
    assert said({"figure3a": compared(HOLDS, REWARDS)}, "When it does not") == ""


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (AUTHORS_ONLY, "PUIR has no significant lead on 1 data set: +1.82 % on the coupon simulator"),
        (FAILS, "PUIR is not significantly ahead: +10.0 % on the coupon simulator"),
        (OPEN, ""),
    ],
)
def test_where_it_does_not_help_is_told_by_the_verdict(outcome, told):
    sections = {"figure3c": compared(outcome, REWARDS, "figure3c")}
    text = said(sections, "When it does not")
    assert told in text
    assert bool(text) is bool(told)
    undecided = "With so few seeds none of this is decided." in said(sections, "What imputation brings")
    assert undecided is (outcome == OPEN)


def test_places_come_from_every_comparison_once():
    rows = [
        {"environment": place, "method": method, "reward, authors'": reward, "reward, best": 2 * reward}
        for place in ("synthetic", "heterogeneous")
        for method, reward in (("sbucb", 0.4), ("puir", 0.5))
    ]
    text = said({"fairness": section({"": rows}), "figure3a": compared(HOLDS, REWARDS)}, "What imputation brings")
    assert "+10.0 % on synthetic data and +25.0 % on heterogeneous" in text


def test_generated_rows_are_called_so():
    made = compared(HOLDS, REWARDS, "figure3b")
    made["tables"][0]["title"] = "Average reward (generated rows)"
    assert "on generated Criteo rows" in said({"figure3b": made}, "What imputation brings")


def test_feedback_is_compared_with_less_exploration():
    def figure(calm):
        rows = [("sbucb", 0, 0.2), ("sbucb", 100, 0.3), ("puir (no feedback)", 0, 0.28), ("sbucb (α = 0.1)", 0, calm)]
        return section({"": [{"policy": p, "feedback %": f, "average reward": r} for p, f, r in rows]})

    text = said({"figure1": figure(0.29)}, "What imputation brings")
    assert "worth +50.0 % of reward to SBUCB at α = 1, and PUIR reaches 80% of that" in text
    assert "So does less exploration: SBUCB at α = 0.1 reaches 90% of it." in text
    assert "Less exploration alone does not" in said({"figure1": figure(0.22)}, "What imputation brings")


@pytest.mark.parametrize(("worst", "told"), [(-8.4, "more than 3 % from 50 actions on"), (-1.0, "never more than 3 %")])
def test_many_actions(worst, told):
    rows = [
        {"actions": 5, "γ 0.1, η 0.9": -0.36, "balanced": 0.5},
        {"actions": 50, "γ 0.1, η 0.9": worst, "balanced": -0.64},
    ]
    text = said({"many-actions": section({"": rows})}, "When it does not")
    assert told in text
    assert f"{worst:+.2f} % with 50" in text


@pytest.mark.parametrize(
    ("seconds", "told"), [(1.0, "saves 50% of the time of PUIR"), (3.0, "takes 50% longer than PUIR")]
)
def test_time_is_told_as_it_was_measured(seconds, told):
    rows = [
        {"method": "puir", "times SBUCB": 2.0, "paper's times SBUCB": 4.2},
        {"method": "spuir", "times SBUCB": seconds, "paper's times SBUCB": 1.9},
    ]
    text = said({"table2": section({"time": rows})}, "What sketching costs in reward and saves in time")
    assert told in text
    assert "(1.90 and 4.20 in the paper)" in text
    timed = section(verdicts=[("table1/sketching-saves", FAILS)])
    both = {"table2": section({"time": rows}), "table1": timed}
    assert f"makes them shorter {FAILS}" in said(both, "What sketching costs in reward and saves in time")


def test_sketched_moments_are_compared_at_about_a_tenth_of_the_batch():
    sizes = {("spuir", 50): 9.0, ("spuir", 150): 4.0, ("spuir", 1400): 2.0}
    sizes |= {("spuir (ours)", 150): 3.0, ("spuir (ours)", 1400): 2.0}
    rows = [{"policy": policy, "c": size, "regret per context": regret} for (policy, size), regret in sizes.items()]
    text = said({"figure3f": section({"": rows})}, "What sketching costs in reward and saves in time")
    assert "With c = 150 of 1,400 rows" in text
    assert "2.0 times that without a sketch" in text
    assert "1.5 times with the moments" in text


def test_verdicts_are_counted():
    paper = section(verdicts=[("a", HOLDS), ("b", FAILS), ("c", FAILS)])
    ours = section(verdicts=[("d", OPEN)], source="beyond the paper")
    text = said({"figure1": paper, "fairness": ours}, "The verdicts")
    assert "Of 3 claims about the paper, 1 holds and 2 do not hold here." in text
    assert "Of 1 claims beyond the paper, 1 is not decided." in text


def test_words():
    assert joined([]) == ""
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert [percent(value) for value in (-0.001, 1.234, -12.34)] == ["0.00 %", "+1.23 %", "-12.3 %"]


def test_a_verdict_that_a_complete_experiment_does_not_have_is_refused():
    renamed = compared(HOLDS, REWARDS)
    renamed["verdicts"][0]["id"] = "figure3a/renamed"
    with pytest.raises(SpuirError, match=r"figure3a/puir-over-sbucb.*use one of figure3a/renamed"):
        overview({"figure3a": renamed})
    assert "With so few" not in said({"figure3a": renamed | {"missing_count": 3}}, "What imputation brings")


def test_the_words_of_a_claim_do_not_matter():
    one, other = compared(AUTHORS_ONLY, REWARDS), compared(AUTHORS_ONLY, REWARDS)
    other["verdicts"][0]["claim"] = "Quite different words."
    assert overview({"figure3a": one}) == overview({"figure3a": other}) != []
