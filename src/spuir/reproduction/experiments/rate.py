"""The imputation rate γ and the discount η over a grid, beside the scheduled and the balanced rate."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.reproduction.base import Experiment, Findings, Plan, Table, Verdict
from spuir.reproduction.cells import fill, tasks_of
from spuir.reproduction.panels import Cells, shaded
from spuir.reproduction.runner import Result, Task
from spuir.reproduction.trials import playing
from spuir.reproduction.verdicts import Interval, all_above, last, paired, summary

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
NEAR = 0.01
"""Share of the reward that counts as no loss."""

Setting = tuple[float | str, float]
"""γ, or the name of a rule that sets it, and η."""
NONE: Setting = (0.0, 0.0)
Settings = Mapping[Setting, Sequence[Result]]
Found = dict[tuple[str, str], dict[Setting, list[Result]]]
"""Policy and environment → setting → results."""
Choice = Callable[[str, Settings], Setting]
"""Policy, and the results of its settings in one environment → one of them."""


def settings(plan: Plan) -> list[Setting]:
    """Return every γ with every η, no imputation, and the rules."""
    fixed = [
        (rate, discount) for rate in plan.axis(RATES, (0.01, 0.1, 1.0)) for discount in plan.axis(DISCOUNTS, (0.1, 0.9))
    ]
    rules = [(rule, discount) for rule in RULES for discount in plan.axis(RULE_DISCOUNTS, RULE_DISCOUNTS[:1])]
    return [*fixed, NONE, *rules]


def cells(plan: Plan) -> dict[tuple[str, str, Setting], list[Task]]:
    """Return the runs of each policy, environment and setting; all but γ and η is as in the authors' preset."""
    return {
        (policy, environment, (rate, discount)): [
            playing(
                policy,
                environment,
                episodes=EPISODES,
                batch_size=BATCH_SIZE,
                seed=seed,
                preset="paper",
                parameters={"imputation_rate": rate, "discount": discount},
            )
            for seed in plan.seeds
        ]
        for policy, environment, (rate, discount) in product(POLICIES, ENVIRONMENTS, settings(plan))
    }


def grid(plan: Plan, results: Sequence[Result]) -> list[Task]:
    """Return a run for each policy, environment, setting and seed."""
    del results
    return tasks_of(cells(plan))


def collected(plan: Plan, results: Sequence[Result]) -> Found:
    """Return the results by policy, environment and setting."""
    found: Found = {}
    for (policy, environment, setting), runs in fill(cells(plan), results).items():
        found.setdefault((policy, environment), {})[setting] = runs
    return found


def reward(results: Sequence[Result], odd: bool | None = None) -> dict[int, float]:
    """Return the expected reward per step, less that of the best action for each context, by seed.

    Of all seeds, of the odd or of the even ones. Of the differences of average rewards it leaves out the noise.
    """
    lost = last(results, "regret_per_step")
    return {seed: -value for seed, value in lost.items() if odd is None or seed % 2 == odd}


def is_fixed(setting: Setting) -> bool:
    """Tell whether γ is a number above 0."""
    return not isinstance(setting[0], str) and setting != NONE


def best_fixed(found: Settings) -> Setting:
    """Return the fixed γ and η with the highest mean reward on even seeds; the odd ones are left to judge it."""
    return max(filter(is_fixed, found), key=lambda setting: summary(reward(found[setting], odd=False).values())[0])


def report(plan: Plan, results: Sequence[Result]) -> Findings:
    """Return the maps of regret over γ and η, and what became of the claims about the rate."""
    found = collected(plan, results)
    return Findings(
        tables=[
            Table(name="", title="Regret per step × 1,000, the rules beside fixed rates", rows=_summary(found)),
            Table(name="cells", title="Every setting", rows=_cells_rows(found)),
        ],
        verdicts=[_interior(found), _schedule(found), _imputation(found), _forgetting(found)],
        figures={"": _map(plan, found, "puir"), "spuir": _map(plan, found, "spuir")},
        lesson=_lesson(found),
    )


def _regret(results: Sequence[Result]) -> tuple[float, float]:
    return summary(1000 * value for value in last(results, "regret_per_step").values())


def _named(setting: Setting) -> str:
    rate, discount = setting
    if setting == NONE:
        return "no imputation"
    return f"{rate}, η = {discount:g}" if isinstance(rate, str) else f"γ = {rate:g}, η = {discount:g}"


def _summary(found: Found) -> list[dict[str, Any]]:
    rows = []
    for (policy, environment), some in found.items():
        best = best_fixed(some)
        worst = max(filter(is_fixed, some), key=lambda setting: _regret(some[setting])[0])
        shown = {
            "no imputation": NONE,
            "authors": (AUTHORS_RATE, POLICIES[policy]),
            "best fixed": best,
            "worst fixed": worst,
        }
        shown |= {_named(setting): setting for setting in some if isinstance(setting[0], str)}
        for label, setting in shown.items():
            mean, error = _regret(some[setting])
            row = {"policy": policy, "environment": environment, "rate": label, "setting": _named(setting)}
            rows.append(row | {"regret": mean, "regret ±": error})
    return rows


def _cells_rows(found: Found) -> list[dict[str, Any]]:
    rows = []
    for (policy, environment), some in found.items():
        for (rate, discount), results in some.items():
            regret, spread = _regret(results)
            mean, error = summary(reward(results).values())
            row: dict[str, Any] = {"policy": policy, "environment": environment, "γ": rate, "η": discount}
            row |= {
                "average reward": mean,
                "average reward ±": error,
                "regret × 1,000": regret,
                "regret × 1,000 ±": spread,
            }
            rows.append(row)
    return rows


