"""Growth of the regret with the horizon, at the batch size that the theory asks for."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from spuir.reproduction.base import Experiment, Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, tasks_of
from spuir.reproduction.panels import Line, Panel, side_by_side
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing
from spuir.reproduction.verdicts import Interval, all_above, estimate, judge, last, power_law, say, slope, summary

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


def cells(plan: Plan) -> dict[tuple[str, str, int], list[Task]]:
    """Return the runs of each environment, policy and number of steps."""
    found: dict[tuple[str, str, int], list[Task]] = {}
    for environment, label, (episodes, batch_size) in product(
        ENVIRONMENTS, POLICIES, plan.axis(HORIZONS, HORIZONS[:2])
    ):
        policy, preset, parameters = POLICIES[label]
        run = partial(playing, policy, environment, preset=preset, parameters=parameters)
        found[environment, label, episodes * batch_size] = [
            run(episodes=episodes, batch_size=batch_size, seed=seed)
            for seed in (plan.seeds[:CHECK_SEEDS] if label == CHECK else plan.seeds)
        ]
    return found


def grid(plan: Plan, results: Sequence[Result]) -> list[Task]:
    """Return a run for each environment, policy, horizon and seed."""
    del results
    return tasks_of(cells(plan))


Curves = dict[tuple[str, str], dict[int, list[float]]]
"""Environment and label → seed → values over the horizons."""
Fitted = Mapping[tuple[str, str], Interval]
"""Environment and label → exponent."""


def curves(plan: Plan, results: Sequence[Result], column: str) -> Curves:
    """Return a cumulative column at the end of each horizon."""
    found: Curves = {}
    for (environment, label, steps), runs in fill(cells(plan), results).items():
        by_seed = found.setdefault((environment, label), {})
        for seed, value in last(runs, column).items():
            by_seed.setdefault(seed, []).append(value * steps)
    return found


def bound_exponent(steps: Sequence[int]) -> float:
    """Return the exponent that the bound itself has over these horizons: log(T + 1)·√T, for B and T/B are ∝ √T."""
    return slope(steps, [math.log(at + 1) * math.sqrt(at) for at in steps])


def report(plan: Plan, results: Sequence[Result]) -> Findings:
    """Return the regret over T, the fitted exponents, and whether they stay below the bound's."""
    steps = plan.axis(STEPS, STEPS[:2])
    regret, fixed = (curves(plan, results, name) for name in ("regret_per_step", "fixed_regret_per_step"))
    fitted = {place: power_law(steps, by_seed) for place, by_seed in regret.items()}
    return Findings(
        tables=[
            Table(
                name="", title="Exponent of the cumulative regret in T", rows=_exponents(steps, regret, fixed, fitted)
            ),
            Table(
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
    rows = []
    for environment, label in regret:
        against_fixed = power_law(steps, fixed[environment, label])
        row: dict[str, Any] = {
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
    rows = []
    for (environment, label), by_seed in regret.items():
        row: dict[str, Any] = {"environment": environment, "policy": label}
        for place, at in enumerate(steps):
            row[f"T = {at:,}"], row[f"T = {at:,} ±"] = summary(values[place] for values in by_seed.values())
        rows.append(row)
    return rows


def _panel(steps: Sequence[int], regret: Curves, environment: str) -> Panel:
    lines = []
    for label in POLICIES:
        values = np.array(list(regret[environment, label].values()))
        means, errors = zip(*(summary(at) for at in values.T), strict=True)
        lines.append(Line(label, steps, means, errors, policy=label))
    start = lines[0].mean[0] * 2
    guide = [start * math.sqrt(at / steps[0]) * math.log(at + 1) / math.log(steps[0] + 1) for at in steps]
    lines.append(Line("√T·log T", steps, guide))
    return Panel(title=environment, xlabel="steps T", ylabel="cumulative regret", lines=lines, log_x=True, log_y=True)


def _said(fitted: Fitted, label: str) -> str:
    return "; ".join(f"{environment}: {say(fitted[environment, label], '.2f')}" for environment in ENVIRONMENTS)


def _order(steps: Sequence[int], fitted: Fitted, environment: str, label: str) -> Verdict:
    bound, found = bound_exponent(steps), fitted[environment, label]
    return Verdict(
        claim=f"With B = C_B·√(T/d) the regret of {label.upper()} is of order √T up to logarithms: {environment}.",
        outcome=judge((-found).minus(-bound)),
        evidence=f"Fitted exponent at the authors' settings: {say(found, '.2f')}. Rule: 95 % t-interval over seeds "
        f"below {bound:.2f}, the exponent that log(T + 1)·√T itself has from T = {steps[0]:,} to {steps[-1]:,}.",
    )


def _sublinear(fitted: Fitted) -> Verdict:
    learning = {place: interval for place, interval in fitted.items() if place[1] != CHECK}
    (environment, label), worst = max(learning.items(), key=lambda item: item[1].high)
    return Verdict(
        claim="The regret is sublinear in T.",
        outcome=judge((-worst).minus(-1.0)),
        evidence=f"Largest fitted exponent of a learning policy ({label}, {environment}): {say(worst, '.2f')}; "
        f"uniform, as a check: {_said(fitted, CHECK)}. Rule: every 95 % t-interval over seeds below 1.",
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
        said = ", ".join(f"{label} {ends[label]:,.0f} (T^{fitted[environment, label].estimate:.2f})" for label in order)
        parts.append(f"Cumulative regret after {steps[-1]:,} steps on {environment}: {said}.")
    other = ENVIRONMENTS[1]
    against = summary(values[-1] / steps[-1] for values in fixed[other, "puir"].values())[0]
    parts.append(
        "An exponent says little about how good a policy is: equal ones belong to regrets that differ by large "
        f"factors. The paper's own regret compares with the best fixed action; on {other} that of PUIR is "
        f"{against:.3f} a step, and a bound on it is no test for a policy that uses the context."
    )
    return " ".join(parts)


EXPERIMENT = Experiment(
    name="regret",
    title="Growth of the regret with the horizon",
    source="Theorem 4 and its remark",
    shown="With B = C_B·√(T/d) and a sketch size that does not depend on T the paper proves a regret of order "
    "√(MdT), up to logarithms in T; C_B ≈ 25 is its choice.",
    setting=f"Synthetic and heterogeneous, M = 5, d = 40, (N, B) = {', '.join(map(str, HORIZONS))}; the authors' "
    "settings, and beside them SBUCB with α = 0.1 and SPUIR with anchored moments; uniform as a check on a few "
    "seeds. Exponents are of the regret against the best action for each context, by least squares on logarithms for "
    "each seed.",
    grid=grid,
    report=report,
)
