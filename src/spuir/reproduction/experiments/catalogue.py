"""Actions with features: `hierarchical` against disjoint and shared models and Vowpal Wabbit in nine worlds."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.catalogue_study import STUDY, STUDY_NEW, agreement, shares
from spuir.reproduction.catalogue_worlds import EPISODES, WORLDS, browse
from spuir.reproduction.claims import Claim, Contrast, difference
from spuir.reproduction.grids import Measured, fill, tasks_of
from spuir.reproduction.other_libraries import installed
from spuir.reproduction.policy_runs import REWARD
from spuir.reproduction.tasks import Result, Task

HIERARCHICAL, WABBIT = "hierarchical", "Vowpal Wabbit"
RIVALS = ("SBUCB", "disjoint", "shared")
KERNEL, CURVED = "hierarchical, kernel", "curved in the features"
SHOWN = (*RIVALS, WABBIT, HIERARCHICAL, KERNEL)
QUICK_WORLDS = ("five actions",)
CROSSED = ("-q sa", "-q sa -q si")
OPTIONS = (
    *(
        f"{crossed} --squarecb --gamma_scale {gamma} -l {rate} --clip_p 1"
        for crossed in CROSSED
        for gamma, rate in ((100, 1.5), (1000, 0.5), (1000, 1.5), (10000, 0.5), (10000, 1.5))
    ),
    *(f"{crossed} --squarecb --gamma_scale 1000 -l 1 --clip_p 1 --loss_function logistic" for crossed in CROSSED),
    *(f"{crossed} --squarecb --gamma_scale 1000 -l 0.5" for crossed in CROSSED),
    "-q sa --epsilon 0.05 -l 0.5",
    "-q sa --bag 5 -l 0.5",
)
"""Settings among which Vowpal Wabbit chooses in each world: all on the first tuning seed, the best on the others.

