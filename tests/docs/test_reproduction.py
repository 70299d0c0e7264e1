"""The stored reproduction: every verdict computed again from the stored samples, and pages that show what is stored.

The computation here is written apart from that of the package, from the rules on the page "Method".
"""

import csv
import importlib.util
import json
import math
import statistics
from pathlib import Path

import pytest
from scipy import stats

from spuir.reproduction.report import described

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reproduction"
DATA = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
SECTIONS = {section["name"]: section for section in DATA["experiments"] if section["verdicts"]}
VERDICTS = {verdict["id"]: verdict for section in SECTIONS.values() for verdict in section["verdicts"]}
CODE_ONLY = "only at the settings of the authors' code"


def stored(name, kind):
    """Return the stored samples of an experiment: sample → seed → value or key of a task."""
    with (FOLDER / "samples" / f"{name}-{kind}.csv").open(encoding="utf-8") as file:
        rows = {row.pop("sample"): row for row in csv.DictReader(file)}
    return {sample: {seed: cell for seed, cell in row.items() if cell} for sample, row in rows.items()}


def contrast(estimate, samples):
    """Return the value of each seed."""
    parts = [(weight, {seed: float(v) for seed, v in samples[name].items()}) for weight, name in estimate["terms"]]
    seeds = set.intersection(*(set(values) for _, values in parts)) if parts else set()
    if estimate["log"]:
        if any(values[seed] <= 0 for _, values in parts for seed in seeds):
            return []
        parts = [(weight, {seed: math.log(values[seed]) for seed in seeds}) for weight, values in parts]
    unit = 1.0
    if estimate["percent_of"] is not None:
        unit = 100 / statistics.fmean(float(value) for value in samples[estimate["percent_of"]].values())
    return [unit * sum(weight * values[seed] for weight, values in parts) for seed in seeds]


