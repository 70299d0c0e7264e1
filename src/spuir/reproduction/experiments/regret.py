"""Growth of the regret with the horizon, at the batch size that the theory asks for."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope, Verdict
from spuir.reproduction.grids import CellGrid
from spuir.reproduction.method_comparison import REGRET
from spuir.reproduction.plots import Panel, guide, line, side_by_side
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import (
    Interval,
    all_above,
    estimate,
    judge,
    last,
    power_law,
    say,
    slope,
    summary,
    with_error,
)

ENVIRONMENTS = ("synthetic", "heterogeneous")
HORIZONS = ((23, 350), (45, 700), (90, 1400), (180, 2800))
"""N and B with B = 25·√(T/d) for d = 40, rounded."""
STEPS = tuple(episodes * size for episodes, size in HORIZONS)
POLICIES: Mapping[str, tuple[str, str | None, Mapping[str, Any]]] = {
    "sbucb": ("sbucb", "paper", {}),
    "sbucb (α = 0.1)": ("sbucb", "paper", {"alpha": 0.1}),
    "puir": ("puir", "paper", {}),
    "spuir": ("spuir", "paper", {}),
    "spuir (anchored)": ("spuir", "paper", {"moments": "anchored"}),
    "uniform": ("uniform", None, {}),
}
"""Label → policy, preset and further parameters; uniform is a check, its exponent has to be 1."""
CHECK, CHECK_SEEDS = "uniform", 5


def cells(scope: Scope) -> dict[tuple[str, str, int], list[Task]]:
    """Return the runs of each environment, policy and number of steps."""
    made: dict[tuple[str, str, int], list[Task]] = {}
    for environment, label, (episodes, batch_size) in product(
        ENVIRONMENTS, POLICIES, scope.axis(HORIZONS, HORIZONS[:2])
    ):
        policy, preset, parameters = POLICIES[label]
        seeds = scope.seeds[:CHECK_SEEDS] if label == CHECK else scope.seeds
        setup = Setup(environment=environment, episodes=episodes, batch_size=batch_size)
        made[environment, label, episodes * batch_size] = setup.runs(
            seeds, policy, preset=preset, parameters=parameters
        )
    return made


grid = CellGrid(cells)


Curves = dict[tuple[str, str], dict[int, list[float]]]
"""Environment and label → seed → values over the horizons."""
Fitted = Mapping[tuple[str, str], Interval]
"""Environment and label → exponent."""


def curves(scope: Scope, results: Sequence[Result], column: str) -> Curves:
    """Return a cumulative column at the end of each horizon."""
    values_by_seed: Curves = {}
    for (environment, label, steps), runs in grid.fill(scope, results).items():
        by_seed = values_by_seed.setdefault((environment, label), {})
        for seed, value in last(runs, column).items():
            by_seed.setdefault(seed, []).append(value * steps)
    return values_by_seed


def bound_exponent(steps: Sequence[int]) -> float:
    """Return the exponent that the bound itself has over these horizons: log(T + 1)·√T, for B and T/B are ∝ √T."""
    return slope(steps, [math.log(at + 1) * math.sqrt(at) for at in steps])


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the regret over T, the fitted exponents, and whether they stay below the bound's."""
    steps = scope.axis(STEPS, STEPS[:2])
    regret, fixed = (curves(scope, results, name) for name in (REGRET, "fixed_regret_per_step"))
    fitted = {place: power_law(steps, by_seed) for place, by_seed in regret.items()}
    return Findings(
        tables=[
            ReportTable(
                name="", title="Exponent of the cumulative regret in T", rows=_exponents(steps, regret, fixed, fitted)
            ),
            ReportTable(
                name="steps",
                title="Cumulative regret against the best action for each context",
                rows=_rows(steps, regret),
            ),
        ],
        verdicts=[
            *(_order(steps, fitted, *place) for place in product(ENVIRONMENTS, ("puir", "spuir"))),
            _sublinear(fitted),
            _anchored(regret),
        ],
        figures={"": side_by_side([_panel(steps, regret, environment) for environment in ENVIRONMENTS])},
        lesson=_lesson(steps, regret, fixed, fitted),
    )


def _exponents(steps: Sequence[int], regret: Curves, fixed: Curves, fitted: Fitted) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for environment, label in regret:
        against_fixed = power_law(steps, fixed[environment, label])
        row = {
            "environment": environment,
            "policy": label,
            "exponent": say(fitted[environment, label], ".2f"),
            "against the best fixed action": "negative"
            if math.isnan(against_fixed.estimate)
            else say(against_fixed, ".2f"),
            "bound": round(bound_exponent(steps), 3),
        }
        rows.append(row)
    return rows


