"""From results to figures: what is drawn by several experiments, in the house style of :mod:`spuir.results.figures`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spuir.base.records import Floats
from spuir.reproduction.runner import Result
from spuir.results import figures
from spuir.results.figures import TUNED, Curve, Style, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["curves", "dots", "lines", "style_of"]


class Estimate(Protocol):
    """A value with the ends of its interval, which may be infinite."""

    @property
    def estimate(self) -> float:
        """The value."""
        ...

    @property
    def low(self) -> float:
        """Lower end."""
        ...

    @property
    def high(self) -> float:
        """Upper end."""
        ...


def curves(
    groups: Mapping[str, Sequence[Result]],
    column: str = "average_reward",
    ylabel: str = "running average reward",
    zoom: float = 0.05,
    levels: Mapping[str, float] | None = None,
    styles: Mapping[str, Style] | None = None,
) -> "Figure":
    """Draw a column over episodes: a line per label, a band of one standard error over its results.

    Those that end within the share ``zoom`` of the best have a second panel of their own, as the paper shows them.
    ``levels`` are constants to compare with: "uniform", "best fixed", "oracle". ``styles`` are used in place
    of the labels' own. Empty groups are left out.
    """
    drawn: list[Curve] = []
    for label, results in groups.items():
        if results:
            values = np.array([[row[column] for row in result.rows] for result in results], dtype=np.float64)
            episodes = np.array([row["episode"] for row in results[0].rows], dtype=np.float64)
            curve = figures.curve_of(label, values, episodes)
            drawn.append(replace(curve, style=(styles or {}).get(label)))
    return figures.running(drawn, ylabel=ylabel, zoom=zoom, levels=levels)


def lines(
    x: Sequence[float],
    groups: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    log_y: bool = False,
    title: str = "",
    seeds: int = 1,
) -> "Figure":
    """Draw (mean, standard error) of each label over the values ``x`` of an axis; NaN where there is none.

    Without a title the figure says of how many ``seeds`` it shows the mean.
    """
    places = np.asarray(x, dtype=np.float64)
    drawn = [  # a curve without any value has no end to be named at
        Curve(label, np.asarray(mean, dtype=np.float64), np.asarray(error, dtype=np.float64), seeds, places)
        for label, (mean, error) in groups.items()
        if np.isfinite(mean).any()
    ]
    figure, (ax,) = figures.new_figure(1)
    ax.set(xlabel=xlabel, ylabel=ylabel, xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
    figures.draw_curves(ax, drawn, marked=True)
    if log_y:
        _plain_decades(ax.yaxis, ax.get_ylim())
    low, high = figures.framed(places, log_x, 0.03)
    ax.set_xlim(low, high)
    ax.set_title(title or figures.seeds_said(drawn), fontsize=figures.TEXT_POINTS, color=figures.INK, loc="left")
    _tick(figure, ax, places)
    figures.label_ends(figure, {ax: drawn})
    return figure


def dots(
    estimates: Mapping[str, Estimate],
    xlabel: str,
    *,
    log_x: bool = False,
    smaller_is_better: bool = False,
    key: bool = True,
    zoom: float | None = None,
) -> "Figure":
    """Draw a ranking, a row per policy, the best on top: each value with its interval, hollow unless tuned.

    ``key`` says so above the rows. With ``zoom``, values by more than this share below the largest are only written;
    so are those that a logarithmic axis cannot hold.
    """
    sign = 1 if smaller_is_better else -1
    best: dict[str, float] = {}
    for label, value in estimates.items():
        row = label.removesuffix(TUNED)
        best[row] = min(best.get(row, np.inf), sign * value.estimate)
    rows = sorted(best, key=lambda row: best[row])
    figure, (ax,) = figures.new_figure(1)
    figure.set_size_inches(figures.COLUMN, 0.75 + 0.19 * len(rows))
    ax.set(xlabel=xlabel, xscale="log" if log_x else "linear", ylim=(len(rows) - 0.4, -0.6))
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(axis="y", color=figures.FAINT, linewidth=0.5, linestyle=figures.DOTTED)
    ax.set_title(
        "○ the authors' setting   ● its own best" if key else "",
        fontsize=figures.TEXT_POINTS,
        color=figures.INK,
        loc="left",
    )
    floor = _floor(list(estimates.values()), log_x, zoom)
    # On a logarithmic axis the low ends of wide intervals would take all the room.
    ends = [end for one in estimates.values() for end in (one.estimate, one.high, *(() if log_x else (one.low,)))]
    low, high = figures.framed(np.array([end for end in ends if end >= floor]), log_x, 0.04)
    ax.set_xlim(low, high)
    if log_x:
        _plain_decades(ax.xaxis, (low, high))
    for label, value in estimates.items():
        tuned = label.endswith(TUNED)
        place = rows.index(label.removesuffix(TUNED)) + (0.16 if tuned else -0.16) * key
        colour, _ = style_of(label)
        if value.estimate < floor:
            said = f"◂ {value.estimate:.4g}"
            ax.text(low, place, said, fontsize=figures.TEXT_POINTS - 1, color=colour, va="center")
            continue
        ax.plot(np.clip([value.low, value.high], low, high), [place] * 2, color=colour, linewidth=1.1)
        ax.plot(value.estimate, place, "o", markersize=4, color=colour, markerfacecolor=colour if tuned else "white")
    return figure


def _floor(values: Sequence[Estimate], log_x: bool, zoom: float | None) -> float:
    """Return the least value that is drawn where it is."""
    largest = max(value.estimate for value in values)
    floor = -np.inf if zoom is None else largest - zoom * abs(largest)
    return max(floor, np.finfo(np.float64).tiny) if log_x else floor


def _plain_decades(axis: "Axis", ends: tuple[float, float]) -> None:
    """Give a logarithmic axis plain numbers at 1, 2 and 5 of each decade, or at 1 alone where there are many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if ends[1] / ends[0] < 200 else (1.0,), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _tick(figure: "Figure", ax: "Axes", places: Floats) -> None:
    """Put ticks at the measured places, as plain numbers, except where they would touch the one before."""
    figure.draw_without_rendering()
    points = ax.transData.transform([(place, ax.get_ylim()[0]) for place in places])[:, 0] * 72 / figure.dpi
    kept: list[int] = []
    for i, point in enumerate(points):
        width = 0.6 * figures.TEXT_POINTS * len(f"{places[i]:,g}") + 4
        if not kept or point - points[kept[-1]] >= width:
            kept.append(i)
    ax.set_xticks(places[kept], [f"{place:,g}" for place in places[kept]])
    ax.set_xticks([], minor=True)
