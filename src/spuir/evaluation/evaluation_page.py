"""The report of an evaluation as one HTML page that needs no other file, and its figures."""

from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from spuir import __version__
from spuir.errors import MissingExtraError
from spuir.evaluation.evaluation_report import number
from spuir.evaluation.intervals import BETTER, OPEN, REFUSED, WORSE
from spuir.evaluation.support import EDGES, GOOD, NONE, WEAK
from spuir.results.figures import (
    BLUE,
    COLUMN,
    GREY,
    HEIGHT,
    INK,
    LONG,
    TEXT_POINTS,
    VERMILLION,
    name_lines,
    new_figure,
    svg,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spuir.evaluation.evaluation_report import EvaluationReport

BADGES = {GOOD: "holds", WEAK: "authors", NONE: "fails"}
BADGES |= {BETTER: "holds", WORSE: "fails", OPEN: "open", REFUSED: "open"}
"""Verdicts, and the CSS classes of the style sheet that the reports share."""
PIXELS_PER_INCH = 105
MOST_ACTIONS = 12
"""Actions with a colour of their own; the others are one grey rest."""
LONGEST_NAME = 20
"""Letters of a segment's name."""
WIDE = 2 * COLUMN


def html_report(report: "EvaluationReport") -> str:
    """Return the page."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("report", "no Jinja2", "it needs Jinja2", 'run pip install "spuir[plot]"') from None
    # The style sheet is that of the reproduction's report.
    loaders = ChoiceLoader([PackageLoader("spuir.evaluation"), PackageLoader("spuir.reproduction")])
    made = Environment(loader=loaders, autoescape=True, undefined=StrictUndefined)
    made.filters["number"] = number
    data = report.to_dict()
    values: dict[str, Any] = data | {
        "lines": report.lines(),
        "figures": list(_pictures(report)),
        "badges": BADGES,
        "version": __version__,
        "digits": report.digits,
        "refused": report.refused,
        "verdict_rule": report.verdict_rule,
        "help_wanted": report.help_wanted,
    }
    return made.get_template("evaluation.html.j2").render(values)


def _pictures(report: "EvaluationReport") -> Iterator[dict[str, Any]]:
    """Yield the figures that the report has data for, as data addresses."""
    for name, (caption, draw) in FIGURES.items():
        figure = draw(report)
        if figure is not None:
            address = "data:image/svg+xml;base64," + b64encode(svg(figure)).decode()
            pixels = round(figure.get_figwidth() * PIXELS_PER_INCH)
            yield {"name": name, "caption": caption, "address": address, "width": pixels}


def _lines(rows: int) -> tuple[Any, Any]:
    """Return a wide figure with room for so many lines, and its panel."""
    figure, (ax,) = new_figure(1)
    figure.set_size_inches(WIDE, max(0.9, 0.5 + 0.19 * rows))
    return figure, ax


def values_figure(report: "EvaluationReport") -> "Figure":
    """Draw every policy's value with its interval; refused ones are named without a point."""
    names = [*report.evaluated, *report.baselines]
    figure, ax = _lines(len(names))
    for at, name in enumerate(names):
        one = report.value_of(name)
        colour = VERMILLION if name in report.evaluated else GREY
        if one.value is None or one.low is None or one.high is None:
            ax.text(0.02, at, "no support", transform=ax.get_yaxis_transform(), fontsize=TEXT_POINTS, va="center")
            continue
        ax.plot([one.low, one.high], [at, at], color=colour, linewidth=1.4, solid_capstyle="butt")
        ax.plot([one.value], [at], "o", color=colour, markersize=4)
    if "logged" in names:
        ax.axvline(report.value_of("logged").value, color=INK, linewidth=0.6, linestyle=LONG)
    name_lines(ax, [_short(name, 2 * LONGEST_NAME) for name in names])
    ax.set_xlabel(f"value per decision ({report.estimator}, {report.level:.0%} interval)")
    return figure


def weights_figure(report: "EvaluationReport") -> "Figure | None":
    """Draw how the weights of the evaluated policies are distributed."""
    shown = [name for name in report.evaluated if name in report.supports]
    if not shown:
        return None
    figure, (ax,) = new_figure(1)
    figure.set_size_inches(WIDE, HEIGHT)
    bins = ["0", *(f"{low:g}–{high:g}" for low, high in zip([0, *EDGES[1:-1]], EDGES[1:], strict=True)), "more"]
    width, tables = 0.8 / len(shown), {name: np.array(report.supports[name].histogram) for name in shown}
    used = 1 + max(int(np.flatnonzero(counts).max(initial=3)) for counts in tables.values())
    for at, (name, counts) in enumerate(tables.items()):
        places = np.arange(len(counts)) + (at - (len(shown) - 1) / 2) * width
        ax.bar(places[:used], counts[:used] / counts.sum(), width, label=name, color=_colours(len(shown))[at])
    ax.set_xticks(range(used), bins[:used], fontsize=TEXT_POINTS)
    # A few rows with large weights matter, and would not be seen on a linear scale.
    ax.set(xlabel="weight of a row, π(a|x)/propensity", ylabel="share of the rows", yscale="log")
    ax.set_ylim(0.5 / report.facts["rows"], 1.5)
    ax.legend(fontsize=TEXT_POINTS, frameon=False)
    return figure


def calibration_figure(report: "EvaluationReport") -> "Figure | None":
    """Draw the mean of 1[action]/propensity, which is 1 where propensities are right, with 95 % intervals."""
    lines = sorted(report.pictures["calibration"], key=lambda line: -line[1])[:30]
    if not lines:
        return None
    figure, ax = _lines(len(lines))
    for at, (_, _, mean, error) in enumerate(lines):
        ax.plot([max(mean - 1.96 * error, 0), mean + 1.96 * error], [at, at], color=BLUE, linewidth=1.2)
        ax.plot([mean], [at], "o", color=BLUE, markersize=3)
    ax.axvline(1.0, color=INK, linewidth=0.6, linestyle=LONG)
    name_lines(ax, [_short(str(line[0]), 2 * LONGEST_NAME) for line in lines])
    ax.set_xlabel("mean of 1[action]/propensity: 1 if the logged propensities are right")
    return figure


def reward_figure(report: "EvaluationReport") -> "Figure | None":
    """Draw the mean logged reward over episodes, or over stretches of the log."""
    weight, total, squares = report.pictures["reward_over_log"]
    used = weight > 0
    if used.sum() < 2:
        return None
    mean = total[used] / weight[used]
    error = 1.96 * np.sqrt(np.maximum(squares[used] / weight[used] - mean**2, 0.0) / weight[used])
    figure, (ax,) = new_figure(1)
    figure.set_size_inches(WIDE, HEIGHT)
    places = np.flatnonzero(used) + 1
    ax.fill_between(places, mean - error, mean + error, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(places, mean, color=BLUE, linewidth=1.1, marker="o", markersize=2.5)
    ax.set(xlabel=report.pictures["over"], ylabel="mean logged reward")
    ax.locator_params(axis="x", integer=True)
    return figure


def shares_figure(report: "EvaluationReport") -> "Figure | None":
    """Draw how often each policy chooses each action, by segment."""
    pictures, actions = report.pictures, report.facts["actions"]
    levels = pictures["levels"] or ["all rows"]
    names = [*report.evaluated, *(["logged"] if "logged" in report.baselines else [])]
    tables = {name: pictures["shares"][name] for name in names}
    lines = [(f"{name} · {_short(level)}", tables[name][at]) for at, level in enumerate(levels) for name in names]
    lines = [(name, row / row.sum()) for name, row in lines if row.sum() > 0]
    if not lines:
        return None
    figure, ax = _lines(len(lines))
    frequent = np.argsort(-sum(row for _, row in lines), kind="stable")[:MOST_ACTIONS].tolist()
    shown = {actions[code]: np.array([row[code] for _, row in lines]) for code in sorted(frequent)}
    if len(actions) > MOST_ACTIONS:
        shown["other actions"] = 1 - np.sum(list(shown.values()), axis=0)
    left = np.zeros(len(lines))
    for (label, parts), colour in zip(shown.items(), [*_colours(len(frequent)), "#cccccc"], strict=False):
        ax.barh(np.arange(len(lines)), parts, left=left, color=colour, label=label, height=0.75)
        left += parts
    name_lines(ax, [_short(name, 2 * LONGEST_NAME) for name, _ in lines])
    ax.set(xlim=(0, 1), xlabel="share of the decisions")
    figure.legend(loc="outside upper right", ncols=4, fontsize=TEXT_POINTS, frameon=False)
    height = figure.get_figheight() + 0.2 * (1 + len(shown) // 4)
    figure.set_size_inches(WIDE, height)
    return figure


def _short(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name of at most so many letters: of a longer one, its end, where paths differ."""
    return name if len(name) <= longest else f"…{name[-longest:]}"


def _colours(count: int) -> list[Any]:
    """Return colours that differ, from dark to light, for colour-blind readers too."""
    from matplotlib import colormaps

    return [colormaps["viridis"](at) for at in np.linspace(0.1, 0.92, max(count, 2))][:count]


FIGURES = {
    "values": ("Values with their intervals. The dashed line is the mean logged reward.", values_figure),
    "weights": ("Weights, on a logarithmic scale: rows with large ones decide the estimate.", weights_figure),
    "calibration": ("Are the logged propensities right? Each action should be at 1.", calibration_figure),
    "reward": ("Mean logged reward over the log, with 95 % intervals.", reward_figure),
    "shares": ("Which actions each policy chooses, by segment.", shares_figure),
}
"""The figures of a page, with their captions, in order."""
