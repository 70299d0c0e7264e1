"""Table 1: the complexities, measured: exponents of learning time, and where sketching beats exact sums."""

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from spuir.base.records import Batch, Floats
from spuir.base.streams import generator
from spuir.core.solving import solve
from spuir.core.statistics import Statistics
from spuir.environments import make_environment
from spuir.policies import make_policy
from spuir.reproduction import plots
from spuir.reproduction.base import Drawing, Experiment, Findings, ReportTable, Scope
from spuir.reproduction.claims import Claim, Contrast, Interval, Sample, exponent, ratio
from spuir.reproduction.grids import CellGrid, Measured, text_of
from spuir.reproduction.tasks import Result, Task
from spuir.sketches import Sketch, make_sketch


class BatchShape(NamedTuple):
    """The sizes of one episode: rows, columns, actions, and rows of the sketch."""

    B: int
    d: int
    M: int
    c: int


BASE = BatchShape(4000, 40, 10, 400)
AXES: Mapping[str, tuple[int, ...]] = {
    "B": (2000, 4000, 8000, 16000),
    "d": (20, 40, 80, 160),
    "M": (5, 10, 20, 40),
    "c": (100, 200, 400, 800),
}
BATCHES, DIMS = (1400, 5600, 22400, 89600), (20, 40, 80, 160)
CROSSING = tuple(BatchShape(rows, dim, 5, 4 * dim) for dim in DIMS for rows in BATCHES)
"""Where exact and sketched learning are compared; the deepest batches without the slow forms."""
PAPER = BatchShape(1400, 40, 5, 150)
LEVEL = BatchShape(1400, 40, 5, 280)
"""The authors' shape, and one with Mc = B."""
SBUCB, PUIR, SPUIR = "sbucb", "puir", "spuir"
PUIR_DIRECT, SPUIR_DIRECT = "puir by action", "spuir by action"
METHODS = (SBUCB, PUIR_DIRECT, PUIR, SPUIR_DIRECT, SPUIR)
STATED: Mapping[str, Mapping[str, int]] = {
    SBUCB: {"B": 1, "d": 2, "M": 0, "c": 0},
    PUIR_DIRECT: {"B": 1, "d": 2, "M": 1, "c": 0},
    SPUIR_DIRECT: {"B": 0, "d": 2, "M": 1, "c": 1},
}
"""Exponents of the paper's orders for all actions of an episode: Bd², MBd² and Mcd²."""
RATE, DISCOUNT, RIDGE = 0.1, 0.9, 1.0
ROUNDS, MOST_REPEATS = 3, 10
"""Rounds per repeat, and the maximum number of repeats: times vary less than rewards."""


class ByAction:
    """Learning as the paper counts it: every action has its own products over all rows, sketched or not."""

    def __init__(self, n_actions: int, dim: int, sketch: Sketch | None) -> None:
        self.sketch, self.theta = sketch, np.zeros((n_actions, dim))
        self.observed, self.imputed = Statistics.zero(n_actions, dim), Statistics.zero(n_actions, dim)
        self.key = 0

    def learn(self, batch: Batch) -> None:
        """Learn one episode: (2) to (4), or (6) to (8) with two maps an action."""
        self.imputed = self.imputed.decayed(DISCOUNT)
        for j, acting in enumerate(self.theta):
            own = batch.actions == j
            others = batch.contexts[~own]
            self._add(self.observed, j, batch.contexts[own], batch.rewards[own])
            self._add(self.imputed, j, others, others @ acting)
        total = self.observed + self.imputed.decayed(RATE)
        self.theta = solve(total.gram, total.moment, RIDGE).theta

    def _add(self, sums: Statistics, action: int, rows: Floats, values: Floats) -> None:
        if self.sketch is not None:
            self.key += 1
            both, ids = np.column_stack([rows, values]), np.arange(len(rows))
            hashed = self.sketch.sums(both, np.zeros(len(rows), np.intp), 1, ids, self.key)[0]
            rows, values = hashed[:, :-1], hashed[:, -1]
        sums.gram[action] += rows.T @ rows
        sums.moment[action] += rows.T @ values


def draw(shape: BatchShape, seed: int) -> Batch:
    """Return an episode of that shape with uniform actions."""
    rows, dim, actions, _ = shape
    world = make_environment("linear", n_actions=actions, dim=dim, seed=seed)
    rng = generator(seed, "table1", "batch", *shape)
    rounds, chosen = world.draw(rows, rng), rng.integers(actions, size=rows)
    return Batch(contexts=rounds.contexts, actions=chosen, rewards=world.feedback(rounds, chosen, rng).rewards)


