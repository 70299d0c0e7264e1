"""Ours beyond the paper: fairness, sketches, many actions and real tables."""

import pytest

from spuir.reproduction import get_experiment
from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN, Scope
from spuir.reproduction.experiments import fairness, many_actions, real, sketches
from spuir.reproduction.method_comparison import Compared
from spuir.reproduction.tasks import Result
from spuir.reproduction.tuning import TUNING_SEEDS
from spuir.reproduction.verdicts import estimate
from tests.environments.files import write_survey
from tests.reproduction.test_figures_of_the_paper import in_small, keys, result, settled

pytest.importorskip("matplotlib")

NAMES = ("fairness", "sketches", "many-actions", "real", "default")
FULL, QUICK = Scope(repeats=4), Scope(repeats=4, quick=True)


def wobble(seed):
    """Return a little that depends on the seed: 0 on average over four seeds."""
    return 0.001 * (seed % 4 - 1.5)


def by_seed(value):
    """Return four seeds of about the same value."""
    return {seed: value * (1 + wobble(seed)) for seed in range(4)}


def outcomes(verdicts):
    return [verdict.outcome for verdict in verdicts]


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_grid_is_part_of_the_full_one(name):
    grid = get_experiment(name).grid
    quick, full = grid(QUICK, []), grid(FULL, [])
    assert keys(quick) < keys(full)
    reported = [{task.arguments["seed"] for task in tasks} - set(TUNING_SEEDS) for tasks in (quick, full)]
    assert reported == [{0, 1}, {0, 1, 2, 3}]


@pytest.mark.parametrize("name", NAMES)
def test_every_report_stands_in_its_quick_form(name):
    experiment = get_experiment(name)
    assert experiment.name == name
    findings = experiment.report(QUICK, settled(experiment, QUICK))
    assert len({table.name for table in findings.tables}) == len(findings.tables)
    assert findings.tables[0].name == ""
    for table in findings.tables:
        assert set(table.formats) <= {column for row in table.rows for column in row}
    assert set(outcomes(findings.verdicts)) == {OPEN}, "two seeds decide nothing"
    assert "" in findings.figures
    assert len(findings.lesson.split()) > 30
    assert "nan" not in findings.lesson


@pytest.mark.parametrize("name", NAMES)
def test_a_report_without_results_says_so_and_stands(name):
    findings = get_experiment(name).report(QUICK, [])
    assert not findings.verdicts
    assert not findings.figures


def test_a_constant_rate_is_judged_where_it_does_best_and_a_balanced_one_where_it_does_worst():
    def gains(balanced, mild=0.9):
        def reward(cell):
            if cell.rate == many_actions.CONSTANT:
                return mild if cell[:3] == ("linear", 50, 0.3) else 0.9
            if cell.rate == many_actions.BALANCED:
                return balanced if cell[:3] == ("linear", 5, 1.0) else 1.02
            return 1.0

        # All rates of a seed share its wobble, as they share its world, so that the gains have none.
        rewards = {cell: by_seed(reward(cell)) for cell in many_actions.cells(FULL)}
        return {cell: estimate(found.values()) for cell, found in many_actions.shares(rewards).items()}

    assert outcomes(many_actions.verdicts(gains(0.98))) == [HOLDS, HOLDS]
    assert outcomes(many_actions.verdicts(gains(0.96))) == [HOLDS, FAILS]
    assert outcomes(many_actions.verdicts(gains(0.98, mild=0.98))) == [FAILS, HOLDS]
    row = many_actions.worst_rows(gains(0.98))[-1]
    assert (row["actions"], row[many_actions.CONSTANT]) == (50, pytest.approx(-10.0))
    assert row[many_actions.BALANCED] == pytest.approx(2.0)
    assert "+2.0%" in many_actions.lesson(gains(0.98))
    assert "-10.0%" in many_actions.lesson(gains(0.98))


def test_with_fifty_actions_a_constant_rate_loses_and_a_balanced_one_hardly_does():
    # Linear, α = 1. Over 20 seeds the gains are −9.6 % and −1.0 %, with deviations of 0.8 % and 0.4 % for one seed:
    # the limits are more than five of them away.
    cells = many_actions.cells(Scope(repeats=2))
    for seed in (0, 1):
        none, constant, balanced = (
            cells[many_actions.RateCell("linear", 50, 1.0, rate)][seed].run()[-1]["average_reward"]
            for rate in (many_actions.NONE, many_actions.CONSTANT, many_actions.BALANCED)
        )
        assert constant / none - 1 < -0.05
        assert balanced / none - 1 > -0.03


def test_forms_of_moments_are_judged_at_every_noise_and_size():
    good = {"sketched": 5.0, "exact": 4.0, "corrected": 1.8, "anchored": 2.0, sketches.UNSKETCHED: 1.0}
    places = list(dict.fromkeys(cell[:3] for cell in sketches.cells(FULL) if cell.size))

    def judged(factors):
        regrets = {cell: by_seed(0.01 * factors(cell)) for cell in sketches.cells(FULL)}
        return sketches.verdicts(regrets, places)

    assert outcomes(judged(lambda cell: good[cell.moments])) == [HOLDS] * 4

    def behind_once(cell):
        return 5.5 if cell == sketches.MomentsCell("linear", 3.0, 400, "anchored") else good[cell.moments]

    assert outcomes(judged(behind_once)) == [FAILS, HOLDS, HOLDS, HOLDS]
    assert "linear, noise 3, c = 400" in judged(behind_once)[0].evidence
    slow = good | {"anchored": 3.0, "corrected": 4.5}
    assert outcomes(judged(lambda cell: slow[cell.moments])) == [HOLDS, FAILS, FAILS, FAILS]


