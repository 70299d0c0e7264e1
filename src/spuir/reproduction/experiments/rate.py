"""The imputation rate γ and the discount η over a grid, and the scheduled and the balanced rate."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.reproduction.base import Experiment, Findings, ReportTable, Scope, Verdict
from spuir.reproduction.grids import CellGrid
from spuir.reproduction.method_comparison import REGRET, REWARD
from spuir.reproduction.plots import ShadedTable, shaded
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import Interval, all_above, last, mean_of, paired, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENVIRONMENTS = ("synthetic", "heterogeneous")
POLICIES: Mapping[str, float] = {"puir": 0.1, "spuir": 0.9}
"""Policy → the authors' η; their γ is 0.1 for both."""
AUTHORS_RATE = 0.1
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
DISCOUNTS = (0.1, 0.5, 0.9, 1.0)
RULES = ("paper-schedule", "balanced")
RULE_DISCOUNTS = (0.1, 0.9)
EPISODES, BATCH_SIZE = 30, 1400
SIMILAR = 0.01
"""A loss of this share of the reward counts as no loss."""

Setting = tuple[float | str, float]
"""γ, or the name of a rule that sets it, and η."""
NONE: Setting = (0.0, 0.0)
Settings = Mapping[Setting, Sequence[Result]]
Groups = dict[tuple[str, str], dict[Setting, list[Result]]]
"""Policy and environment → setting → results."""
Choice = Callable[[str, Settings], Setting]
"""Policy, and the results of its settings in one environment → one of them."""


def axes(scope: Scope) -> tuple[Sequence[float], Sequence[float]]:
    """Return the fixed values of γ and of η."""
    return scope.axis(RATES, (0.01, 0.1, 1.0)), scope.axis(DISCOUNTS, (0.1, 0.9))


def settings(scope: Scope) -> list[Setting]:
    """Return every γ with every η, no imputation, and the rules."""
    rules = product(RULES, scope.axis(RULE_DISCOUNTS, RULE_DISCOUNTS[:1]))
    return [*product(*axes(scope)), NONE, *rules]


def cells(scope: Scope) -> dict[tuple[str, str, Setting], list[Task]]:
    """Return the runs of each policy, environment and setting; all but γ and η is as in the authors' preset."""
    return {
        (policy, environment, (rate, discount)): Setup(
            environment=environment, episodes=EPISODES, batch_size=BATCH_SIZE
        ).runs(scope.seeds, policy, preset="paper", parameters={"imputation_rate": rate, "discount": discount})
        for policy, environment, (rate, discount) in product(POLICIES, ENVIRONMENTS, settings(scope))
    }


grid = CellGrid(cells)


def collected(scope: Scope, results: Sequence[Result]) -> Groups:
    """Return the results by policy, environment and setting."""
    groups: Groups = {}
    for (policy, environment, setting), runs in grid.fill(scope, results).items():
        groups.setdefault((policy, environment), {})[setting] = runs
    return groups


def reward(results: Sequence[Result], odd: bool | None = None) -> dict[int, float]:
    """Return the expected reward per step minus that of the best action for each context, by seed.

    Of all seeds, of the odd or of the even ones. Differences of this leave out the noise of the rewards.
    """
    lost = last(results, REGRET)
    return {seed: -value for seed, value in lost.items() if odd is None or seed % 2 == odd}


def is_fixed(setting: Setting) -> bool:
    """Return whether γ is a number above 0."""
    return not isinstance(setting[0], str) and setting != NONE


