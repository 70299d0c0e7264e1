"""Actions with features: `hierarchical` against disjoint and shared models and Vowpal Wabbit in nine worlds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spuir.reproduction.base import FAILS, HOLDS, OPEN, Experiment, Findings, Outcome, ReportTable, Scope, Verdict
from spuir.reproduction.catalogue_worlds import EPISODES, WORLDS, browse
from spuir.reproduction.grids import fill, tasks_of
from spuir.reproduction.other_libraries import installed
from spuir.reproduction.plots import forest
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.verdicts import ENOUGH_SEEDS, Interval, estimate, last, mean_of, relative_gains, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HIERARCHICAL, WABBIT = "hierarchical", "Vowpal Wabbit"
RIVALS = ("SBUCB", "disjoint", "shared")
KERNEL, CURVED = "hierarchical, kernel", "curved in the features"
SHOWN = (*RIVALS, WABBIT, HIERARCHICAL, KERNEL)
QUICK_WORLDS = ("five actions",)
OPTIONS = tuple(f"--squarecb --gamma_scale {gamma} -l {rate}" for gamma in (100, 1000) for rate in (0.5, 2))
"""Settings among which Vowpal Wabbit chooses in each world."""
TUNING_SEED, WABBIT_SEEDS = 100_000, 3
ALLOWED = 1.0
"""Per cent of reward that may be lost to the best model of ours."""

Rewards = Mapping[str, Mapping[str, Mapping[int, float]]]
"""World → method → seed → reward."""


def own_cells(scope: Scope) -> dict[tuple[str, str], list[Task]]:
    """Return the runs of our models in all worlds."""
    worlds = scope.axis(tuple(WORLDS), QUICK_WORLDS)
    return {
        (world, method): [Task.of(browse, world=world, method=method, seed=seed) for seed in scope.seeds]
        for world in worlds
        for method in (HIERARCHICAL, *RIVALS, *[KERNEL] * (world == CURVED))
    }


def wabbit(world: str, options: str, seed: int) -> Task:
    """Return a run of Vowpal Wabbit."""
    return Task.of(browse, world=world, method=WABBIT, seed=seed, options={"options": options})


def wabbit_cells(scope: Scope, results: Sequence[Result]) -> dict[tuple[str, str], list[Task]]:
    """Return the runs of Vowpal Wabbit at its best setting, in the worlds where that is known."""
    known = {result.task.key: result for result in results}
    cells: dict[tuple[str, str], list[Task]] = {}
    for world in {world for world, _ in own_cells(scope)}:
        tried = {options: known.get(wabbit(world, options, TUNING_SEED).key) for options in OPTIONS}
        rewards = {options: one.rows[-1]["average_reward"] for options, one in tried.items() if one is not None}
        if len(rewards) == len(OPTIONS):
            best = max(rewards, key=lambda options: rewards[options])
            cells[world, WABBIT] = [wabbit(world, best, seed) for seed in scope.seeds[:WABBIT_SEEDS]]
    return cells


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the runs of our models, then the tuning runs of Vowpal Wabbit and, once known, its best setting."""
    tasks = tasks_of(own_cells(scope))
    if installed("vowpalwabbit") and not scope.quick:
        worlds = dict.fromkeys(world for world, _ in own_cells(scope))
        tasks += [wabbit(world, options, TUNING_SEED) for world in worlds for options in OPTIONS]
        tasks += tasks_of(wabbit_cells(scope, results))
    return tasks