def _map(plan: Plan, found: Found, policy: str) -> "Figure":
    rates, discounts = plan.axis(RATES, (0.01, 0.1, 1.0)), plan.axis(DISCOUNTS, (0.1, 0.9))
    tables = []
    for environment in ENVIRONMENTS:
        some = found[policy, environment]
        values = np.array([[_regret(some[rate, discount])[0] for rate in rates] for discount in discounts])
        tables.append(
            Cells(
                title=f"{policy}, {environment}: regret × 1,000 (γ = 0: {_regret(some[NONE])[0]:.2f})",
                xlabel="imputation rate γ",
                ylabel="discount η",
                columns=[f"{rate:g}" for rate in rates],
                rows=[f"{discount:g}" for discount in discounts],
                values=values,
                spec=".2f",
            )
        )
    return shaded(tables)


def _gaps(found: Found, ours: Choice, theirs: Choice, odd: bool | None = None) -> dict[str, Interval]:
    """Return the difference in expected reward of two settings, chosen for each policy and environment."""
    return {
        f"{policy}, {environment}": paired(
            reward(some[ours(policy, some)], odd=odd), reward(some[theirs(policy, some)], odd=odd)
        )
        for (policy, environment), some in found.items()
    }


def _best(policy: str, some: Settings) -> Setting:
    del policy
    return best_fixed(some)


def _authors(policy: str, some: Settings) -> Setting:
    del some
    return AUTHORS_RATE, POLICIES[policy]


def _interior(found: Found) -> Verdict:
    gaps = {
        f"{name}, γ = {rate:g}": gap
        for rate in (RATES[0], RATES[-1])
        for name, gap in _gaps(found, _authors, lambda policy, _, rate=rate: (rate, POLICIES[policy])).items()
    }
    return all_above(
        "γ trades bias against variance: the authors' γ = 0.1 earns more than a tenth of it, and than γ = 1.",
        f"Expected reward at γ = {AUTHORS_RATE:g} less that at the γ named, at the authors' η",
        gaps,
    )


def _schedule(found: Found) -> Verdict:
    gaps = _gaps(found, lambda *_: (RULES[0], RULE_DISCOUNTS[0]), _best, odd=True)
    scales = [summary(last(some[best_fixed(some)], "average_reward").values())[0] for some in found.values()]
    chosen = ", ".join(f"({_named(best_fixed(some))})" for some in found.values())
    return all_above(
        "The scheduled rate needs no tuning: it earns about as much as the best fixed γ and η.",
        f"Expected reward of the schedule (η = {RULE_DISCOUNTS[0]:g}) less that of the best fixed setting, as a share "
        "of the reward, on odd seeds",
        {name: gap.times(1 / scale) for (name, gap), scale in zip(gaps.items(), scales, strict=True)},
        margin=-NEAR,
        also=f"The best was chosen on even seeds: {chosen}.",
    )


def _imputation(found: Found) -> Verdict:
    return all_above(
        "At equal α, imputation at its best fixed γ and η earns more than none.",
        "Expected reward, best fixed setting (chosen on even seeds) − no imputation, on odd seeds",
        _gaps(found, _best, lambda *_: NONE, odd=True),
    )


def _forgetting(found: Found) -> Verdict:
    tried = sorted(discount for rate, discount in next(iter(found.values())) if rate == AUTHORS_RATE and discount > 0)
    return all_above(
        "Old imputed rewards are better forgotten: a small η earns more than an η near 1 (ours).",
        f"Expected reward at η = {tried[0]:g} less that at η = {tried[-1]:g}, γ = {AUTHORS_RATE:g}",
        _gaps(found, lambda *_: (AUTHORS_RATE, tried[0]), lambda *_: (AUTHORS_RATE, tried[-1])),
    )


def _lesson(found: Found) -> str:
    parts = ["Regret per step × 1,000."]
    for (policy, environment), some in found.items():
        none, best = _regret(some[NONE])[0], best_fixed(some)
        worst = max(filter(is_fixed, some), key=lambda setting: _regret(some[setting])[0])
        rules = ", ".join(
            f"{_regret(some[rule, RULE_DISCOUNTS[0]])[0]:.2f} {name}"
            for rule, name in zip(RULES, ("scheduled", "balanced"), strict=True)
        )
        parts.append(
            f"{policy.upper()} on {environment}: {none:.2f} without imputation, {_regret(some[best])[0]:.2f} at "
            f"{_named(best)}, {_regret(some[worst])[0]:.2f} at {_named(worst)}, {rules}."
        )
    parts.append(
        "How much to impute depends on the world: a smaller bonus helps where one action is best and exploring is "
        "waste, and estimates that are held back cost where every action has to be learnt. A small γ is safe "
        "anywhere and changes little; much imputation with a long memory (γ = 1, η near 1) is the corner to avoid."
    )
    return " ".join(parts)


EXPERIMENT = Experiment(
    name="rate",
    title="The imputation rate and the discount",
    source="Remarks 1 and 2, and the rate-scheduled approach",
    shown="The paper says that γ trades a smaller variance against a bias, controllable by γ, and that a schedule "
    "which raises γ in ten steps needs no tuning; it shows no grid.",
    setting=f"PUIR and SPUIR as in the authors' preset but for γ and η, N = {EPISODES}, B = {BATCH_SIZE:,}, M = 5, d "
    "= 40. The schedule and the balanced rate are run at η = 0.1 and 0.9 with the same α. Without imputation (γ = 0) "
    "they are SBUCB at this α, exact or sketched. Rewards are compared by regret, which leaves out their noise.",
    grid=grid,
    report=report,
)