def best_fixed(groups: Settings) -> Setting:
    """Return the fixed γ and η with the highest mean reward on even seeds; the odd seeds judge it."""
    return max(filter(is_fixed, groups), key=lambda setting: mean_of(reward(groups[setting], odd=False)))


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the maps of regret over γ and η, and the verdicts about the rate."""
    groups = collected(scope, results)
    return Findings(
        tables=[
            ReportTable(name="", title="Regret per step × 1,000, the rules and fixed rates", rows=_summary(groups)),
            ReportTable(name="cells", title="Every setting", rows=_cells_rows(groups)),
        ],
        verdicts=[_interior(groups), _schedule(groups), _imputation(groups), _forgetting(groups)],
        figures={"": _map(scope, groups, "puir"), "spuir": _map(scope, groups, "spuir")},
        lesson=_lesson(groups),
    )


def _regret(results: Sequence[Result]) -> float:
    return 1000 * mean_of(last(results, REGRET))


def _named(setting: Setting) -> str:
    rate, discount = setting
    if setting == NONE:
        return "no imputation"
    return f"{rate}, η = {discount:g}" if isinstance(rate, str) else f"γ = {rate:g}, η = {discount:g}"


def _worst(some: Settings) -> Setting:
    return max(filter(is_fixed, some), key=lambda setting: _regret(some[setting]))


def _regret_columns(title: str, results: Sequence[Result]) -> dict[str, float]:
    return with_error(title, (1000 * value for value in last(results, REGRET).values()))


def _summary(groups: Groups) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (policy, environment), some in groups.items():
        shown = {
            "no imputation": NONE,
            "authors": (AUTHORS_RATE, POLICIES[policy]),
            "best fixed": best_fixed(some),
            "worst fixed": _worst(some),
        }
        shown |= {_named(setting): setting for setting in some if isinstance(setting[0], str)}
        rows += [
            {"policy": policy, "environment": environment, "rate": label, "setting": _named(setting)}
            | _regret_columns("regret", some[setting])
            for label, setting in shown.items()
        ]
    return rows


def _cells_rows(groups: Groups) -> list[dict[str, Any]]:
    return [
        {"policy": policy, "environment": environment, "γ": rate, "η": discount}
        | with_error("average reward", reward(results).values())
        | _regret_columns("regret × 1,000", results)
        for (policy, environment), some in groups.items()
        for (rate, discount), results in some.items()
    ]


def _map(scope: Scope, groups: Groups, policy: str) -> "Figure":
    rates, discounts = axes(scope)
    tables = []
    for environment in ENVIRONMENTS:
        some = groups[policy, environment]
        values = np.array([[_regret(some[rate, discount]) for rate in rates] for discount in discounts])
        tables.append(
            ShadedTable(
                title=f"{policy}, {environment}: regret × 1,000 (γ = 0: {_regret(some[NONE]):.2f})",
                xlabel="imputation rate γ",
                ylabel="discount η",
                columns=[f"{rate:g}" for rate in rates],
                rows=[f"{discount:g}" for discount in discounts],
                values=values,
                spec=".2f",
            )
        )
    return shaded(tables)


def _gaps(groups: Groups, ours: Choice, theirs: Choice, odd: bool | None = None) -> dict[str, Interval]:
    """Return the difference in expected reward of two settings, chosen for each policy and environment."""
    return {
        f"{policy}, {environment}": paired(
            reward(some[ours(policy, some)], odd=odd), reward(some[theirs(policy, some)], odd=odd)
        )
        for (policy, environment), some in groups.items()
    }


def _best(policy: str, some: Settings) -> Setting:
    del policy
    return best_fixed(some)


def _authors(policy: str, some: Settings) -> Setting:
    del some
    return AUTHORS_RATE, POLICIES[policy]


def _interior(groups: Groups) -> Verdict:
    gaps = {
        f"{name}, γ = {rate:g}": gap
        for rate in (RATES[0], RATES[-1])
        for name, gap in _gaps(groups, _authors, lambda policy, _, rate=rate: (rate, POLICIES[policy])).items()
    }
    return all_above(
        "authors-rate-is-best",
        "γ trades bias against variance: the authors' γ = 0.1 earns more than a tenth of it, and than γ = 1.",
        f"Expected reward at γ = {AUTHORS_RATE:g} less that at the γ named, at the authors' η",
        gaps,
    )


def _schedule(groups: Groups) -> Verdict:
    gaps = _gaps(groups, lambda *_: (RULES[0], RULE_DISCOUNTS[0]), _best, odd=True)
    scales = [mean_of(last(some[best_fixed(some)], REWARD)) for some in groups.values()]
    chosen = ", ".join(f"({_named(best_fixed(some))})" for some in groups.values())
    return all_above(
        "schedule-needs-no-tuning",
        "The scheduled rate needs no tuning: it earns about as much as the best fixed γ and η.",
        f"Expected reward of the schedule (η = {RULE_DISCOUNTS[0]:g}) less that of the best fixed setting, as a share "
        "of the reward, on odd seeds",
        {name: gap.times(1 / scale) for (name, gap), scale in zip(gaps.items(), scales, strict=True)},
        margin=-SIMILAR,
        also=f"The best was chosen on even seeds: {chosen}.",
    )


def _imputation(groups: Groups) -> Verdict:
    return all_above(
        "imputation-at-equal-alpha",
        "At equal α, imputation at its best fixed γ and η earns more than none.",
        "Expected reward, best fixed setting (chosen on even seeds) − no imputation, on odd seeds",
        _gaps(groups, _best, lambda *_: NONE, odd=True),
    )


def _forgetting(groups: Groups) -> Verdict:
    tried = sorted(discount for rate, discount in next(iter(groups.values())) if rate == AUTHORS_RATE and discount > 0)
    return all_above(
        "forgetting-pays",
        "Old imputed rewards are better forgotten: a small η earns more than an η near 1 (ours).",
        f"Expected reward at η = {tried[0]:g} less that at η = {tried[-1]:g}, γ = {AUTHORS_RATE:g}",
        _gaps(groups, lambda *_: (AUTHORS_RATE, tried[0]), lambda *_: (AUTHORS_RATE, tried[-1])),
    )


def _lesson(groups: Groups) -> str:
    parts = ["Regret per step × 1,000."]
    for (policy, environment), some in groups.items():
        best, worst = best_fixed(some), _worst(some)
        rules = ", ".join(
            f"{_regret(some[rule, RULE_DISCOUNTS[0]]):.2f} {name}"
            for rule, name in zip(RULES, ("scheduled", "balanced"), strict=True)
        )
        parts.append(
            f"{policy.upper()} on {environment}: {_regret(some[NONE]):.2f} without imputation, "
            f"{_regret(some[best]):.2f} at {_named(best)}, {_regret(some[worst]):.2f} at {_named(worst)}, {rules}."
        )
    parts.append(
        "How much to impute depends on the environment: a smaller bonus helps where one action is best and exploring "
        "is waste, and shrunk estimates cost where every action has to be learned. A small γ is safe everywhere and "
        "changes little; avoid much imputation with a long memory (γ = 1, η near 1)."
    )
    return " ".join(parts)


EXPERIMENT = Experiment(
    name="rate",
    title="The imputation rate and the discount",
    source="Remarks 1 and 2, and the rate-scheduled approach",
    shown="The paper says that γ trades a smaller variance against a bias, controllable by γ, and that a schedule "
    "which raises γ in ten steps needs no tuning; it shows no grid.",
    setting=f"PUIR and SPUIR as in the authors' preset except γ and η, N = {EPISODES}, B = {BATCH_SIZE:,}, M = 5, d "
    "= 40. The schedule and the balanced rate are run at η = 0.1 and 0.9 with the same α. Without imputation (γ = 0) "
    "they are SBUCB at this α, exact or sketched. Rewards are compared by regret, which leaves out their noise.",
    grid=grid,
    report=report,
)
