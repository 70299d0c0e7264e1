"""How good the default policy is: `auto`, untuned, against rivals whose settings are searched, in fifteen worlds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, level, sample, with_error
from spuir.reproduction.conversion import convert
from spuir.reproduction.grids import Measured, by_key, fill, tasks_of, text_of
from spuir.reproduction.other_libraries import installed
from spuir.reproduction.policy_runs import LEVELS, REGRET, Setup, by_world
from spuir.reproduction.rivals import BATCH, EPISODES, FOURIER, OTHERS, SUM_BASED, WORLDS, LibraryMethod, world_setup
from spuir.reproduction.tasks import Result, Task
from spuir.reproduction.tuning import SMALL, Search, SearchedMethod

QUICK_WORLDS = ("poly",)
AUTO, FLOORED = "auto, floor 0", "auto"
FLOOR, SIZE = "floor", "batch size"
FLOORS = (0.0, 0.01, 0.02, 0.05, 0.1)
BATCHES = (100, 200, 500, 1000, 2000, 5000)
STUDIED: Mapping[str, int] = {"heterogeneous": 5, "poly": 5, "digits": 10}
"""Worlds in which floors and batch sizes are varied → their number of actions."""
LIBRARY_WORLDS = ("synthetic", "heterogeneous", "poly", "uci-coupon", "digits")
"""Worlds in which other libraries run: they are slow."""
TOO_SLOW = ("heterogeneous-50", FOURIER)
"""World and rival that are not run: rewards are linear there, and 50 actions on 240 columns take long."""
FEW_SEEDS = 5
"""Seeds of the default floor, of the studies and of other libraries."""
SALES = {"episodes": 14, "batch_size": BATCH}


def played(scope: Scope) -> dict[str, Setup]:
    """Return the worlds that can be played."""
    made = {name: world_setup(scope, name) for name in scope.axis(WORLDS, QUICK_WORLDS)}
    return {name: setup for name, setup in made.items() if isinstance(setup, Setup)}


def rivals(scope: Scope, world: str) -> dict[str, SearchedMethod]:
    """Return the rivals that run in a world: other libraries if they are installed, and not in a quick run."""
    made: dict[str, SearchedMethod] = {}
    for label, rival in {**SUM_BASED, **OTHERS}.items():
        library = isinstance(rival, LibraryMethod)
        here = not scope.quick and world in LIBRARY_WORLDS and installed(rival.policy) if library else True
        if here and (world, label) != TOO_SLOW:
            made[label] = rival
    return made


def floored(setup: Setup, seeds: Sequence[int], share: float, actions: int) -> list[Task]:
    """Return runs of `auto` with this probability spread over all actions; 2 % is the default."""
    floor = None if share == 0.02 else share / actions
    return setup.runs(seeds, "auto", parameters={} if floor is None else {"floor": floor}, tuning=True)


def own_cells(scope: Scope, setup: Setup) -> dict[str, list[Task]]:
    """Return the runs of `auto` in one world, without and with its floor, and the reference levels."""
    return {
        AUTO: floored(setup, scope.seeds, 0.0, 1),
        FLOORED: floored(setup, scope.seeds[:FEW_SEEDS], 0.02, 1),
        LEVELS: setup.levels(scope.seeds),
    }


def study_cells(scope: Scope, name: str, setup: Setup) -> dict[tuple[str, float], list[Task]]:
    """Return the runs of `auto` in one world with several floors and batch sizes, each with its reference levels."""
    few = scope.seeds[:FEW_SEEDS]
    cells: dict[tuple[str, float], list[Task]] = {}
    if name not in STUDIED:
        return cells
    for share in scope.axis(FLOORS, (0.0, 0.1)):
        cells[FLOOR, share] = floored(setup, few, share, STUDIED[name])
        cells[FLOOR + LEVELS, share] = setup.levels(few)
    for size in scope.axis(BATCHES, (500, 5000)):
        sized = replace(setup, episodes=EPISODES * BATCH // size, batch_size=size)
        cells[SIZE, size] = floored(sized, few, 0.0, 1)
        cells[SIZE + LEVELS, size] = sized.levels(few)
    return cells


def sales_cells(scope: Scope) -> dict[bool, list[Task]]:
    """Return the runs of the shop: one offer better for everybody, or the better one depending on a column."""
    given: dict[str, Any] = {"policy": "auto", "parameters": {}, **SALES}
    return {shop: Task.each(convert, scope.seeds, contextual=shop, **given) for shop in (False, True)}


def rival_cells(
    scope: Scope, name: str, setup: Setup, known: Mapping[str, Result]
) -> tuple[dict[str, list[Task]], list[Task]]:
    """Return the runs of the rivals whose settings are chosen, and the tasks of their searches."""
    cells, searching = dict[str, list[Task]](), list[Task]()
    for label, rival in rivals(scope, name).items():
        search = Search(scope, rival, setup, known, SMALL)
        searching += search.tasks
        if search.chosen is not None:
            seeds = scope.seeds[:FEW_SEEDS] if isinstance(rival, LibraryMethod) else scope.seeds
            cells[label] = rival.tasks(seeds, setup, search.chosen, tuning=True)
    return cells, searching


def grid(scope: Scope, results: Sequence[Result]) -> list[Task]:
    """Return the runs of `auto`, the searches of its rivals and, once known, these at their best."""
    known = by_key(results)
    tasks = tasks_of(sales_cells(scope))
    for name, setup in played(scope).items():
        cells, searching = rival_cells(scope, name, setup, known)
        own = [*tasks_of(own_cells(scope, setup)), *tasks_of(study_cells(scope, name, setup))]
        tasks += by_world([*own, *tasks_of(cells), *searching])
    return tasks


SHOPS = {False: "one offer is better for everybody", True: "new customers want the other offer"}
ALLOWED, SALES_SHARE = -1.0, 0.95
"""Per cent of reward that may be lost to the best rival, and the share of rows that should get the better offer."""


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return `auto` beside its rivals, the cost of floors, the effect of batch sizes, and the shop."""
    known = by_key(results)
    found: dict[str, Measured[str]] = {}
    studies: dict[str, Shares] = {}
    for name, setup in played(scope).items():
        cells = {**own_cells(scope, setup), **rival_cells(scope, name, setup, known)[0]}
        one = Measured(fill(cells, results), lambda label, name=name: f"{label}, {name}")
        if AUTO in one and "SBUCB" in one:
            found[name] = one
        studies[name] = shares_of(fill(study_cells(scope, name, setup), results))
    studies = {name: shares for name, shares in studies.items() if shares}
    sales = Measured(fill(sales_cells(scope), results), lambda contextual: SHOPS[contextual])
    tables = [
        ReportTable(name="", title="What `auto` (floor 0) earns more than its rivals, %", rows=lead_rows(found)),
        ReportTable(name="rewards", title="Expected reward", rows=reward_rows(found), formats=REWARD_FORMATS),
        study_table("floors", studies, {share: f"{share:.0%}" for share in FLOORS}),
        study_table("batches", studies, {size: f"B = {size:,}" for size in BATCHES}),
        ReportTable(
            name="shop",
            title="The shop: later rows with the better offer",
            rows=sales_rows(sales),
            formats={"share": ".4f", "least": ".4f"},
        ),
    ]
    drawings = ({"": draw(found)} if found else {}) | ({"studies": draw_studies(studies)} if studies else {})
    return Findings(
        tables=[table for table in tables if table.rows],
        claims=[*(within(name, one) for name, one in found.items()), *(sold(sales, one) for one in sales)],
        drawings=drawings,
    )