def gain(rewards: Mapping[str, Mapping[int, float]], rival: str) -> Interval:
    """Return what `hierarchical` earns more than a rival, in per cent, with its 95 % interval over seeds."""
    return estimate(100 * share for share in relative_gains(rewards[HIERARCHICAL], rewards[rival]).values())


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the rewards of all models, on all rows and on rows whose best action is new."""
    cells = {**own_cells(scope), **wabbit_cells(scope, results)}
    groups = {cell: group for cell, group in fill(cells, results).items() if group}
    worlds = [world for world, method in own_cells(scope) if method == HIERARCHICAL and (world, method) in groups]
    rewards: dict[str, dict[str, Mapping[int, float]]] = {world: {} for world in worlds}
    for (world, method), group in groups.items():
        rewards[world][method] = last(group, "average_reward")
    rows = [
        {"world": world}
        | {method: mean_of(rewards[world][method]) for method in SHOWN if method in rewards[world]}
        | {"oracle": mean_of(last(groups[world, HIERARCHICAL], "oracle"))}
        for world in worlds
    ]
    cold = [
        {"world": world} | {method: mean_of(last(groups[world, method], "new")) for method in rewards[world]}
        for world in worlds
        if WORLDS[world].replaced
    ]
    formats: dict[str, str] = {name: ".4f" for name in (*SHOWN, "oracle")}
    tables = [
        ReportTable(name="", title="Expected reward per decision", rows=rows, formats=formats),
        ReportTable(
            name="new",
            title="Rows whose best action is new: share of the way from uniform to oracle",
            rows=cold,
            formats=formats,
        ),
    ]
    return Findings(
        tables=[table for table in tables if table.rows],
        verdicts=verdicts(rewards),
        figures={"": draw(rewards)} if rewards else {},
        lesson=lesson(rewards),
    )


def verdicts(rewards: Rewards) -> list[Verdict]:
    """Judge whether `hierarchical` is level with the best of our models everywhere, and ahead of Vowpal Wabbit."""
    claims = {
        "level-with-the-best": (
            RIVALS,
            -ALLOWED,
            f"at most {ALLOWED:g} % below SBUCB, the disjoint and the shared model",
        ),
        "ahead-of-wabbit": ((WABBIT,), 0.0, "ahead of Vowpal Wabbit with its best setting"),
    }
    made: list[Verdict] = []
    for name, (rivals, least, words) in claims.items():
        gains = {
            f"{world}, {rival}": gain(own, rival)
            for world, own in rewards.items()
            for rival in rivals
            if rival in own and len(own[rival]) >= ENOUGH_SEEDS
        }
        low = {place: one for place, one in gains.items() if one.low < least}
        outcome: Outcome = OPEN if not gains else FAILS if low else HOLDS
        shown = "; ".join(f"{place}: {say(one, '+.2f')}" for place, one in low.items())
        missed = f"Not in {shown}. " if low else ""
        made.append(
            Verdict(
                name,
                f"In every world `hierarchical` is {words}.",
                outcome,
                f"It is in {len(gains) - len(low)} of {len(gains)} comparisons. {missed}"
                f"Rule: the 95 % interval of the gain in per cent lies above {least:g}.",
            )
        )
    return made


def lesson(rewards: Rewards) -> str:
    """Return what a reader learns, in numbers."""
    if not rewards:
        return "No comparison is complete."

    def most(rival: str) -> str:
        gains = {world: gain(own, rival).estimate for world, own in rewards.items() if rival in own}
        world = max(gains, key=lambda one: gains[one])
        least = min(gains, key=lambda one: gains[one])
        return f"{gains[world]:+.1f} % ({world}) to {gains[least]:+.1f} % ({least})"

    text = f"The gain over one regression per action is {most('SBUCB')}, that over features alone {most('shared')}."
    if any(WABBIT in own for own in rewards.values()):
        text += f" Over Vowpal Wabbit it is {most(WABBIT)}."
    return text


def draw(rewards: Rewards) -> "Figure":
    """Draw what `hierarchical` gains over each rival in each world."""
    methods: Sequence[str] = [one for one in ("SBUCB", "shared", WABBIT) if any(one in own for own in rewards.values())]
    panels: dict[str, Any] = {
        f"over {'one regression per action' if method == 'SBUCB' else method}": {
            world: gain(own, method) for world, own in rewards.items() if method in own
        }
        for method in methods
    }
    return forest(panels, xlabel="gain of hierarchical, %", margin=-ALLOWED)


EXPERIMENT = Experiment(
    name="catalogue",
    title="Actions with features",
    source="beyond the paper",
    shown="The paper's actions have no features: each has a model of its own.",
    setting=f"`hierarchical` (floor 0) in {len(WORLDS)} worlds with 5 to 300 actions of 12 features, contexts of 12 "
    "columns, 5 to 30 eligible actions per decision and, in most worlds, 5 % of the actions replaced in each episode. "
    f"Clicks follow a logistic model. One uniform episode that does not count, then {EPISODES} of 500 or 1,000 "
    "decisions, on the same contexts and clicks for all. SBUCB and `hierarchical` without a catalogue have one "
    "regression per action; shared is `hierarchical` with deviations='none'. Vowpal Wabbit (cb_explore_adf) chooses "
    f"among {len(OPTIONS)} settings in each world on another seed and is reported on {WABBIT_SEEDS} seeds.",
    grid=grid,
    report=report,
)