Contexts (s) are crossed with the features of actions (a), and with their ids (i) or not; ``--clip_p 1`` learns without
importance weights.
"""
FINALISTS, TUNING_SEEDS = 3, 3
ALLOWED = 1.0
"""Per cent of reward that may be lost to the best model of ours."""

Played = Measured[tuple[str, str]]
"""Results by world and method."""


def worlds_of(scope: Scope) -> Sequence[str]:
    """Return the names of the worlds."""
    return scope.axis(tuple(WORLDS), QUICK_WORLDS)


def own_cells(scope: Scope) -> dict[tuple[str, str], list[Task]]:
    """Return the runs of our models in all worlds."""
    return {
        (world, method): [Task.of(browse, world=world, method=method, seed=seed) for seed in scope.seeds]
        for world in worlds_of(scope)
        for method in (HIERARCHICAL, *RIVALS, *[KERNEL] * (world == CURVED))
    }


def wabbit(world: str, options: str, seed: int) -> Task:
    """Return a run of Vowpal Wabbit."""
    return Task.of(browse, world=world, method=WABBIT, seed=seed, options={"options": options})


def best_options(world: str, known: Mapping[str, Result], seeds: Sequence[int]) -> list[str]:
    """Return the settings of Vowpal Wabbit by their mean reward on some seeds, the best first; none before all ran."""
    finalists = best_options(world, known, seeds[:1])[:FINALISTS] if len(seeds) > 1 else OPTIONS
    tried = {options: [known.get(wabbit(world, options, seed).key) for seed in seeds] for options in finalists}
    rewards = {
        options: fmean(run.rows[-1][REWARD] for run in runs if run is not None)
        for options, runs in tried.items()
        if None not in runs
    }
    return sorted(rewards, key=lambda options: -rewards[options]) if len(rewards) == len(tried) else []


def wabbit_cells(scope: Scope, results: Sequence[Result]) -> dict[tuple[str, str], list[Task]]:
    """Return the runs of Vowpal Wabbit at its best setting, in the worlds where that is known."""
    known, seeds = {result.task.key: result for result in results}, scope.tuning_seeds[:TUNING_SEEDS]
    best = {world: best_options(world, known, seeds)[:1] for world in worlds_of(scope)}
    return {
        (world, WABBIT): [wabbit(world, options, seed) for seed in scope.seeds]
        for world, found in best.items()
        for options in found
    }


def tuning_tasks(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the runs that choose the setting of Vowpal Wabbit in each world, as far as they are known."""
    known, seeds = {result.task.key: result for result in results}, scope.tuning_seeds[:TUNING_SEEDS]
    tasks: list[Task] = []
    for world in worlds_of(scope):
        tasks += [wabbit(world, options, seeds[0]) for options in OPTIONS]
        finalists = best_options(world, known, seeds[:1])[:FINALISTS]
        tasks += [wabbit(world, options, seed) for options in finalists for seed in seeds[1:]]
    return tasks


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the tuning runs of Vowpal Wabbit, once known those of its best setting, and the runs of our models."""
    tasks = tasks_of(own_cells(scope))
    if installed("vowpalwabbit") and not scope.quick:
        tasks = tuning_tasks(scope, results) + tasks_of(wabbit_cells(scope, results)) + tasks
    return tasks


def gain(played: Played, world: str, rival: str) -> Contrast:
    """Return what `hierarchical` earns more than a rival in one world, in per cent."""
    ours, theirs = (played.sample((world, method), REWARD) for method in (HIERARCHICAL, rival))
    return difference(f"{HIERARCHICAL} − {rival}, {world}", ours, theirs, percent_of=theirs)


def new_gain(played: Played, world: str) -> Contrast:
    """Return how much farther `hierarchical` gets than Vowpal Wabbit on rows whose best action is new, as a share."""
    ours, theirs = (played.sample((world, method), "new") for method in (HIERARCHICAL, WABBIT))
    return difference(f"{HIERARCHICAL} − {WABBIT}, new actions, {world}", ours, theirs)


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return the rewards of all models, on all rows and on rows whose best action is new."""
    cells = {**own_cells(scope), **wabbit_cells(scope, results)}
    played = Measured(fill(cells, results), lambda cell: f"{cell[1]}, {cell[0]}")
    worlds = [world for world, method in own_cells(scope) if method == HIERARCHICAL and (world, method) in played]

    def means(world: str, column: str) -> dict[str, float]:
        methods = [method for method in SHOWN if (world, method) in played]
        return {method: played.sample((world, method), column).mean for method in methods}

    rows = [
        {"world": world} | means(world, REWARD) | {"oracle": played.sample((world, HIERARCHICAL), "oracle").mean}
        for world in worlds
    ]
    cold = [{"world": world} | means(world, "new") for world in renewed(worlds)]
    times = [{"world": world} | means(world, "processor") for world in worlds]
    formats: dict[str, str] = {name: ".4f" for name in (*SHOWN, "oracle")}
    title = "Rows whose best action is new: share of the way from uniform to oracle"
    tables = [
        ReportTable(name="", title="Expected reward per decision", rows=rows, formats=formats),
        ReportTable(name="new", title=title, rows=cold, formats=formats),
        *study_tables(played, worlds),
        ReportTable(
            name="time", title="Processor time of a run in seconds", rows=times, formats=dict.fromkeys(SHOWN, ".2f")
        ),
        ReportTable(name="settings", title="Settings of Vowpal Wabbit", rows=settings(played, worlds)),
    ]
    return Findings(
        tables=[table for table in tables if table.rows],
        claims=claims(played, worlds),
        drawings={"": draw(played, worlds)} if worlds else {},
    )