def best_rival(one: Measured[str]) -> str:
    """Return the sum-based rival with the highest reward on the reported seeds: a choice in hindsight."""
    return min((label for label in SUM_BASED if label in one), key=lambda label: one.sample(label).mean)


def lead_rows(found: Mapping[str, Measured[str]]) -> list[dict[str, Any]]:
    """Return a row for each world: its size, and the lead of `auto` over the best sum-based rival and over each."""
    rows: list[dict[str, Any]] = []
    for name, one in found.items():
        facts, best = one[LEVELS][0].rows[-1], best_rival(one)
        lead = one.lead(AUTO, best).interval()
        row: dict[str, Any] = {"world": name, "actions": facts["actions"], "columns": facts["columns"]}
        row |= {"best sum-based rival": best, "lead over it": text_of(lead)}
        row |= {"within 1 %": lead.low > ALLOWED, "behind": lead.high < 0}
        for label in (*SUM_BASED, *OTHERS):
            row[label] = text_of(one.lead(AUTO, label).interval()) if label in one else None
        row["cost of the default floor"] = text_of(-one.lead(FLOORED, AUTO).interval()) if FLOORED in one else None
        rows.append(row)
    return rows


SHOWN = (AUTO, *SUM_BASED, *OTHERS)
REWARD_FORMATS: Mapping[str, str] = dict.fromkeys((*SHOWN, "best possible"), ".4f")


def reward_rows(found: Mapping[str, Measured[str]]) -> list[dict[str, Any]]:
    """Return the expected reward of each policy in each world: what the best actions earn, minus the regret."""
    rows: list[dict[str, Any]] = []
    for name, one in found.items():
        best = one.sample(LEVELS, "oracle").values
        regrets = {label: one.sample(label).values for label in SHOWN if label in one}
        row = {label: fmean(best[seed] - lost for seed, lost in some.items()) for label, some in regrets.items()}
        rows.append({"world": name, **row, "best possible": fmean(best.values())})
    return rows


Shares = dict[tuple[str, float], list[float]]
"""What is varied, and its value → reward in per cent of the best possible, by seed."""


