"""How good is the default policy: `auto`, never tuned, against tuned rivals in fifteen worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir.reproduction.base import FAILS, HOLDS, OPEN, Experiment, Findings, Outcome, ReportTable, Scope, Verdict
from spuir.reproduction.conversion import RATES, convert
from spuir.reproduction.grids import fill, tasks_of
from spuir.reproduction.other_libraries import installed
from spuir.reproduction.plots import Panel, forest, line, side_by_side
from spuir.reproduction.policy_runs import Setup
from spuir.reproduction.rivals import (
    AUTO,
    BATCH,
    EPISODES,
    FLOORED,
    FOURIER,
    LINEAR,
    LINUCB,
    OTHERS,
    SAMPLING,
    SUM_BASED,
    WABBIT,
    WORLDS,
    Rival,
    WorldResult,
    expected,
    worlds,
)
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import words
from spuir.reproduction.verdicts import (
    ENOUGH_SEEDS,
    last,
    say,
    summary,
    with_error,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK_WORLDS = ("poly",)
FLOOR, SIZE, BATCH_LEVELS = "floor", "batch size", "levels of a batch size"
BEST_SHARE = "% of the best possible"
COST = "cost of the default floor, %"
SHOPS = {False: "one offer is better for everybody", True: "new customers want the other offer"}
FLOORS = (0.0, 0.01, 0.02, 0.05, 0.1)
BATCHES = (100, 200, 500, 1000, 2000, 5000)
STUDIED: Mapping[str, int] = {"heterogeneous": 5, "poly": 5, "digits": 10}
"""Worlds in which floors and batch sizes are varied → their number of actions."""
TOO_SLOW = ("heterogeneous-50", "Fourier SBUCB")
"""World and rival that are not run: rewards are linear there, and 50 actions on 240 columns take long."""
FLOOR_SEEDS, BATCH_SEEDS = 5, 3
SALES = {"episodes": 14, "batch_size": BATCH}
SALES_SHARE = 0.95
ALLOWED, ENOUGH_WORLDS = 1.0, 13
"""Per cent of reward that may be lost to the best rival, and in how many worlds no more than this is lost."""


def played(scope: Scope) -> dict[str, Setup]:
    """Return the worlds that can be played."""
    return {name: setup for name, setup in worlds(scope, QUICK_WORLDS).items() if isinstance(setup, Setup)}


def rivals(scope: Scope, world: str) -> dict[str, Rival]:
    """Return the rivals that run in a world: other libraries if they are installed, and not in a quick run."""
    libraries = not scope.quick
    others = {
        one: rival for one, rival in OTHERS.items() if not rival.library or (libraries and installed(rival.policy))
    }
    return {label: rival for label, rival in {**SUM_BASED, **others}.items() if (world, label) != TOO_SLOW}


def floored(setup: Setup, seeds: Sequence[int], share: float, actions: int) -> list[Task]:
    """Return runs of `auto` with this probability spread over all actions; 2 % is the default."""
    floor = None if share == 0.02 else share / actions
    return setup.runs(seeds, "auto", parameters={} if floor is None else {"floor": floor})


def own_cells(scope: Scope, name: str, setup: Setup) -> dict[tuple[Any, ...], list[Task]]:
    """Return the runs of `auto` in one world: without and with its floor; in some worlds, other floors and sizes."""
    cells: dict[tuple[Any, ...], list[Task]] = {
        (AUTO,): floored(setup, scope.seeds, 0.0, 1),
        (FLOORED,): floored(setup, scope.seeds[:FLOOR_SEEDS], 0.02, 1),
        ("levels",): setup.levels(scope.seeds),
    }
    if name in STUDIED:
        for share in scope.axis(FLOORS, (0.0, 0.1)):
            cells[FLOOR, share] = floored(setup, scope.seeds[:FLOOR_SEEDS], share, STUDIED[name])
        for size in scope.axis(BATCHES, (500, 5000)):
            sized = replace(setup, episodes=EPISODES * BATCH // size, batch_size=size)
            seeds = scope.seeds[:BATCH_SEEDS]
            cells[SIZE, size] = floored(sized, seeds, 0.0, 1)
            cells[BATCH_LEVELS, size] = sized.levels(seeds)
    return cells


def sales_cells(scope: Scope) -> dict[bool, list[Task]]:
    """Return the runs of the shop: one offer better for everybody, or the better one depending on a column."""
    given: dict[str, Any] = {"policy": "auto", "parameters": {}, **SALES}
    return {
        contextual: [Task.of(convert, contextual=contextual, seed=seed, **given) for seed in scope.seeds]
        for contextual in (False, True)
    }


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the runs of `auto`, the tuning runs of its rivals and, once known, these at their best.

    What the claim needs comes first, so that an interrupted run can show it.
    """
    known = {result.task.key: result for result in results}
    tasks, later = tasks_of(sales_cells(scope)), list[Task]()
    for name, setup in played(scope).items():
        cells = own_cells(scope, name, setup)
        tasks += [*cells[AUTO,], *cells["levels",]]
        later += tasks_of(cells)
        for label, rival in rivals(scope, name).items():
            (tasks if label in SUM_BASED else later).extend(rival.tasks(scope, setup, known))
    return list({task.key: task for task in [*tasks, *later]}.values())