def test_a_sketched_moment_errs_with_the_noise_and_an_exact_one_with_the_signal():
    # Linear, c = 150, seed 0. Over four seeds the regrets in units of exact sums are 4.0 ± 0.4 and 31.6 ± 2.1 at noise
    # 0.01, and 1.60 ± 0.08 and 1.03 ± 0.02 at noise 10.
    cells = sketches.cells(Scope(repeats=1))

    def regret(noise, moments):
        return cells[sketches.MomentsCell("linear", noise, 150, moments)][0].run()[-1][sketches.REGRET]

    assert regret(0.01, "exact") > 3 * regret(0.01, "sketched")
    assert regret(10.0, "sketched") > 1.2 * regret(10.0, "exact")


def fair(reward):
    """Return the fairness report of rewards made by hand: ``reward`` of a method and its parameters."""
    known = {}
    for _ in range(3):
        for task in fairness.grid(FULL, list(known.values())):
            value = reward(task.arguments.get("policy"), task.arguments.get("parameters", {}))
            value *= 1 + wobble(task.arguments["seed"])
            row = {"episode": 1, "average_reward": value, "regret_per_step": 1 - value}
            row |= dict.fromkeys(("uniform", "best fixed", "oracle"), 0.7)
            known.setdefault(task.key, Result(task, [row], 0.0))
    return fairness.report(FULL, list(known.values()))


def test_a_lead_that_tuning_closes_holds_only_against_the_authors_settings():
    def reward(method, given):
        if method == "sbucb":
            return {0.0: 0.6, 1.0: 0.4}.get(given.get("alpha", 1.0), 0.5)
        return {"puir": 0.6 if given.get("alpha") != 1.0 else 0.55, "spuir": 0.3}.get(method, 0.2)

    findings = fair(reward)
    assert outcomes(findings.verdicts) == [AUTHORS_ONLY, FAILS, HOLDS] * len(fairness.SETUPS)
    rows = {(row["environment"], row["method"]): row for row in findings.tables[0].rows}
    assert len(rows) == 9 + 8 + 9, "DFM-S needs conversions"
    row = rows["synthetic", "sbucb"]
    assert (row["rank, authors'"], row["rank, best"]) == (2, 1)
    assert row["chosen"] == "alpha = 0.0, ridge = 1.0"
    (flat,) = [row for row in findings.tables[1].rows if (row["environment"], row["method"]) == ("coupon", "sbucb")]
    assert (flat["best α"], flat["worst α"]) == (0.0, 1.0)
    assert flat["lost, %"] == pytest.approx(100 / 3)
    assert set(findings.figures) == {"", "ranking-synthetic", "ranking-heterogeneous", "ranking-coupon"}


def test_a_lead_that_stands_after_tuning_holds():
    rewards = dict.fromkeys(("sbucb", "sbucb (tuned)", "spuir", "spuir (tuned)"), 0.5)
    rewards |= dict.fromkeys(("puir", "puir (tuned)"), 0.6)
    groups = {
        label: [result(label, seed, average_reward=value) for seed, value in by_seed(mean).items()]
        for label, mean in rewards.items()
    }
    chosen: dict[str, str] = dict.fromkeys(("sbucb", "puir", "spuir"), "the authors'")
    place = Compared(name="somewhere", groups=groups, chosen=chosen)
    assert outcomes(fairness.verdicts(place, fairness.Flatness("somewhere", {}))) == [HOLDS, FAILS]
    assert place.ranked(place.methods()) == ["puir", "sbucb", "spuir"]


def test_sets_without_a_file_are_skipped_with_the_reason(tmp_path, monkeypatch):
    def status(plan):
        return {name: setup if isinstance(setup, str) else "played" for name, setup in real.setups(plan).items()}

    assert status(QUICK) == {"digits": "played"}
    assert status(FULL) == {"digits": "played"} | dict.fromkeys(("covertype", "uci-coupon"), "skipped: no --data")
    empty = status(Scope(data=tmp_path))
    assert "no covertype*.csv*" in empty["covertype"]
    assert "no in-vehicle-coupon-recommendation.csv*" in empty["uci-coupon"]
    monkeypatch.setattr(real, "find_spec", lambda name: None)
    assert status(FULL)["digits"] == "skipped: scikit-learn is not installed"
    assert not real.grid(FULL, [])
    assert "digits, covertype, uci-coupon" in real.report(FULL, []).lesson


def test_files_are_found_in_the_folder_or_one_below_and_played(tmp_path):
    (tmp_path / "coupons").mkdir()
    path = write_survey(tmp_path / "coupons" / "in-vehicle-coupon-recommendation.csv")
    plan = Scope(repeats=1, data=tmp_path)
    setup = real.played(plan)["uci-coupon"]
    assert setup.world == {"path": str(path)}
    tasks = [*(cell[0] for cell in real.beside(plan, setup).values()), *setup.levels(plan.seeds)]
    assert keys(tasks) <= keys(real.grid(plan, []))
    rows = [in_small(task).rows[-1] for task in tasks]
    assert (rows[-1]["actions"], rows[-1]["columns"]) == (5, 35)
    table = tmp_path / "covertype_small.csv"
    table.write_text("height,slope,label\n1,2,0\n2,1,1\n3,5,0\n", encoding="utf-8")
    assert real.played(plan)["covertype"].world == {"path": str(table), "intercept": True}