def shares_of(cells: Mapping[tuple[str, float], Sequence[Result]]) -> Shares:
    """Return the rewards of one world; the uniform episode counts where batch sizes are compared."""
    shares: Shares = {}
    for (kind, value), group in cells.items():
        levels = cells.get((kind + LEVELS, value))
        if not levels or not group:
            continue
        best, chance = (sample("", levels, column).values for column in ("oracle", "uniform"))
        episodes = EPISODES * BATCH // value if kind == SIZE else math.inf
        shares[kind, value] = []
        for seed, regret in sample("", group, REGRET).values.items():
            lost = (chance[seed] - best[seed] + regret) / (episodes + 1)
            shares[kind, value].append(100 * (best[seed] - regret + lost) / best[seed])
    return shares


def study_table(name: str, studies: Mapping[str, Shares], heads: Mapping[float, str]) -> ReportTable:
    """Return a row for each world, with a column for each floor or each batch size."""
    rows: list[dict[str, Any]] = []
    for world, shares in studies.items():
        row: dict[str, Any] = {"world": world}
        for (_, value), some in shares.items():
            row |= with_error(heads[value], some) if value in heads else {}
        rows.append(row)
    title = f"{name.capitalize()}: reward in % of the best possible"
    return ReportTable(name=name, title=title, rows=rows, formats=dict.fromkeys(heads.values(), ".2f"))


def sales_rows(sales: Measured[bool]) -> list[dict[str, Any]]:
    """Return a row for each form of the shop."""
    shares = {contextual: sales.sample(contextual, "share").values for contextual in sales}
    return [
        {"better offer": SHOPS[contextual]} | with_error("share", some.values()) | {"least": min(some.values())}
        for contextual, some in shares.items()
    ]


def within(name: str, one: Measured[str]) -> Claim:
    """Return the claim that `auto` is at most 1 % below every sum-based rival in one world."""
    return Claim(
        id=f"{name}/within-one-percent",
        place="beyond the paper",
        wording=f"`auto` (floor 0) earns at most 1 % less than every tuned sum-based policy: {name}.",
        source="ours",
        margin=ALLOWED,
        coded=[one.lead(AUTO, label) for label in SUM_BASED if label in one],
    )


def sold(sales: Measured[bool], contextual: bool) -> Claim:
    """Return the claim about one form of the shop."""
    return Claim(
        id=f"shop-{'by-column' if contextual else 'for-all'}",
        place="beyond the paper",
        wording=f"After {SALES['episodes']} × {SALES['batch_size']} rows with conversions of 5 and 10 % and raw "
        f"columns, `predict` takes the better offer for over {SALES_SHARE:.0%} of later rows: {SHOPS[contextual]}.",
        source="ours",
        margin=SALES_SHARE,
        coded=[level(SHOPS[contextual], sales.sample(contextual, "share"))],
        unit="share",
    )


def draw(found: Mapping[str, Measured[str]]) -> Drawing:
    """Draw the lead of `auto` over its best sum-based rival and over tuned SBUCB, in every world."""
    best: dict[str, plots.Pair] = {
        name: (None, one.lead(AUTO, best_rival(one)).interval()) for name, one in found.items()
    }
    plain: dict[str, plots.Pair] = {name: (None, one.lead(AUTO, "SBUCB").interval()) for name, one in found.items()}
    panels = [
        plots.Dots(
            title=title,
            xlabel="lead of auto, %",
            rows=rows,
            styles=dict.fromkeys(rows, "auto"),
            band=1.0,
            reach=8.0,
            named=rows is best,
        )
        for title, rows in (("over its best tuned sum-based rival", best), ("over tuned SBUCB (LinUCB)", plain))
    ]
    caption = (
        "Expected reward of `auto` without its floor minus that of rivals with a search of 20 settings in each world, "
        "in per cent, with 95 % intervals over seeds (not corrected); the best rival is chosen with hindsight."
    )
    return Drawing(plots.compose(f"The default policy: N = {EPISODES}, B = {BATCH}", panels, width=3.2), caption)


def draw_studies(studies: Mapping[str, Shares]) -> Drawing:
    """Draw the reward over floors and over batch sizes, a line for each world."""
    panels: list[plots.Lines] = []
    for kind, xlabel in ((FLOOR, "probability of a random choice, %"), (SIZE, "batch size B")):
        lines = []
        for (name, shares), style in zip(studies.items(), plots.shades(len(studies)), strict=True):
            known = {value: some for (varied, value), some in shares.items() if varied == kind}
            places = [100 * value if kind == FLOOR else value for value in known]
            lines.append(plots.curve(name, places, known.values(), style))
        panel = plots.Lines(
            title=kind, xlabel=xlabel, ylabel="reward, % of the best possible", lines=lines, log_x=kind == SIZE
        )
        panels.append(panel)
    caption = (
        f"Reward of `auto` in per cent of what the best actions earn, mean of {FEW_SEEDS} seeds ± standard error. "
        f"Left: N = {EPISODES}, B = {BATCH}, the first, uniform episode is not counted. Right: {EPISODES * BATCH:,} "
        "rows at floor 0, the first, uniform episode is counted."
    )
    return Drawing(plots.compose("The default policy: floors and batch sizes", panels), caption)


EXPERIMENT = Experiment(
    name="default", title="How good is the default?", source="beyond the paper", grid=grid, report=report
)
