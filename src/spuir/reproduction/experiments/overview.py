"""All sets at a glance: what imputation brings and what sketching costs, and every method on every set."""

from collections.abc import Mapping, Sequence
from typing import Any

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import MARGIN
from spuir.reproduction.comparison import RIVAL, SETTINGS, Compared, MethodComparison
from spuir.reproduction.experiments import figure3a, figure3b, figure3c, real
from spuir.reproduction.policy_runs import LEVEL_NAMES
from spuir.reproduction.tasks import Result, Task
from spuir.results.figures import TUNED

NO_CONTEXT = 0.1
"""Where the best action for each context earns less than this many per cent more than the best fixed action, a set
cannot reward the use of context."""

GAIN = "oracle over best fixed, %"
SET_FORMATS = {GAIN: ".2f", **dict.fromkeys(LEVEL_NAMES, ".4f")}


def comparisons(scope: Scope) -> list[MethodComparison]:
    """Return the comparisons on all sets at hand."""
    own = [module.COMPARISON for module in (figure3a, figure3b, figure3c)]
    return [*(own if not scope.quick else own[::2]), *real.played(scope).values()]


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the tasks of all comparisons."""
    return [task for one in comparisons(scope) for task in one.grid(scope, results)]


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the forest plot, the sets, and every method on every set."""
    every = [Compared(one, scope, results) for one in comparisons(scope)]
    found = {one.name: one for one in every if RIVAL in one}
    return Findings(
        tables=[
            ReportTable(name="", title="The sets", rows=set_rows(found), formats=SET_FORMATS),
            ReportTable(
                name="methods",
                title="Expected reward of every tuned method, in per cent of the oracle's",
                rows=method_rows(found),
                formats=dict.fromkeys(found, ".2f"),
            ),
        ],
        drawings={"": forest(found)},
    )


def set_rows(found: Mapping[str, Compared]) -> list[dict[str, Any]]:
    """Return the size of each set, and what there is to gain by using the context."""
    rows: list[dict[str, Any]] = []
    for name, one in found.items():
        levels = one.levels
        if levels:
            gain = 100 * (levels["oracle"] / levels["best fixed"] - 1)
            rows.append(
                {"set": name, "actions": one.facts("actions"), "columns": one.facts("columns")}
                | levels
                | {GAIN: gain, "rewards context": gain >= NO_CONTEXT}
            )
    return rows


def method_rows(found: Mapping[str, Compared]) -> list[dict[str, Any]]:
    """Return every tuned method on every set."""
    methods = dict.fromkeys(method for one in found.values() for method in one.methods)
    rows: list[dict[str, Any]] = []
    for method in methods:
        row: dict[str, Any] = {"method": method}
        for name, one in found.items():
            label = method + TUNED
            if label in one and one.levels:
                row[name] = 100 * (1 - one.sample(label).mean / one.levels["oracle"])
        rows.append(row)
    return rows


def forest(found: Mapping[str, Compared]) -> Drawing:
    """Draw the two differences on all sets."""
    panels = [
        plots.Dots(
            title=title,
            xlabel="difference of reward, %",
            rows={name: one.pair(ours, theirs) for name, one in found.items()},
            styles=dict.fromkeys(found, ours),
            band=MARGIN,
            reach=9.0,
            named=theirs == RIVAL,
        )
        for title, ours, theirs in (
            ("what imputation brings: PUIR − SBUCB", "puir", RIVAL),
            ("what sketching costs: SPUIR − PUIR", "spuir", "puir"),
        )
    ]
    seeds = max((one.seeds for one in found.values()), default=0)
    caption = (
        f"Difference of the expected reward in the same runs, in per cent, with 95 % intervals over {seeds} seeds (not "
        f"corrected); {', '.join(SETTINGS.values())}; the band is ± 1 %."
    )
    return Drawing(plots.compose(f"All sets   {'   '.join(SETTINGS.values())}", panels, width=3.2), caption)


EXPERIMENT = Experiment(
    name="overview", title="All sets at a glance", source="Section 6, and beyond the paper", grid=grid, report=report
)