def interval(values, level):
    """Return mean, low and high of the t-interval."""
    mean, n = statistics.fmean(values), len(values)
    reach = stats.t.ppf((1 + level) / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return mean, mean - reach, mean + reach


def at_one_setting(verdict, found):
    """Return whether a claim holds at one kind of settings."""
    margin = verdict["margin"]
    if not found or any(one is None or len(one) < 3 for one, _ in found):
        return "undecided"
    ends = [bounds for _, bounds in found]
    if verdict["kind"] == "alike":
        if all(-margin < low and high < margin for _, low, high in ends):
            return "holds"
        return "contradicted" if any(low > margin or high < -margin for _, low, high in ends) else "undecided"
    if verdict["kind"] == "less":
        ends, margin = [(-mean, -high, -low) for mean, low, high in ends], -margin
    if all(low > margin for _, low, _ in ends):
        return "holds"
    return "contradicted" if any(high < margin or low == high <= margin for _, low, high in ends) else "undecided"


def outcome(verdict, samples, level):
    """Return the outcome by the rules of the page, and the intervals."""
    found = {"authors-code": [], "tuned": []}
    for estimate in verdict["estimates"]:
        values = contrast(estimate, samples)
        bounds = interval(values, level) if len(values) > 1 else None
        found[estimate["settings"]].append((values if bounds else None, bounds))
    coded, tuned = (at_one_setting(verdict, some) for some in found.values())
    if verdict["untested"]:
        return "not a test", found
    if not verdict["fair"]:
        return coded, found
    small = bool(found["tuned"]) and all(bounds and bounds[2] < verdict["margin"] + 1 for _, bounds in found["tuned"])
    if coded == "holds" and (tuned == "contradicted" or (tuned == "undecided" and verdict["kind"] == "more" and small)):
        return CODE_ONLY, found
    return tuned, found


@pytest.mark.parametrize("name", SECTIONS)
def test_every_verdict_follows_from_the_stored_samples(name):
    samples, runs = stored(name, "values"), stored(name, "runs")
    verdicts = SECTIONS[name]["verdicts"]
    for own in (True, False):
        family = [one for one in verdicts if (one["source"] == "paper") == own]
        size = sum(len(one["estimates"]) for one in family if not one["untested"])
        level = 1 - 0.05 / max(size, 1)
        for verdict in family:
            assert verdict["level"] == pytest.approx(level)
            judged, found = outcome(verdict, samples, level)
            assert judged == verdict["outcome"], verdict["id"]
            again = [*found["authors-code"], *found["tuned"]]
            for estimate, (values, bounds) in zip(verdict["estimates"], again, strict=True):
                if bounds is None:
                    continue
                assert len(values) == estimate["n"]
                shown = [estimate[part] for part in ("estimate", "low", "high")]
                assert list(bounds) == pytest.approx(shown, rel=1e-9, abs=1e-12)
    for sample, by_seed in samples.items():
        assert set(runs[sample]) == set(by_seed), "every value names the run that gave it"


def test_every_run_was_full_and_nothing_failed():
    for run in DATA["runs"]:
        assert len(run["seeds"]) == 20
        assert not run["quick"]
        assert not run["failures"]
    assert sorted(name for run in DATA["runs"] for name in run["experiments"]) == sorted(
        section["name"] for section in DATA["experiments"]
    )
    assert not [section["name"] for section in DATA["experiments"] if section["missing_count"] or section["failure"]]


def test_only_the_papers_claims_count_as_the_papers():
    for verdict in VERDICTS.values():
        if verdict["source"] == "paper":
            assert "beyond" not in verdict["place"]
            assert verdict["place"].startswith(("Section", "Theorem", "Remark", "Abstract", "Table", "Figure"))
        else:
            assert verdict["place"].startswith("beyond")


def test_no_stored_file_is_large():
    for path in [*FOLDER.rglob("*"), *(ROOT / "docs" / "figures" / "reproduction").glob("*")]:
        assert not path.is_file() or path.stat().st_size < 900 * 1024, path


@pytest.fixture(scope="module")
def module():
    """Return the script that writes the pages."""
    pytest.importorskip("jinja2")
    spec = importlib.util.spec_from_file_location("reproduction_pages", ROOT / "docs" / "reproduction.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_show_what_is_stored(module):
    for page, text in module.pages().items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name}: run python docs/reproduction.py"


def test_alternative_texts_say_what_figures_show():
    for section in DATA["experiments"]:
        for figure in section["figures"]:
            assert figure["alt"] == described(section["title"], figure["name"], figure["caption"])


def test_a_run_replaces_its_own_experiments_and_keeps_the_others(module):
    first = {"command": "a", "experiments": ["figure1", "table1"]}
    stored = {"runs": [first], "experiments": [{"name": "figure1", "n": 1}, {"name": "table1", "n": 1}]}
    added = module.merged(stored, {"command": "b"}, [{"name": "default", "n": 2}, {"name": "figure1", "n": 2}])
    assert added["runs"] == [
        {"command": "a", "experiments": ["table1"]},
        {"command": "b", "experiments": ["default", "figure1"]},
    ]
    found = [(section["name"], section["n"]) for section in added["experiments"]]
    assert found == [("figure1", 2), ("table1", 1), ("default", 2)]
    again = module.merged(added, {"command": "c"}, [{"name": "table1", "n": 3}])
    assert [run["command"] for run in again["runs"]] == ["b", "c"]


def test_a_page_needs_stored_results_and_nothing_else(module):
    without = [one for one in DATA["experiments"] if one["name"] != "sketches"]
    filled = module.Filled(DATA | {"experiments": without}, 0)
    assert "sketches" not in [one["name"] for one in filled.pages()]
    assert "sketches" in [one["name"] for one in module.Filled(DATA, 0).pages(beyond=True)]


@pytest.mark.parametrize(
    ("kind", "margin", "intervals", "worst"),
    [
        ("more", 0.0, [(-9.0, 9.0), (-1.0, -0.5), (1.0, 2.0)], 1),
        ("more", 0.0, [(-9.0, 9.0), (1.0, 2.0), (0.0, 0.0)], 2),
        ("less", 0.0, [(0.1, 0.2), (-1.0, 5.0)], 0),
        ("more", -1.0, [(-0.5, 0.0), (0.5, 0.7)], 0),
        ("alike", 1.0, [(-3.0, 3.0), (-2.0, -1.5), (0.0, 0.1)], 1),
        ("alike", 1.0, [(-0.1, 0.1), (0.2, 0.9)], 1),
    ],
)
def test_the_shown_estimate_is_the_one_that_decides(module, kind, margin, intervals, worst):
    estimates = [
        {"settings": "tuned", "estimate": (low + high) / 2, "low": low, "high": high} for low, high in intervals
    ]
    verdict = {"id": "a/b", "kind": kind, "margin": margin, "estimates": estimates}
    filled = module.Filled({"runs": [], "experiments": [{"name": "a", "verdicts": [verdict]}]}, 0)
    assert filled.worst("a/b", "tuned") is estimates[worst]