def steps(method: str, shape: BatchShape, seed: int) -> dict[str, Callable[[], object]]:
    """Return what is timed of a method: learning the second episode, and deciding it where the form can."""
    _, dim, actions, size = shape
    batch = draw(shape, seed)
    if method in (PUIR_DIRECT, SPUIR_DIRECT):
        direct = ByAction(actions, dim, make_sketch("sjlt", size=size) if method == SPUIR_DIRECT else None)
        return {"learn": lambda: direct.learn(batch)}
    given: dict[str, Any] = {} if method == SBUCB else {"imputation_rate": RATE, "discount": DISCOUNT}
    if method == SPUIR:
        given["sketch_size"] = size
    policy, rng = make_policy(method, ridge=RIDGE, alpha=0.2, **given), generator(seed, "table1", "policy")
    state, _ = policy.learn(policy.init(actions, dim, rng), batch, rng)
    after, _ = policy.learn(state, batch, rng)
    return {
        "learn": lambda: policy.learn(state, batch, rng),
        "decide": lambda: policy.decide(after, batch.contexts, rng),
    }


def timing(
    *, part: str, methods: Sequence[str], shapes: Sequence[Sequence[int]], decide: bool, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """Run the methods alternately at every shape; return the median processor seconds of each over the rounds."""
    rows: list[dict[str, Any]] = []
    for sizes in shapes:
        shape = BatchShape(*sizes)
        tasks = {
            (method, what): step
            for method in methods
            for what, step in steps(method, shape, seed).items()
            if decide or what == "learn"
        }
        taken: dict[tuple[str, str], list[float]] = {name: [] for name in tasks}
        gc.collect()
        for _ in range(rounds + 1):  # the first round fills the caches and is not counted
            for name, step in tasks.items():
                begin = process_time()
                step()
                taken[name].append(process_time() - begin)
        rows += [
            {"part": part, "method": method, "what": what, "seconds": float(np.median(times[1:]))} | shape._asdict()
            for (method, what), times in taken.items()
        ]
    return rows


def axis_shapes(letter: str) -> list[BatchShape]:
    """Return the shapes along one axis around the base."""
    return [BASE._replace(**{letter: value}) for value in AXES[letter]]


def parts() -> dict[str, dict[str, Any]]:
    """Return the parts of the measurement by name: methods, shapes and rounds that are timed together."""

    def part(methods: Sequence[str], shapes: Sequence[BatchShape], rounds: int = ROUNDS) -> dict[str, Any]:
        return {"methods": list(methods), "shapes": [list(shape) for shape in shapes], "rounds": rounds}

    deep = BATCHES[-1]
    return {letter: part(METHODS, axis_shapes(letter)) for letter in AXES} | {
        "crossing": part(METHODS[1:], [shape for shape in CROSSING if shape.B < deep]),
        "deep": part((PUIR, SPUIR), [shape for shape in CROSSING if shape.B == deep]),
        "paper": part(METHODS, (PAPER, LEVEL), 3 * ROUNDS),
    }


def cells(scope: Scope) -> dict[tuple[int, str], list[Task]]:
    """Return one timed task for each repeat and part."""
    timed = parts()
    return {
        (seed, name): [Task.of(timing, alone=True, part=name, decide=name == "paper", seed=seed, **timed[name])]
        for seed in scope.seeds[:MOST_REPEATS]
        for name in scope.axis(tuple(timed), ("B", "M", "paper"))
    }


grid = CellGrid(cells)


class LearningTimes(Measured[str]):
    """The results by part; a sample has the seconds of a method at a shape, by repeat."""

    def __init__(self, scope: Scope, results: Sequence[Result]) -> None:
        groups: dict[str, list[Result]] = {}
        for (_, part), group in grid.fill(scope, results).items():
            groups.setdefault(part, []).extend(group)
        super().__init__(groups)

    def taken(self, part: str, shape: BatchShape, method: str) -> Sample:
        """Return the seconds of learning."""
        return self.sample(part, "seconds", method=method, what="learn", **shape._asdict())

    def over(self, part: str, shape: BatchShape, over: str, under: str) -> Contrast:
        """Return the log ratio of two methods' times at a shape."""
        samples = (self.taken(part, shape, method) for method in (over, under))
        return ratio(f"{over} over {under}, B = {shape.B:,}, d = {shape.d}, M = {shape.M}, c = {shape.c}", *samples)

    def crossing(self, shape: BatchShape, exact: str, sketched: str) -> Contrast:
        """Return log(exact time / sketched time) at a shape of the crossing."""
        return self.over("deep" if shape.B == BATCHES[-1] else "crossing", shape, exact, sketched)

    def growth(self, letter: str, method: str, against: str | None = None) -> Contrast:
        """Return the exponent of a method's learning time along an axis, or of its ratio to another's."""
        shapes, name = axis_shapes(letter), f"{method}, in {letter}"
        own = exponent(name, AXES[letter], [self.taken(letter, shape, method) for shape in shapes])
        if against is None:
            return own
        return own.minus(self.growth(letter, against), f"{method} over {against}, in {letter}")


def times(one: Interval) -> str:
    """Return a ratio of times, given by its logarithm, as "1.9 [1.8, 2.0]"."""
    return text_of(one.through(math.exp), ".2f")


def report(scope: Scope, results: Sequence[Result]) -> Findings:
    """Return our exponents and the paper's, ratios at its shape, and the map of where sketching pays."""
    taken = LearningTimes(scope, results)
    letters = [letter for letter in AXES if letter in taken]
    exponents = [
        {"method": method} | {letter: _exponent(taken, letter, method) for letter in letters} for method in METHODS
    ]
    multiples = [
        shape._asdict() | {"method": method, "times SBUCB": times(taken.over("paper", shape, method, SBUCB).interval())}
        for shape in (PAPER, LEVEL)
        for method in METHODS[1:]
    ]
    title = "Exponents of the learning time of an episode, all actions; in brackets the paper's order"
    tables = [
        ReportTable(name="", title=title, rows=exponents),
        ReportTable(name="shape", title="Learning time at the shape of the authors' code", rows=multiples),
    ]
    drawings = {"": draw_map(taken)} if "crossing" in taken else {}
    return Findings(tables=tables, claims=claims(taken), drawings=drawings)


def _exponent(taken: LearningTimes, letter: str, method: str) -> str:
    stated = STATED.get(method, {}).get(letter)
    found = text_of(taken.growth(letter, method).interval(), ".2f")
    return found + ("" if stated is None else f" ({stated})")


def claims(taken: LearningTimes) -> list[Claim]:
    """Return the orders of Table 1, at the shapes where they can be read."""
    about: dict[str, Any] = {"place": "Section 3, Table 1"}
    wide = [shape for shape in CROSSING if shape.B == BATCHES[-2] and shape.c * shape.d > shape.B]
    return [
        Claim(
            id="imputation-cost-grows",
            wording="Reward imputation increases the time from O(Bd²) to O(MBd²): by a factor of order M.",
            coded=[taken.growth("M", PUIR_DIRECT, SBUCB)],
            margin=0.5,
            unit="exponent",
            **about,
        ),
        Claim(
            id="sketching-saves",
            wording="Sketching reduces the time of reward imputation from O(MBd²) to O(Mcd²): it is faster where B is "
            f"large (B = {BATCHES[-2]:,}, c = 4d) and cd > B, action by action as the paper counts.",
            coded=[taken.crossing(shape, PUIR_DIRECT, SPUIR_DIRECT) for shape in wide],
            unit="log ratio",
            **about,
        ),
        Claim(
            id="sketched-costs-no-more",
            wording="When Mc ≈ B, reward imputation using sketching is comparable to no imputation: less than twice "
            "its time.",
            coded=[taken.over("paper", LEVEL, SPUIR_DIRECT, SBUCB)],
            kind="less",
            margin=float(np.log(2)),
            unit="log ratio",
            **about,
        ),
        Claim(
            id="shared-sums-save",
            place="beyond Table 1",
            wording="With sums shared by all actions exact imputation costs less than twice the time of SBUCB at the "
            "shape of the authors' code.",
            source="ours",
            coded=[taken.over("paper", PAPER, PUIR, SBUCB)],
            kind="less",
            margin=float(np.log(2)),
            unit="log ratio",
        ),
    ]


def draw_map(taken: LearningTimes) -> Drawing:
    """Draw the ratio of exact to sketched time over B and d, counted as the paper does and with shared sums."""
    panels: list[plots.Shaded] = []
    for exact, sketched, title, batches in (
        (PUIR_DIRECT, SPUIR_DIRECT, "action by action, as the paper counts", BATCHES[:-1]),
        (PUIR, SPUIR, "sums shared by all actions", BATCHES),
    ):
        logs = [taken.crossing(shape, exact, sketched).interval().estimate for shape in CROSSING if shape.B in batches]
        panel = plots.Shaded(
            title=title,
            xlabel="batch size B",
            ylabel="d (c = 4d)",
            columns=[f"{rows:,}" for rows in batches],
            rows=[str(dim) for dim in DIMS],
            values=np.exp(logs).reshape(len(DIMS), len(batches)),
            centre=1.0,
            reach=2.5,
        )
        panels.append(panel)
    caption = (
        "Time of exact over time of sketched imputation for one episode, M = 5; above 1 (blue) sketching is faster. "
        "Processor time on one core, methods in turn, median of rounds, mean over repeats."
    )
    return Drawing(plots.compose("Where sketching saves time", panels), caption)


EXPERIMENT = Experiment(
    name="table1", title="The complexity table, measured", source="Table 1", grid=grid, report=report
)