def _rows(steps: Sequence[int], regret: Curves) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (environment, label), by_seed in regret.items():
        row: dict[str, Any] = {"environment": environment, "policy": label}
        for place, at in enumerate(steps):
            row |= with_error(f"T = {at:,}", (values[place] for values in by_seed.values()))
        rows.append(row)
    return rows


def _panel(steps: Sequence[int], regret: Curves, environment: str) -> Panel:
    lines = [line(label, steps, zip(*regret[environment, label].values(), strict=True)) for label in POLICIES]
    start = lines[0].mean[0] * 2
    order = [start * math.sqrt(at / steps[0]) * math.log(at + 1) / math.log(steps[0] + 1) for at in steps]
    lines.append(guide("√T·log T", steps, order))
    return Panel(title=environment, xlabel="steps T", ylabel="cumulative regret", lines=lines, log_x=True, log_y=True)


def _exponents_of(fitted: Fitted, label: str) -> str:
    return "; ".join(f"{environment}: {say(fitted[environment, label], '.2f')}" for environment in ENVIRONMENTS)


def _order(steps: Sequence[int], fitted: Fitted, environment: str, label: str) -> Verdict:
    bound, exponent = bound_exponent(steps), fitted[environment, label]
    return Verdict(
        f"{environment}/{label}-order",
        f"With B = C_B·√(T/d) the regret of {label.upper()} is of order √T up to logarithms: {environment}.",
        judge((-exponent).minus(-bound)),
        f"Fitted exponent at the authors' settings: {say(exponent, '.2f')}. Rule: 95 % t-interval over seeds "
        f"below {bound:.2f}, the exponent that log(T + 1)·√T itself has from T = {steps[0]:,} to {steps[-1]:,}.",
    )


def _sublinear(fitted: Fitted) -> Verdict:
    learning = {place: interval for place, interval in fitted.items() if place[1] != CHECK}
    (environment, label), worst = max(learning.items(), key=lambda item: item[1].high)
    return Verdict(
        "sublinear",
        "The regret is sublinear in T.",
        judge((-worst).minus(-1.0)),
        f"Largest fitted exponent of a learning policy ({label}, {environment}): {say(worst, '.2f')}; "
        f"uniform, as a check: {_exponents_of(fitted, CHECK)}. Rule: every 95 % t-interval over seeds below 1.",
    )


def _anchored(regret: Curves) -> Verdict:
    ratios = {
        environment: estimate(
            math.log(regret[environment, "spuir"][seed][-1] / values[-1])
            for seed, values in regret[environment, "spuir (anchored)"].items()
        )
        for environment in ENVIRONMENTS
    }
    return all_above(
        "anchored-saves-regret",
        "Sketching the moments, as the paper does, costs regret that anchored moments save (ours).",
        "Logarithm of the regret of SPUIR as in the paper over that with anchored moments, at the largest T",
        ratios,
        spec=".2f",
    )


def _lesson(steps: Sequence[int], regret: Curves, fixed: Curves, fitted: Fitted) -> str:
    parts = []
    for environment in ENVIRONMENTS:
        ends = {label: summary(values[-1] for values in regret[environment, label].values())[0] for label in POLICIES}
        order = sorted((label for label in POLICIES if label != CHECK), key=lambda label: ends[label])
        regrets = ", ".join(
            f"{label} {ends[label]:,.0f} (T^{fitted[environment, label].estimate:.2f})" for label in order
        )
        parts.append(f"Cumulative regret after {steps[-1]:,} steps on {environment}: {regrets}.")
    other = ENVIRONMENTS[1]
    against = summary(values[-1] / steps[-1] for values in fixed[other, "puir"].values())[0]
    parts.append(
        "An exponent says little about how good a policy is: policies with equal exponents have regrets that differ by "
        f"large factors. The paper's own regret compares with the best fixed action; on {other} that of PUIR is "
        f"{against:.3f} per step, so a bound on it does not test a policy that uses the context."
    )
    return " ".join(parts)


EXPERIMENT = Experiment(
    name="regret",
    title="Growth of the regret with the horizon",
    source="Theorem 4 and its remark",
    shown="With B = C_B·√(T/d) and a sketch size that does not depend on T the paper proves a regret of order "
    "√(MdT), up to logarithms in T; C_B ≈ 25 is its choice.",
    setting=f"Synthetic and heterogeneous, M = 5, d = 40, (N, B) = {', '.join(map(str, HORIZONS))}; the authors' "
    "settings, and also SBUCB with α = 0.1 and SPUIR with anchored moments; uniform as a check on a few "
    "seeds. Exponents are of the regret against the best action for each context, by least squares on logarithms for "
    "each seed.",
    grid=grid,
    report=report,
)