def world_result(scope: Scope, name: str, setup: Setup, known: Mapping[str, Result]) -> WorldResult | None:
    """Return what is known about one world; None while `auto` or every sum-based rival is missing."""
    cells = fill(own_cells(scope, name, setup), known.values())
    facts = cells["levels",]
    oracle = last(facts, "oracle")
    groups = {AUTO: cells[AUTO,], FLOORED: cells[FLOORED,]}
    groups |= fill(
        {label: rival.reported(scope, setup, known) for label, rival in rivals(scope, name).items()}, known.values()
    )
    rewards = {label: expected(group, oracle) for label, group in groups.items() if group}
    if AUTO not in rewards or not rewards.keys() & SUM_BASED.keys():
        return None
    return WorldResult(
        name=name,
        actions=facts[0].rows[-1]["actions"],
        columns=facts[0].rows[-1]["columns"],
        oracle=oracle,
        rewards=rewards,
        chosen={label: words(rival.chosen(scope, setup, known)) for label, rival in rivals(scope, name).items()},
    )


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return `auto` beside its tuned rivals, the cost of floors, the effect of batch sizes, and the shop."""
    known = {result.task.key: result for result in results}
    every = [world_result(scope, name, setup, known) for name, setup in played(scope).items()]
    places = [place for place in every if place is not None]
    if not places:
        return Findings(tables=[], verdicts=[], figures={}, lesson="No comparison is complete.")
    studies = {place.name: study_rows(scope, played(scope)[place.name], place.name, known) for place in places}
    studied = [row for rows in studies.values() for row in rows]
    sales = {contextual: last(group, "share") for contextual, group in fill(sales_cells(scope), results).items()}
    return Findings(
        tables=tables(scope, places, studied, sales),
        verdicts=verdicts(places, sales),
        figures={"": draw(places)} | ({"floors-and-batches": draw_studies(studied)} if studied else {}),
        lesson=lesson(scope, places),
    )


# ---- tables -----------------------------------------------------------------------------------------------------


def tables(
    scope: Scope,
    places: Sequence[WorldResult],
    studied: Sequence[Mapping[str, Any]],
    sales: Mapping[bool, Mapping[int, float]],
) -> list[ReportTable]:
    """Return all tables; worlds that were not played are in the last one."""
    rewards = dict.fromkeys((AUTO, *SUM_BASED), ".4f")
    floors, batches = ([row for row in studied if kind in row] for kind in ("floor, %", "B"))
    made = [
        ReportTable(name="", title="Expected reward, and what `auto` gains", rows=main_rows(places), formats=rewards),
        ReportTable(
            name="others", title="What `auto` (floor 0) gains on other tuned rivals, %", rows=other_rows(places)
        ),
        ReportTable(name="floors", title="Floors: reward of `auto`", rows=floors, formats=STUDY_FORMATS),
        ReportTable(
            name="batches",
            title="Batch sizes: reward of `auto`, floor 0, with the uniform episode",
            rows=batches,
            formats=STUDY_FORMATS,
        ),
        ReportTable(name="shop", title="The shop: later rows with the better offer", rows=sales_rows(sales)),
        ReportTable(name="settings", title="The settings that the rivals chose", rows=setting_rows(places)),
        ReportTable(name="worlds", title="Worlds that were not played", rows=skipped_rows(scope)),
    ]
    return [table for table in made if table.rows]


def main_rows(places: Sequence[WorldResult]) -> list[dict[str, Any]]:
    """Return a row for each world."""
    return [
        {"world": place.name, "actions": place.actions, "columns": place.columns}
        | {label: place.mean(label) for label in (AUTO, *SUM_BASED) if label in place.rewards}
        | {"best": place.best, "gain on the best, %": say(place.gain(place.best), "+.2f")}
        | {"gain on SBUCB, %": say(place.gain("SBUCB"), "+.2f")}
        | ({COST: say(-place.gain(AUTO, FLOORED), "+.2f")} if FLOORED in place.rewards else {})
        for place in places
    ]


def other_rows(places: Sequence[WorldResult]) -> list[dict[str, Any]]:
    """Return a row for each world: the gain on each rival that is not sum-based."""
    labels = [label for label in OTHERS if any(label in place.rewards for place in places)]
    return [
        {"world": place.name} | {label: say(place.gain(label), "+.2f") for label in labels if label in place.rewards}
        for place in places
        if labels
    ]


STUDY_FORMATS = {"reward": ".4f", BEST_SHARE: ".2f"}


def study_rows(scope: Scope, setup: Setup, name: str, known: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return a row for each floor and each batch size that was run in a world."""
    cells = fill(own_cells(scope, name, setup), known.values())
    rows: list[dict[str, Any]] = []
    for cell, group in cells.items():
        if len(cell) == 2 and group and cell[0] != BATCH_LEVELS:
            kind, value = cell
            levels = cells["levels",] if kind == FLOOR else cells[BATCH_LEVELS, value]
            oracle = last(levels, "oracle")
            rewards = expected(group, oracle)
            if kind == SIZE:
                rewards = with_first(rewards, last(levels, "uniform"), EPISODES * BATCH // value)
            row: dict[str, Any] = {"world": name} | ({"floor, %": 100 * value} if kind == FLOOR else {"B": value})
            row |= with_error("reward", rewards.values())
            rows.append(row | with_error(BEST_SHARE, (100 * rewards[seed] / oracle[seed] for seed in rewards)))
    return rows


def with_first(rewards: Mapping[int, float], uniform: Mapping[int, float], episodes: int) -> dict[int, float]:
    """Return the mean reward of a run and of the uniform episode before it, which grows with the batch size."""
    return {seed: (episodes * reward + uniform[seed]) / (episodes + 1) for seed, reward in rewards.items()}


def sales_rows(sales: Mapping[bool, Mapping[int, float]]) -> list[dict[str, Any]]:
    """Return a row for each form of the shop."""
    return [
        {"better offer": SHOPS[contextual]} | with_error("share", shares.values()) | {"least": min(shares.values())}
        for contextual, shares in sales.items()
        if shares
    ]


def setting_rows(places: Sequence[WorldResult]) -> list[dict[str, Any]]:
    """Return a row for each world: what each rival chose."""
    return [{"world": place.name, **place.chosen} for place in places]


def skipped_rows(scope: Scope) -> list[dict[str, Any]]:
    """Return a row for each world and library that is missing here, with the reason."""
    absent = [
        {"left out": name, "reason": why} for name, why in worlds(scope, QUICK_WORLDS).items() if isinstance(why, str)
    ]
    libraries = [label for label, rival in OTHERS.items() if rival.library and not installed(rival.policy)]
    return absent + [{"left out": label, "reason": "skipped: not installed"} for label in libraries]


# ---- verdicts ---------------------------------------------------------------------------------------------------


def verdicts(places: Sequence[WorldResult], sales: Mapping[bool, Mapping[int, float]]) -> list[Verdict]:
    """Judge the reward and the shop."""
    return [
        within(places),
        *(sold(contextual, list(shares.values())) for contextual, shares in sales.items() if shares),
    ]


def sold(contextual: bool, shares: Sequence[float]) -> Verdict:
    """Judge one form of the shop by the mean share: an interval around shares close to 1 would reach beyond 1."""
    mean, _ = summary(shares)
    outcome: Outcome = HOLDS if mean >= SALES_SHARE else FAILS
    return Verdict(
        f"shop-{'by-column' if contextual else 'for-all'}",
        f"After {SALES['episodes']} × {SALES['batch_size']} rows with conversions of {min(RATES):.0%} and "
        f"{max(RATES):.0%} and raw columns, `predict` takes the better offer for {SALES_SHARE:.0%} of later rows on "
        f"average: {SHOPS[contextual]}.",
        outcome if len(shares) >= ENOUGH_SEEDS else OPEN,
        f"Mean share {mean:.3f} over {len(shares)} seeds, in the worst {min(shares):.3f}; it holds if the mean is at "
        f"least {SALES_SHARE:g}.",
    )


def within(places: Sequence[WorldResult]) -> Verdict:
    """Judge in how many worlds `auto` loses at most 1 % to the best tuned sum-based rival."""
    found = {place.name: place.gain(place.best) for place in places}
    decided = {name: gain for name, gain in found.items() if gain.seeds >= ENOUGH_SEEDS}
    good = [name for name, gain in decided.items() if gain.low >= -ALLOWED]
    outcome: Outcome = OPEN
    if len(good) >= ENOUGH_WORLDS:
        outcome = HOLDS
    elif len(WORLDS) - (len(decided) - len(good)) < ENOUGH_WORLDS:
        outcome = FAILS
    low = [f"{name}: {say(gain, '+.2f')}" for name, gain in decided.items() if name not in good]
    return Verdict(
        "within-one-percent",
        f"In at least {ENOUGH_WORLDS} of {len(WORLDS)} worlds, `auto` (floor 0) is at most {ALLOWED:g} % below the "
        "best tuned sum-based policy.",
        outcome,
        f"It is in {len(good)} of the {len(decided)} worlds with enough seeds. "
        f"{'Not in ' + '; '.join(low) + '. ' if low else ''}"
        f"Rule: the 95 % interval of the gain in per cent lies above −{ALLOWED:g}; the rival is the one that turned "
        "out best on the reported seeds.",
    )


def lesson(scope: Scope, places: Sequence[WorldResult]) -> str:
    """Return what a reader learns, in numbers."""
    best = {place.name: place.gain(place.best) for place in places}
    linear = {place.name: place.gain("SBUCB") for place in places if "SBUCB" in place.rewards}
    ahead = [name for name, gain in best.items() if gain.low > 0]
    behind = [name for name, gain in best.items() if gain.high < 0]
    worst = min(best, key=lambda name: best[name].estimate)
    most = max(linear, key=lambda name: linear[name].estimate)
    text = (
        f"`auto` has no setting; every rival chose its own in each of {len(places)} worlds. Against the best of the "
        f"three sum-based rivals, chosen with hindsight, it is significantly ahead in {len(ahead)} worlds"
        f"{_named(ahead)} and significantly behind in {len(behind)}{_named(behind)}. Its worst world is {worst} with "
        f"{best[worst].estimate:+.2f} %. Its largest gain on tuned SBUCB is {linear[most].estimate:+.1f} %, on {most}."
    )
    left = [str(row["left out"]) for row in skipped_rows(scope)]
    return f"{text} Left out here: {', '.join(left)}; the last table says why." if left else text


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


# ---- figures ----------------------------------------------------------------------------------------------------


def draw(places: Sequence[WorldResult]) -> "Figure":
    """Draw what `auto` gains on its best sum-based rival, and on tuned SBUCB, in each world."""
    ordered = sorted(places, key=lambda place: -place.gain(place.best).estimate)
    panels = {
        "over the best tuned sum-based policy": {place.name: place.gain(place.best) for place in ordered},
        "over tuned SBUCB (LinUCB)": {p.name: p.gain("SBUCB") for p in ordered if "SBUCB" in p.rewards},
    }
    return forest(panels, xlabel="gain of auto (floor 0), %", margin=-ALLOWED)


def draw_studies(studied: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw the share of the best possible reward over floors and over batch sizes."""
    panels: list[Panel] = []
    for column, title, xlabel in (
        ("floor, %", "floors", "floor in all, %"),
        ("B", "batch sizes", "decisions per episode"),
    ):
        names = dict.fromkeys(row["world"] for row in studied)
        lines = []
        for rank, name in enumerate(names):
            rows = [row for row in studied if row["world"] == name and column in row]
            curve = line(name, [row[column] for row in rows], [[row[BEST_SHARE]] for row in rows], rank=rank)
            lines.append(replace(curve, error=np.array([row[f"{BEST_SHARE} ±"] for row in rows])))
        ylabel = "" if panels else f"reward, {BEST_SHARE}"
        panels.append(Panel(xlabel=xlabel, ylabel=ylabel, title=title, lines=lines, log_x=column == "B"))
    return side_by_side(panels)


EXPERIMENT = Experiment(
    name="default",
    title="How good is the default?",
    source="beyond the paper",
    shown="The paper's policies have parameters to tune; it has none that chooses them itself.",
    setting=f"`auto` without any setting but its floor, in {len(WORLDS)} worlds: {', '.join(WORLDS)}; Criteo's rows "
    f"are generated where --data has none. One uniform episode that does not count, then {EPISODES} of B = {BATCH} "
    "decisions, on the same contexts and noise for all. Rivals choose a setting in each world by the lowest regret on "
    f"two other seeds: SBUCB and PUIR among {len(LINEAR)} of α, λ and scaling, SBUCB with 200 Fourier features among "
    f"{len(FOURIER)} (not with 50 actions), linear Thompson sampling among {len(SAMPLING)}, contextualbandits' LinUCB "
    f"among {len(LINUCB)} and Vowpal Wabbit among {len(WABBIT)} (these two with one tuning seed and three reported "
    "ones). Rewards are expected ones: what the best actions earn minus the regret. The default floor runs on "
    f"{FLOOR_SEEDS} seeds, batch sizes on {BATCH_SEEDS}, with {EPISODES * BATCH:,} counted rows each. The shop sells "
    f"one of two offers for {SALES['episodes']} episodes.",
    grid=grid,
    report=report,
)