def study_tables(played: Played, worlds: Sequence[str]) -> list[ReportTable]:
    """Return our rewards beside those of the study that proposed the model, on all rows and on new actions."""
    rows: list[dict[str, Any]] = []
    for world in worlds:
        best = played.sample((world, HIERARCHICAL), "oracle")
        known = {name: value for name, value in STUDY[world].items() if name == "oracle" or (world, name) in played}
        for name, value in known.items():
            ours = best if name == "oracle" else played.sample((world, name), REWARD)
            row = {"world": world, "model": name} | agreement("reward", ours, value)
            if name != "oracle":
                row |= agreement("share", shares(ours, best), value / STUDY[world]["oracle"])
            rows.append(row)
    new = [
        {"world": world, "model": name} | agreement("new", played.sample((world, name), "new"), value)
        for world in worlds
        for name, value in STUDY_NEW.get(world, {}).items()
        if (world, name) in played
    ]
    formats = {f"{of}{name}": ".3f" for of in ("", "study's ") for name in ("reward", "share", "new")}
    return [
        ReportTable(name="study", title="Beside the study that proposed the model", rows=rows, formats=formats),
        ReportTable(name="study-new", title="The same on rows whose best action is new", rows=new, formats=formats),
    ]


def renewed(worlds: Sequence[str]) -> list[str]:
    """Return the worlds in which actions are replaced."""
    return [world for world in worlds if WORLDS[world].replaced]


def settings(played: Played, worlds: Sequence[str]) -> list[dict[str, str]]:
    """Return the setting that Vowpal Wabbit chose in each world."""
    return [
        {"world": world, "setting": played[world, WABBIT][0].arguments["options"]["options"]}
        for world in worlds
        if (world, WABBIT) in played
    ]


def claims(played: Played, worlds: Sequence[str]) -> list[Claim]:
    """Return that `hierarchical` is level with the best of our models everywhere, and ahead of Vowpal Wabbit."""

    def gains(*rivals: str) -> list[Contrast]:
        return [gain(played, world, rival) for world in worlds for rival in rivals if (world, rival) in played]

    ours: dict[str, Any] = {"source": "ours", "place": "beyond the paper"}
    return [
        Claim(
            id="level-with-the-best",
            wording=f"In every world `hierarchical` earns at most {ALLOWED:g} % less than SBUCB, the disjoint and the "
            "shared model.",
            margin=-ALLOWED,
            coded=gains(*RIVALS),
            **ours,
        ),
        Claim(
            id="ahead-of-wabbit",
            wording="In every world `hierarchical` earns more than Vowpal Wabbit with its best setting.",
            coded=gains(WABBIT),
            **ours,
        ),
        Claim(
            id="ahead-on-new-actions",
            wording="On rows whose best action is in its first episode, `hierarchical` gets farther than Vowpal Wabbit "
            "on the way from a uniform to the best choice, in every world with new actions.",
            coded=[new_gain(played, world) for world in renewed(worlds) if (world, WABBIT) in played],
            unit="of the way",
            **ours,
        ),
    ]


def draw(played: Played, worlds: Sequence[str]) -> Drawing:
    """Draw what `hierarchical` earns more than each rival in each world."""
    names = {"SBUCB": "one regression per action", "shared": "shared", WABBIT: WABBIT}
    panels: list[plots.Dots] = []
    for method, name in names.items():
        rows: Mapping[str, plots.Pair] = {
            world: (None, gain(played, world, method).interval()) for world in worlds if (world, method) in played
        }
        if rows:
            styles = dict.fromkeys(rows, "auto")
            panel = plots.Dots(
                title=f"over {name}", xlabel="%", rows=rows, styles=styles, band=ALLOWED, named=not panels
            )
            panels.append(panel)
    new: Mapping[str, plots.Pair] = {
        world: (None, new_gain(played, world).interval()) for world in renewed(worlds) if (world, WABBIT) in played
    }
    if new:
        styles = dict.fromkeys(new, "auto")
        panels.append(plots.Dots(title=f"new actions, over {WABBIT}", xlabel="of the way", rows=new, styles=styles))
    caption = (
        f"Lead of `hierarchical` (floor 0) in per cent of the rival's reward, {EPISODES} episodes, with 95 % intervals "
        "over seeds (not corrected); at the right, on rows whose best action is new, as a share of the way from a "
        f"uniform to the best choice. Vowpal Wabbit chooses among {len(OPTIONS)} settings on other seeds."
    )
    return Drawing(plots.compose("Actions with features", panels, width=2.6), caption)


EXPERIMENT = Experiment(
    name="catalogue", title="Actions with features", source="beyond the paper", grid=grid, report=report
)
